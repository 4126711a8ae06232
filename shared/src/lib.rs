//! What the parts of Podhost agree on: types, rules and formats, and nothing that talks to a network or a database.
//!
//! In reading order. What must never come in here: SQL, an HTTP client or server, a runtime. `config` reads one
//! file and `telemetry` starts the exporters; nothing else does I/O.

// Ids of shops and pods, handles and hosts: checked when made, so that nobody holds a wrong one.
pub mod id;
pub use id::{Handle, Host, PodId, ShopId};

// The number on a placement that only grows.
pub mod epoch;
pub use epoch::Epoch;

// Which pod owns a shop, under which epoch, in which state.
pub mod placement;
pub use placement::{Placement, PlacementState};

// What a pod may do for a shop: the home row and the table of what it allows.
pub mod home;

// The states of a move, and the one table of how they follow each other.
pub mod moves;

// The times of a write, a fence, a pause and a parked request, each within the next.
pub mod pause;

// Sets of transactions as MySQL writes them.
pub mod gtid;

// Fleet and pod keys.
pub mod keys;

// The headers between edge and pod, their signature, and the answer "not here".
pub mod wire;

// The route table: what an edge reads of the catalog.
pub mod routes;
pub use routes::RouteTable;

// Kinds of errors: what happened, whose fault it is, whether it may be retried.
pub mod error;

// Strict TOML configuration that reports everything that is wrong with a file at once.
pub mod config;

// How long to wait before the next try.
pub mod backoff;

// Logs, traces and metrics of a process.
pub mod telemetry;

// The settings that a pod's MySQL servers must have, each with its reason.
pub mod mysql;
