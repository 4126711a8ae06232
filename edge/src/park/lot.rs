//! The parked requests of all shops, and what they share: room, and their pods. Pure, like the queues.
//!
//! Whatever happens costs what it changes, not what is known: the lock around this is every request's.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Instant;

use shared::{Epoch, PodId, ShopId};

use super::gate::Arrival;
use super::lines::Lines;
use super::period::Period;
use super::pods::{Ask, Hold, Pods};
use super::queue::Queue;
use super::refused::{Refused, Row};
use super::seats::{Guest, Left, Number, Waker};
use super::settings::{Reason, Settings};
use crate::retry::Why;

// Who goes next.
mod turns;

/// Shops that are gone through at once, under the lock: some tenths of a millisecond, in which every other request waits.
pub(super) const BATCH: usize = 256;

/// What time wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Alarm {
    /// A shop's queue.
    Shop(ShopId),
    /// Who is the next to ask a pod.
    Pod(PodId),
}

/// All parked requests.
#[derive(Debug)]
pub(crate) struct Lot {
    settings: Settings,
    queues: HashMap<ShopId, Queue>,
    next: Number,
    seats: usize,
    bytes: usize,
    pods: Pods,
    /// Shops that would ask their pod, by when.
    asking: Lines<(PodId, Ask), Instant, ShopId>,
    /// Shops whose next request may go and waits for a slot of their pod, in the order in which they came.
    waiting: Lines<PodId, u64, ShopId>,
    tickets: u64,
    /// Shops whose next request may go, in turn, and the pod that keeps a slot for it.
    ring: VecDeque<(ShopId, Option<PodId>)>,
    ringed: HashSet<ShopId>,
    /// Pods at which another one may go, perhaps.
    stirred: BTreeSet<PodId>,
    alarms: Lines<(), Instant, Alarm>,
    /// Shops by how many of their requests wait.
    sizes: Lines<(), usize, ShopId>,
    /// Shops of which a request was parked since they were last asked for.
    fresh: BTreeSet<ShopId>,
    #[cfg(test)]
    visits: usize,
    /// Periods that ended since they were last asked for.
    ended: Vec<(ShopId, Period)>,
}

