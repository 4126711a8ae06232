//! `fleet.toml`, the wish: which edges and pods there shall be. Strict: every fault of the file is named at once.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use serde::Serialize;
use shared::config::{self, Faults, Section};
use shared::{Host, PodId};

use crate::api::{WORD_RULE, is_word};
use crate::home_dir::HomeDir;
use crate::mover::MoveLimits;

mod edit;

pub use edit::{PodNew, add_pod};
pub(crate) use edit::{set_edge_port, write_first};

/// Where buyers come in, unless somebody says otherwise.
pub const EDGE_PORT: u16 = 8080;

/// A shop's database rows, its caches and its traffic must fit beside all others'. `max_shops` of a pod.
const MAX_SHOPS: u64 = 10_000;

/// One MySQL server serves thousands of shops; a million is a slip of the finger.
pub const SHOPS_PER_POD_MAX: u64 = 1_000_000;

/// With fewer than two replicas a promoted server has nobody to acknowledge its commits, and takes none. Four are as
/// many as one machine starts within the time a start may take. `replicas` of a pod.
const REPLICAS: RangeInclusive<u16> = 2..=4;

/// One process is enough to serve; eight use up a machine. `processes` of a pod.
const PROCESSES: RangeInclusive<u16> = 1..=8;

/// `edge.count`; none means that nobody is served.
const EDGES: RangeInclusive<u16> = 0..=8;

/// A pod's name goes into tables, file names and metrics.
const NAME_LEN_MAX: usize = 40;

/// The whole wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetFile {
    /// A shop is `<handle>.<base_domain>`.
    pub base_domain: Host,
    /// Where paths name shops.
    pub platform_domain: Host,
    /// The edges.
    pub edge: EdgeWish,
    /// What is written of moves, as the control server's file has it; empty where the defaults hold.
    pub moves: String,
    /// The pods, by id.
    pub pods: Vec<PodWish>,
}

/// The edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeWish {
    /// Where the first one listens; each further one a port higher.
    pub listen: SocketAddr,
    /// How many.
    pub count: u16,
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodWish {
    /// Its number, for ever.
    pub id: PodId,
    /// Its name, unique.
    pub name: String,
    /// Where it is.
    pub region: String,
    /// The budget it draws on.
    pub pool: String,
    /// How large it is.
    pub class: String,
    /// How many shops it takes.
    pub max_shops: u64,
    /// Database servers beside the primary.
    pub replicas: u16,
    /// Application processes.
    pub processes: u16,
}

impl PodWish {
    /// Its database servers: the first is the primary when the pod is new.
    pub const fn servers(&self) -> RangeInclusive<u16> {
        1..=self.replicas + 1
    }
}

/// What the fleet is made of.
#[derive(Debug, Clone, Copy)]
enum Template {
    /// Processes on this machine.
    Local,
}

impl FleetFile {
    /// Reads a home's file.
    pub fn load(home: &HomeDir) -> Result<Self, Faults> {
        config::load(&home.fleet_file(), Self::read)
    }

    /// The next pod's id: above every other's.
    pub fn next_id(&self) -> anyhow::Result<PodId> {
        let last = self.pods.iter().map(|pod| pod.id.get()).max().unwrap_or(0);
        Ok(PodId::new(u64::from(last) + 1)?)
    }

    fn read(s: &mut Section<'_>) -> Option<Self> {
        let base_domain = s.parsed("base_domain");
        let platform_domain = s.parsed("platform_domain");
        // One word so far; the file names it so that a later podctl does not guess.
        let Template::Local = s.word("template", Template::Local, &[("local", Template::Local)]);
        let region = s.section("defaults", |s| word(s, "region", "local"));
        let edge = s.section("edge", EdgeWish::read);
        let moves = s.section("moves", moves);
        let pods = s.sections("pod", |s| PodWish::read(s, &region));
        let pods = pods.map(|mut pods| {
            check_unique(s, &pods);
            pods.sort_by_key(|pod| pod.id);
            pods
        });
        Some(Self {
            base_domain: base_domain?,
            platform_domain: platform_domain?,
            edge,
            moves,
            pods: pods?,
        })
    }
}

impl EdgeWish {
    fn read(s: &mut Section<'_>) -> Self {
        let listen = s.or(
            "listen",
            SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), EDGE_PORT),
        );
        let count = s.within("count", 1, EDGES);
        if listen.port() == 0 {
            s.fault(
                "listen",
                "port 0 is no port; `podctl up --edge-port 0` picks a free one and writes it here",
            );
        } else if listen.port().checked_add(count.saturating_sub(1)).is_none() {
            s.fault(
                "listen",
                format!("there are not {count} ports from {} on", listen.port()),
            );
        }
        Self { listen, count }
    }
}

impl PodWish {
    fn read(s: &mut Section<'_>, region: &str) -> Option<Self> {
        let id = s.required("id");
        let name: Option<String> = s.required("name");
        if let Some(name) = name.as_deref().filter(|name| !is_name(name)) {
            s.fault("name", format!("{name:?} is not a name: {NAME_RULE}"));
        }
        let region = word(s, "region", region);
        let pool = word(s, "pool", "shared");
        let class = word(s, "class", "small");
        let max_shops = s.within("max_shops", MAX_SHOPS, 1..=SHOPS_PER_POD_MAX);
        let replicas = s.within("replicas", *REPLICAS.start(), REPLICAS);
        let processes = s.within("processes", 2, PROCESSES);
        Some(Self {
            id: id?,
            name: name?,
            region,
            pool,
            class,
            max_shops,
            replicas,
            processes,
        })
    }
}

