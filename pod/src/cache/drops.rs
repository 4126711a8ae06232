//! Marks of drops in this process: what a fill must have seen to be kept.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{DROP_MARK, Key};
use crate::db::GtidSet;

#[derive(Debug)]
struct Mark {
    /// The set after the commit; `None` where it is not known: then nothing is kept until the mark ends.
    executed: Option<GtidSet>,
    at: Instant,
    number: u64,
}

/// The marks. Bounded by the writes of [`DROP_MARK`].
#[derive(Debug, Default)]
pub(super) struct Drops(Mutex<(u64, HashMap<Key, Mark>)>);

impl Drops {
    pub(super) fn mark(&self, key: &Key, executed: Option<GtidSet>) {
        let mut drops = self.0.lock();
        drops.0 += 1;
        // Two commits' drops may come in the other order than their commits: the set to have seen never shrinks.
        let before = drops.1.remove(key).filter(|m| m.at.elapsed() < DROP_MARK);
        let executed = match (before.and_then(|m| m.executed), executed) {
            (Some(held), Some(new)) if held.contains(&new) => Some(held),
            (_, new) => new,
        };
        let mark = Mark {
            executed,
            at: Instant::now(),
            number: drops.0,
        };
        drops.1.insert(key.clone(), mark);
    }

    /// Whether it was dropped a moment ago.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.0
            .lock()
            .1
            .get(key)
            .is_some_and(|m| m.at.elapsed() < DROP_MARK)
    }

    /// A number that changes with each drop of the key.
    pub(super) fn count(&self, key: &Key) -> u64 {
        self.0.lock().1.get(key).map_or(0, |m| m.number)
    }

    /// Whether a fill may be kept that was read where this set had been executed before.
    pub(super) fn allow(&self, key: &Key, executed: &GtidSet) -> bool {
        match self.0.lock().1.get(key) {
            Some(mark) if mark.at.elapsed() < DROP_MARK => mark
                .executed
                .as_ref()
                .is_some_and(|needed| executed.contains(needed)),
            Some(_) | None => true,
        }
    }

    pub(super) fn sweep(&self) {
        self.0.lock().1.retain(|_, m| m.at.elapsed() < DROP_MARK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entity;
    use shared::{Epoch, ShopId};
    use std::time::Duration;

    static THING: Entity = Entity::new("thing", Duration::from_secs(1));

    fn set(to: u64) -> GtidSet {
        GtidSet::parse(&format!("bdbea337-ec7c-11f1-86a3-02fc00000001:1-{to}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_fill_that_was_read_before_the_drop_is_refused() {
        let drops = Drops::default();
        let key = Key::new(ShopId::new(7).unwrap(), Epoch::FIRST, &THING, "a");
        assert!(drops.allow(&key, &set(9)));
        drops.mark(&key, Some(set(10)));
        assert!(
            !drops.allow(&key, &set(9)),
            "read before the commit, or at a replica that lacks it"
        );
        assert!(drops.allow(&key, &set(10)));
        drops.mark(&key, None);
        assert!(
            !drops.allow(&key, &set(99)),
            "nobody knows what the commit was"
        );
        tokio::time::advance(DROP_MARK).await;
        assert!(drops.allow(&key, &set(9)));
        drops.sweep();
        assert!(!drops.has(&key));
    }

    #[tokio::test(start_paused = true)]
    async fn the_later_of_two_commits_counts_in_whichever_order_their_drops_come() {
        let key = Key::new(ShopId::new(7).unwrap(), Epoch::FIRST, &THING, "a");
        for order in [[10, 11], [11, 10]] {
            let drops = Drops::default();
            for to in order {
                drops.mark(&key, Some(set(to)));
            }
            assert!(!drops.allow(&key, &set(10)), "{order:?}");
            assert!(drops.allow(&key, &set(11)), "{order:?}");
        }
    }
}
