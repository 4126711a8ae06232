//! What follows an answer "not here" (421 with `podhost-fence`). Pure: the whole rule of sending a request again.
//!
//! Invariant 4: the edge never sends again what a pod may have executed. So it sends again only after a 421 with a
//! fence, which a pod gives before it begins, and after a connect that failed, when nothing was sent. A pod that
//! broke off after the request was sent may have executed it: that is 502, for reads too.
//!
//! Two bounds hold. A request that is sent from pod to pod (`moved`, `stale`) is forwarded [`FORWARDS_MAX`] times. One that
//! is parked (`fenced`, `unready`) is sent again until its window is over, which the tries that ended in a park do not
//! count for: `park::Settings::tries_max` bounds them all.

use shared::wire::Fence;
use shared::{Epoch, PlacementState, PodId};

use crate::park::Reason;

/// How often one request is forwarded at most: to the pod of the table, where its mark points, where a refreshed
/// table points, and once more for a shop that moves again meanwhile.
pub(crate) const FORWARDS_MAX: u16 = 4;

/// What the answer was given to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// The pod that answered.
    pub(crate) pod: PodId,
    /// The epoch it was told.
    pub(crate) epoch: Epoch,
    /// How often the request was forwarded, this time included, but those that ended in a park.
    pub(crate) forwards: u16,
    /// Whether all of the body that was read so far is kept.
    pub(crate) replayable: bool,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send it where the mark points. That pod's own home decides, so a wrong mark does no harm.
    Follow {
        /// To whom.
        pod: PodId,
        /// Under which epoch.
        epoch: Epoch,
    },
    /// Ask the catalog, then see [`after_refresh`].
    Refresh,
    /// Wait until the pod takes requests, or the shop is elsewhere.
    Park(Reason),
    /// Tell the client to come back.
    GiveUp(Why),
}

/// Why a request was not sent again; the label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It was parked for a whole window.
    Window,
    /// Too many requests of its shop are parked.
    Shop,
    /// Too many requests are parked.
    All,
    /// The bodies of parked requests take up too much memory.
    Bytes,
    /// Its shop is fenced for longer than requests are parked for.
    Fence,
    /// Its pod lost its primary again too soon.
    Gap,
    /// It was sent too often.
    Tries,
    /// Its window ended while as many requests of its shop, or of its pod, were running as may.
    Busy,
    /// The edge stops.
    Stopping,
    /// [`FORWARDS_MAX`] is reached.
    Forwards,
    /// The body is larger than what is kept of it.
    Body,
    /// The catalog did not answer in time.
    Catalog,
    /// The catalog says what the edge said: the pod will learn of it, or its home needs a person.
    Unchanged,
}

impl Why {
    /// All of them, for metrics.
    pub(crate) const ALL: [Self; 13] = [
        Self::Window,
        Self::Shop,
        Self::All,
        Self::Bytes,
        Self::Fence,
        Self::Gap,
        Self::Tries,
        Self::Busy,
        Self::Stopping,
        Self::Forwards,
        Self::Body,
        Self::Catalog,
        Self::Unchanged,
    ];

    /// The label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Shop => "shop",
            Self::All => "all",
            Self::Bytes => "bytes",
            Self::Fence => "fence",
            Self::Gap => "gap",
            Self::Tries => "tries",
            Self::Busy => "busy",
            Self::Stopping => "stopping",
            Self::Forwards => "forwards",
            Self::Body => "body",
            Self::Catalog => "catalog",
            Self::Unchanged => "unchanged",
        }
    }

    /// What the client reads.
    pub(crate) const fn client_text(self) -> &'static str {
        match self {
            Self::Window | Self::Fence | Self::Gap | Self::Tries => {
                "The shop is being moved, or its database changes servers, and that takes long. Nothing was done; try again in a moment."
            }
            Self::Shop | Self::All | Self::Bytes => {
                "The shop is being moved, or its database changes servers, and too many requests wait for that. Nothing was done; try again in a moment."
            }
            Self::Busy => {
                "The request waited for the shop's move, or for its database, and now too many requests of this shop, or where it lives, are running. Nothing was done; try again in a moment."
            }
            Self::Stopping => {
                "The shop is being moved, or its database changes servers, and the edge that would have waited for that stops. Nothing was done; try again."
            }
            Self::Body => {
                "The shop was being moved while this large body was sent. Nothing was done; send it again."
            }
            Self::Forwards | Self::Catalog | Self::Unchanged => {
                "The shop's place is not settled just now. Nothing was done; try again in a moment."
            }
        }
    }
}

/// What to do after a pod answered "not here".
pub(crate) fn after_fence(fence: Fence, sent: Sent) -> Next {
    let again = match fence {
        // The table's pod is believed, and so is whom its mark names, about a newer epoch: a shop may have moved twice
        // since the table was made, and epochs only grow, so no marks lead in a circle.
        Fence::Moved { pod, epoch } if epoch > sent.epoch && pod != sent.pod => {
            Next::Follow { pod, epoch }
        }
        Fence::Moved { .. } | Fence::Stale { .. } => Next::Refresh,
        Fence::Fenced => Next::Park(Reason::Fenced),
        Fence::Unready => Next::Park(Reason::Unready),
    };
    if !sent.replayable {
        return Next::GiveUp(Why::Body);
    }
    match again {
        Next::Follow { .. } | Next::Refresh if sent.forwards >= FORWARDS_MAX => {
            Next::GiveUp(Why::Forwards)
        }
        Next::Follow { .. } | Next::Refresh | Next::Park(_) | Next::GiveUp(_) => again,
    }
}

