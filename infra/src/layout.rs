//! What a fleet consists of on one machine: every unit with its command and its configuration. Pure: the wish, the ports
//! and the programs come in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use shared::PodId;

use crate::fleet_file::{FleetFile, PodWish};
use crate::home_dir::HomeDir;
use crate::mysqld::Mysqld;
use crate::secrets::{self, Account};
use crate::unit::{Desired, Facts, Kind, Stop, Unit};

mod files;
mod register;

/// The control server's unit.
pub(crate) const CONTROL: &str = "control";

/// The programs that units run.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) podctl: PathBuf,
    pub(crate) edge: PathBuf,
    pub(crate) pod: PathBuf,
    pub(crate) redis: PathBuf,
    pub(crate) mysqld: Mysqld,
    /// Whether units run as root: MySQL wants to be told that this is meant.
    pub(crate) root: bool,
}

/// The ports of one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitPorts {
    pub(crate) main: u16,
    pub(crate) admin: Option<u16>,
}

/// A configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// A command that says whether the program takes the file.
    pub(crate) check: Option<Vec<String>>,
}

/// A unit as it shall be.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) unit: Unit,
    pub(crate) file: ConfigFile,
    /// Where the password of a database server's operator is.
    pub(crate) secret: Option<PathBuf>,
}

/// Everything as it shall be, by name.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) units: BTreeMap<String, Wanted>,
}

/// A unit that needs ports, before it has any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) pod: Option<PodId>,
    /// Counts from 1 within its kind and pod.
    pub(crate) number: u16,
}

impl Seat {
    fn new(name: String, kind: Kind, pod: Option<PodId>, number: u16) -> Self {
        Self {
            name,
            kind,
            pod,
            number,
        }
    }

    /// Whether it has a second port for health and metrics.
    pub(crate) const fn has_admin(&self) -> bool {
        matches!(self.kind, Kind::Edge | Kind::Pod)
    }
}

pub(crate) fn mysql_name(pod: PodId, server: u16) -> String {
    format!("mysql-{pod}-{server}")
}

pub(crate) fn redis_name(pod: PodId) -> String {
    format!("redis-{pod}")
}

pub(crate) fn process_name(pod: PodId, process: u16) -> String {
    format!("pod-{pod}-{process}")
}

/// Every unit that the wish asks for.
pub(crate) fn seats(fleet: &FleetFile) -> Vec<Seat> {
    let mut seats = vec![Seat::new(CONTROL.into(), Kind::Control, None, 1)];
    for pod in &fleet.pods {
        let id = Some(pod.id);
        seats.extend(
            pod.servers()
                .map(|k| Seat::new(mysql_name(pod.id, k), Kind::Mysql, id, k)),
        );
        seats.push(Seat::new(redis_name(pod.id), Kind::Redis, id, 1));
        let processes = 1..=pod.processes;
        seats.extend(processes.map(|n| Seat::new(process_name(pod.id, n), Kind::Pod, id, n)));
    }
    let edges = 1..=fleet.edge.count;
    seats.extend(edges.map(|n| Seat::new(format!("edge-{n}"), Kind::Edge, None, n)));
    seats
}

/// What the pieces below are made from.
struct Maker<'a> {
    home: &'a HomeDir,
    fleet: &'a FleetFile,
    programs: &'a Programs,
    ports: &'a BTreeMap<String, UnitPorts>,
    kept: &'a BTreeSet<PodId>,
}

impl Layout {
    /// Everything, with every configuration rendered. `kept` are the pods that have units: one whose lines are gone from
    /// the file serves on, and so its token stays good.
    pub(crate) fn make(
        home: &HomeDir,
        fleet: &FleetFile,
        programs: &Programs,
        ports: &BTreeMap<String, UnitPorts>,
        kept: &BTreeSet<PodId>,
    ) -> anyhow::Result<Self> {
        let maker = Maker {
            home,
            fleet,
            programs,
            ports,
            kept,
        };
        let units = seats(fleet).into_iter().map(|seat| {
            let name = seat.name.clone();
            let wanted = maker
                .wanted(seat)
                .with_context(|| format!("lay out unit {name}"))?;
            Ok((name, wanted))
        });
        Ok(Self {
            units: units.collect::<anyhow::Result<_>>()?,
        })
    }

    /// A unit.
    pub(crate) fn unit(&self, name: &str) -> anyhow::Result<&Wanted> {
        self.units
            .get(name)
            .with_context(|| format!("there is no unit {name} in fleet.toml"))
    }

    /// A pod's units of one kind, by name.
    pub(crate) fn of_pod(&self, pod: PodId, kind: Kind) -> Vec<&Wanted> {
        self.units
            .values()
            .filter(|it| it.unit.pod == Some(pod) && it.unit.kind == kind)
            .collect()
    }

