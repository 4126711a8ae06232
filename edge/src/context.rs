//! What the edge knows of one request while it is on its way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use rand::RngExt as _;
use shared::{Epoch, PodId, ShopId};
use uuid::Uuid;

use crate::connection::Connection;
use crate::identify::Named;
use crate::limits::{PodPermit, ShopPermit};
use crate::park::{Place, Reason};
use crate::reply::Reply;
use crate::upstream::{Pod, Process};

/// A request on its way.
pub(crate) struct Context {
    pub(crate) started: Instant,
    pub(crate) request: Uuid,
    /// `request` as a field's value.
    pub(crate) request_value: HeaderValue,
    pub(crate) connection: Option<Arc<Connection>>,
    pub(crate) route: Option<Route>,
    /// The process that is asked, or was asked last.
    pub(crate) process: Option<Arc<Process>>,
    /// Processes that could not be connected to, or gave no answer when they were asked.
    pub(crate) tried: Vec<SocketAddr>,
    pub(crate) forwards: u16,
    /// Those of them that ended in a park.
    pub(crate) parks: u16,
    /// How long it was parked, all times together.
    pub(crate) parked: Duration,
    /// The seat of a request that is or was parked, until a pod has answered it.
    pub(crate) place: Option<Place>,
    /// It was let through to ask whether a shop that is fenced for too long takes requests again.
    pub(crate) scout: bool,
    pub(crate) again: Again,
    /// The last reason of a pod that said "not here".
    pub(crate) fence: Option<&'static str>,
    /// The edge's own answer: the one in store while a process is tried, then the one that was given.
    pub(crate) reply: Option<Reply>,
    /// The shop cookie is missing, or half of its age is over.
    pub(crate) set_cookie: bool,
    pub(crate) shop_permit: Option<ShopPermit>,
    pub(crate) pod_permit: Option<PodPermit>,
    pub(crate) forwarded: Option<Instant>,
    pub(crate) pod_answered: Option<Instant>,
    /// Only where spans are exported.
    pub(crate) span: Option<tracing::Span>,
}

/// Where a request goes.
pub(crate) struct Route {
    pub(crate) shop: ShopId,
    pub(crate) epoch: Epoch,
    pub(crate) named: Named,
    pub(crate) pod: Arc<Pod>,
}

impl Route {
    pub(crate) fn pod_id(&self) -> PodId {
        self.pod.id
    }
}

/// Whether an attempt that failed is followed by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// No: the pod may have begun, or nothing has failed.
    No,
    /// Yes, to where `route` says.
    Send,
    /// Yes, after the catalog was asked.
    Refresh,
    /// Yes, after it was parked, because the pod said so or the shop's gate is closed.
    Park(Option<Reason>),
}

impl Context {
    pub(crate) fn new() -> Self {
        let request = request_id();
        let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
        let text = request.hyphenated().encode_lower(&mut text);
        let request_value = HeaderValue::from_str(text);
        Self {
            started: Instant::now(),
            request,
            // Hex and hyphens are a field's value.
            request_value: request_value.unwrap_or_else(|_| HeaderValue::from_static("")),
            connection: None,
            route: None,
            process: None,
            tried: Vec::new(),
            forwards: 0,
            parks: 0,
            parked: Duration::ZERO,
            place: None,
            scout: false,
            again: Again::No,
            fence: None,
            reply: None,
            set_cookie: false,
            shop_permit: None,
            pod_permit: None,
            forwarded: None,
            pod_answered: None,
            span: None,
        }
    }
}

/// A UUIDv7. `Uuid::now_v7` would ask the kernel for randomness each time.
pub(crate) fn request_id() -> Uuid {
    let random: [u8; 10] = rand::rng().random();
    uuid::Builder::from_unix_timestamp_millis(unix_ms(), &random).into_uuid()
}

/// The time on the wire.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_are_of_version_7_and_differ() {
        let (a, b) = (request_id(), request_id());
        assert_eq!(a.get_version_num(), 7);
        assert_ne!(a, b);
        let (seconds, _) = a.get_timestamp().unwrap().to_unix();
        assert!(seconds.abs_diff(unix_ms() / 1000) <= 1);
    }
}
