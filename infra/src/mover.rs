//! Moves a shop to another pod while it sells.
//!
//! The life of a move, in reading order. Nothing here decides who owns a shop: the catalog's one compare-and-swap does,
//! and each pod's home says what that pod may do. Every transaction of a mover names its move and its owner number at the
//! pod that it changes, so that a mover which wakes up late changes nothing.

// What every part is told.
pub(crate) mod job;

// How much a move may take.
pub(crate) mod limits;

// What an operator watches.
pub(crate) mod progress;

// The moves that are driven here.
pub(crate) mod registry;

// What goes wrong, and what that means for the move.
pub(crate) mod error;

// Connections to the two pods.
pub(crate) mod session;

// The shop's tables, and how their values travel.
pub(crate) mod table;

// Which rows a pod's transactions changed.
pub(crate) mod binlog;

// Keys of changed rows.
mod keys;

// The keys that changed at the source.
pub(crate) mod feed;

// Changes that are not the mover's.
pub(crate) mod tail;

// Holds a move back while its pods have enough to do.
pub(crate) mod throttle;

// How large a piece of work is.
mod size;

// Transactions that are done again.
mod tries;

// Whether a move can be done.
pub(crate) mod preflight;

// Copies the shop's rows.
pub(crate) mod copy;

// Every change of a shop's home.
pub(crate) mod home;

// Makes the target equal, by keys.
pub(crate) mod apply;

// What both servers compute of rows.
mod fingerprint;

// Whether both sides hold the same.
pub(crate) mod verify;

// Rows of a shop at a pod that does not own it, and who else changes them.
pub(crate) mod watched;

// The source's copy: dumped and deleted.
pub(crate) mod retire;

// Whether a pod answers at all.
pub(crate) mod gone;
// What a pod has of a shop that it does not own and that no move left there.
pub(crate) mod foreign;
// What a move left at a pod that does not own the shop.
pub(crate) mod leftover;

// From state to state.
mod driver;

// What a move would do.
pub(crate) mod dry_run;

// One task for each open move.
pub(crate) mod run;

// The one door of everything that a driver changes.
pub(crate) mod step;

// Places at which a test can stop, end or repeat a driver.
#[cfg(feature = "failpoints")]
mod failpoint;

pub use limits::MoveLimits;
pub use progress::ProgressNow;
pub(crate) use registry::Moves;
pub(crate) use run::{Mover, run};
pub use step::Step;
