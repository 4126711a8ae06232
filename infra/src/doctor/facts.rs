//! What the doctor looked at. No judgement here.

use std::collections::{BTreeMap, HashMap};

use shared::home::HomeState;
use shared::moves::MoveId;
use shared::{Epoch, PodId, ShopId};
use time::OffsetDateTime;

use crate::api;

/// What was asked for, or why there is no answer. An unknown thing is a finding of its own and says nothing else.
pub type Asked<T> = Result<T, String>;

/// All facts.
#[derive(Debug, Clone)]
pub struct Facts {
    /// When they were taken.
    pub at: OffsetDateTime,
    /// What the control server says.
    pub catalog: Asked<Catalog>,
    /// What each pod's servers say.
    pub pods: BTreeMap<PodId, Pod>,
    /// The steps that bring the fleet to what `fleet.toml` says; none for a fleet elsewhere.
    pub plan: Option<Asked<Vec<String>>>,
    /// Whether a `podctl up` runs the processes of this machine; none for a fleet elsewhere.
    pub supervised: Option<bool>,
    /// What runs on this machine; empty for a fleet elsewhere.
    pub units: Vec<Unit>,
    /// The file systems in use.
    pub disks: Vec<Disk>,
}

impl Facts {
    /// Whether this machine's fleet was ended, all of it.
    pub fn is_stopped(&self) -> bool {
        self.supervised == Some(false) && self.units.iter().all(|unit| unit.pid.is_none())
    }
}

/// What the control server says.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// About itself.
    pub status: api::Status,
    /// All pods.
    pub pods: Vec<api::Pod>,
    /// All shops.
    pub shops: Vec<api::Shop>,
    /// Operations, the unfinished ones first.
    pub operations: Vec<api::Operation>,
    /// Moves: the open ones and those that left a copy first.
    pub moves: Vec<api::Move>,
}

/// A pod's database, as its servers show it.
#[derive(Debug, Clone)]
pub struct Pod {
    /// What the primary holds.
    pub contents: Asked<Contents>,
    /// Each server by its address.
    pub servers: Vec<Server>,
}

/// What stands in a pod's database.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// Whose database it is; none if nobody's.
    pub identity: Option<Identity>,
    /// What it may do for each shop.
    pub homes: BTreeMap<ShopId, Home>,
    /// Which files of SQL were applied.
    pub ledger: Vec<LedgerRow>,
    /// Its tables.
    pub tables: Vec<Table>,
}

/// The row of `pod_identity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The pod.
    pub pod: u64,
    /// The highest term written.
    pub term: u64,
    /// Whether its incarnation is reconciled.
    pub reconciled: bool,
}

/// A row of `shop_home`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// The epoch.
    pub epoch: Epoch,
    /// What it allows.
    pub state: HomeState,
    /// The move that has it in hand.
    pub move_id: Option<MoveId>,
}

/// A row of `schema_ledger`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRow {
    /// The file.
    pub version: u32,
    /// The text that was applied.
    pub checksum: String,
    /// Whether it was applied to its end.
    pub finished: bool,
}

/// A table and the first column of each of its unique keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Whether it has a column `shop_id`.
    pub has_shop: bool,
    /// The first column of the primary key, if there is one.
    pub primary_first: Option<String>,
    /// Unique keys (the primary one too) that do not begin with `shop_id`.
    pub unique_elsewhere: Vec<String>,
}

/// A database server.
#[derive(Debug, Clone)]
pub struct Server {
    /// `host:port`.
    pub address: String,
    /// Whether the catalog names it as primary.
    pub is_primary: bool,
    /// Its answer.
    pub state: Asked<ServerState>,
}

/// What a database server says of itself.
#[derive(Debug, Clone, Default)]
pub struct ServerState {
    /// Global variables, names in lower case.
    pub variables: HashMap<String, String>,
    /// What it follows, if it follows anybody.
    pub replica: Option<Replica>,
    /// Transactions that the primary lacks; empty where there are none; none where it was not asked.
    pub errant: Option<String>,
}

/// A line of `show replica status`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replica {
    /// `host:port` of its source.
    pub source: String,
    /// The receiver's state: `Yes`, `No`, `Connecting`.
    pub receiver: String,
    /// The applier's state: `Yes`, `No`.
    pub applier: String,
    /// The last fault of either, if any.
    pub fault: String,
}

/// A process of the local fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// Whether it shall run.
    pub wanted: bool,
    /// Its process, if that is alive.
    pub pid: Option<u32>,
    /// Whether it says of itself that it is ready; none where it has no such answer.
    pub ready: Option<Asked<()>>,
    /// The catalog's version in its route table; none where it has none, or did not say.
    pub route_version: Option<u64>,
    /// Where its log is.
    pub log: String,
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// A folder on it.
    pub path: String,
    /// Bytes that are left.
    pub free: u64,
    /// Bytes that there are.
    pub total: u64,
}
