//! The number on a placement that only grows.

use serde::{Deserialize, Serialize};

/// The epoch of a placement. Each move reserves the next one when it is created; an aborted move's epoch is never
/// used again. No arithmetic but [`Epoch::next`], and no `Display`: only wire formats and SQL turn it into a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Epoch(u64);

/// An epoch is a positive number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("epoch {0} is not valid: epochs start at 1")]
pub struct InvalidEpoch(u64);

impl Epoch {
    /// The epoch of a shop that never moved.
    pub const FIRST: Self = Self(1);

    /// The epoch after this one.
    ///
    /// # Panics
    /// Never in practice: one move a nanosecond would take 584 years to get there.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number, for SQL and wire formats.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for Epoch {
    type Error = InvalidEpoch;
    fn try_from(raw: u64) -> Result<Self, InvalidEpoch> {
        if raw == 0 {
            Err(InvalidEpoch(raw))
        } else {
            Ok(Self(raw))
        }
    }
}

impl From<Epoch> for u64 {
    fn from(epoch: Epoch) -> u64 {
        epoch.0
    }
}
