//! The routers: ours and those that it is measured against, all with the same table, the same two headers towards the
//! pod, keep-alive on both sides, one worker, and no access log.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use shared::keys::FleetKeys;
use shared::routes::disk;

use crate::process::{Measured, free_address};
use crate::table;

/// A running router.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) shops: u64,
    pub(crate) at: SocketAddr,
    pub(crate) process: Measured,
}

fn folder(work: &Path, name: &str) -> Result<PathBuf> {
    let folder = work.join(name);
    fs::create_dir_all(&folder).context("make a folder")?;
    Ok(folder)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The edge, started cold from its file with no control server to be found.
pub(crate) fn edge(work: &Path, pod: SocketAddr, shops: u64) -> Result<Candidate> {
    let folder = folder(work, &format!("edge-{shops}"))?;
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).context("write a file");
    disk::save(&table::build(shops, pod)?, &folder.join("routes.bin"))?;
    write("fleet-key", &FleetKeys::generate("k1")?.to_text())?;
    write("token", "pht_bench")?;
    let (at, admin, nobody) = (free_address()?, free_address()?, free_address()?);
    write(
        "edge.toml",
        &format!(
            "listen = ['{at}']\nadmin = '{admin}'\nbase_domain = 'localhost'\nplatform_domain = 'platform.example'\n\
             fleet_key_file = 'fleet-key'\nstate_file = 'routes.bin'\nthreads = 1\naccess_log = false\n\
             [control]\nurls = ['http://{nobody}']\ntoken_file = 'token'\n\
             [telemetry]\nfilter = 'error'\n"
        ),
    )?;
    let binary = tests::process::binary("edge")?;
    let config = folder.join("edge.toml");
    let command = words(&[
        &binary.to_string_lossy(),
        "--config",
        &config.to_string_lossy(),
    ]);
    let process = Measured::start(command, &[], &folder.join("log"), at)?;
    Ok(Candidate {
        name: "edge".into(),
        shops,
        at,
        process,
    })
}

/// The folder that `tests/bench/peers` fills.
fn peers() -> Result<PathBuf> {
    let cache = std::env::var_os("PODHOST_BENCH_PEERS")
        .context("tests/bench/run sets PODHOST_BENCH_PEERS")?;
    Ok(PathBuf::from(cache))
}

fn libraries(peers: &Path) -> (&'static str, String) {
    let tree = peers.join("tree");
    let path = |dir: &str| {
        tree.join(dir)
            .join("x86_64-linux-gnu")
            .display()
            .to_string()
    };
    (
        "LD_LIBRARY_PATH",
        format!("{}:{}", path("usr/lib"), path("lib")),
    )
}

/// `host shop`, a line each.
fn hosts_file(path: &Path, shops: u64) -> Result<()> {
    let mut text = String::new();
    for shop in 1..=shops {
        writeln!(text, "{} {shop}", table::host(shop)).context("write a file")?;
    }
    fs::write(path, text).context("write a file")
}

/// nginx with Lua and a shared dictionary.
pub(crate) fn nginx(work: &Path, pod: SocketAddr, shops: u64) -> Result<Candidate> {
    let (folder, peers) = (folder(work, &format!("nginx-{shops}"))?, peers()?);
    let at = free_address()?;
    hosts_file(&folder.join("hosts"), shops)?;
    let (dir, tree) = (folder.display(), peers.join("tree"));
    let tree = tree.display();
    // 160 bytes an entry were enough with room to spare.
    let dictionary_mib = 8 + shops * 160 / (1 << 20);
    let text = format!(
        r#"daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log error;
load_module {tree}/usr/lib/nginx/modules/ndk_http_module.so;
load_module {tree}/usr/lib/nginx/modules/ngx_http_lua_module.so;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  lua_package_path "{tree}/usr/share/lua/5.1/?.lua;;";
  lua_shared_dict routes {dictionary_mib}m;
  init_by_lua_block {{
    local routes = ngx.shared.routes
    for line in io.lines("{dir}/hosts") do
      local host, shop = line:match("(%S+) (%S+)")
      assert(routes:safe_set(host, shop))
    end
  }}
  upstream pod {{ server {pod}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen {at}; keepalive_requests 1000000000;
    location / {{
      set $shop "";
      access_by_lua_block {{
        local shop = ngx.shared.routes:get(ngx.var.host)
        if not shop then return ngx.exit(404) end
        ngx.var.shop = shop
      }}
      proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
      proxy_set_header podhost-shop $shop; proxy_set_header podhost-pod 1;
      proxy_pass http://pod;
    }}
  }}
}}
"#
    );
    let config = folder.join("nginx.conf");
    fs::write(&config, text).context("write a file")?;
    let binary = peers.join("tree/usr/sbin/nginx");
    let command = words(&[
        &binary.to_string_lossy(),
        "-p",
        &folder.to_string_lossy(),
        "-c",
        &config.to_string_lossy(),
    ]);
    let process = Measured::start(command, &[libraries(&peers)], &folder.join("log"), at)?;
    Ok(Candidate {
        name: "nginx + Lua".into(),
        shops,
        at,
        process,
    })
}

