//! Who goes next: the shops of a pod in turn, those that follow and those that ask.

use std::time::Instant;

use shared::{PodId, ShopId};

use super::{Alarm, Lot};
use crate::park::pods::{Ask, Hold};

/// A shop that would ask its pod.
#[derive(Debug, Clone, Copy)]
struct Asker {
    /// When it may.
    at: Instant,
    ask: Ask,
    shop: ShopId,
}

impl Lot {
    /// Keeps what is known of a shop elsewhere: to be called after each change of its queue.
    pub(super) fn note(&mut self, shop: ShopId) {
        let queue = self.queues.get(&shop);
        let asks = queue.and_then(|queue| queue.asks());
        let asks = asks.map(|(pod, ask, due)| ((pod, ask), due));
        let due = queue.and_then(|queue| queue.due(&self.settings));
        let waiting = queue.map(|queue| ((), queue.waiting()));
        let wanted = queue.and_then(|queue| queue.wants(&self.settings));
        self.alarms.put(Alarm::Shop(shop), due.map(|due| ((), due)));
        self.sizes.put(shop, waiting);
        let before = self.asking.place(shop);
        if self.asking.put(shop, asks) {
            let pods = before.into_iter().chain(asks.map(|(place, _)| place));
            self.stirred.extend(pods.map(|(pod, _)| pod));
        }
        self.line_up(shop, wanted);
        #[cfg(test)]
        {
            self.visits += 1;
        }
    }

    /// A shop is in turn if, and where, its next request may go.
    fn line_up(&mut self, shop: ShopId, wanted: Option<PodId>) {
        let place = self.waiting.place(shop);
        if place.is_some() && place != wanted {
            self.waiting.put(shop, None);
            self.stirred.extend(place);
        }
        if wanted.is_some() && self.waiting.place(shop).is_none() && self.ringed.insert(shop) {
            self.ring.push_back((shop, None));
        }
    }

    /// Sends all that may go now.
    pub(super) fn go_on(&mut self, now: Instant) {
        loop {
            // Before those in turn: what is free is theirs who wait for it.
            if let Some(pod) = self.stirred.pop_first() {
                self.serve(pod, now);
            } else if let Some((shop, kept)) = self.ring.pop_front() {
                self.follow(shop, kept, now);
            } else {
                return;
            }
        }
    }

    /// Those that wait for a slot of this pod and those that ask it take turns, as far as they may go.
    fn serve(&mut self, pod: PodId, now: Instant) {
        let asker = loop {
            let asker = self.asker(pod, now);
            let may = asker.filter(|asker| asker.at <= now);
            let full = self.pods.is_full(pod, &self.settings);
            let waits = self.waiting.first(pod).filter(|_| !full);
            match (may, waits) {
                (Some(asker), None) => self.ask(pod, asker, now),
                (Some(asker), Some(_)) if self.pods.turns(pod) => self.ask(pod, asker, now),
                (_, Some((_, shop))) => {
                    self.waiting.put(shop, None);
                    self.pods.take(Hold::Slot(pod), &self.settings, now);
                    self.ringed.insert(shop);
                    self.ring.push_back((shop, Some(pod)));
                }
                (None, None) => break asker,
            }
        };
        let due = asker.map(|asker| ((), asker.at));
        self.alarms.put(Alarm::Pod(pod), due);
        let asks = Ask::ALL.map(|ask| self.asking.first((pod, ask)));
        if asks.iter().all(Option::is_none) && self.waiting.first(pod).is_none() {
            self.pods.forget(pod);
        }
    }

    /// The next one to ask a pod: of those that may, the one that is due for the longest time.
    fn asker(&self, pod: PodId, now: Instant) -> Option<Asker> {
        let askers = Ask::ALL.into_iter().filter_map(|ask| {
            let (due, shop) = self.asking.first((pod, ask))?;
            let at = self.pods.may_ask(pod, ask, due, &self.settings)?;
            Some((at.max(now), due, Asker { at, ask, shop }))
        });
        let first = askers.min_by_key(|(at, due, _)| (*at, *due));
        first.map(|(_, _, asker)| asker)
    }

    fn ask(&mut self, pod: PodId, asker: Asker, now: Instant) {
        let Asker { ask, shop, .. } = asker;
        let called = self.pods.is_open(pod, ask);
        let queue = self.queues.get_mut(&shop);
        match queue.and_then(|queue| queue.ask(called, &self.settings, now)) {
            Some(hold) => {
                self.pods.take(hold, &self.settings, now);
                self.note(shop);
            }
            // It stands in line and asks nothing: nobody else waits for that.
            None => {
                self.asking.put(shop, None);
            }
        }
    }

    /// The next request of a shop whose turn it is. A slot that was kept for it and that it does not take is the next
    /// shop's.
    fn follow(&mut self, shop: ShopId, kept: Option<PodId>, now: Instant) {
        self.ringed.remove(&shop);
        self.free(kept.map(Hold::Slot));
        let queue = self.queues.get_mut(&shop);
        let wanted = queue.as_ref().and_then(|queue| queue.wants(&self.settings));
        let Some(pod) = wanted else { return };
        if self.pods.is_full(pod, &self.settings) {
            self.tickets += 1;
            self.waiting.put(shop, Some((pod, self.tickets)));
            return;
        }
        if let Some(hold) = queue.and_then(|queue| queue.follow(now)) {
            self.pods.take(hold, &self.settings, now);
            // With more to send it is the last in turn again.
            self.note(shop);
        }
    }
}
