//! The route table: what an edge needs of the catalog to find the pod of a request.
//!
//! One table is built from a whole export ([`Builder`], [`wire::TableReader`], [`disk::load`]), checked as a whole, and
//! from then on takes one change at a time ([`RouteTable::apply`]) while any number of readers look names up. It says
//! where a shop is; what `<handle>.<base_domain>` means, and which name of a request counts, is the edge's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::{Handle, Host, Placement, PodId, ShopId};
use build::{check_hosts, check_owner, check_pod};
use index::Index;
use slot::{NameKind, Slot};
use wire::{Change, Changes, Header, Now, PodStatus};

// What is wrong with a table, and whether a new one may replace the one in use.
mod fault;
pub use fault::{FAULTS_KEPT_MAX, Fault, Faults, Refusal, check_replacement};

// The table and its changes as text, between control server and edge.
pub mod wire;

// The table as a file, for an edge that starts while no control server answers.
pub mod disk;

mod build;
pub use build::Builder;

mod index;
mod probe;
mod slot;

/// Names of a shop are compared one after the other once its slot is found, so a look-up stays flat only while
/// they are few; and one shop must not fill the table.
pub const HOSTS_PER_SHOP_MAX: usize = 1000;

/// More processes than this behind one pod's name want a balancer of their own.
pub const ADDRESSES_PER_POD_MAX: usize = 256;

/// Where a pod is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRoute {
    /// Its id.
    pub id: PodId,
    /// Its name, for logs.
    pub name: Box<str>,
    /// What an operator wants of it.
    pub status: PodStatus,
    /// Its processes.
    pub http: Box<[SocketAddr]>,
}

type Pods = BTreeMap<PodId, Arc<PodRoute>>;

/// The route table. Shared by all threads of an edge; every method takes `&self`.
#[derive(Debug)]
pub struct RouteTable {
    incarnation: u64,
    base_domain: Host,
    platform_domain: Host,
    version: AtomicU64,
    pods: ArcSwap<Pods>,
    index: Index,
    /// Held by the one who changes the table, and by the last try of one who writes it down.
    writer: Mutex<()>,
}

impl RouteTable {
    /// Builds a table of lines without the header and without the end line.
    pub fn build(
        header: Header,
        lines: impl IntoIterator<Item = wire::Line>,
    ) -> Result<Self, Faults> {
        let mut builder = Builder::new(header);
        for line in lines {
            match line {
                wire::Line::Pod(pod) => builder.pod(pod),
                wire::Line::Shop(shop) => builder.shop(&shop),
                wire::Line::End(_) => {}
            }
        }
        builder.finish()
    }

    /// The shop of a registered domain.
    pub fn lookup_host(&self, host: &Host) -> Option<Placement> {
        self.index.lookup(NameKind::Host, host.as_str())
    }

    /// The shop of a handle.
    pub fn lookup_handle(&self, handle: &Handle) -> Option<Placement> {
        self.index.lookup(NameKind::Handle, handle.as_str())
    }

    /// The placement of a shop.
    pub fn lookup_shop(&self, shop: ShopId) -> Option<Placement> {
        self.index.with_shop(shop, |slot| slot.placement.into())
    }

    /// All that the table holds of a shop.
    pub fn shop(&self, shop: ShopId) -> Option<wire::Shop> {
        self.index.with_shop(shop, to_wire).flatten()
    }

    /// Where a pod is reached.
    pub fn pod(&self, pod: PodId) -> Option<Arc<PodRoute>> {
        self.pods.load().get(&pod).cloned()
    }

    /// All pods, by id.
    pub fn pods(&self) -> Vec<Arc<PodRoute>> {
        self.pods.load().values().cloned().collect()
    }

    /// How many shops there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no shop.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The catalog's version that this table shows.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The history of the catalog that [`Self::version`] is a number of.
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Shops answer at `<handle>.<base_domain>`.
    pub const fn base_domain(&self) -> &Host {
        &self.base_domain
    }

    /// Shops answer at `<platform_domain>/s/<handle>/`.
    pub const fn platform_domain(&self) -> &Host {
        &self.platform_domain
    }

