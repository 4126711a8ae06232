//! Which pod owns a shop, under which epoch, in which state.

use serde::{Deserialize, Serialize};

use crate::{Epoch, PodId, ShopId};

/// What the catalog says of a shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The tenant.
    pub shop: ShopId,
    /// The pod that owns it.
    pub pod: PodId,
    /// Under which number it does.
    pub epoch: Epoch,
    /// What an operator allows.
    pub state: PlacementState,
}

/// What an operator allows for a shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementState {
    /// Reads and writes.
    Serving,
    /// Reads only, until an operator says otherwise.
    Frozen,
    /// Neither: the edge answers 503 by itself.
    Offline,
}

impl PlacementState {
    /// All of them, for tables and help texts.
    pub const ALL: [Self; 3] = [Self::Serving, Self::Frozen, Self::Offline];

    /// The word in SQL, JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Frozen => "frozen",
            Self::Offline => "offline",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }
}
