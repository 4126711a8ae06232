//! The seats of one shop's parked requests. A seat is kept until a pod has answered its request, so one that is sent and
//! refused again finds its place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use shared::{Epoch, PodId};
use tokio::sync::oneshot;

use super::pods::Hold;
use crate::retry::Why;

/// What a seat hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Ask for all: the pod again, or the newer place that another request of the shop was told of.
    Probe(Option<(PodId, Epoch)>),
    /// Go there: it takes requests.
    Follow(Option<(PodId, Epoch)>),
    /// Answer the client: this limit is reached.
    Refused(Why),
}

/// How a seat is told.
pub(crate) type Waker = oneshot::Sender<Turn>;

/// The number of a seat; they are in the order of arrival.
pub(crate) type Number = u64;

/// What is known of a request that takes a seat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guest {
    /// Whether it may write: such ones tell best whether the pod takes requests again.
    pub(crate) write: bool,
    /// Where its body is.
    pub(crate) body: Body,
    /// How much of its body is kept, or will be.
    pub(crate) bytes: usize,
}

/// Where the body of a parked request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// Here, to its end, or there is none.
    Here,
    /// On its way here. One that asked without it would keep the others waiting for its client.
    Comes,
    /// With the client, to be read when it is sent, once: until then the edge asks for it by a request without a body
    /// (`proxy/ask.rs`).
    There,
}

impl Guest {
    /// The order in which guests ask: writes, reads, those whose body is with the client; the rest does not.
    const fn class(self) -> usize {
        match (self.body, self.write) {
            (Body::Here, true) => 0,
            (Body::Here, false) => 1,
            (Body::There, true | false) => 2,
            (Body::Comes, true | false) => 3,
        }
    }
}

/// How many of the classes ask.
const ASK: usize = 3;

#[derive(Debug)]
enum At {
    /// It waits to be told.
    Waiting(Waker),
    /// It was sent.
    Out {
        sent: Sent,
        /// What it keeps others from; `None` when its time is over, and its request still runs.
        holds: Option<Hold>,
    },
}

/// A seat's request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Whether it may write.
    pub(crate) write: bool,
    pub(crate) since: Instant,
    /// To whom.
    pub(crate) pod: PodId,
}

#[derive(Debug)]
struct Seat {
    guest: Guest,
    at: At,
    /// When it was taken.
    taken: Instant,
}

/// What a seat leaves behind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// What it held.
    pub(crate) held: Option<Hold>,
    /// Bytes that are no longer kept.
    pub(crate) bytes: usize,
    /// Whether there was such a seat.
    pub(crate) seats: usize,
}

/// The seats of one shop.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    all: BTreeMap<Number, Seat>,
    /// The waiting ones by [`Guest::class`].
    ready: [BTreeSet<Number>; ASK + 1],
    /// Those that were sent and hold something.
    out: BTreeSet<Number>,
    /// The longest that one waited until it was sent, or given up.
    longest: Duration,
}