    /// Applies one change. A change that the table shows already is passed over (`false`). After a fault the table is as
    /// before, and a full table is needed: what follows may build on what was refused.
    pub fn apply(&self, change: &Change) -> Result<bool, Fault> {
        let _writer = self.writer.lock();
        if change.version <= self.version() {
            return Ok(false);
        }
        match &change.now {
            Now::Pod(pod) => self.apply_pod(pod)?,
            Now::Shop(shop) => self.apply_shop(shop)?,
            Now::ShopRemoved(shop) => {
                self.index.remove(*shop);
            }
        }
        self.version.store(change.version, Ordering::Release);
        Ok(true)
    }

    /// Applies an answer of the change feed and says how many changes were new.
    pub fn apply_all(&self, answer: &Changes) -> Result<usize, Fault> {
        if answer.incarnation != self.incarnation {
            return Err(Fault::Incarnation {
                held: self.incarnation,
                got: answer.incarnation,
            });
        }
        let mut before = 0;
        for change in &answer.changes {
            let (first, second) = (before, change.version);
            if second <= first || second > answer.version {
                return Err(Fault::Order { first, second });
            }
            before = second;
        }
        let mut applied = 0;
        for change in &answer.changes {
            applied += usize::from(self.apply(change)?);
        }
        // Versions that change nothing for an edge have no line.
        let _writer = self.writer.lock();
        self.version.fetch_max(answer.version, Ordering::AcqRel);
        Ok(applied)
    }

    fn apply_pod(&self, pod: &wire::Pod) -> Result<(), Fault> {
        let pods = self.pods.load_full();
        let mut faults = Faults::default();
        check_pod(pod, &pods, &mut faults);
        if let Some(fault) = faults.kept().first() {
            return Err(fault.clone());
        }
        let mut pods = Pods::clone(&pods);
        pods.insert(pod.id, Arc::new(pod.clone().into()));
        self.pods.store(Arc::new(pods));
        Ok(())
    }

    fn apply_shop(&self, shop: &wire::Shop) -> Result<(), Fault> {
        check_hosts(shop)?;
        if !self.pods.load().contains_key(&shop.pod) {
            return Err(Fault::UnknownPod {
                shop: shop.id,
                pod: shop.pod,
            });
        }
        if let Some(held) = self.lookup_shop(shop.id) {
            check_owner(&held, shop)?;
        }
        // The catalog gives a handle away only after its owner has let go of it; a host may come from anywhere.
        match self.lookup_handle(&shop.handle) {
            Some(held) if held.shop != shop.id => {
                return Err(Fault::HandleTwice {
                    handle: shop.handle.clone(),
                    first: held.shop,
                    second: shop.id,
                });
            }
            Some(_) | None => {}
        }
        if self.index.put(&to_slot(shop)) {
            Ok(())
        } else {
            Err(Fault::Full(shop.id))
        }
    }
}

fn to_slot(shop: &wire::Shop) -> Slot {
    let placement = Placement {
        shop: shop.id,
        pod: shop.pod,
        epoch: shop.epoch,
        state: shop.state,
    };
    let hosts = shop.hosts.iter().map(Host::as_str);
    Slot::new(placement, shop.handle.as_str(), hosts)
}

/// The names were checked on the way in, so `None` never comes.
fn to_wire(slot: &Slot) -> Option<wire::Shop> {
    let Placement {
        shop,
        pod,
        epoch,
        state,
    } = slot.placement.into();
    let hosts: Result<Vec<Host>, _> = slot.hosts().map(str::parse).collect();
    Some(wire::Shop {
        id: shop,
        handle: slot.handle().parse().ok()?,
        hosts: hosts.ok()?,
        pod,
        epoch,
        state,
    })
}

impl From<wire::Pod> for PodRoute {
    fn from(pod: wire::Pod) -> Self {
        let wire::Pod {
            id,
            name,
            status,
            http,
        } = pod;
        Self {
            id,
            name: name.into(),
            status,
            http: http.into(),
        }
    }
}

#[cfg(test)]
mod tests;
