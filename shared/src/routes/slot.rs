//! A shop as the route table stores it: 40 bytes and one allocation for all of its names.

use crate::{Epoch, Placement, PlacementState, PodId, ShopId};

/// Between the names of a shop; in no handle and no host.
const BETWEEN: char = '\n';

/// Which kind of name: a shop may have the handle `snow` while another has the host `snow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NameKind {
    Handle,
    Host,
}

/// A shop as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) placement: Packed,
    names: Box<str>,
}

/// [`Placement`] without the padding of its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed {
    shop: ShopId,
    epoch: Epoch,
    pod: PodId,
    state: PlacementState,
}

impl Packed {
    pub(super) const fn shop(&self) -> ShopId {
        self.shop
    }
}

impl From<Packed> for Placement {
    fn from(packed: Packed) -> Self {
        let Packed {
            shop,
            epoch,
            pod,
            state,
        } = packed;
        Self {
            shop,
            pod,
            epoch,
            state,
        }
    }
}

impl From<Placement> for Packed {
    fn from(placement: Placement) -> Self {
        let Placement {
            shop,
            pod,
            epoch,
            state,
        } = placement;
        Self {
            shop,
            epoch,
            pod,
            state,
        }
    }
}

impl Slot {
    pub(super) fn new<'a>(
        placement: Placement,
        handle: &'a str,
        hosts: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut names = String::from(handle);
        for host in hosts {
            names.push(BETWEEN);
            names.push_str(host);
        }
        Self {
            placement: placement.into(),
            names: names.into_boxed_str(),
        }
    }

    pub(super) fn handle(&self) -> &str {
        self.names.split(BETWEEN).next().unwrap_or_default()
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> + Clone {
        self.names.split(BETWEEN).skip(1)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (NameKind, &str)> + Clone {
        let hosts = self.hosts().map(|host| (NameKind::Host, host));
        std::iter::once((NameKind::Handle, self.handle())).chain(hosts)
    }

    pub(super) fn has(&self, kind: NameKind, name: &str) -> bool {
        match kind {
            NameKind::Handle => self.handle() == name,
            NameKind::Host => self.hosts().any(|host| host == name),
        }
    }
}