/// HAProxy with a map.
pub(crate) fn haproxy(work: &Path, pod: SocketAddr, shops: u64) -> Result<Candidate> {
    let (folder, peers) = (folder(work, &format!("haproxy-{shops}"))?, peers()?);
    let at = free_address()?;
    hosts_file(&folder.join("hosts"), shops)?;
    let map = folder.join("hosts");
    let text = format!(
        "global\n  nbthread 1\n  maxconn 4096\n\
         defaults\n  mode http\n  timeout client 60s\n  timeout server 60s\n  timeout connect 1s\n  http-reuse always\n\
         frontend buyers\n  bind {at}\n  \
         http-request set-var(txn.shop) req.hdr(host),lower,map_str({map})\n  \
         http-request deny deny_status 404 unless {{ var(txn.shop) -m found }}\n  \
         http-request set-header podhost-shop %[var(txn.shop)]\n  \
         http-request set-header podhost-pod 1\n  default_backend pod\n\
         backend pod\n  server one {pod}\n",
        map = map.display()
    );
    let config = folder.join("haproxy.cfg");
    fs::write(&config, text).context("write a file")?;
    let binary = peers.join("tree/usr/sbin/haproxy");
    let command = words(&[
        &binary.to_string_lossy(),
        "-db",
        "-f",
        &config.to_string_lossy(),
    ]);
    let process = Measured::start(command, &[libraries(&peers)], &folder.join("log"), at)?;
    Ok(Candidate {
        name: "HAProxy".into(),
        shops,
        at,
        process,
    })
}

/// Envoy with a virtual host for each shop.
pub(crate) fn envoy(work: &Path, pod: SocketAddr, shops: u64) -> Result<Candidate> {
    let (folder, peers) = (folder(work, &format!("envoy-{shops}"))?, peers()?);
    let at = free_address()?;
    let config = folder.join("envoy.json");
    fs::write(&config, envoy_config(at, pod, shops).to_string()).context("write a file")?;
    let command = words(&[
        &peers.join("envoy").to_string_lossy(),
        "-c",
        &config.to_string_lossy(),
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "-l",
        "error",
    ]);
    let process = Measured::start(command, &[], &folder.join("log"), at)?;
    Ok(Candidate {
        name: "Envoy".into(),
        shops,
        at,
        process,
    })
}

fn envoy_config(at: SocketAddr, pod: SocketAddr, shops: u64) -> serde_json::Value {
    use serde_json::json;
    const FILTERS: &str = "type.googleapis.com/envoy.extensions.filters";
    let address = |a: SocketAddr| json!({"socket_address": {"address": a.ip().to_string(), "port_value": a.port()}});
    let header = |key: &str, value: String| json!({"header": {"key": key, "value": value}});
    let host = |shop: u64| {
        json!({
            "name": shop.to_string(),
            "domains": [table::host(shop)],
            "request_headers_to_add":
                [header("podhost-shop", shop.to_string()), header("podhost-pod", "1".into())],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "pod"}}],
        })
    };
    let hosts: Vec<_> = (1..=shops).map(host).collect();
    json!({"static_resources": {
        "listeners": [{"address": address(at), "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": format!("{FILTERS}.network.http_connection_manager.v3.HttpConnectionManager"),
                "stat_prefix": "buyers",
                "route_config": {"name": "shops", "virtual_hosts": hosts},
                "http_filters": [{
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": format!("{FILTERS}.http.router.v3.Router")},
                }],
            },
        }]}]}],
        "clusters": [{
            "name": "pod",
            "type": "STATIC",
            "load_assignment": {"cluster_name": "pod", "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": address(pod)}}]},
            ]},
        }],
    }})
}
