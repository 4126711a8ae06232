//! `control.toml`, and the limits of the control server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shared::config::{self, Faults, SecretRef, Section, Size, Value};
use shared::keys::FleetKeys;
use shared::telemetry::Settings;
use shared::{Host, PodId};

use crate::catalog::Role;
use crate::mover::MoveLimits;

/// A shop with [`crate::catalog::HOSTS_PER_SHOP_MAX`] hosts of full length is 26 KiB; an operation's detail may be more.
const BODY_MAX: Size = Size::kib(256);
/// Edges and pod processes hold one each: this is a fleet of some hundred pods.
const LONG_POLLS_MAX: usize = 2048;
/// How long a poll waits at most: shorter than the idle time-outs that proxies and firewalls are known for (60 s).
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Full tables at once: each holds one of the catalog's readers ([`crate::catalog::READERS`]).
const TABLES_MAX: usize = 4;
/// A full table of ten million shops over a slow line; a reader that takes longer has stopped reading.
const TABLE_DEADLINE: Duration = Duration::from_secs(300);
/// Connections at once: long polls and some operators.
const CONNECTIONS_MAX: usize = 4096;
/// A client that has not sent its header fields by then never will.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);
/// The longest work of one request: a turn at a pod and two sessions there. Shorter than the client's 30 s, so that the
/// client hears what happened. The work itself goes on to its end.
const REQUEST_DEADLINE: Duration = Duration::from_secs(25);
/// Requests get this long to end when the server stops; long polls end at once.
const STOP_DEADLINE: Duration = Duration::from_secs(5);
/// How often the primaries are looked at: a tenth of the time that a primary's return may take (5 s).
const KEEPER_EVERY: Duration = Duration::from_millis(500);
/// How often unfinished operations are tried again.
const RESUME_EVERY: Duration = Duration::from_secs(5);
/// Longer than an edge is ever away and comes back with a table from its disk (`max_stale`, 24 h).
const TOMBSTONES_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What the file says.
#[derive(Debug)]
pub struct Config {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// The catalog's file.
    pub catalog: PathBuf,
    /// Whether other control servers on this machine have it too.
    pub catalog_shared: bool,
    /// Where moves keep files: keys that do not fit into memory, dumps.
    pub moves_dir: PathBuf,
    /// Who may ask.
    pub tokens: Vec<TokenFile>,
    /// Where relative references to secrets start.
    pub secrets_dir: PathBuf,
    /// Each shop has `<handle>.<base_domain>`.
    pub base_domain: Host,
    /// Shops are also reached by a path here.
    pub platform_domain: Host,
    /// Limits.
    pub limits: Limits,
    /// How much moves may take.
    pub moves: MoveLimits,
    /// Logs, traces, metrics.
    pub telemetry: Settings,
}

/// One of `tokens`: the text is in the file and is read when tokens are loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFile {
    /// What it is good for.
    pub role: Role,
    /// Who holds it.
    pub name: String,
    /// The pod of the role `pod`.
    pub pod: Option<PodId>,
    /// Where its text is.
    pub file: PathBuf,
}

/// The `[limits]` table.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each is described at its default above")]
pub struct Limits {
    pub body_max: Size,
    pub long_polls_max: usize,
    pub wait_max: Duration,
    pub tables_max: usize,
    pub table_deadline: Duration,
    pub connections_max: usize,
    pub header_deadline: Duration,
    pub request_deadline: Duration,
    pub stop_deadline: Duration,
    pub keeper_every: Duration,
    pub resume_every: Duration,
    pub tombstones_kept: Duration,
}

impl Config {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        config::load(path, Self::read)
    }

    fn read(s: &mut Section<'_>) -> Option<Self> {
        let listen: Option<Listen> = s.required("listen");
        let catalog = s.path("catalog");
        let catalog_shared = s.or("catalog_shared", false);
        let moves_dir = s.optional_path("moves_dir");
        // The control server signs nothing; it refuses a fleet whose key it could not read, before edges find out.
        if let Some(path) = s.path("fleet_key_file") {
            check_fleet_key(s, &path);
        }
        let tokens = s.sections("tokens", TokenFile::read);
        if let Some(tokens) = &tokens {
            check_tokens(s, tokens);
        }
        let secrets_dir = s.path("secrets_dir");
        let base_domain = s.parsed("base_domain");
        let platform_domain = s.parsed("platform_domain");
        let limits = s.section("limits", Limits::read);
        let moves = s.section("moves", MoveLimits::read);
        let telemetry = s.section("telemetry", Settings::read);
        Some(Self {
            listen: listen?.0,
            // Beside the catalog: both are what a control server must not lose.
            moves_dir: moves_dir.unwrap_or(catalog.as_ref()?.with_file_name("moves")),
            catalog: catalog?,
            catalog_shared,
            tokens: tokens?,
            secrets_dir: secrets_dir?,
            base_domain: base_domain?,
            platform_domain: platform_domain?,
            limits,
            moves,
            telemetry,
        })
    }
}

fn check_fleet_key(s: &Section<'_>, path: &Path) {
    let read = SecretRef::File(path.to_owned())
        .read()
        .map_err(|e| shared::error::chain(&e));
    let parsed = read.and_then(|text| {
        use secrecy::ExposeSecret as _;
        FleetKeys::parse(text.expose_secret()).map_err(|e| e.to_string())
    });
    if let Err(text) = parsed {
        s.fault("fleet_key_file", text);
    }
}

