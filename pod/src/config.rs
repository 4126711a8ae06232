//! The config file. `podctl` renders it; every key but the first block has a default whose reason stands at its constant.
//!
//! ```toml
//! pod = 1
//! name = "east"
//! process = 1
//! listen = ["127.0.0.1:9001"]
//! admin = "127.0.0.1:9002"
//! key_file = "../secrets/pod-1-key"
//!
//! [mysql]
//! database = "podhost"
//! user = "podhost_app"
//! password_file = "../secrets/pod-1-mysql-podhost_app"
//! monitor_user = "podhost_monitor"
//! monitor_password_file = "../secrets/pod-1-mysql-podhost_monitor"
//! primary = { host = "127.0.0.1", port = 3306 }
//! replicas = [{ host = "127.0.0.1", port = 3307, group = "online", weight = 1, promotion = "prefer" }]
//!
//! [redis]
//! url = "redis://127.0.0.1:6379"
//! ```

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use shared::PodId;
use shared::config::{self, Endpoint, Faults, Secret, Section};
use shared::keys::PodKeys;
use shared::telemetry;

// The limits, each with its reason.
pub mod limits;
pub use limits::{Background, Limits, Pools, Reads};

/// A checked config.
#[derive(Debug, Clone)]
pub struct Config {
    /// Which pod this is a process of.
    pub pod: PodId,
    /// The pod's name, for people.
    pub name: String,
    /// Which of the pod's processes, from 1.
    pub process: u32,
    /// Where edges reach it.
    pub listen: Vec<SocketAddr>,
    /// Where operators and Prometheus reach it.
    pub admin: SocketAddr,
    /// The pod's keys.
    pub keys: PodKeys,
    /// The pod's servers.
    pub mysql: Mysql,
    /// The pod's Redis; without one the cache is the process's own and events go to the log alone.
    pub redis: Option<String>,
    /// Of requests and transactions.
    pub limits: Limits,
    /// Of connections to the servers.
    pub pools: Pools,
    /// Of reads and the cache.
    pub reads: Reads,
    /// Of the relay, the jobs and the clean-ups.
    pub background: Background,
    /// Logs, spans, metrics.
    pub telemetry: telemetry::Settings,
}

/// The pod's servers and the accounts there.
#[derive(Debug, Clone)]
pub struct Mysql {
    /// The database.
    pub database: String,
    /// The account of the application: rows of this database, nothing else.
    pub user: String,
    /// Its password.
    pub password: Secret,
    /// The account that looks at replication.
    pub monitor_user: String,
    /// Its password.
    pub monitor_password: Secret,
    /// The primary.
    pub primary: Endpoint,
    /// The replicas.
    pub replicas: Vec<Replica>,
    /// Encryption towards the servers.
    pub tls: Tls,
    /// The certificate authority for `verify_ca` and `verify_identity`.
    pub ca_file: Option<PathBuf>,
}

/// A replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Where it is.
    pub at: Endpoint,
    /// What it is for.
    pub group: Group,
    /// Its share of the reads.
    pub weight: u32,
}

/// What a replica is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Reads of requests.
    Online,
    /// Long reads of jobs.
    Batch,
    /// Change feeds.
    Cdc,
}

/// Encryption towards a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// None: servers on this machine.
    Disabled,
    /// Where the server offers it; falls back to plain text.
    Preferred,
    /// Always; against a listener, not against an impostor.
    Required,
    /// The server's certificate is by `ca_file`.
    VerifyCa,
    /// And names the host.
    VerifyIdentity,
}

impl Config {
    /// Reads a file; all faults at once.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        config::load(path, Self::read)
    }

    /// Reads a file in which an application has a table of its own.
    pub fn load_with<T>(
        path: &Path,
        table: &str,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> Result<(Self, T), Faults> {
        config::load(path, |s| {
            let config = Self::read(s);
            let application = s.section(table, read);
            Some((config?, application))
        })
    }

    fn read(s: &mut Section<'_>) -> Option<Self> {
        let pod = s.required::<u64>("pod").and_then(|raw| {
            PodId::new(raw)
                .inspect_err(|e| s.fault("pod", e.to_string()))
                .ok()
        });
        let name = s.required("name");
        let process = s.within("process", 1, 1..=1_000);
        let listen = s.list("listen");
        let admin = s.required("admin");
        let keys = s.path("key_file").and_then(|path| keys(s, &path));
        let mysql = s.section("mysql", Mysql::read);
        let redis = s.optional_section("redis", |s| s.required::<String>("url"));
        if let Some(url) = &redis
            && let Err(error) = redis::Client::open(url.as_str())
        {
            // The URL is not repeated: it may hold a password.
            s.fault(
                "redis",
                format!("url is not a Redis URL: {}", error.category()),
            );
        }
        let limits = s.section("limits", Limits::read);
        let pools = s.section("pools", Pools::read);
        let reads = s.section("reads", Reads::read);
        let background = s.section("background", Background::read);
        let telemetry = s.section("telemetry", telemetry::Settings::read);
        Some(Self {
            pod: pod?,
            name: name?,
            process,
            listen: listen?,
            admin: admin?,
            keys: keys?,
            mysql: mysql?,
            redis,
            limits,
            pools,
            reads,
            background,
            telemetry,
        })
    }
}

