//! The parked requests of all shops, and what they share: room, and the slots of the pods. Pure, like the queues.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use shared::{Epoch, PodId, ShopId};

use super::queue::{Arrival, Period, Queue, Row};
use super::seats::{Guest, Left, Number, Waker};
use super::settings::{Reason, Settings};
use crate::retry::Why;

/// A request that a pod refused, or whose shop is known to refuse.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub(crate) shop: ShopId,
    /// Where it goes.
    pub(crate) place: Row,
    /// Why it was refused, and when it was sent; `None` if it was not sent.
    pub(crate) by_pod: Option<(Reason, Instant)>,
}

/// All parked requests.
#[derive(Debug)]
pub(crate) struct Lot {
    settings: Settings,
    queues: HashMap<ShopId, Queue>,
    next: Number,
    seats: usize,
    bytes: usize,
    /// Requests on their way through an open gate, by pod.
    slots: HashMap<PodId, usize>,
    /// Shops whose next request may go, in turn, and the pod that keeps a slot free for it.
    ring: VecDeque<(ShopId, Option<PodId>)>,
    /// Shops that wait for a slot of their pod.
    full: HashMap<PodId, VecDeque<ShopId>>,
    /// Shops in either: the pod for whose slot one waits; `None` in the ring.
    queued: HashMap<ShopId, Option<PodId>>,
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
            slots: HashMap::new(),
            ring: VecDeque::new(),
            full: HashMap::new(),
            queued: HashMap::new(),
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
        self.close(refused, now)?;
        self.make_room(refused.shop, guest, now)?;
        let number = self.next;
        self.next += 1;
        let queue = self.queue(refused, now);
        queue.sit(number, guest, waker, now);
        self.seats += 1;
        self.bytes += guest.bytes;
        Ok(number)
    }

    /// Brings a refused request back to its seat.
    pub(crate) fn back(
        &mut self,
        refused: Refused,
        number: Number,
        waker: Waker,
        now: Instant,
    ) -> Result<(), Why> {
        let closed = self.close(refused, now);
        let back = closed.and_then(|()| {
            let back = self.queue(refused, now).back(number, waker);
            // A seat is taken away only for room.
            self.free(back.map_err(|()| Why::All)?);
            Ok(())
        });
        self.run(refused.shop, now);
        back
    }

    fn close(&mut self, refused: Refused, now: Instant) -> Result<(), Why> {
        let settings = self.settings;
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
        let queues = self.queues.values_mut();
        let larger = queues.filter(|q| q.waiting() > mine + 1 && q.newest_bytes() >= lacks);
        let largest = larger.max_by_key(|queue| queue.waiting()).ok_or(why)?;
        let left = largest.evict_newest(why, now);
        self.settle(left);
        Ok(())
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
        let left = queue.passed(number, open, &self.settings, now);
        self.settle(left);
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
        if let Some(queue) = self.queues.get_mut(&shop) {
            queue.routed(row, now);
        }
        self.run(shop, now);
    }

    /// A pod's mark says where a shop is.
    pub(crate) fn marked(&mut self, shop: ShopId, pod: PodId, epoch: Epoch, now: Instant) {
        if let Some(queue) = self.queues.get_mut(&shop) {
            queue.marked(pod, epoch, now);
        }
        self.run(shop, now);
    }

    /// Does what time alone does, and says when to come again.
    pub(crate) fn advance(&mut self, now: Instant) -> Option<Instant> {
        for shop in self.known() {
            let Some(queue) = self.queues.get_mut(&shop) else {
                continue;
            };
            let (pods, left) = queue.advance(&self.settings, now);
            for pod in pods {
                self.free(Some(pod));
            }
            for left in left {
                self.settle(left);
            }
            self.run(shop, now);
        }
        let due = self.queues.values().filter_map(|q| q.due(&self.settings));
        due.min()
    }

    /// What a seat left is free again.
    fn settle(&mut self, left: Left) {
        self.seats -= left.seats;
        self.bytes -= left.bytes;
        self.free(left.pod);
    }

    fn free(&mut self, pod: Option<PodId>) {
        let Some(pod) = pod else { return };
        if let Some(slots) = self.slots.get_mut(&pod) {
            *slots -= 1;
            if *slots == 0 {
                self.slots.remove(&pod);
            }
        }
        self.wake(pod);
    }

    /// Gives a free slot to the next shop that waits for one; [`Self::follow`] sees to it that it is taken, or passed on.
    fn wake(&mut self, pod: PodId) {
        if self.is_full(pod) {
            return;
        }
        let Some(waiting) = self.full.get_mut(&pod) else {
            return;
        };
        if let Some(shop) = waiting.pop_front() {
            self.queued.insert(shop, None);
            self.ring.push_back((shop, Some(pod)));
        }
        if waiting.is_empty() {
            self.full.remove(&pod);
        }
    }

    fn is_full(&self, pod: PodId) -> bool {
        let slots = self.slots.get(&pod).copied().unwrap_or(0);
        slots >= self.settings.drain_pod_max
    }

    /// Sends all that may go, beginning with this shop's, and forgets what need not be known.
    fn run(&mut self, shop: ShopId, now: Instant) {
        if let Some(queue) = self.queues.get_mut(&shop) {
            queue.probe(&self.settings, now);
        }
        self.line_up(shop);
        while let Some((next, kept)) = self.ring.pop_front() {
            self.follow(next, kept, now);
        }
        let Some(queue) = self.queues.get_mut(&shop) else {
            return;
        };
        let forgotten = queue.forgotten(&self.settings).is_some_and(|at| at <= now);
        let ended = queue.end(forgotten, now);
        self.ended.extend(ended.map(|period| (shop, period)));
        if forgotten && queue.forgotten(&self.settings).is_some_and(|at| at <= now) {
            self.queues.remove(&shop);
        }
    }

    /// A shop is in turn if, and where, its next request may go.
    fn line_up(&mut self, shop: ShopId) {
        let queue = self.queues.get(&shop);
        let wanted = queue.and_then(|queue| queue.wants(&self.settings));
        if let Some(&Some(pod)) = self.queued.get(&shop)
            && wanted != Some(pod)
        {
            self.queued.remove(&shop);
            if let Some(waiting) = self.full.get_mut(&pod) {
                waiting.retain(|other| *other != shop);
                if waiting.is_empty() {
                    self.full.remove(&pod);
                }
            }
        }
        if wanted.is_some() && !self.queued.contains_key(&shop) {
            self.queued.insert(shop, None);
            self.ring.push_back((shop, None));
        }
    }

    /// The next request of a shop whose turn it is. A slot that was kept free for it and that it does not take is the
    /// next shop's.
    fn follow(&mut self, shop: ShopId, kept: Option<PodId>, now: Instant) {
        let taken = self.take_slot(shop, now);
        if let Some(pod) = kept.filter(|_| kept != taken) {
            self.wake(pod);
        }
    }

    /// Sends the next request of a shop, if it wants to go and there is a slot; returns the pod of that.
    fn take_slot(&mut self, shop: ShopId, now: Instant) -> Option<PodId> {
        let queue = self.queues.get(&shop);
        let wanted = queue.and_then(|queue| queue.wants(&self.settings));
        if let Some(pod) = wanted
            && self.is_full(pod)
        {
            self.full.entry(pod).or_default().push_back(shop);
            self.queued.insert(shop, Some(pod));
            return None;
        }
        let sent = wanted.filter(|_| {
            let queue = self.queues.get_mut(&shop);
            queue.is_some_and(|queue| queue.follow(now))
        });
        match sent {
            Some(pod) => {
                *self.slots.entry(pod).or_insert(0) += 1;
                self.ring.push_back((shop, None));
            }
            None => {
                self.queued.remove(&shop);
            }
        }
        sent
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