fn check_tokens(s: &Section<'_>, tokens: &[TokenFile]) {
    if !tokens.iter().any(|t| t.role == Role::Operator) {
        s.fault(
            "tokens",
            "none has the role \"operator\": nobody could make a shop",
        );
    }
    for (index, token) in tokens.iter().enumerate() {
        if tokens[..index].iter().any(|t| t.name == token.name) {
            s.fault("tokens", format!("two are named {:?}", token.name));
        }
    }
}

impl TokenFile {
    fn read(s: &mut Section<'_>) -> Option<Self> {
        let role: Option<String> = s.required("role");
        let role = role.and_then(|word| {
            let role = Role::parse(&word);
            if role.is_none() {
                let words = Role::ALL.map(Role::as_str).join(", ");
                s.fault("role", format!("{word:?} is not one of {words}"));
            }
            role
        });
        let name: Option<String> = s.required("name");
        let file = s.path("file");
        let (role, name, file) = (role?, name?, file?);
        let pod = name.strip_prefix("pod-").and_then(|id| id.parse().ok());
        if role == Role::Pod && pod.is_none() {
            s.fault(
                "name",
                format!("{name:?}: a token of the role pod is named pod-<id>"),
            );
        }
        Some(Self {
            role,
            name,
            pod: pod.filter(|_| role == Role::Pod),
            file,
        })
    }
}

impl Limits {
    fn read(s: &mut Section<'_>) -> Self {
        let second = Duration::from_secs(1);
        Self {
            body_max: s.within("body_max", BODY_MAX, Size::kib(1)..=Size::mib(64)),
            long_polls_max: s.within("long_polls_max", LONG_POLLS_MAX, 1..=1_000_000),
            wait_max: s.within("wait_max", WAIT_MAX, second..=60 * second),
            tables_max: s.within("tables_max", TABLES_MAX, 1..=7),
            table_deadline: s.within("table_deadline", TABLE_DEADLINE, second..=3600 * second),
            connections_max: s.within("connections_max", CONNECTIONS_MAX, 16..=1_000_000),
            header_deadline: s.within("header_deadline", HEADER_DEADLINE, second..=60 * second),
            request_deadline: s.within("request_deadline", REQUEST_DEADLINE, second..=120 * second),
            stop_deadline: s.within("stop_deadline", STOP_DEADLINE, second..=60 * second),
            keeper_every: s.within("keeper_every", KEEPER_EVERY, second / 20..=10 * second),
            resume_every: s.within("resume_every", RESUME_EVERY, second / 10..=300 * second),
            tombstones_kept: s.within(
                "tombstones_kept",
                TOMBSTONES_KEPT,
                second..=366 * 24 * 3600 * second,
            ),
        }
    }
}

/// One address or a list of them.
struct Listen(Vec<SocketAddr>);

impl Value for Listen {
    const EXPECTED: &'static str =
        "an IP address with a port (\"127.0.0.1:7000\"), or a list of such";
    fn from_toml(value: &toml::Value) -> Option<Self> {
        let one = |value: &toml::Value| value.as_str()?.parse().ok();
        match value.as_array() {
            Some(list) if !list.is_empty() => list.iter().map(one).collect::<Option<_>>().map(Self),
            Some(_) => None,
            None => one(value).map(|address| Self(vec![address])),
        }
    }
    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_of_a_file_are_told_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.toml");
        let text = "listen = 'here'\ncatalog = 'catalog.sqlite'\nfleet_key_file = 'none'\nsecrets_dir = '.'\n\
            base_domain = 'local host'\nplatform_domain = 'localhost'\ncolour = 'red'\n\
            tokens = [{ role = 'king', name = 'a', file = 'a' }]\n[limits]\nwait_max = '2h'";
        std::fs::write(&path, text).unwrap();
        let faults = Config::load(&path).err().unwrap();
        let keys: Vec<_> = faults.list().iter().map(|f| f.key.as_str()).collect();
        for key in [
            "listen",
            "fleet_key_file",
            "tokens[0].role",
            "base_domain",
            "limits.wait_max",
            "colour",
        ] {
            assert!(keys.contains(&key), "{key} in {keys:?}");
        }
    }

    #[test]
    fn a_pods_token_is_bound_to_it_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let key = FleetKeys::generate("k1").unwrap();
        std::fs::write(dir.path().join("key"), key.to_text()).unwrap();
        let path = dir.path().join("control.toml");
        let text = "listen = '127.0.0.1:0'\ncatalog = 'catalog.sqlite'\nfleet_key_file = 'key'\nsecrets_dir = '.'\n\
            base_domain = 'localhost'\nplatform_domain = 'localhost'\n\
            tokens = [{ role = 'operator', name = 'operator', file = 'a' }, { role = 'pod', name = 'pod-7', file = 'b' }]";
        std::fs::write(&path, text).unwrap();
        let config = Config::load(&path).unwrap();
        assert_eq!(config.tokens[1].pod, Some(PodId::new(7).unwrap()));
        std::fs::write(&path, text.replace("pod-7", "seven")).unwrap();
        let faults = Config::load(&path).err().unwrap();
        assert_eq!(faults.list()[0].key, "tokens[1].name");
    }
}
