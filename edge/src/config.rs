//! The edge's configuration file. Every limit has a default with a reason, and a key.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use shared::Host;
use shared::config::{Faults, Secret, Section, Size};
use shared::telemetry::Settings;

use crate::catalog::CatalogSettings;
use crate::connection::Patience;
use crate::identify::Domains;
use crate::keys::Keys;
use crate::park;
use crate::reply::Drain;
use crate::trusted::TrustedProxies;
use crate::upstream::PeerSettings;

/// A day without the catalog: longer than any repair, shorter than what a rotated key or a moved shop can wait.
const MAX_STALE: Duration = Duration::from_secs(24 * 3600);
/// A visitor of the platform domain is remembered for a day.
const SHOP_COOKIE_AGE: Duration = Duration::from_secs(24 * 3600);

/// 10,000 connections take about 200 MB here (buffers and futures) and 10,000 file descriptors.
const CONNECTIONS_MAX: u32 = 10_000;
/// Browsers send below 4 KiB; large cookies and tokens fit.
const HEADER_BYTES_MAX: Size = Size::kib(32);
/// Browsers send about 20. Pingora itself stops at 256.
const HEADER_FIELDS_MAX: usize = 100;
/// One shop at one edge. At 50 ms a request this is 5,000 requests a second: more is an attack, or a shop that wants a
/// pod of its own.
const SHOP_IN_FLIGHT_MAX: u32 = 256;
/// One pod at one edge; four busy shops fill it. A pod sheds by itself long before.
const POD_IN_FLIGHT_MAX: u32 = 1024;
/// Idle connections to all pods together: two processes each of 64 pods, eight connections each.
const POD_IDLE_CONNECTIONS_MAX: usize = 1024;
/// Of a body that the edge does not want, this much is read before the connection is closed: as much as a pod reads of
/// one. What bounds the cost is the time ([`Config::drain`]).
const DRAIN_BYTES_MAX: Size = Size::mib(32);

/// A client on a bad mobile line sends 4 KiB within this.
const FIRST_HEADER: Duration = Duration::from_secs(10);
/// An idle client is kept for so long, its next header included.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Between two pieces of a body from a client, and for a piece of an answer to it.
const CLIENT: Duration = Duration::from_secs(30);
/// Pods are in the same region: a connect takes a millisecond or does not happen.
const CONNECT: Duration = Duration::from_secs(1);
/// Silence of a pod in the middle of a request.
const ANSWER: Duration = Duration::from_secs(30);
/// Below what servers keep idle connections for, so that it is the edge that closes them.
const POD_IDLE: Duration = Duration::from_secs(30);
/// How long a request waits for the catalog after a pod called its route stale.
const REFRESH: Duration = Duration::from_secs(1);
/// A pod process that stops says so for 600 ms, and none of its requests may be lost; asking costs 0.1 ms. With more than
/// a thousand processes ask more rarely, and let the pods say it for longer (their `drain_notice`).
const HEALTH_EVERY: Duration = Duration::from_millis(250);
/// What is in flight at SIGTERM has this long. The fleet gives all parts together 20 s.
const STOP: Duration = Duration::from_secs(5);

const _: () = assert!(CONNECT.as_millis() < ANSWER.as_millis());
const _: () = assert!(SHOP_IN_FLIGHT_MAX < POD_IN_FLIGHT_MAX);

/// What the file says, checked.
pub struct Config {
    /// Where clients connect.
    pub(crate) listen: Vec<SocketAddr>,
    /// `/healthz`, `/readyz`, `/metrics`.
    pub(crate) admin: SocketAddr,
    pub(crate) domains: Domains,
    pub(crate) keys: Keys,
    pub(crate) catalog: CatalogSettings,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) shop_cookie_age: Duration,
    pub(crate) threads: usize,
    pub(crate) access_log: bool,
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
    pub(crate) park: park::Settings,
    pub(crate) telemetry: Settings,
}

/// `[limits]`
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) connections_max: u32,
    pub(crate) header_bytes_max: usize,
    pub(crate) header_fields_max: usize,
    pub(crate) shop_in_flight_max: u32,
    pub(crate) pod_in_flight_max: u32,
    pub(crate) pod_idle_connections_max: usize,
    pub(crate) drain_bytes_max: usize,
}

/// `[timeouts]`
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) first_header: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) client: Duration,
    pub(crate) connect: Duration,
    pub(crate) answer: Duration,
    pub(crate) pod_idle: Duration,
    pub(crate) refresh: Duration,
    pub(crate) health_every: Duration,
    pub(crate) stop: Duration,
}

