//! The times in which requests of a shop were parked.

use std::time::{Duration, Instant};

use shared::Epoch;

use super::settings::Reason;

/// One of them, for the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Period {
    pub(crate) reason: Reason,
    pub(crate) since: Instant,
    /// The epoch under which they went on.
    pub(crate) epoch: Epoch,
    /// Requests that took a seat.
    pub(crate) parked: u64,
    /// How often one of them was sent and refused again.
    pub(crate) refused: u64,
    /// The longest that one of them waited.
    pub(crate) longest: Duration,
}
