//! The steps of a plan. Each knows how to see that it is done, how to do it, and how to do it again after it was cut
//! off anywhere: what it writes is replaced whole, what it copies gets its name at the end, what it tells a server can
//! be told twice.

use std::fmt;

use serde::{Serialize, Serializer};
use shared::PodId;

use crate::observe::World;

// What the control server is told.
mod catalog;

// Processes.
mod processes;

// Files, secrets and data folders.
mod files;

// What is done on database servers.
mod stores;

pub(crate) use processes::serves;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The fleet's keys and tokens.
    FleetSecrets,
    /// The control server's configuration, with the tokens of all pods.
    ControlFile,
    /// The control server's process.
    Control,
    /// A pod's keys and passwords.
    PodSecrets {
        /// Whose.
        pod: PodId,
    },
    /// Its servers' data folders.
    Data {
        /// Whose.
        pod: PodId,
    },
    /// The configuration of its servers and its cache.
    StoreFiles {
        /// Whose.
        pod: PodId,
    },
    /// Their processes.
    Stores {
        /// Whose.
        pod: PodId,
    },
    /// Accounts, schema and identity, on its first server.
    Provision {
        /// Whose.
        pod: PodId,
    },
    /// Its other servers follow the first.
    Follow {
        /// Whose.
        pod: PodId,
    },
    /// The control server takes its token.
    Token {
        /// Whose.
        pod: PodId,
    },
    /// The control server knows it.
    Register {
        /// Which.
        pod: PodId,
    },
    /// The control server has opened its primary.
    Open {
        /// Whose.
        pod: PodId,
    },
    /// Its schema is this program's.
    Migrate {
        /// Whose.
        pod: PodId,
    },
    /// The configuration of its processes.
    ProcessFiles {
        /// Whose.
        pod: PodId,
    },
    /// Its processes.
    Processes {
        /// Whose.
        pod: PodId,
    },
    /// It takes shops.
    Activate {
        /// Which.
        pod: PodId,
    },
    /// The configuration of the edges.
    EdgeFiles,
    /// The edges' processes.
    Edges,
    /// A unit that the wish no longer has.
    Remove {
        /// Its name.
        unit: String,
    },
}

impl Step {
    /// The pod that the step belongs to. Steps of different pods may be done at once.
    pub const fn pod(&self) -> Option<PodId> {
        match self {
            Self::PodSecrets { pod }
            | Self::Data { pod }
            | Self::StoreFiles { pod }
            | Self::Stores { pod }
            | Self::Provision { pod }
            | Self::Follow { pod }
            | Self::Token { pod }
            | Self::Register { pod }
            | Self::Open { pod }
            | Self::Migrate { pod }
            | Self::ProcessFiles { pod }
            | Self::Processes { pod }
            | Self::Activate { pod } => Some(*pod),
            Self::FleetSecrets
            | Self::ControlFile
            | Self::Control
            | Self::EdgeFiles
            | Self::Edges
            | Self::Remove { .. } => None,
        }
    }

    /// Whether there is nothing left to do.
    pub(crate) async fn is_done(&self, world: &World) -> anyhow::Result<bool> {
        match self {
            Self::FleetSecrets | Self::PodSecrets { .. } => Ok(false),
            Self::ControlFile
            | Self::StoreFiles { .. }
            | Self::ProcessFiles { .. }
            | Self::EdgeFiles => Ok(self.units(world).iter().all(|it| files::is_written(it))),
            Self::Control | Self::Stores { .. } | Self::Processes { .. } | Self::Edges => {
                processes::all_serve(world, &self.units(world)).await
            }
            Self::Data { pod } => Ok(files::all_data(world, *pod)),
            Self::Provision { pod } => stores::is_provisioned(world, *pod).await,
            Self::Follow { pod } => stores::all_follow(world, *pod).await,
            Self::Token { pod } => Ok(catalog::token_is_known(world, *pod).await),
            Self::Register { pod } => catalog::is_registered(world, *pod).await,
            Self::Open { pod } => stores::is_open(world, *pod).await,
            Self::Migrate { pod } => stores::is_migrated(world, *pod).await,
            Self::Activate { pod } => Ok(world.home.pod_activated(*pod).is_file()),
            Self::Remove { unit } => Ok(!world.home.unit_file(unit).exists()),
        }
    }