impl Config {
    /// Reads a file and names everything that is wrong with it.
    pub fn load(path: &std::path::Path) -> Result<Self, Faults> {
        shared::config::load(path, Self::read)
    }

    fn read(s: &mut Section<'_>) -> Option<Self> {
        let listen = s.list("listen");
        let admin = s.required("admin");
        let base = s.required::<Host>("base_domain");
        let platform = s.required::<Host>("platform_domain");
        let keys = s.secret("fleet_key").and_then(|secret| {
            Keys::new(secret)
                .inspect_err(|error| s.fault("fleet_key", shared::error::chain(error)))
                .ok()
        });
        let state_file: Option<PathBuf> = s.path("state_file");
        let max_stale = s.within("max_stale", MAX_STALE, SECOND..=WEEK);
        let control = s.section("control", Control::read);
        let trusted_proxies = s.list_or_empty("trusted_proxies").and_then(|list| {
            let bad = |error: &String| s.fault("trusted_proxies", error.as_str());
            TrustedProxies::parse(&list).inspect_err(bad).ok()
        });
        let shop_cookie_age = s.within("shop_cookie_age", SHOP_COOKIE_AGE, SECOND..=WEEK * 52);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = s.within("threads", cores, 1..=1024);
        let access_log = s.or("access_log", true);
        let limits = s.section("limits", Limits::read);
        let timeouts = s.section("timeouts", Timeouts::read);
        let park = s.section("park", |s| {
            park::Settings::read(s, timeouts.answer, limits.connections_max)
        });
        let telemetry = s.section("telemetry", Settings::read);
        let control = control?;
        Some(Self {
            listen: listen?,
            admin: admin?,
            domains: Domains {
                base: base?,
                platform: platform?,
            },
            keys: keys?,
            catalog: CatalogSettings {
                urls: control.urls,
                token: control.token,
                state_file: state_file?,
                max_stale,
            },
            trusted_proxies: trusted_proxies?,
            shop_cookie_age,
            threads,
            access_log,
            limits,
            timeouts,
            park,
            telemetry,
        })
    }

    /// The settings of logs, traces and metrics. Pingora's own log lines say what the access log says, in more words;
    /// they are off unless the filter names them.
    pub fn log_settings(&self) -> Settings {
        let mut settings = self.telemetry.clone();
        if !settings.filter.contains("pingora") {
            settings.filter.push_str(",pingora=off");
        }
        settings
    }

    pub(crate) const fn patience(&self) -> Patience {
        Patience {
            first: self.timeouts.first_header,
            next: self.timeouts.keep_alive,
        }
    }

    pub(crate) const fn drain(&self) -> Drain {
        Drain {
            bytes: self.limits.drain_bytes_max,
            // Half a second of a client that is told no anyway.
            time: Duration::from_millis(500),
        }
    }

