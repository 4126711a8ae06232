//! What `podctl up` says when everything serves: addresses, and a checkout to try.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::header::HOST;
use serde::Serialize;
use serde_json::Value;

use super::demo::HANDLES;
use crate::layout::CONTROL;
use crate::observe::World;
use crate::secrets;

/// The greeting waits for nobody.
const CALL_WITHIN: Duration = Duration::from_secs(5);

/// Where a fleet is reached; the ready file has the same.
#[derive(Debug, Serialize)]
pub(super) struct Addresses {
    /// The process that runs the fleet.
    pid: u32,
    home: String,
    edges: Vec<String>,
    control: String,
}

pub(super) fn addresses(world: &World) -> anyhow::Result<Addresses> {
    let http = |unit: &str| {
        let url = world.layout.unit(unit)?.unit.facts.http.clone();
        url.with_context(|| format!("{unit} has no address"))
    };
    Ok(Addresses {
        pid: std::process::id(),
        home: world.home.path().display().to_string(),
        edges: world
            .layout
            .edges()
            .iter()
            .filter_map(|it| it.unit.facts.http.clone())
            .collect(),
        control: http(CONTROL)?,
    })
}

/// The first edge as this machine reaches it, also when it listens on every address.
pub(super) fn local_edge(world: &World) -> anyhow::Result<String> {
    let listen = world.fleet.edge.listen;
    let ip = listen.ip();
    if ip.is_unspecified() {
        return Ok(format!("http://127.0.0.1:{}", listen.port()));
    }
    Ok(format!("http://{listen}"))
}

/// Says it, on stdout: it is what was asked for.
pub(super) async fn say(world: &World, addresses: &Addresses) -> anyhow::Result<()> {
    let Addresses {
        pid: _,
        home,
        edges,
        control,
    } = addresses;
    let mut text = String::new();
    writeln!(text, "\nThe fleet serves.")?;
    writeln!(text, "  edge     {}", edges.join("  "))?;
    writeln!(
        text,
        "  control  {control}  (a console for browsers; any user, the password is in {})",
        world.home.secret_file(secrets::OPERATOR_TOKEN).display()
    )?;
    writeln!(text, "  home     {home}")?;
    if let Some(product) = first_product(world).await {
        let port = world.fleet.edge.listen.port();
        let domain = &world.fleet.base_domain;
        for handle in HANDLES {
            writeln!(text, "  shop     http://{handle}.{domain}:{port}/")?;
        }
        writeln!(text, "\nBuy something:\n\n{}", checkout(world, &product)?)?;
    }
    writeln!(
        text,
        "\nCtrl-C ends everything; the next start has the same shops and orders."
    )?;
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("write to stdout")
}

/// A command that works as it stands, any number of times: each run is an order of its own.
fn checkout(world: &World, product: &str) -> anyhow::Result<String> {
    let edge = local_edge(world)?;
    let host = format!("{}.{}", HANDLES[0], world.fleet.base_domain);
    Ok(format!(
        r#"  curl -sS {edge}/api/v1/checkouts -H 'host: {host}' \
    -H 'content-type: application/json' -H "idempotency-key: try-$(date +%s%N)" \
    -d '{{"email":"you@example.com","lines":[{{"product_id":"{product}","quantity":1}}],"payment":{{"method":"bogus","outcome":"approve"}}}}'"#
    ))
}

/// The product of the first demo shop that there is most of. None if there is no such shop (any more).
async fn first_product(world: &World) -> Option<String> {
    if !world.home.demo_file().exists() {
        return None;
    }
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(CALL_WITHIN)
        .build()
        .ok()?;
    let url = format!("{}/api/v1/products", local_edge(world).ok()?);
    let host = format!("{}.{}", HANDLES[0], world.fleet.base_domain);
    let answer = http.get(url).header(HOST, host).send().await.ok()?;
    let page: Value = answer.error_for_status().ok()?.json().await.ok()?;
    let products = page.get("products")?.as_array()?;
    let plenty = products.iter().max_by_key(|it| it["available"].as_u64())?;
    Some(plenty.get("id")?.as_str()?.to_owned())
}