    /// Does it.
    pub(crate) async fn run(&self, world: &World) -> anyhow::Result<()> {
        match self {
            Self::FleetSecrets => crate::secrets::make_fleet(&world.home),
            Self::PodSecrets { pod } => crate::secrets::make_pod(&world.home, *pod),
            Self::ControlFile
            | Self::StoreFiles { .. }
            | Self::ProcessFiles { .. }
            | Self::EdgeFiles => files::write(&self.units(world)).await,
            Self::Control | Self::Stores { .. } | Self::Processes { .. } | Self::Edges => {
                processes::start(world, &self.units(world)).await
            }
            Self::Data { pod } => files::copy_data(world, *pod).await,
            Self::Provision { pod } => stores::provision(world, *pod).await,
            Self::Follow { pod } => stores::follow(world, *pod).await,
            Self::Token { pod } => catalog::make_token_known(world, *pod).await,
            Self::Register { pod } => catalog::register(world, *pod).await,
            Self::Open { pod } => stores::wait_until_open(world, *pod).await,
            Self::Migrate { pod } => stores::migrate(world, *pod).await,
            Self::Activate { pod } => catalog::activate(world, *pod).await,
            Self::Remove { unit } => processes::remove(world, unit).await,
        }
    }

    /// The units that it is about.
    fn units<'a>(&self, world: &'a World) -> Vec<&'a crate::layout::Wanted> {
        use crate::unit::Kind;
        let layout = &world.layout;
        match self {
            Self::ControlFile | Self::Control => {
                layout.unit(crate::layout::CONTROL).into_iter().collect()
            }
            Self::StoreFiles { pod } | Self::Stores { pod } => {
                let mut stores = layout.of_pod(*pod, Kind::Mysql);
                stores.extend(layout.of_pod(*pod, Kind::Redis));
                stores
            }
            Self::ProcessFiles { pod } | Self::Processes { pod } => layout.of_pod(*pod, Kind::Pod),
            Self::EdgeFiles | Self::Edges => layout.edges(),
            Self::FleetSecrets
            | Self::PodSecrets { .. }
            | Self::Data { .. }
            | Self::Provision { .. }
            | Self::Follow { .. }
            | Self::Token { .. }
            | Self::Register { .. }
            | Self::Open { .. }
            | Self::Migrate { .. }
            | Self::Activate { .. }
            | Self::Remove { .. } => Vec::new(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FleetSecrets => f.write_str("fleet: make keys and tokens"),
            Self::ControlFile => f.write_str("control: write its configuration"),
            Self::Control => f.write_str("control: start it"),
            Self::PodSecrets { pod } => write!(f, "pod {pod}: make its keys and passwords"),
            Self::Data { pod } => write!(
                f,
                "pod {pod}: copy fresh data folders for its database servers"
            ),
            Self::StoreFiles { pod } => {
                write!(
                    f,
                    "pod {pod}: write the configuration of its database servers and its cache"
                )
            }
            Self::Stores { pod } => {
                write!(f, "pod {pod}: start its database servers and its cache")
            }
            Self::Provision { pod } => write!(f, "pod {pod}: make accounts, schema and identity"),
            Self::Follow { pod } => write!(f, "pod {pod}: attach its replicas"),
            Self::Token { pod } => {
                write!(f, "pod {pod}: make its token known to the control server")
            }
            Self::Register { pod } => write!(f, "pod {pod}: register it with the control server"),
            Self::Open { pod } => write!(
                f,
                "pod {pod}: wait until the control server has opened its primary"
            ),
            Self::Migrate { pod } => write!(f, "pod {pod}: migrate its schema"),
            Self::ProcessFiles { pod } => {
                write!(f, "pod {pod}: write the configuration of its processes")
            }
            Self::Processes { pod } => write!(f, "pod {pod}: start its processes"),
            Self::Activate { pod } => write!(f, "pod {pod}: take it into service"),
            Self::EdgeFiles => f.write_str("edges: write their configuration"),
            Self::Edges => f.write_str("edges: start them"),
            Self::Remove { unit } => {
                write!(f, "{unit}: end it, since it is no longer in fleet.toml")
            }
        }
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
