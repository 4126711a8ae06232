//! Caps on what moves do at once: at a pod, whose buyers share the server with them, and in the fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shared::PodId;
use shared::moves::MoveId;
use tokio::sync::Notify;

use crate::mover::MoveLimits;

/// Who has a turn.
#[derive(Debug)]
pub(in crate::mover) struct Caps {
    per_pod: usize,
    max: usize,
    words: Words,
    shared: Arc<Shared>,
}

/// What they do, and the keys of `[moves]` that say how many may.
#[derive(Debug, Clone, Copy)]
struct Words {
    from_or_to: &'static str,
    does: &'static str,
    per_pod: &'static str,
    max: &'static str,
}

/// Of moves that copy.
const COPY: Words = Words {
    from_or_to: "from or to",
    does: "copy",
    per_pod: "moves_per_pod",
    max: "moves_max",
};

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
    fn new(per_pod: usize, max: usize, words: Words) -> Self {
        Self {
            per_pod,
            max,
            words,
            shared: Arc::default(),
        }
    }

    /// Moves that copy.
    pub(super) fn copying(limits: &MoveLimits) -> Self {
        Self::new(limits.moves_per_pod, limits.moves_max, COPY)
    }

    /// Copies of moved shops that are dumped and deleted: as much work for a pod as copying.
    pub(super) fn clearing(limits: &MoveLimits) -> Self {
        let words = Words {
            does: "clear what they left",
            ..COPY
        };
        Self::new(limits.moves_per_pod, limits.moves_max, words)
    }

    /// Moves that are over but for the copy at their source, whose binlog each of them reads.
    pub(super) fn watching(limits: &MoveLimits) -> Self {
        let words = Words {
            from_or_to: "from",
            does: "are observed",
            per_pod: "observed_per_pod",
            max: "observed_per_pod",
        };
        Self::new(limits.observed_per_pod, usize::MAX, words)
    }

    /// A turn, if there is room; else what is full.
    pub(in crate::mover) fn try_take(&self, id: MoveId, pods: [PodId; 2]) -> Result<Turn, String> {
        let mut turns = self.shared.turns.lock();
        for pod in pods {
            let there = turns.values().filter(|held| held.contains(&pod)).count();
            if there >= self.per_pod {
                let Words {
                    from_or_to,
                    does,
                    per_pod,
                    ..
                } = self.words;
                return Err(format!(
                    "{there} moves {from_or_to} pod {pod} {does} already (`moves.{per_pod}` of fleet.toml)"
                ));
            }
        }
        if turns.len() >= self.max {
            let Words { does, max, .. } = self.words;
            return Err(format!(
                "{} moves {does} already (`moves.{max}` of fleet.toml)",
                turns.len()
            ));
        }
        turns.insert(id, pods);
        drop(turns);
        Ok(self.turn(id))
    }

    /// A turn, also where there is no room: for what is under way and cannot wait.
    pub(in crate::mover) fn give(&self, id: MoveId, pods: [PodId; 2]) -> Turn {
        self.shared.turns.lock().insert(id, pods);
        self.turn(id)
    }

    fn turn(&self, id: MoveId) -> Turn {
        Turn {
            id,
            shared: Arc::clone(&self.shared),
        }
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
        let limits = MoveLimits {
            moves_per_pod: 1,
            moves_max: 2,
            ..MoveLimits::default()
        };
        let caps = Caps::copying(&limits);
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

    /// What is under way takes its turn, and is counted.
    #[test]
    fn what_cannot_wait_is_counted_all_the_same() {
        let limits = MoveLimits {
            observed_per_pod: 1,
            ..MoveLimits::default()
        };
        let caps = Caps::watching(&limits);
        let id = MoveId::random;
        let turns = [1, 2].map(|_| caps.give(id(), [pod(1); 2]));
        let refused = caps.try_take(id(), [pod(1); 2]).unwrap_err();
        assert!(
            refused.contains("2 moves from pod 1 are observed"),
            "{refused}"
        );
        assert!(refused.contains("observed_per_pod"), "{refused}");
        drop(turns);
        assert!(caps.try_take(id(), [pod(1); 2]).is_ok());
    }
}