fn keys(s: &Section<'_>, path: &Path) -> Option<PodKeys> {
    match std::fs::read_to_string(path) {
        Ok(text) => PodKeys::parse(&text)
            .inspect_err(|e| s.fault("key_file", format!("{}: {e}", path.display())))
            .ok(),
        Err(error) => {
            s.fault(
                "key_file",
                format!("{} cannot be read: {error}", path.display()),
            );
            None
        }
    }
}

impl Mysql {
    fn read(s: &mut Section<'_>) -> Option<Self> {
        let database = s.required("database");
        let user = s.required("user");
        let password = s.secret("password");
        let monitor_user = s.required("monitor_user");
        let monitor_password = s.secret("monitor_password");
        let primary = s.required("primary");
        let replicas = s.sections("replicas", Replica::read);
        let tls = s.word(
            "tls",
            Tls::Preferred,
            &[
                ("disabled", Tls::Disabled),
                ("preferred", Tls::Preferred),
                ("required", Tls::Required),
                ("verify_ca", Tls::VerifyCa),
                ("verify_identity", Tls::VerifyIdentity),
            ],
        );
        let ca_file = s.optional_path("ca_file");
        if matches!(tls, Tls::VerifyCa | Tls::VerifyIdentity) && ca_file.is_none() {
            s.fault("ca_file", "missing; tls asks for a verified certificate");
        }
        Some(Self {
            database: database?,
            user: user?,
            password: password?,
            monitor_user: monitor_user?,
            monitor_password: monitor_password?,
            primary: primary?,
            replicas: replicas?,
            tls,
            ca_file,
        })
    }
}

impl Replica {
    fn read(s: &mut Section<'_>) -> Option<Self> {
        let host = s.required("host");
        let port = s.required("port");
        let group = s.word(
            "group",
            Group::Online,
            &[
                ("online", Group::Online),
                ("batch", Group::Batch),
                ("cdc", Group::Cdc),
            ],
        );
        let weight = s.within("weight", 1, 0..=1_000);
        // The control server's business; read here so that one list of replicas serves both.
        s.word(
            "promotion",
            (),
            &[("prefer", ()), ("allow", ()), ("never", ())],
        );
        Some(Self {
            at: Endpoint {
                host: host?,
                port: port?,
            },
            group,
            weight,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Faults> {
        let folder = tempfile::tempdir().unwrap();
        for name in ["app", "monitor"] {
            std::fs::write(folder.path().join(name), "secret\n").unwrap();
        }
        let keys = shared::keys::FleetKeys::generate("k1").unwrap();
        let pod = PodId::new(1).unwrap();
        std::fs::write(folder.path().join("key"), keys.pod(pod).to_text()).unwrap();
        config::parse(&folder.path().join("pod.toml"), text, Config::read)
    }

    const GOOD: &str = r#"
        pod = 1
        name = "east"
        process = 2
        listen = ["127.0.0.1:0"]
        admin = "127.0.0.1:0"
        key_file = "key"
        [mysql]
        database = "podhost"
        user = "podhost_app"
        password_file = "app"
        monitor_user = "podhost_monitor"
        monitor_password_file = "monitor"
        primary = { host = "127.0.0.1", port = 3306 }
        replicas = [{ host = "127.0.0.1", port = 3307, group = "online", weight = 1, promotion = "prefer" }]
        [redis]
        url = "redis://127.0.0.1:6379"
        [limits]
        transaction = "1s"
    "#;

    /// A config for other modules' tests.
    pub(crate) fn good() -> Config {
        parse(GOOD).unwrap()
    }

    #[test]
    fn a_rendered_file_is_read_and_shows_no_secret() {
        let config = parse(GOOD).unwrap();
        assert_eq!(config.limits.transaction.as_secs(), 1);
        assert_eq!(config.mysql.replicas[0].at.port, 3307);
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let bad = GOOD
            .replace("pod = 1\n", "pod = 0\n")
            .replace("group = \"online\"", "group = \"fast\"")
            .replace("transaction = \"1s\"", "transaction = \"60s\"\ncolour = 1");
        let text = parse(&bad).unwrap_err().to_string();
        for part in [
            "pod: pod id \"0\"",
            "group",
            "limits.transaction",
            "8s",
            "limits.colour: unknown key",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        let long = GOOD.replace("transaction = \"1s\"", "transaction = \"3s\"");
        let text = parse(&long).unwrap_err().to_string();
        assert!(
            text.contains("limits.transaction: 3s is not below limits.fence_kill_after (2200ms)"),
            "{text}"
        );
        let told = long.replace("\"3s\"", "\"3s\"\nfence_kill_after = \"3500ms\"");
        assert_eq!(parse(&told).unwrap().limits.transaction.as_secs(), 3);
    }
}