impl Lot {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            queues: HashMap::new(),
            next: 0,
            seats: 0,
            bytes: 0,
            pods: Pods::default(),
            asking: Lines::new(),
            waiting: Lines::new(),
            tickets: 0,
            ring: VecDeque::new(),
            ringed: HashSet::new(),
            stirred: BTreeSet::new(),
            alarms: Lines::new(),
            sizes: Lines::new(),
            fresh: BTreeSet::new(),
            #[cfg(test)]
            visits: 0,
            ended: Vec::new(),
        }
    }

    /// What a new request of this shop may do.
    pub(crate) fn arrive(
        &mut self,
        shop: ShopId,
        write: bool,
        now: Instant,
    ) -> Result<Arrival, Why> {
        match self.queues.get_mut(&shop) {
            Some(queue) => queue.arrive(write, &self.settings, now),
            None => Ok(Arrival::Go),
        }
    }

    /// Gives a refused request a seat.
    pub(crate) fn sit(
        &mut self,
        refused: Refused,
        guest: Guest,
        waker: Waker,
        now: Instant,
    ) -> Result<Number, Why> {
        let seated = self.seat(refused, guest, waker, now);
        // With or without a seat: it may have closed the gate.
        self.run(refused.shop, now);
        seated
    }

    fn seat(
        &mut self,
        refused: Refused,
        guest: Guest,
        waker: Waker,
        now: Instant,
    ) -> Result<Number, Why> {
        self.close(refused, guest.write, now)?;
        self.make_room(refused.shop, guest, now)?;
        let number = self.next;
        self.next += 1;
        let queue = self.queue(refused, now);
        queue.sit(number, guest, waker, now);
        self.seats += 1;
        self.bytes += guest.bytes;
        Ok(number)
    }

    /// Brings a request back to its seat that was refused, or for which the edge itself has no room just now.
    pub(crate) fn back(
        &mut self,
        refused: Refused,
        number: Number,
        waker: Waker,
        now: Instant,
    ) -> Result<(), Why> {
        let queue = self.queues.get(&refused.shop);
        let write = queue.and_then(|queue| queue.is_write(number));
        let closed = self.close(refused, write.unwrap_or(false), now);
        let back = closed.and_then(|()| {
            let settings = self.settings;
            let queue = self.queue(refused, now);
            match refused.by_pod {
                Some(_) => queue.count_refusal(),
                None => queue.rest(&settings, now),
            }
            // A seat is taken away only for room.
            let held = queue.back(number, waker).map_err(|()| Why::All)?;
            self.free(held);
            Ok(())
        });
        self.run(refused.shop, now);
        back
    }

    fn close(&mut self, refused: Refused, write: bool, now: Instant) -> Result<(), Why> {
        let settings = self.settings;
        self.fresh.insert(refused.shop);
        if let Some((Reason::Unready, sent)) = refused.by_pod {
            self.pods.refused(refused.place.pod, write, sent);
            self.stirred.insert(refused.place.pod);
        }
        let queue = self.queue(refused, now);
        queue.known_at(refused.place);
        match refused.by_pod {
            Some((reason, sent)) => queue.close(reason, sent, &settings, now),
            None => queue.is_waited_for(),
        }
    }

    fn queue(&mut self, refused: Refused, now: Instant) -> &mut Queue {
        let queues = self.queues.entry(refused.shop);
        queues.or_insert_with(|| Queue::new(refused.place, now))
    }

    /// Sees to it that there is room. Where there is none in all, a shop with more than its share gives way,
    /// if its newest has what is missing.
    fn make_room(&mut self, shop: ShopId, guest: Guest, now: Instant) -> Result<(), Why> {
        let mine = self.queues.get(&shop).map_or(0, Queue::seats);
        if mine >= self.settings.shop_max {
            return Err(Why::Shop);
        }
        let why = if self.seats >= self.settings.all_max {
            Why::All
        } else if self.bytes + guest.bytes > self.settings.bytes_max {
            Why::Bytes
        } else {
            return Ok(());
        };
        let lacks = (self.bytes + guest.bytes).saturating_sub(self.settings.bytes_max);
        let largest = self.larger(mine + 1, lacks).ok_or(why)?;
        let queue = self.queues.get_mut(&largest);
        let left = queue.ok_or(why)?.evict_newest(why, now);
        self.settle(left);
        self.note(largest);
        Ok(())
    }

    /// The shop with the most that wait, more than so many, whose newest holds so many bytes.
    fn larger(&self, than: usize, bytes: usize) -> Option<ShopId> {
        let mut larger = self.sizes.last_first(());
        let has = |shop| self.queues.get(&shop).map_or(0, Queue::newest_bytes) >= bytes;
        let largest = larger.find(|(waiting, shop)| *waiting <= than || has(*shop));
        largest
            .filter(|(waiting, _)| *waiting > than)
            .map(|(_, shop)| shop)
    }

    /// The rest of a request's body has come.
    pub(crate) fn whole(&mut self, shop: ShopId, number: Number, now: Instant) {
        if let Some(queue) = self.queues.get_mut(&shop) {
            queue.whole(number);
        }
        self.run(shop, now);
    }

    /// A pod answered a request that was sent from its seat, and did not refuse it; `open` where its answer shows that it
    /// takes the shop's requests.
    pub(crate) fn passed(&mut self, shop: ShopId, number: Number, open: bool, now: Instant) {
        let Some(queue) = self.queues.get_mut(&shop) else {
            return;
        };
        let sent = queue.sent(number);
        let left = queue.passed(number, open, &self.settings, now);
        self.settle(left);
        if let Some(sent) = sent.filter(|_| open) {
            self.pods.let_in(sent.pod, sent.write, sent.since, now);
            self.stirred.insert(sent.pod);
        }
        self.run(shop, now);
    }

    /// A request gives its seat up, wherever it is.
    pub(crate) fn leave(&mut self, shop: ShopId, number: Number, now: Instant) {
        let Some(queue) = self.queues.get_mut(&shop) else {
            return;
        };
        let left = queue.leave(number, now);
        self.settle(left);
        self.run(shop, now);
    }

    /// A request that was let through to ask was not refused.
    pub(crate) fn scouted(&mut self, shop: ShopId, now: Instant) {
        if let Some(queue) = self.queues.get_mut(&shop) {
            queue.open(now);
        }
        self.run(shop, now);
    }

    /// What the table says of a shop now.
    pub(crate) fn routed(&mut self, shop: ShopId, row: Option<Row>, now: Instant) {
        let queue = self.queues.get_mut(&shop);
        if queue.is_some_and(|queue| queue.routed(row, now)) {
            self.run(shop, now);
        }
    }

    /// A pod's mark says where a shop is.
    pub(crate) fn marked(&mut self, shop: ShopId, pod: PodId, epoch: Epoch, now: Instant) {
        if let Some(queue) = self.queues.get_mut(&shop) {
            queue.marked(pod, epoch, now);
        }
        self.run(shop, now);
    }

    /// Why a request of this shop goes that waited for a whole window.
    pub(crate) fn why_over(&self, shop: ShopId) -> Why {
        let queue = self.queues.get(&shop);
        queue.map_or(Why::Window, Queue::why_over)
    }

    /// Does what time alone does, for so many, and says when to come again.
    pub(crate) fn advance(&mut self, now: Instant) -> Option<Instant> {
        for _ in 0..BATCH {
            match self.alarms.first(()) {
                Some((due, Alarm::Shop(shop))) if due <= now => self.wake(shop, now),
                Some((due, Alarm::Pod(pod))) if due <= now => {
                    self.stirred.insert(pod);
                    self.go_on(now);
                }
                Some(_) | None => break,
            }
        }
        self.alarms.first(()).map(|(due, _)| due)
    }

    fn wake(&mut self, shop: ShopId, now: Instant) {
        if let Some(queue) = self.queues.get_mut(&shop) {
            let (freed, left) = queue.advance(&self.settings, now);
            for held in freed {
                self.free(Some(held));
            }
            for left in left {
                self.settle(left);
            }
        }
        self.run(shop, now);
    }

    /// What a seat left is free again.
    fn settle(&mut self, left: Left) {
        self.seats -= left.seats;
        self.bytes -= left.bytes;
        self.free(left.held);
    }

    fn free(&mut self, held: Option<Hold>) {
        if let Some(held) = held {
            self.pods.free(held);
            self.stirred.insert(held.pod());
        }
    }

    /// Sends all that may go after something happened to this shop, and forgets what need not be known of it.
    fn run(&mut self, shop: ShopId, now: Instant) {
        if let Some(queue) = self.queues.get_mut(&shop) {
            let forgotten = queue.forgotten(&self.settings).is_some_and(|at| at <= now);
            let ended = queue.end(forgotten, now);
            self.ended.extend(ended.map(|period| (shop, period)));
            if forgotten && queue.forgotten(&self.settings).is_some_and(|at| at <= now) {
                self.queues.remove(&shop);
            }
        }
        self.note(shop);
        self.go_on(now);
    }

    /// The shops of which a request was parked since this was asked last.
    pub(crate) fn take_fresh(&mut self) -> Vec<ShopId> {
        std::mem::take(&mut self.fresh).into_iter().collect()
    }

    /// The shops of which something is known.
    pub(crate) fn known(&self) -> Vec<ShopId> {
        self.queues.keys().copied().collect()
    }

    /// How many they are.
    pub(crate) fn shops(&self) -> usize {
        self.queues.len()
    }

    /// Requests that wait, or were sent and may come back.
    pub(crate) const fn seats(&self) -> usize {
        self.seats
    }

    /// Bytes of bodies that are kept for them.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The periods that ended.
    pub(crate) fn take_ended(&mut self) -> Vec<(ShopId, Period)> {
        std::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests;
