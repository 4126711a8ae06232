//! The seats of one shop's parked requests. A seat is kept until a pod has answered its request, so one that is sent and
//! refused again finds its place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use shared::{Epoch, PodId};
use tokio::sync::oneshot;

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
    /// With the client, to be read when it is sent.
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
    /// It was sent to the pod.
    Out { since: Instant, role: Role },
}

/// What a seat that was sent keeps others from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// From asking.
    Probe,
    /// From following, at this pod.
    Slot(PodId),
    /// From nothing: its time is over, and its request still runs.
    Late,
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
    /// The pod whose slot is free.
    pub(crate) pod: Option<PodId>,
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
    /// Those that were sent.
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

    /// Goes back to its seat after it was sent; `Err` if that was taken away.
    pub(crate) fn back(&mut self, number: Number, waker: Waker) -> Result<Option<PodId>, ()> {
        let pod = self.come_in(number);
        let seat = self.all.get_mut(&number).ok_or(())?;
        seat.at = At::Waiting(waker);
        self.ready[seat.guest.class()].insert(number);
        Ok(pod)
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
        let pod = self.come_in(number);
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
            pod,
            bytes: seat.as_ref().map_or(0, |seat| seat.guest.bytes),
            seats: usize::from(seat.is_some()),
        }
    }

    /// A seat that was sent is no longer on its way; returns the pod whose slot it held.
    fn come_in(&mut self, number: Number) -> Option<PodId> {
        self.out.remove(&number);
        match self.all.get_mut(&number).map(|seat| &mut seat.at) {
            Some(At::Out { role, .. }) => match std::mem::replace(role, Role::Late) {
                Role::Slot(pod) => Some(pod),
                Role::Probe | Role::Late => None,
            },
            Some(At::Waiting(_)) | None => None,
        }
    }

    /// Whether it may write, and when it was sent; `None` while it waits.
    pub(crate) fn sent(&self, number: Number) -> Option<(bool, Instant)> {
        let seat = self.all.get(&number)?;
        match seat.at {
            At::Out { since, .. } => Some((seat.guest.write, since)),
            At::Waiting(_) => None,
        }
    }

    /// Sends one to ask, if none is on its way to.
    pub(crate) fn send_probe(&mut self, turn: Turn, now: Instant) -> bool {
        if self.is_asking() {
            return false;
        }
        let asks = self.ready[..ASK].iter();
        let first = asks.into_iter().find_map(BTreeSet::first).copied();
        first.is_some_and(|number| self.send(number, Role::Probe, turn, now))
    }

    /// Whether one is here that can be sent to ask.
    pub(crate) fn can_ask(&self) -> bool {
        self.ready[..ASK].iter().any(|ready| !ready.is_empty())
    }

    /// Whether one was sent to ask.
    pub(crate) fn is_asking(&self) -> bool {
        self.roles().any(|(_, role)| role == Role::Probe)
    }

    /// Whether one that was sent may come back soon.
    pub(crate) fn is_one_on_its_way(&self) -> bool {
        self.roles().any(|(_, role)| role != Role::Late)
    }

    /// How many hold a slot.
    pub(crate) fn slots(&self) -> usize {
        let slots = self.roles().filter(|(_, role)| match role {
            Role::Slot(_) => true,
            Role::Probe | Role::Late => false,
        });
        slots.count()
    }

    /// Sends the next one, in the order of arrival.
    pub(crate) fn send_next(&mut self, pod: PodId, turn: Turn, now: Instant) -> bool {
        let [writes, reads, there, come] = &self.ready;
        let here = writes.first().into_iter().chain(reads.first()).min();
        let next = here.or(there.first()).or(come.first()).copied();
        next.is_some_and(|number| self.send(number, Role::Slot(pod), turn, now))
    }

    fn roles(&self) -> impl Iterator<Item = (Instant, Role)> {
        self.out
            .iter()
            .filter_map(|number| match self.all.get(number).map(|seat| &seat.at) {
                Some(At::Out { since, role }) => Some((*since, *role)),
                Some(At::Waiting(_)) | None => None,
            })
    }

    fn send(&mut self, number: Number, role: Role, turn: Turn, now: Instant) -> bool {
        for ready in &mut self.ready {
            ready.remove(&number);
        }
        let Some(seat) = self.all.get_mut(&number) else {
            return false;
        };
        self.longest = self.longest.max(now - seat.taken);
        let out = At::Out { since: now, role };
        if let At::Waiting(waker) = std::mem::replace(&mut seat.at, out) {
            // Whoever has left gives the seat up a moment later.
            let _ = waker.send(turn);
        }
        self.out.insert(number);
        true
    }

    /// Those that are on their way for longer than `max` keep nobody waiting any more; returns the pods of their slots.
    pub(crate) fn expire(&mut self, max: Duration, now: Instant) -> Vec<PodId> {
        let mut freed = Vec::new();
        for number in &self.out {
            let seat = self.all.get_mut(number);
            if let Some(At::Out { since, role }) = seat.map(|seat| &mut seat.at)
                && now >= *since + max
                && let Role::Slot(pod) = std::mem::replace(role, Role::Late)
            {
                freed.push(pod);
            }
        }
        freed
    }

    /// When the next of them does.
    pub(crate) fn expiry(&self, max: Duration) -> Option<Instant> {
        let roles = self.roles().filter(|(_, role)| *role != Role::Late);
        roles.map(|(since, _)| since + max).min()
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
            pod: None,
            bytes: seat.guest.bytes,
            seats: 1,
        }
    }
}
