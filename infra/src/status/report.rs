//! What `podctl status --json` says. Scripts lean on every name here: fields are added, never renamed.

use serde::Serialize;
use shared::moves::{MoveId, MoveState};
use shared::{Epoch, Handle, PlacementState, PodId, ShopId};

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Each shop answers at `<handle>.<base_domain>`.
    pub base_domain: String,
    /// The routers.
    pub edges: Vec<Edge>,
    /// The control servers.
    pub controls: Vec<ControlServer>,
    /// By id.
    pub pods: Vec<Pod>,
    /// By id. Empty where no control server answers: see `unreachable`.
    pub shops: Vec<Shop>,
    /// Moves that are open, the newest first.
    pub moves: Vec<Move>,
    /// What did not answer, so that a part of the report is missing or as of the last apply: `control`.
    pub unreachable: Vec<&'static str>,
}

/// An open move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Move {
    /// UUID.
    pub id: MoveId,
    /// The shop's handle.
    pub shop: Handle,
    /// The name of the pod it comes from.
    pub from: String,
    /// The name of the pod it goes to.
    pub to: String,
    /// Where it stands.
    pub state: MoveState,
    /// What it waits for, or why it failed.
    pub note: Option<String>,
}

/// A router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// Where buyers come in.
    pub http: Option<String>,
    /// Its health and metrics.
    pub admin: Option<String>,
    /// None while it does not run.
    pub pid: Option<u32>,
}

/// A control server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ControlServer {
    /// Its interface.
    pub http: Option<String>,
    /// None while it does not run.
    pub pid: Option<u32>,
    /// The file with the operator's token.
    pub operator_token_file: String,
}

/// A pod with its processes and servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pod {
    /// The number.
    pub id: PodId,
    /// The name.
    pub name: String,
    /// `active`, `draining` or `offline`; `unknown` where no control server answers.
    pub status: String,
    /// The first process's.
    pub http: Option<String>,
    /// The application processes.
    pub processes: Vec<Process>,
    /// The database servers.
    pub mysql: Mysql,
    /// The cache.
    pub redis: Redis,
}

/// An application process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Where edges reach it.
    pub http: Option<String>,
    /// Its health and metrics.
    pub admin: Option<String>,
    /// None while it does not run.
    pub pid: Option<u32>,
}

/// The database servers of a pod, and the operator's account on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mysql {
    /// May create tables and change replication.
    pub user: String,
    /// The file with its password.
    pub password_file: String,
    /// The database with the shops' rows.
    pub database: String,
    /// Who takes writes.
    pub primary: Option<Server>,
    /// Who follows.
    pub replicas: Vec<Server>,
}

/// A database server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Server {
    /// Name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Its socket file, where it is on this machine.
    pub socket: Option<String>,
    /// None while it does not run, or runs elsewhere.
    pub pid: Option<u32>,
}

/// A cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Redis {
    /// `redis://host:port`.
    pub url: Option<String>,
    /// None while it does not run, or runs elsewhere.
    pub pid: Option<u32>,
}

/// A shop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shop {
    /// The tenant.
    pub id: ShopId,
    /// Its short name.
    pub handle: Handle,
    /// Every name that reaches it, `<handle>.<base_domain>` first.
    pub hosts: Vec<String>,
    /// The pod that owns it.
    pub pod: PodId,
    /// Under which number.
    pub epoch: Epoch,
    /// What an operator allows.
    pub state: PlacementState,
    /// The state of its latest move.
    pub r#move: Option<String>,
}