impl Seats {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.ready.iter().map(BTreeSet::len).sum()
    }

    pub(crate) fn a_write_waits(&self) -> bool {
        !self.ready[0].is_empty()
    }

    /// The longest that one waited since this was asked last.
    pub(crate) fn take_longest(&mut self) -> Duration {
        std::mem::take(&mut self.longest)
    }

    /// Takes a seat.
    pub(crate) fn sit(&mut self, number: Number, guest: Guest, waker: Waker, now: Instant) {
        self.ready[guest.class()].insert(number);
        let seat = Seat {
            guest,
            at: At::Waiting(waker),
            taken: now,
        };
        self.all.insert(number, seat);
    }

    /// Goes back to its seat after it was sent; returns what it held. `Err` if the seat was taken away.
    pub(crate) fn back(&mut self, number: Number, waker: Waker) -> Result<Option<Hold>, ()> {
        let held = self.come_in(number);
        let seat = self.all.get_mut(&number).ok_or(())?;
        seat.at = At::Waiting(waker);
        self.ready[seat.guest.class()].insert(number);
        Ok(held)
    }

    /// The rest of its body has come.
    pub(crate) fn whole(&mut self, number: Number) {
        let Some(seat) = self.all.get_mut(&number) else {
            return;
        };
        let before = seat.guest.class();
        seat.guest.body = Body::Here;
        if self.ready[before].remove(&number) {
            self.ready[seat.guest.class()].insert(number);
        }
    }

    /// Gives a seat up.
    pub(crate) fn leave(&mut self, number: Number, now: Instant) -> Left {
        let held = self.come_in(number);
        for ready in &mut self.ready {
            ready.remove(&number);
        }
        let seat = self.all.remove(&number);
        if let Some(Seat {
            at: At::Waiting(_),
            taken,
            ..
        }) = &seat
        {
            self.longest = self.longest.max(now - *taken);
        }
        Left {
            held,
            bytes: seat.as_ref().map_or(0, |seat| seat.guest.bytes),
            seats: usize::from(seat.is_some()),
        }
    }

    /// A seat that was sent is no longer on its way; returns what it held.
    fn come_in(&mut self, number: Number) -> Option<Hold> {
        self.out.remove(&number);
        match self.all.get_mut(&number).map(|seat| &mut seat.at) {
            Some(At::Out { holds, .. }) => holds.take(),
            Some(At::Waiting(_)) | None => None,
        }
    }

    /// Whether its request may write.
    pub(crate) fn is_write(&self, number: Number) -> Option<bool> {
        self.all.get(&number).map(|seat| seat.guest.write)
    }

    /// Its request on its way; `None` while it waits.
    pub(crate) fn sent(&self, number: Number) -> Option<Sent> {
        match self.all.get(&number)?.at {
            At::Out { sent, .. } => Some(sent),
            At::Waiting(_) => None,
        }
    }

    /// The one that would be sent to ask now, if none is on its way to; and whether it may write.
    pub(crate) fn asker(&self) -> Option<(Number, bool)> {
        if self.holds().any(|(_, hold)| !is_slot(hold)) {
            return None;
        }
        let first = self.ready[..ASK].iter().find_map(BTreeSet::first)?;
        self.is_write(*first).map(|write| (*first, write))
    }

    /// Whether one that was sent may come back soon.
    pub(crate) fn is_one_on_its_way(&self) -> bool {
        !self.out.is_empty()
    }

    /// How many hold a slot.
    pub(crate) fn slots(&self) -> usize {
        self.holds().filter(|(_, hold)| is_slot(*hold)).count()
    }

    /// Sends the next one, in the order of arrival.
    pub(crate) fn send_next(&mut self, hold: Hold, turn: Turn, now: Instant) -> bool {
        let [writes, reads, there, come] = &self.ready;
        let here = writes.first().into_iter().chain(reads.first()).min();
        let next = here.or(there.first()).or(come.first()).copied();
        next.is_some_and(|number| self.send(number, hold, turn, now))
    }

    fn holds(&self) -> impl Iterator<Item = (Instant, Hold)> {
        self.out
            .iter()
            .filter_map(|number| match self.all.get(number).map(|seat| &seat.at) {
                Some(At::Out { sent, holds }) => holds.map(|hold| (sent.since, hold)),
                Some(At::Waiting(_)) | None => None,
            })
    }

    /// Sends this one.
    pub(crate) fn send(&mut self, number: Number, hold: Hold, turn: Turn, now: Instant) -> bool {
        for ready in &mut self.ready {
            ready.remove(&number);
        }
        let Some(seat) = self.all.get_mut(&number) else {
            return false;
        };
        self.longest = self.longest.max(now - seat.taken);
        let sent = Sent {
            write: seat.guest.write,
            since: now,
            pod: hold.pod(),
        };
        let holds = Some(hold);
        if let At::Waiting(waker) = std::mem::replace(&mut seat.at, At::Out { sent, holds }) {
            // Whoever has left gives the seat up a moment later.
            let _ = waker.send(turn);
        }
        self.out.insert(number);
        true
    }

    /// Those that are on their way for longer than `max` keep nobody waiting any more; returns what they held.
    pub(crate) fn expire(&mut self, max: Duration, now: Instant) -> Vec<Hold> {
        let mut freed = Vec::new();
        self.out.retain(|number| {
            let seat = self.all.get_mut(number);
            let Some(At::Out { sent, holds }) = seat.map(|seat| &mut seat.at) else {
                return false;
            };
            if now < sent.since + max {
                return true;
            }
            freed.extend(holds.take());
            false
        });
        freed
    }

    /// When the next of them does.
    pub(crate) fn expiry(&self, max: Duration) -> Option<Instant> {
        self.holds().map(|(since, _)| since + max).min()
    }

    /// The newest that waits.
    fn newest(&self) -> Option<Number> {
        self.ready.iter().filter_map(BTreeSet::last).max().copied()
    }

    /// Bytes that are kept for it.
    pub(crate) fn newest_bytes(&self) -> usize {
        let seat = self.newest().and_then(|number| self.all.get(&number));
        seat.map_or(0, |seat| seat.guest.bytes)
    }

    /// Refuses the newest that waits.
    pub(crate) fn evict_newest(&mut self, why: Why, now: Instant) -> Left {
        let Some(number) = self.newest() else {
            return Left::default();
        };
        for ready in &mut self.ready {
            ready.remove(&number);
        }
        let Some(seat) = self.all.remove(&number) else {
            return Left::default();
        };
        self.longest = self.longest.max(now - seat.taken);
        if let At::Waiting(waker) = seat.at {
            let _ = waker.send(Turn::Refused(why));
        }
        Left {
            held: None,
            bytes: seat.guest.bytes,
            seats: 1,
        }
    }
}

const fn is_slot(hold: Hold) -> bool {
    match hold {
        Hold::Slot(_) => true,
        Hold::Ask(_, _) => false,
    }
}
