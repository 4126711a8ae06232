//! What the shops of one pod share: how many of their parked requests it is sent at once, and how often it is asked.
//!
//! A pod without primary refuses all of its shops, so one answer speaks for all: few ask, however many shops wait. The
//! first that is let in opens the way for the others, until one is refused again. A fence is a shop's own, and each fenced
//! shop asks for itself.

use std::collections::HashMap;
use std::time::Instant;

use shared::PodId;

use super::settings::{Reason, Settings};

/// What a probe asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ask {
    /// Whether a shop's fence is lifted.
    Fence,
    /// Whether the pod has a primary.
    Write,
    /// Whether it has a database to read from.
    Read,
}

impl Ask {
    pub(crate) const ALL: [Self; 3] = [Self::Fence, Self::Write, Self::Read];

    /// What a request asks that may write or not, of a shop that was refused for this.
    pub(crate) const fn of(reason: Reason, write: bool) -> Self {
        match (reason, write) {
            (Reason::Fenced, true | false) => Self::Fence,
            (Reason::Unready, true) => Self::Write,
            (Reason::Unready, false) => Self::Read,
        }
    }
}

/// What a request on its way holds, of which its pod has so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It asks.
    Ask(PodId, Ask),
    /// It follows, through an open gate.
    Slot(PodId),
}

impl Hold {
    pub(crate) const fn pod(self) -> PodId {
        match self {
            Self::Ask(pod, _) | Self::Slot(pod) => pod,
        }
    }
}

/// Those who ask one pod the same.
#[derive(Debug, Default, Clone, Copy)]
struct Asking {
    /// On their way.
    out: usize,
    /// The next one goes no sooner.
    next: Option<Instant>,
    /// The way is open for all since then.
    opened: Option<Instant>,
    /// When the request was sent that was refused last.
    refused: Option<Instant>,
}

/// One pod.
#[derive(Debug, Default)]
struct Pod {
    /// Those that follow, on their way.
    slots: usize,
    asking: [Asking; Ask::ALL.len()],
    /// What was free last went to one that asks.
    asked: bool,
}

impl Pod {
    /// Requests that a pod with a primary would execute at once.
    fn busy(&self) -> usize {
        let [_, write, read] = &self.asking;
        self.slots + write.out + read.out
    }
}

/// The pods to which parked requests go.
#[derive(Debug, Default)]
pub(crate) struct Pods(HashMap<PodId, Pod>);

impl Pods {
    /// Whether so many of its parked requests are on their way that no other one may follow.
    pub(crate) fn is_full(&self, pod: PodId, settings: &Settings) -> bool {
        let busy = self.0.get(&pod).map_or(0, Pod::busy);
        busy >= settings.drain_pod_max
    }

    /// When one may ask that is due at `due`; `None` while others have to be answered first.
    pub(crate) fn may_ask(
        &self,
        pod: PodId,
        ask: Ask,
        due: Instant,
        settings: &Settings,
    ) -> Option<Instant> {
        let Some(known) = self.0.get(&pod) else {
            return Some(due);
        };
        let asking = known.asking[ask as usize];
        let all = match ask {
            Ask::Fence => asking.out,
            Ask::Write | Ask::Read => known.busy(),
        };
        if all >= settings.drain_pod_max {
            return None;
        }
        match (ask, asking.opened) {
            (Ask::Fence, _) => Some(due),
            // Who was refused before that is due sooner than this; who asks since then, later: nobody is called twice.
            (Ask::Write | Ask::Read, Some(opened)) if due < opened + settings.probe_every => {
                Some(due.min(opened))
            }
            (Ask::Write | Ask::Read, Some(_)) => Some(due),
            (Ask::Write | Ask::Read, None) if asking.out >= settings.probe_pod_max => None,
            (Ask::Write | Ask::Read, None) => Some(asking.next.map_or(due, |next| due.max(next))),
        }
    }

    /// Whether the way is open for all who ask this.
    pub(crate) fn is_open(&self, pod: PodId, ask: Ask) -> bool {
        let known = self.0.get(&pod);
        known.is_some_and(|known| known.asking[ask as usize].opened.is_some())
    }

    /// One is sent.
    pub(crate) fn take(&mut self, hold: Hold, settings: &Settings, now: Instant) {
        let known = self.0.entry(hold.pod()).or_default();
        match hold {
            Hold::Slot(_) => known.slots += 1,
            Hold::Ask(_, ask) => {
                let asking = &mut known.asking[ask as usize];
                asking.out += 1;
                asking.next = Some(now + settings.probe_pod_gap());
            }
        }
    }

    /// It is back, or its time is over.
    pub(crate) fn free(&mut self, hold: Hold) {
        let Some(known) = self.0.get_mut(&hold.pod()) else {
            return;
        };
        match hold {
            Hold::Slot(_) => known.slots -= 1,
            Hold::Ask(_, ask) => known.asking[ask as usize].out -= 1,
        }
    }

    /// Whether what is free now goes to one that asks, if there is one: they and those that follow take turns.
    pub(crate) fn turns(&mut self, pod: PodId) -> bool {
        let known = self.0.get_mut(&pod);
        known.is_some_and(|known| {
            known.asked = !known.asked;
            known.asked
        })
    }

    /// The pod had no primary for a request that was sent at `sent`.
    pub(crate) fn refused(&mut self, pod: PodId, write: bool, sent: Instant) {
        let known = self.0.entry(pod).or_default();
        let asking = &mut known.asking[Ask::of(Reason::Unready, write) as usize];
        asking.refused = asking.refused.max(Some(sent));
        asking.opened = asking.opened.filter(|opened| sent < *opened);
    }

    /// The pod let a request in that was sent at `sent`: a write shows that it has a primary, a read that it can be read.
    pub(crate) fn let_in(&mut self, pod: PodId, write: bool, sent: Instant, now: Instant) {
        let Some(known) = self.0.get_mut(&pod) else {
            return;
        };
        for ask in [Ask::Write, Ask::Read] {
            let asking = &mut known.asking[ask as usize];
            // One that was sent before a refusal says nothing about the time after it.
            let news = asking.refused.is_none_or(|refused| sent >= refused);
            if news && (write || ask == Ask::Read) {
                asking.opened.get_or_insert(now);
            }
        }
    }

    /// Forgets a pod from which nobody is awaited.
    pub(crate) fn forget(&mut self, pod: PodId) {
        let known = self.0.get(&pod);
        let idle = known.is_some_and(|known| {
            known.slots == 0 && known.asking.iter().all(|asking| asking.out == 0)
        });
        if idle {
            self.0.remove(&pod);
        }
    }

    /// Requests on their way to it: those that follow, and those that ask this or that.
    #[cfg(test)]
    pub(crate) fn out(&self, pod: PodId) -> (usize, [usize; Ask::ALL.len()]) {
        let known = self.0.get(&pod);
        known.map_or((0, [0; Ask::ALL.len()]), |known| {
            (known.slots, known.asking.map(|asking| asking.out))
        })
    }

    /// How many are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
