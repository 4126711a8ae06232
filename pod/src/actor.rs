//! For whom a transaction or a read runs: a request, or a job of this pod.

use shared::home::{Access, Claim};
use shared::wire::Route;
use shared::{Epoch, PodId, ShopId};
use uuid::Uuid;

/// Who acts, for which shop, under which epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Actor {
    route: Route,
    origin: Origin,
    /// What its reads are for.
    access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Request,
    Job,
}

impl Actor {
    /// A request, with its verified headers.
    pub(crate) const fn request(route: Route) -> Self {
        Self {
            route,
            origin: Origin::Request,
            access: Access::Read,
        }
    }

    /// A job, under the epoch that it read in the home before; the transaction reads it again.
    pub(crate) fn job(shop: ShopId, pod: PodId, epoch: Epoch) -> Self {
        Self {
            route: Route {
                shop,
                pod,
                epoch,
                request: Uuid::now_v7(),
            },
            origin: Origin::Job,
            access: Access::Read,
        }
    }

    pub(crate) const fn shop(&self) -> ShopId {
        self.route.shop
    }

    pub(crate) const fn epoch(&self) -> Epoch {
        self.route.epoch
    }

    pub(crate) const fn id(&self) -> Uuid {
        self.route.request
    }

    pub(crate) const fn claim(&self) -> Claim {
        self.route.claim(None)
    }

    /// The same, reading for a write that follows: a fence or a freeze stops it before it begins.
    pub(crate) const fn about_to_write(self) -> Self {
        Self {
            access: Access::Write,
            ..self
        }
    }

    /// What the home must allow for its reads.
    pub(crate) const fn access(&self) -> Access {
        self.access
    }

    pub(crate) const fn is_job(&self) -> bool {
        matches!(self.origin, Origin::Job)
    }
}
