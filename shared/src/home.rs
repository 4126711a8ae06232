//! What a pod may do for a shop: the home row and the table of what it allows.
//!
//! A home is the row of `shop_home` in a pod's own database. A pod commits a shop's write only if its own home, read
//! in that same transaction and locked until commit, allows it at the epoch the request carries (invariant 1).

use crate::wire::Fence;
use crate::{Epoch, PodId};

/// The state of a home. [`decide`] is the whole meaning of these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HomeState {
    /// A move is filling this pod; nothing is served.
    Incoming,
    /// The owner.
    Serving,
    /// The owner-to-be just before the catalog's step: serves at its epoch, starts nothing by itself.
    Ready,
    /// A move has stopped the writes for a moment.
    Fenced,
    /// A move has stopped reads too, for some milliseconds.
    Handing,
    /// Handed over; the mark says to whom.
    Moved,
    /// An operator stopped the writes.
    Frozen,
    /// An operator stopped everything.
    Offline,
}

impl HomeState {
    /// All of them: a test walks this list so that a new state cannot be forgotten.
    pub const ALL: [Self; 8] = [
        Self::Incoming,
        Self::Serving,
        Self::Ready,
        Self::Fenced,
        Self::Handing,
        Self::Moved,
        Self::Frozen,
        Self::Offline,
    ];

    /// The word in SQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Incoming => "incoming",
            Self::Serving => "serving",
            Self::Ready => "ready",
            Self::Fenced => "fenced",
            Self::Handing => "handing",
            Self::Moved => "moved",
            Self::Frozen => "frozen",
            Self::Offline => "offline",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }
}

/// Where a shop went: kept in the home so that stale edges find the way with the catalog down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The new owner.
    pub pod: PodId,
    /// Under which epoch.
    pub epoch: Epoch,
}

/// The part of a home row that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// The epoch under which this pod may act.
    pub epoch: Epoch,
    /// What it may do.
    pub state: HomeState,
    /// Kept from an older hand-over until this home is `ready` again.
    pub mark: Option<Mark>,
}

/// What a request says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The pod the edge meant.
    pub pod: PodId,
    /// The epoch in the edge's route table.
    pub epoch: Epoch,
    /// The epoch in the client's session token, if it has one.
    pub token_epoch: Option<Epoch>,
}

/// What the request wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Change rows of the shop.
    Write,
    /// Look at them.
    Read,
}

/// The answer of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Run,
    /// 421: not here, or not now; nothing was executed.
    Misdirected(Fence),
    /// 503 `frozen` at once, never parked.
    Frozen,
    /// 503 `offline`.
    Offline,
}

