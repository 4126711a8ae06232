//! The id of a move.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::id::Invalid;

/// A move's id: UUIDv7, so that ids sort by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MoveId(Uuid);

impl MoveId {
    /// A new one.
    pub fn random() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for MoveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for MoveId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Uuid::parse_str(text)
            .map(Self)
            .map_err(|_| Invalid::new("move id", text, "a UUID, as `podctl move list` shows it"))
    }
}
