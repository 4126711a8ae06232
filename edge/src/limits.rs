//! Exact limits on requests in flight: one shop's overload must not become its neighbours'.
//!
//! `pingora-limits` counts in hashed slots, where a busy neighbour can throttle an innocent shop; these are exact.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use shared::ShopId;

/// Enough locks that two threads rarely meet at one.
const SHARDS: usize = 64;

/// Requests in flight of each shop. Holds an entry for a shop only while it has requests, so it is as large as what
/// is in flight.
pub(crate) struct ShopsInFlight {
    max: u32,
    shards: [Mutex<HashMap<ShopId, u32>>; SHARDS],
}

impl ShopsInFlight {
    pub(crate) fn new(max: u32) -> Arc<Self> {
        Arc::new(Self {
            max,
            shards: std::array::from_fn(|_| Mutex::default()),
        })
    }

    /// A permit, or `None` where the shop is at its limit.
    pub(crate) fn enter(self: &Arc<Self>, shop: ShopId) -> Option<ShopPermit> {
        let mut shard = self.shard(shop).lock();
        let count = shard.entry(shop).or_insert(0);
        if *count >= self.max {
            return None;
        }
        *count += 1;
        drop(shard);
        Some(ShopPermit {
            shops: Arc::clone(self),
            shop,
        })
    }

    fn shard(&self, shop: ShopId) -> &Mutex<HashMap<ShopId, u32>> {
        // Shop ids are given out in sequence, so their low bits spread evenly.
        let index = shop.get() % SHARDS as u64;
        &self.shards[usize::try_from(index).unwrap_or(0)]
    }

    fn leave(&self, shop: ShopId) {
        let mut shard = self.shard(shop).lock();
        if let Some(count) = shard.get_mut(&shop) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&shop);
            }
        }
    }
}

/// One request of a shop in flight; dropped with the request.
pub(crate) struct ShopPermit {
    shops: Arc<ShopsInFlight>,
    shop: ShopId,
}

impl Drop for ShopPermit {
    fn drop(&mut self) {
        self.shops.leave(self.shop);
    }
}

/// Requests in flight at one pod.
#[derive(Debug)]
pub(crate) struct PodInFlight {
    max: u32,
    now: AtomicU32,
}

impl PodInFlight {
    pub(crate) fn new(max: u32) -> Arc<Self> {
        Arc::new(Self {
            max,
            now: AtomicU32::new(0),
        })
    }

    /// A permit, or `None` where the pod is at its limit.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<PodPermit> {
        self.now
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
                (now < self.max).then_some(now + 1)
            })
            .is_ok()
            .then(|| PodPermit(Arc::clone(self)))
    }

    pub(crate) fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }
}

/// One request in flight at a pod.
pub(crate) struct PodPermit(Arc<PodInFlight>);

impl Drop for PodPermit {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop(id: u64) -> ShopId {
        ShopId::new(id).unwrap()
    }

    #[test]
    fn a_shop_at_its_limit_leaves_others_alone() {
        let shops = ShopsInFlight::new(2);
        let first = shops.enter(shop(1)).unwrap();
        let _second = shops.enter(shop(1)).unwrap();
        assert!(shops.enter(shop(1)).is_none());
        // 65 shares the lock of 1, and not its count.
        assert!(shops.enter(shop(65)).is_some());
        drop(first);
        assert!(shops.enter(shop(1)).is_some());
    }

    #[test]
    fn nothing_is_kept_of_an_idle_shop() {
        let shops = ShopsInFlight::new(2);
        drop(shops.enter(shop(1)));
        assert!(shops.shards.iter().all(|s| s.lock().is_empty()));
    }

    #[test]
    fn the_limit_of_a_pod_holds_under_a_race() {
        let pod = PodInFlight::new(3);
        let held = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        if let Some(permit) = pod.enter() {
                            held.lock().push(permit);
                        }
                    }
                });
            }
        });
        assert_eq!(held.lock().len(), 3);
        assert_eq!(pod.now(), 3);
        held.lock().clear();
        assert_eq!(pod.now(), 0);
    }
}
