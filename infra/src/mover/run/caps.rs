//! Caps on moves that copy at once: at a pod, whose buyers share the server with the copy, and in the fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shared::PodId;
use shared::moves::MoveId;
use tokio::sync::Notify;

/// Who has a turn.
#[derive(Debug)]
pub(in crate::mover) struct Caps {
    per_pod: usize,
    max: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    turns: Mutex<BTreeMap<MoveId, [PodId; 2]>>,
    freed: Notify,
}

/// A turn; dropped, it is the next one's.
#[derive(Debug)]
pub(in crate::mover) struct Turn {
    id: MoveId,
    shared: Arc<Shared>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.turns.lock().remove(&self.id);
        self.shared.freed.notify_waiters();
    }
}

impl Caps {
    pub(super) fn new(per_pod: usize, max: usize) -> Self {
        Self {
            per_pod,
            max,
            shared: Arc::default(),
        }
    }

    /// A turn, if there is room; else what is full.
    pub(in crate::mover) fn try_take(&self, id: MoveId, pods: [PodId; 2]) -> Result<Turn, String> {
        let mut turns = self.shared.turns.lock();
        for pod in pods {
            let there = turns.values().filter(|held| held.contains(&pod)).count();
            if there >= self.per_pod {
                return Err(format!(
                    "{there} moves from or to pod {pod} copy already (`moves_per_pod` of control.toml)"
                ));
            }
        }
        if turns.len() >= self.max {
            return Err(format!(
                "{} moves copy already (`moves_max` of control.toml)",
                turns.len()
            ));
        }
        turns.insert(id, pods);
        drop(turns);
        Ok(Turn {
            id,
            shared: Arc::clone(&self.shared),
        })
    }

    /// Waits for a turn.
    pub(in crate::mover) async fn take(&self, id: MoveId, pods: [PodId; 2]) -> Turn {
        loop {
            let mut freed = std::pin::pin!(self.shared.freed.notified());
            freed.as_mut().enable();
            if let Ok(turn) = self.try_take(id, pods) {
                return turn;
            }
            freed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(n: u64) -> PodId {
        PodId::new(n).unwrap()
    }

    #[tokio::test]
    async fn a_pod_and_the_fleet_have_so_many_and_the_next_waits_for_the_end_of_one() {
        let caps = Caps::new(1, 2);
        let id = MoveId::random;
        let first = caps.try_take(id(), [pod(1), pod(2)]).unwrap();
        let refused = caps.try_take(id(), [pod(3), pod(2)]).unwrap_err();
        assert!(refused.contains("pod 2"), "{refused}");
        let _second = caps.try_take(id(), [pod(3), pod(4)]).unwrap();
        let refused = caps.try_take(id(), [pod(5), pod(6)]).unwrap_err();
        assert!(refused.contains("moves_max"), "{refused}");
        let waits = caps.take(id(), [pod(1), pod(5)]);
        let ends = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let (_turn, ()) = tokio::join!(waits, ends);
    }
}
