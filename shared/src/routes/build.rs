//! A whole table from its parts, and the rules that every part of one obeys.

use std::collections::HashSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::index::Index;
use super::slot::NameKind;
use super::wire::{self, Header};
use super::{
    ADDRESSES_PER_POD_MAX, Fault, Faults, HOSTS_PER_SHOP_MAX, PodRoute, Pods, RouteTable, to_slot,
};
use crate::Placement;

/// Collects pods and shops into a table and everything that is wrong with them into one list.
#[derive(Debug)]
pub struct Builder {
    header: Option<Header>,
    pods: Pods,
    index: Index,
    faults: Faults,
}

impl Builder {
    /// An empty table with this header.
    pub fn new(header: Header) -> Self {
        Self::with_capacity(Some(header), 0)
    }

    pub(super) fn headless() -> Self {
        Self::with_capacity(None, 0)
    }

    pub(super) fn with_capacity(header: Option<Header>, shops: usize) -> Self {
        Self {
            header,
            pods: Pods::new(),
            index: Index::with_capacity(shops),
            faults: Faults::default(),
        }
    }

    /// Adds a pod. Pods come before their shops.
    pub fn pod(&mut self, pod: wire::Pod) {
        check_pod(&pod, &self.pods, &mut self.faults);
        match self.pods.entry(pod.id) {
            Entry::Occupied(_) => self.faults.push(Fault::PodTwice(pod.id)),
            Entry::Vacant(free) => {
                free.insert(Arc::new(pod.into()));
            }
        }
    }

    /// Adds a shop. One that is at fault stays out: its names would give follow-up faults.
    pub fn shop(&mut self, shop: &wire::Shop) {
        let before = self.faults.total();
        let (id, pod) = (shop.id, shop.pod);
        if let Err(fault) = check_hosts(shop) {
            self.faults.push(fault);
        }
        if !self.pods.contains_key(&pod) {
            self.faults.push(Fault::UnknownPod { shop: id, pod });
        }
        if self.index.with_shop(id, |_| ()).is_some() {
            self.faults.push(Fault::ShopTwice(id));
            return;
        }
        if let Some(held) = self.index.lookup(NameKind::Handle, shop.handle.as_str()) {
            self.faults.push(Fault::HandleTwice {
                handle: shop.handle.clone(),
                first: held.shop,
                second: id,
            });
        }
        for host in &shop.hosts {
            if let Some(held) = self.index.lookup(NameKind::Host, host.as_str()) {
                self.faults.push(Fault::HostTwice {
                    host: host.clone(),
                    first: held.shop,
                    second: id,
                });
            }
        }
        if self.faults.total() == before && !self.index.put(&to_slot(shop)) {
            self.faults.push(Fault::Full(id));
        }
    }

    /// The table, or everything that is wrong with it.
    pub fn finish(self) -> Result<RouteTable, Faults> {
        self.finish_with(Faults::default())
    }

    pub(super) fn finish_with(mut self, mut faults: Faults) -> Result<RouteTable, Faults> {
        faults.append(std::mem::take(&mut self.faults));
        let Some(header) = self.header.filter(|_| faults.is_empty()) else {
            return Err(faults);
        };
        self.index.shrink();
        let Header {
            incarnation,
            version,
            base_domain,
            platform_domain,
        } = header;
        Ok(RouteTable {
            incarnation,
            base_domain,
            platform_domain,
            version: AtomicU64::new(version),
            pods: ArcSwap::from_pointee(self.pods),
            index: self.index,
            writer: Mutex::new(()),
        })
    }
}

/// An epoch never goes down and is never used for two owners (invariant 2).
pub(super) fn check_owner(held: &Placement, new: &wire::Shop) -> Result<(), Fault> {
    if new.epoch < held.epoch {
        return Err(Fault::EpochBack {
            shop: new.id,
            from: held.epoch,
            to: new.epoch,
        });
    }
    if new.epoch == held.epoch && new.pod != held.pod {
        return Err(Fault::TwoOwners {
            shop: new.id,
            epoch: new.epoch,
            first: held.pod,
            second: new.pod,
        });
    }
    Ok(())
}

pub(super) fn check_hosts(shop: &wire::Shop) -> Result<(), Fault> {
    let (count, shop_id) = (shop.hosts.len(), shop.id);
    if count > HOSTS_PER_SHOP_MAX {
        return Err(Fault::Hosts {
            shop: shop_id,
            count,
        });
    }
    let mut seen = HashSet::with_capacity(count);
    match shop.hosts.iter().find(|host| !seen.insert(*host)) {
        Some(host) => Err(Fault::HostTwice {
            host: host.clone(),
            first: shop_id,
            second: shop_id,
        }),
        None => Ok(()),
    }
}

pub(super) fn check_pod(pod: &wire::Pod, others: &Pods, faults: &mut Faults) {
    let count = pod.http.len();
    if count > ADDRESSES_PER_POD_MAX {
        faults.push(Fault::Addresses { pod: pod.id, count });
    }
    let mut seen = HashSet::with_capacity(count);
    for &address in pod.http.iter().take(ADDRESSES_PER_POD_MAX) {
        if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() {
            faults.push(Fault::Address {
                pod: pod.id,
                address,
            });
        }
        if !seen.insert(address) {
            faults.push(Fault::AddressTwice {
                pod: pod.id,
                address,
            });
        }
        let shared = |other: &&Arc<PodRoute>| other.id != pod.id && other.http.contains(&address);
        if let Some(other) = others.values().find(shared) {
            faults.push(Fault::AddressShared {
                address,
                first: other.id,
                second: pod.id,
            });
        }
    }
}
