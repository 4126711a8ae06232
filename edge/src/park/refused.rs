//! What is told of a request that is to be parked.

use std::time::Instant;

use shared::{Epoch, PodId, ShopId};

use super::settings::Reason;

/// A request that a pod refused, or whose shop is known to refuse.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub(crate) shop: ShopId,
    /// Where it goes.
    pub(crate) place: Row,
    /// Why it was refused, and when it was sent; `None` if it was not sent: its shop is known to refuse, or had its turn and
    /// the edge has no room for it.
    pub(crate) by_pod: Option<(Reason, Instant)>,
}

/// Where a shop is: its row of the route table, or what a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) pod: PodId,
    pub(crate) epoch: Epoch,
    /// An operator took it offline.
    pub(crate) offline: bool,
}
