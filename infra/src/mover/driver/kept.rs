//! What a run leaves to the next one: after a fence that missed, or a step that the catalog refused for a moment, both sides
//! need not be compared again.
//!
//! It is good only where nobody else can have changed a row at the target in between. Another mover's late write would be
//! known to nobody here, and its transactions are told from strangers' by the move's name alone. So the next run must have
//! the next owner number, which each takeover raises by one. What the run before had under way itself is no such write: the
//! takeover of the target's home waits for it and refuses it afterwards, and the applier applies that batch again.

use std::sync::Arc;

use shared::moves::MoveState;

use super::follow::Hands;
use super::{Driver, Reason};
use crate::catalog::MoveRow;
use crate::mover::error::{MoveError, Verdict};
use crate::mover::job::{End, Job};
use crate::mover::run::Turn;

/// Hands that have compared every row, and their turn among those that copy.
pub(in crate::mover) struct Kept {
    pub(super) hands: Hands,
    pub(super) turn: Option<Turn>,
}

impl Kept {
    /// Whether a run goes on with them: of the next owner, with the same primaries, where the rows are what they were. Other
    /// replicas only have to be watched.
    pub(super) fn fits(&self, row: &MoveRow, job: &Job) -> bool {
        let before = &self.hands.job;
        let same = |a: &End, b: &End| (a.pod, &a.primary, a.term) == (b.pod, &b.primary, b.term);
        let follows = match row.state {
            MoveState::CatchingUp
            | MoveState::Verifying
            | MoveState::Fenced
            | MoveState::Cutover => true,
            MoveState::Preparing
            | MoveState::Copying
            | MoveState::Observing
            | MoveState::Retiring
            | MoveState::Done
            | MoveState::Paused
            | MoveState::Aborting
            | MoveState::Aborted
            | MoveState::Failed => false,
        };
        follows
            && row.owner == before.owner + 1
            && same(&before.source, &job.source)
            && same(&before.target, &job.target)
    }
}

impl Driver {
    /// The row as this run last saw it, what the next may go on with after an error, and why it is to lift the fence, where
    /// this one knew that and did not come so far.
    pub(in crate::mover) fn end(
        mut self,
        error: Option<&MoveError>,
    ) -> (MoveRow, Option<Kept>, Option<Reason>) {
        self.mover.moves.leave(self.row.id, &self.job.progress);
        // These say that somebody or something was in the way, and nothing of a connection or a row.
        let passes = error.is_some_and(|error| {
            matches!(error, MoveError::Waits(_) | MoveError::Catalog(_))
                && error.verdict() == Verdict::Again
        });
        let owner = self.job.owner;
        let kept = self
            .hands
            .take()
            .filter(|hands| passes && hands.verified.is_some())
            .map(|mut hands| {
                // Also where this run did not come so far as to work with them.
                hands.job.owner = owner;
                Kept {
                    hands,
                    turn: self.turn.take(),
                }
            });
        (self.row, kept, self.reason)
    }

    /// Goes on with what the run before left.
    pub(super) fn take_up(&mut self, kept: Kept) {
        let Kept { mut hands, turn } = kept;
        if watch_these(&mut hands.job, &self.job)
            && let Some(applier) = &mut hands.applier
        {
            applier.watch_anew(&hands.job);
        }
        // Their counters go on.
        self.job.progress = Arc::clone(&hands.job.progress);
        self.mover.moves.go_on(self.row.id, &self.job.progress);
        (self.hands, self.turn) = (Some(hands), turn);
    }
}

/// Replicas come and go without the primary, and nothing that was compared depends on them; but who is behind holds the work
/// back. Whether they are others than before.
fn watch_these(before: &mut Job, now: &Job) -> bool {
    let mut others = false;
    for (before, now) in [
        (&mut before.source, &now.source),
        (&mut before.target, &now.target),
    ] {
        if before.replicas != now.replicas {
            before.replicas.clone_from(&now.replicas);
            others = true;
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::{Epoch, PodId, ShopId};

    use super::*;
    use crate::api::Address;

    fn address(port: u16) -> Address {
        Address {
            host: "127.0.0.1".into(),
            port,
        }
    }

    fn job(replicas: &[u16]) -> Job {
        let end = End {
            pod: PodId::new(1).unwrap(),
            primary: address(1),
            replicas: Vec::new(),
            term: 1,
            user: "nobody".into(),
            password: String::new().into(),
            unknown: None,
            commits: Arc::default(),
        };
        Job {
            id: shared::moves::MoveId::random(),
            owner: 1,
            shop: ShopId::new(1).unwrap(),
            source: end.clone(),
            target: End {
                replicas: replicas.iter().copied().map(address).collect(),
                ..end
            },
            source_epoch: Epoch::FIRST,
            target_epoch: Epoch::FIRST.next(),
            back: false,
            observe: Duration::ZERO,
            source_gone: false,
            dir: std::path::PathBuf::new(),
            limits: Arc::default(),
            progress: Arc::default(),
            stop: tokio_util::sync::CancellationToken::new(),
        }
    }

    #[test]
    fn replicas_that_came_or_went_since_are_watched_anew() {
        let mut kept = job(&[2, 3]);
        assert!(!watch_these(&mut kept, &job(&[2, 3])));
        for now in [&[2, 3, 4][..], &[3], &[]] {
            assert!(watch_these(&mut kept, &job(now)), "{now:?}");
            assert_eq!(kept.target.replicas, job(now).target.replicas);
            assert!(!watch_these(&mut kept, &job(now)), "{now:?}: once");
        }
    }
}