    /// The edges.
    pub(crate) fn edges(&self) -> Vec<&Wanted> {
        self.units
            .values()
            .filter(|it| it.unit.kind == Kind::Edge)
            .collect()
    }
}

impl Maker<'_> {
    fn wanted(&self, seat: Seat) -> anyhow::Result<Wanted> {
        let ports = self.ports_of(&seat.name)?;
        let (file, restart_on) = self.file(&seat, ports)?;
        let command = self.command(&seat, &file.path);
        let revision = revision(&command, &restart_on);
        let facts = self.facts(&seat, ports);
        let is_mysql = seat.kind == Kind::Mysql;
        let stop = if is_mysql { Stop::Mysql } else { Stop::Term };
        let operator = |pod| self.password_file(Account::Operator, pod);
        let secret = seat.pod.filter(|_| is_mysql).map(operator);
        let unit = Unit {
            name: seat.name,
            kind: seat.kind,
            pod: seat.pod,
            command,
            desired: Desired::Running,
            stop,
            revision,
            facts,
        };
        Ok(Wanted { unit, file, secret })
    }

    fn ports_of(&self, unit: &str) -> anyhow::Result<UnitPorts> {
        self.ports
            .get(unit)
            .copied()
            .with_context(|| format!("unit {unit} has no ports"))
    }

    /// Where a unit's service listens.
    fn listen(&self, unit: &str) -> anyhow::Result<String> {
        Ok(format!("127.0.0.1:{}", self.ports_of(unit)?.main))
    }

    fn edge_listen(&self, ports: UnitPorts) -> SocketAddr {
        SocketAddr::new(self.fleet.edge.listen.ip(), ports.main)
    }

    fn pod_wish(&self, seat: &Seat) -> anyhow::Result<&PodWish> {
        let pod = self.fleet.pods.iter().find(|pod| Some(pod.id) == seat.pod);
        pod.with_context(|| format!("unit {} belongs to no pod", seat.name))
    }

    fn command(&self, seat: &Seat, config: &Path) -> Vec<String> {
        let Programs {
            podctl,
            edge,
            pod,
            redis,
            mysqld,
            root: _,
        } = self.programs;
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let with_config = |program: &Path| vec![path(program), "--config".into(), path(config)];
        match seat.kind {
            Kind::Control => vec![
                path(podctl),
                "serve".into(),
                "--config".into(),
                path(config),
            ],
            Kind::Edge => with_config(edge),
            Kind::Pod => with_config(pod),
            Kind::Redis => vec![path(redis), path(config)],
            // The defaults file must be the server's first option.
            Kind::Mysql => {
                let mut words = mysqld.words.clone();
                words.push(format!("--defaults-file={}", config.display()));
                words
            }
        }
    }

    fn facts(&self, seat: &Seat, ports: UnitPorts) -> Facts {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        match seat.kind {
            Kind::Control => Facts {
                http: Some(url(ports.main)),
                ..Facts::default()
            },
            Kind::Pod => Facts {
                http: Some(url(ports.main)),
                admin: ports.admin.map(url),
                ..Facts::default()
            },
            Kind::Edge => Facts {
                http: Some(format!("http://{}", self.edge_listen(ports))),
                admin: ports.admin.map(url),
                port: Some(ports.main),
                ..Facts::default()
            },
            Kind::Redis => Facts {
                port: Some(ports.main),
                ..Facts::default()
            },
            Kind::Mysql => Facts {
                port: Some(ports.main),
                socket: seat.pod.map(|pod| self.home.mysql_socket(pod, seat.number)),
                ..Facts::default()
            },
        }
    }

    /// A secret's file, for a configuration.
    fn secret(&self, name: &str) -> PathBuf {
        self.home.secret_file(name)
    }

    fn tokens(&self) -> String {
        let mut tokens = vec![
            (
                "operator",
                "operator".to_owned(),
                self.secret(secrets::OPERATOR_TOKEN),
            ),
            ("edge", "edge".to_owned(), self.secret(secrets::EDGE_TOKEN)),
        ];
        let wished = self.fleet.pods.iter().map(|pod| pod.id);
        let pods: BTreeSet<PodId> = wished.chain(self.kept.iter().copied()).collect();
        for pod in pods {
            let file = self.secret(&secrets::pod_token(pod));
            tokens.push(("pod", format!("pod-{pod}"), file));
        }
        files::tokens(&tokens)
    }

    fn password_file(&self, account: Account, pod: PodId) -> PathBuf {
        account.password_file(self.home, pod)
    }
}

/// Another command or another configuration gives another revision, and a restart.
fn revision(command: &[String], restart_on: &str) -> String {
    let mut hash = Sha256::new();
    for word in command {
        hash.update(word);
        hash.update([0]);
    }
    hash.update(restart_on);
    hash.finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests;