/// The control server reads the same table. It is read here too, so that whoever applies the file hears what is wrong with
/// it, and not a server that does not start any more.
fn moves(s: &mut Section<'_>) -> String {
    let written = s.table();
    MoveLimits::read(s);
    if written.is_empty() {
        String::new()
    } else {
        format!("[moves]\n{written}").trim_end().to_owned()
    }
}

/// A name that the catalog will take: refused here, before anything is made for it.
fn word(s: &mut Section<'_>, key: &str, default: &str) -> String {
    let word = s.or(key, default.to_owned());
    if !is_word(&word) {
        s.fault(key, format!("{word:?} is not {WORD_RULE}"));
    }
    word
}

/// What a pod's name looks like. Not a number: a pod is named by either.
pub(crate) const NAME_RULE: &str =
    "1 to 40 of a-z, 0-9 and -, with a letter first and no - at the end";

pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= NAME_LEN_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn check_unique(s: &Section<'_>, pods: &[PodWish]) {
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (index, pod) in pods.iter().enumerate() {
        if !ids.insert(pod.id) {
            s.fault(
                &format!("pod[{index}].id"),
                format!("{} is another pod's id already", pod.id),
            );
        }
        if !names.insert(&pod.name) {
            s.fault(
                &format!("pod[{index}].name"),
                format!("{:?} is another pod's name already", pod.name),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FleetFile, Faults> {
        config::parse("fleet.toml".as_ref(), text, FleetFile::read)
    }

    #[test]
    fn the_first_fleet_has_two_pods_with_two_replicas_and_two_processes() {
        let folder = tempfile::tempdir().unwrap();
        let home = HomeDir::at(folder.path()).create().unwrap();
        edit::write_first(&home, 8080).unwrap();
        let fleet = FleetFile::load(&home).unwrap();
        assert_eq!(
            fleet.edge,
            EdgeWish {
                listen: "127.0.0.1:8080".parse().unwrap(),
                count: 1
            }
        );
        let pods: Vec<_> = fleet
            .pods
            .iter()
            .map(|p| (p.id.get(), p.name.as_str(), p.replicas, p.processes))
            .collect();
        assert_eq!(pods, [(1, "north", 2, 2), (2, "south", 2, 2)]);
        assert_eq!(fleet.pods[0].region, "local");
        assert_eq!(fleet.pods[0].servers().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn moves_have_their_limits_here_and_a_fault_names_the_key() {
        const PODS: &str = "base_domain='localhost'\nplatform_domain='localhost'\n";
        let text = |moves: &str| format!("{PODS}{moves}");
        assert_eq!(parse(PODS).unwrap().moves, "");
        let moves = parse(&text("[moves]\nstreams = 5\nobserve = '77s'"));
        let table: toml::Table = moves.unwrap().moves.parse().unwrap();
        assert_eq!(table["moves"]["streams"].as_integer(), Some(5));
        assert_eq!(table["moves"]["observe"].as_str(), Some("77s"));
        let faults = parse(&text(
            "[moves]\nstreams = 99\nnice = 2\nfence_bound = '3s'\nfence_kill_after = '4s'\nlease = 2",
        ));
        let faults = faults.unwrap_err().to_string();
        for fault in [
            "fleet.toml: moves.streams: 99 is not within 1 and 32",
            "moves.nice: unknown key; known here: ",
            "moves.fence_bound: 3s is not above fence_kill_after (4s)",
            "moves.lease: 2 is not a duration",
        ] {
            assert!(faults.contains(fault), "{fault:?} in\n{faults}");
        }
        let faults = parse(&text("moves = 3")).unwrap_err().to_string();
        assert!(faults.contains("moves: 3 is not a table"), "{faults}");
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let text = "base_domain = 'localhost'\nplatform_domain = 'no spaces'\ntemplate = 'cloud'\nedge.count = 99\n\
            [[pod]]\nid = 0\nname = 'Nord'\nreplicas = 1\nmax_shops = 1000001\nsize = 'xl'\nregion = 'E U'\n\
            [[pod]]\nid = 1\nname = 'b'\n[[pod]]\nid = 1\nname = 'b'";
        let faults = parse(text).unwrap_err().to_string();
        for fault in [
            "platform_domain: ",
            "template: \"cloud\" is not one of local",
            "edge.count: 99 is not within 0 and 8",
            "pod[0].id: ",
            "pod[0].name: \"Nord\" is not a name",
            "pod[0].replicas: 1 is not within 2 and 4",
            "pod[0].max_shops: 1000001 is not within 1 and 1000000",
            "pod[0].size: unknown key",
            "pod[0].region: \"E U\" is not 1 to 40 of",
        ] {
            assert!(faults.contains(fault), "{fault:?} in\n{faults}");
        }
        let twice = parse(
            "base_domain='localhost'\nplatform_domain='localhost'\n[[pod]]\nid=1\nname='b'\n[[pod]]\nid=1\nname='b'",
        );
        let twice = twice.unwrap_err().to_string();
        assert!(
            twice.contains("pod[1].id: 1 is another")
                && twice.contains("pod[1].name: \"b\" is another"),
            "{twice}"
        );
    }
}