/// The table "what a home allows", whole. A row locked or awaited by a mover counts as `fenced`; the caller that
/// saw the lock says so with [`Verdict::Misdirected`]`(`[`Fence::Fenced`]`)` by itself, since it has no row to show.
pub fn decide(this_pod: PodId, home: Option<&Home>, claim: Claim, access: Access) -> Verdict {
    let Some(home) = home else {
        return Verdict::Misdirected(Fence::Stale { epoch: None });
    };
    let marked_or = |otherwise: Fence| match home.mark {
        Some(mark) => Verdict::Misdirected(Fence::Moved {
            pod: mark.pod,
            epoch: mark.epoch,
        }),
        None => Verdict::Misdirected(otherwise),
    };
    let stale = Fence::Stale {
        epoch: Some(home.epoch),
    };
    if claim.pod != this_pod {
        return marked_or(stale);
    }
    let current = claim.epoch == home.epoch && claim.token_epoch.is_none_or(|t| t <= home.epoch);
    let at_this_epoch = |verdict: Verdict| {
        if current {
            verdict
        } else {
            Verdict::Misdirected(stale)
        }
    };
    match home.state {
        HomeState::Incoming => marked_or(stale),
        HomeState::Serving | HomeState::Ready => at_this_epoch(Verdict::Run),
        HomeState::Fenced => match access {
            Access::Write => Verdict::Misdirected(Fence::Fenced),
            Access::Read => at_this_epoch(Verdict::Run),
        },
        HomeState::Handing => Verdict::Misdirected(Fence::Fenced),
        HomeState::Moved => marked_or(stale),
        HomeState::Frozen => match access {
            Access::Write => at_this_epoch(Verdict::Frozen),
            Access::Read => at_this_epoch(Verdict::Run),
        },
        HomeState::Offline => at_this_epoch(Verdict::Offline),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(n: u64) -> Epoch {
        Epoch::try_from(n).unwrap()
    }

    fn pod(n: u64) -> PodId {
        PodId::new(n).unwrap()
    }

    /// Each row of the table: state, has a mark, epoch of the request (home has 5), write, read.
    #[test]
    fn table() {
        let moved = Verdict::Misdirected(Fence::Moved {
            pod: pod(2),
            epoch: epoch(6),
        });
        let stale = Verdict::Misdirected(Fence::Stale {
            epoch: Some(epoch(5)),
        });
        let fenced = Verdict::Misdirected(Fence::Fenced);
        let run = Verdict::Run;
        let rows = [
            (HomeState::Incoming, false, 5, stale, stale),
            (HomeState::Incoming, true, 5, moved, moved),
            (HomeState::Serving, false, 5, run, run),
            (HomeState::Serving, false, 4, stale, stale),
            (HomeState::Serving, false, 6, stale, stale),
            (HomeState::Ready, false, 5, run, run),
            (HomeState::Ready, false, 4, stale, stale),
            (HomeState::Fenced, false, 5, fenced, run),
            (HomeState::Fenced, false, 4, fenced, stale),
            (HomeState::Handing, false, 5, fenced, fenced),
            (HomeState::Moved, true, 5, moved, moved),
            (HomeState::Moved, false, 5, stale, stale),
            (HomeState::Frozen, false, 5, Verdict::Frozen, run),
            (HomeState::Frozen, false, 4, stale, stale),
            (
                HomeState::Offline,
                false,
                5,
                Verdict::Offline,
                Verdict::Offline,
            ),
            (HomeState::Offline, false, 4, stale, stale),
        ];
        for state in HomeState::ALL {
            assert!(rows.iter().any(|r| r.0 == state), "no row for {state:?}");
        }
        for (state, marked, at, write, read) in rows {
            let mark = marked.then(|| Mark {
                pod: pod(2),
                epoch: epoch(6),
            });
            let home = Home {
                epoch: epoch(5),
                state,
                mark,
            };
            let claim = Claim {
                pod: pod(1),
                epoch: epoch(at),
                token_epoch: None,
            };
            assert_eq!(
                decide(pod(1), Some(&home), claim, Access::Write),
                write,
                "write {state:?} {at}"
            );
            assert_eq!(
                decide(pod(1), Some(&home), claim, Access::Read),
                read,
                "read {state:?} {at}"
            );
        }
    }

    #[test]
    fn no_home_another_pod_and_a_newer_token_are_stale() {
        let home = Home {
            epoch: epoch(5),
            state: HomeState::Serving,
            mark: None,
        };
        let claim = Claim {
            pod: pod(1),
            epoch: epoch(5),
            token_epoch: None,
        };
        let stale = |e| Verdict::Misdirected(Fence::Stale { epoch: e });
        assert_eq!(decide(pod(1), None, claim, Access::Read), stale(None));
        assert_eq!(
            decide(pod(9), Some(&home), claim, Access::Write),
            stale(Some(epoch(5)))
        );
        let newer = Claim {
            token_epoch: Some(epoch(6)),
            ..claim
        };
        assert_eq!(
            decide(pod(1), Some(&home), newer, Access::Read),
            stale(Some(epoch(5)))
        );
        let older = Claim {
            token_epoch: Some(epoch(4)),
            ..claim
        };
        assert_eq!(
            decide(pod(1), Some(&home), older, Access::Write),
            Verdict::Run
        );
    }
}