/// Whether an answer shows that the shop's home let the request in. Not one that a pod gives before it looks at the home:
/// to what it cannot read or does not know, or has no room for.
pub(crate) const fn shows_open(status: u16) -> bool {
    !matches!(status, 400..=401 | 403..=408 | 411..=417 | 429..=431 | 503)
}

/// What the route table says of the shop after a refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refreshed {
    /// Send it there.
    Send {
        /// To whom.
        pod: PodId,
        /// Under which epoch.
        epoch: Epoch,
    },
    /// There is no such shop any more.
    Gone,
    /// An operator took it offline.
    Offline,
    /// See [`Why`].
    GiveUp(Why),
}

/// What to do after the catalog was asked: `now` is the table's placement of the shop, `sent` what was refused.
pub(crate) fn after_refresh(
    sent: (PodId, Epoch),
    now: Option<(PodId, Epoch, PlacementState)>,
) -> Refreshed {
    match now {
        None => Refreshed::Gone,
        Some((_, _, PlacementState::Offline)) => Refreshed::Offline,
        Some((pod, epoch, PlacementState::Serving | PlacementState::Frozen)) => {
            // An epoch has one owner, so a placement that is not newer is the one that was refused, or an older.
            if epoch > sent.1 {
                Refreshed::Send { pod, epoch }
            } else {
                Refreshed::GiveUp(Why::Unchanged)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(id: u64) -> PodId {
        PodId::new(id).unwrap()
    }

    fn epoch(n: u64) -> Epoch {
        Epoch::try_from(n).unwrap()
    }

    const fn sent(pod: PodId, epoch: Epoch) -> Sent {
        Sent {
            pod,
            epoch,
            forwards: 1,
            replayable: true,
        }
    }

    #[test]
    fn a_mark_is_followed_only_forward() {
        let first = sent(pod(1), epoch(3));
        let moved = |p, e| Fence::Moved {
            pod: pod(p),
            epoch: epoch(e),
        };
        let follow = Next::Follow {
            pod: pod(2),
            epoch: epoch(4),
        };
        assert_eq!(after_fence(moved(2, 4), first), follow);
        assert_eq!(after_fence(moved(2, 3), first), Next::Refresh, "not newer");
        assert_eq!(after_fence(moved(1, 4), first), Next::Refresh, "to itself");
        // The mark of a pod that a mark led to: the table is two moves old.
        let second = sent(pod(2), epoch(4));
        let on = Next::Follow {
            pod: pod(3),
            epoch: epoch(5),
        };
        assert_eq!(after_fence(moved(3, 5), second), on);
        assert_eq!(after_fence(moved(1, 3), second), Next::Refresh, "back");
    }

    #[test]
    fn a_request_that_cannot_be_sent_again_is_not() {
        let first = sent(pod(1), epoch(3));
        let stale = Fence::Stale { epoch: None };
        let large = Sent {
            replayable: false,
            ..first
        };
        assert_eq!(after_fence(stale, large), Next::GiveUp(Why::Body));
        let last = Sent {
            forwards: FORWARDS_MAX,
            ..first
        };
        assert_eq!(after_fence(stale, last), Next::GiveUp(Why::Forwards));
        let before_last = Sent {
            forwards: FORWARDS_MAX - 1,
            ..first
        };
        assert_eq!(after_fence(stale, before_last), Next::Refresh);
    }

    #[test]
    fn a_shop_that_changes_hands_is_waited_for_however_often_it_was_asked() {
        let last = Sent {
            forwards: FORWARDS_MAX,
            ..sent(pod(1), epoch(3))
        };
        let large = Sent {
            replayable: false,
            ..last
        };
        for (fence, reason) in [
            (Fence::Fenced, Reason::Fenced),
            (Fence::Unready, Reason::Unready),
        ] {
            assert_eq!(after_fence(fence, last), Next::Park(reason));
            assert_eq!(after_fence(fence, large), Next::GiveUp(Why::Body));
        }
    }

    #[test]
    fn what_is_said_without_the_home_says_nothing_of_it() {
        for status in [200, 201, 204, 302, 402, 409, 422, 500, 504] {
            assert!(shows_open(status), "{status}");
        }
        for status in [400, 401, 403, 404, 405, 413, 415, 429, 431, 503] {
            assert!(!shows_open(status), "{status}");
        }
    }

    #[test]
    fn after_a_refresh_only_a_newer_placement_is_tried() {
        use PlacementState::{Frozen, Offline, Serving};
        let refused = (pod(1), epoch(3));
        let unchanged = Refreshed::GiveUp(Why::Unchanged);
        let newer = |p| Refreshed::Send {
            pod: pod(p),
            epoch: epoch(4),
        };
        for (now, expected) in [
            (None, Refreshed::Gone),
            (Some((pod(2), epoch(4), Offline)), Refreshed::Offline),
            (Some((pod(1), epoch(3), Serving)), unchanged),
            (Some((pod(1), epoch(2), Serving)), unchanged),
            (Some((pod(2), epoch(4), Serving)), newer(2)),
            (Some((pod(1), epoch(4), Frozen)), newer(1)),
        ] {
            assert_eq!(after_refresh(refused, now), expected, "{now:?}");
        }
    }
}