    pub(crate) const fn peers(&self) -> PeerSettings {
        PeerSettings {
            connect: self.timeouts.connect,
            answer: self.timeouts.answer,
            write: self.timeouts.answer,
            idle: self.timeouts.pod_idle,
            in_flight_max: self.limits.pod_in_flight_max,
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

struct Control {
    urls: Vec<String>,
    token: Secret,
}

impl Control {
    fn read(s: &mut Section<'_>) -> Option<Self> {
        let urls = s.list::<String>("urls");
        for url in urls.iter().flatten() {
            let ok = reqwest::Url::parse(url)
                .is_ok_and(|u| ["http", "https"].contains(&u.scheme()) && u.has_host());
            if !ok {
                s.fault("urls", format!("{url:?} is not an http:// or https:// URL"));
            }
        }
        let token = s.secret("token");
        Some(Self {
            urls: urls?,
            token: token?,
        })
    }
}

impl Limits {
    fn read(s: &mut Section<'_>) -> Self {
        let mut size = |key, default: Size, low, high| s.within(key, default, low..=high).get();
        let header_bytes_max = size(
            "header_bytes_max",
            HEADER_BYTES_MAX,
            Size::kib(1),
            Size::kib(1024),
        );
        let drain_bytes_max = size(
            "drain_bytes_max",
            DRAIN_BYTES_MAX,
            Size::bytes(0),
            Size::mib(64),
        );
        Self {
            connections_max: s.within("connections_max", CONNECTIONS_MAX, 1..=1_000_000),
            header_bytes_max,
            header_fields_max: s.within("header_fields_max", HEADER_FIELDS_MAX, 10..=256),
            shop_in_flight_max: s.within("shop_in_flight_max", SHOP_IN_FLIGHT_MAX, 1..=1_000_000),
            pod_in_flight_max: s.within("pod_in_flight_max", POD_IN_FLIGHT_MAX, 1..=1_000_000),
            pod_idle_connections_max: s.within(
                "pod_idle_connections_max",
                POD_IDLE_CONNECTIONS_MAX,
                1..=100_000,
            ),
            drain_bytes_max,
        }
    }
}

impl Timeouts {
    fn read(s: &mut Section<'_>) -> Self {
        const MIN: Duration = Duration::from_millis(10);
        const MAX: Duration = Duration::from_secs(3600);
        let mut time = |key, default| s.within(key, default, MIN..=MAX);
        let timeouts = Self {
            first_header: time("first_header", FIRST_HEADER),
            keep_alive: time("keep_alive", KEEP_ALIVE),
            client: time("client", CLIENT),
            connect: time("connect", CONNECT),
            answer: time("answer", ANSWER),
            pod_idle: time("pod_idle", POD_IDLE),
            refresh: time("refresh", REFRESH),
            health_every: time("health_every", HEALTH_EVERY),
            stop: time("stop", STOP),
        };
        if timeouts.connect > timeouts.answer {
            let text = "longer than timeouts.answer, which includes it";
            s.fault("connect", text);
        }
        timeouts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::keys::FleetKeys;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let keys = FleetKeys::generate("k1").unwrap().to_text();
        std::fs::write(folder.path().join("fleet-key"), keys).unwrap();
        std::fs::write(folder.path().join("token"), "secret\n").unwrap();
        folder
    }

    fn read(text: &str) -> Result<Config, String> {
        let folder = folder();
        let path = folder.path().join("edge.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path).map_err(|faults| faults.to_string())
    }

    const GOOD: &str = r#"
        listen = ["127.0.0.1:8080"]
        admin = "127.0.0.1:8081"
        base_domain = "localhost"
        platform_domain = "localhost"
        fleet_key_file = "fleet-key"
        state_file = "routes.bin"
        [control]
        urls = ["http://127.0.0.1:9000"]
        token_file = "token"
    "#;

    #[test]
    fn a_file_with_what_is_needed_gets_the_defaults() {
        let config = read(GOOD).unwrap();
        assert_eq!(config.catalog.max_stale, MAX_STALE);
        assert_eq!(config.limits.shop_in_flight_max, SHOP_IN_FLIGHT_MAX);
        assert!(config.catalog.state_file.is_absolute());
    }

    #[test]
    fn limits_on_parked_requests_agree_with_each_other() {
        let faults = |park: &str| read(&format!("{GOOD}\n{park}")).err().unwrap_or_default();
        for (park, fault) in [
            (
                "[park]\nwindow = \"5s\"",
                "park.window: 5s is shorter than park.pause_bound and park.lease (5s and 3s)",
            ),
            (
                "[park]\npause_bound = \"7001ms\"",
                "park.window: 10s is shorter",
            ),
            (
                "[park]\nwindow = \"30s\"\nfence_max = \"1m\"",
                "park.window: not shorter",
            ),
            ("[timeouts]\nanswer = \"9s\"", "park.window: not shorter"),
            ("[park]\nfence_max = \"9s\"", "park.fence_max: shorter"),
            ("[park]\nshop_max = 5001", "park.shop_max: more"),
            ("[park]\nall_max = 10000", "park.all_max: as many"),
        ] {
            let named = faults(park);
            assert!(named.contains(fault), "{park}: {named}");
        }
        assert_eq!(faults("[park]\nwindow = \"8s\""), "");
        let small = read(&format!("{GOOD}\n[limits]\nconnections_max = 100")).unwrap();
        assert_eq!((small.park.all_max, small.park.shop_max), (50, 50));
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let bad = GOOD
            .replace("127.0.0.1:8081", "here")
            .replace("\"fleet-key\"", "\"token\"")
            .replace("http://", "ftp://")
            + "\n[limits]\nshop_in_flight_max = 0\n[timeouts]\nconnect = \"40s\"\nanwser = \"1s\"\n";
        let faults = read(&bad).err().unwrap();
        for part in [
            "admin: ",
            "fleet_key: line 1 of the key file",
            "control.urls: ",
            "limits.shop_in_flight_max: 0",
            "timeouts.connect: longer",
            "timeouts.anwser: unknown key",
        ] {
            assert!(faults.contains(part), "{part} is not in\n{faults}");
        }
        assert!(
            !faults.contains("secret"),
            "a secret is repeated:\n{faults}"
        );
    }
}
