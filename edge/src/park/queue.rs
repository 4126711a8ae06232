//! Whether the pod of one shop takes requests, and the seats of those that wait until it does: a pure structure, told
//! what happens and when.
//!
//! The gate is closed while the pod refuses. Meanwhile one seat at a time is sent to ask, the probe; once the gate is open
//! the others follow, so many at a time.

use std::time::{Duration, Instant};

use shared::{Epoch, PodId};

use super::absence::Absence;
use super::gate::{Arrival, Gate};
use super::period::Period;
use super::pods::{Ask, Hold};
use super::refused::Row;
use super::seats::{Guest, Left, Number, Seats, Sent, Turn, Waker};
use super::settings::{Reason, Settings};
use crate::retry::Why;

/// One shop's gate and seats.
#[derive(Debug)]
pub(crate) struct Queue {
    gate: Gate,
    seats: Seats,
    /// Where they will be sent, as far as is known.
    place: Row,
    /// Where another request was told that the shop is.
    hint: Option<(PodId, Epoch)>,
    /// When the request was sent that was refused last.
    refused: Instant,
    opened: Option<Instant>,
    /// The edge itself had no room for one that was to go: none goes before this.
    rests: Option<Instant>,
    /// Nobody got through since there was no room.
    held_up: bool,
    period: Option<Period>,
    /// The last time that the pod had no primary.
    absence: Option<Absence>,
    /// When a request came last.
    touched: Instant,
}

impl Queue {
    pub(crate) fn new(place: Row, now: Instant) -> Self {
        Self {
            gate: Gate::Open,
            seats: Seats::default(),
            place,
            hint: None,
            refused: now,
            opened: None,
            rests: None,
            held_up: false,
            period: None,
            absence: None,
            touched: now,
        }
    }

    /// The pod refused a request that was sent at `sent`: closes the gate, unless it was opened since then, or may not be
    /// closed again so soon.
    pub(crate) fn close(
        &mut self,
        reason: Reason,
        sent: Instant,
        settings: &Settings,
        now: Instant,
    ) -> Result<(), Why> {
        self.touched = now;
        self.held_up = false;
        match &mut self.gate {
            Gate::Shut { .. } => Err(Why::Fence),
            Gate::Closed { reason: last, .. } => {
                if sent >= self.refused {
                    (self.refused, *last) = (sent, reason);
                }
                Ok(())
            }
            Gate::Open if self.opened.is_some_and(|opened| sent < opened) => Ok(()),
            Gate::Open => {
                if self.period.is_none() && reason == Reason::Unready {
                    self.absence = Some(Absence::after(self.absence, settings, now)?);
                }
                self.refused = sent;
                self.hint = None;
                // One that opens and closes is asked no more often for that.
                let flaps = self.opened.is_some_and(|at| now < at + settings.known());
                let gap = if flaps && self.period.is_some() {
                    settings.probe_every
                } else {
                    settings.probe_first()
                };
                self.gate = Gate::Closed {
                    reason,
                    since: now,
                    next_probe: now + gap,
                    gap,
                };
                self.period.get_or_insert(Period {
                    reason,
                    since: now,
                    epoch: self.place.epoch,
                    parked: 0,
                    refused: 0,
                    longest: Duration::ZERO,
                });
                Ok(())
            }
        }
    }

    /// Whether a request may wait that was not sent.
    pub(crate) fn is_waited_for(&self) -> Result<(), Why> {
        match self.gate {
            Gate::Open | Gate::Closed { .. } => Ok(()),
            Gate::Shut { .. } => Err(Why::Fence),
        }
    }

    /// What a new request may do.
    pub(crate) fn arrive(
        &mut self,
        write: bool,
        settings: &Settings,
        now: Instant,
    ) -> Result<Arrival, Why> {
        // Readers keep nothing known that nobody asks for.
        if write {
            self.touched = now;
        }
        match &mut self.gate {
            Gate::Open => Ok(Arrival::Go),
            Gate::Closed { .. } if write => Ok(Arrival::Wait),
            // A fenced shop can be read, mostly.
            Gate::Closed { .. } => Ok(Arrival::Go),
            Gate::Shut { .. } if !write => Ok(Arrival::Go),
            Gate::Shut { next_probe } if *next_probe <= now => {
                *next_probe = now + settings.probe_every;
                Ok(Arrival::Scout)
            }
            Gate::Shut { .. } => Err(Why::Fence),
        }
    }

    /// A request takes a seat.
    pub(crate) fn sit(&mut self, number: Number, guest: Guest, waker: Waker, now: Instant) {
        if let Some(period) = &mut self.period {
            period.parked += 1;
        }
        self.seats.sit(number, guest, waker, now);
    }

    /// A request that had its turn, and was refused or not sent, goes back to its seat; returns what it held. `Err` if the
    /// seat was taken away meanwhile.
    pub(crate) fn back(&mut self, number: Number, waker: Waker) -> Result<Option<Hold>, ()> {
        self.seats.back(number, waker)
    }

    /// One of a seat was sent and refused.
    pub(crate) const fn count_refusal(&mut self) {
        if let Some(period) = &mut self.period {
            period.refused += 1;
        }
    }

    /// The edge has no room for a request of this shop just now, so none was sent.
    pub(crate) fn rest(&mut self, settings: &Settings, now: Instant) {
        self.rests = Some(now + settings.probe_every);
        self.held_up = true;
    }

    /// Why one goes that waited for a whole window.
    pub(crate) const fn why_over(&self) -> Why {
        if self.held_up { Why::Busy } else { Why::Window }
    }

    /// Whether a request that has a seat may write.
    pub(crate) fn is_write(&self, number: Number) -> Option<bool> {
        self.seats.is_write(number)
    }

    /// A request of a seat that is on its way.
    pub(crate) fn sent(&self, number: Number) -> Option<Sent> {
        self.seats.sent(number)
    }

    /// The rest of a request's body has come.
    pub(crate) fn whole(&mut self, number: Number) {
        self.seats.whole(number);
    }

    /// The pod answered a request that was sent, with anything but a refusal.
    pub(crate) fn passed(
        &mut self,
        number: Number,
        open: bool,
        settings: &Settings,
        now: Instant,
    ) -> Left {
        if let Some(sent) = self.seats.sent(number) {
            // A read says nothing for writes, and what was sent before a refusal nothing about the time after it.
            let says = sent.write || !self.seats.a_write_waits();
            if open && says && sent.since >= self.refused {
                self.open(now);
            } else if let Gate::Closed { next_probe, .. } = &mut self.gate {
                // Who asked learned nothing: the next one need not wait for long.
                *next_probe = (*next_probe).min(now + settings.probe_first());
            }
        }
        self.seats.leave(number, now)
    }

    /// A request gives its seat up.
    pub(crate) fn leave(&mut self, number: Number, now: Instant) -> Left {
        self.seats.leave(number, now)
    }

    /// Another request of the shop was answered, or sent elsewhere: it has a route, or an owner, that takes requests.
    pub(crate) fn open(&mut self, now: Instant) {
        self.gate = Gate::Open;
        self.opened = Some(now);
        (self.rests, self.held_up) = (None, false);
    }

    /// A request of the shop was refused at this place.
    pub(crate) fn known_at(&mut self, place: Row) {
        if place.epoch > self.place.epoch {
            self.place = place;
        }
    }

    /// The table's row of the shop: what is news opens the gate, be it that there is no such shop any more. Returns whether
    /// it is.
    pub(crate) fn routed(&mut self, row: Option<Row>, now: Instant) -> bool {
        let news = match row {
            Some(row) if row.epoch == self.place.epoch => row.offline != self.place.offline,
            Some(row) => row.epoch > self.place.epoch,
            None => self.seats.waiting() > 0,
        };
        if news {
            self.place = row.unwrap_or(self.place);
            self.open(now);
        }
        news
    }

    /// A pod's mark says where the shop is.
    pub(crate) fn marked(&mut self, pod: PodId, epoch: Epoch, now: Instant) {
        if epoch > self.place.epoch {
            self.place = Row {
                pod,
                epoch,
                offline: false,
            };
            self.hint = Some((pod, epoch));
            self.open(now);
        }
    }

    /// At which pod one would ask what, and when; `None` where nobody is here to ask, or one is on its way to.
    pub(crate) fn asks(&self) -> Option<(PodId, Ask, Instant)> {
        let Gate::Closed {
            reason, next_probe, ..
        } = self.gate
        else {
            return None;
        };
        let (_, write) = self.seats.asker()?;
        let due = self.rests.map_or(next_probe, |rests| next_probe.max(rests));
        Some((self.place.pod, Ask::of(reason, write), due))
    }

    /// Sends that one. `called` where the way is open for all who ask this: who is refused nevertheless waits its time.
    pub(crate) fn ask(&mut self, called: bool, settings: &Settings, now: Instant) -> Option<Hold> {
        let (pod, ask, _) = self.asks()?;
        let (number, _) = self.seats.asker()?;
        let Gate::Closed {
            next_probe, gap, ..
        } = &mut self.gate
        else {
            return None;
        };
        let longer = if called {
            settings.probe_every
        } else {
            *gap * 2
        };
        *gap = longer.min(settings.probe_every);
        *next_probe = now + *gap;
        let (hold, turn) = (Hold::Ask(pod, ask), Turn::Probe(self.hint));
        self.seats.send(number, hold, turn, now).then_some(hold)
    }

    /// The pod at which the next one needs a slot; `None` where nobody may follow.
    pub(crate) fn wants(&self, settings: &Settings) -> Option<PodId> {
        let follows = self.gate == Gate::Open
            && self.rests.is_none()
            && self.seats.waiting() > 0
            && self.seats.slots() < settings.drain_shop_max;
        follows.then_some(self.place.pod)
    }

    /// Sends the next one, who has that slot.
    pub(crate) fn follow(&mut self, now: Instant) -> Option<Hold> {
        let (hold, turn) = (Hold::Slot(self.place.pod), Turn::Follow(self.hint));
        self.seats.send_next(hold, turn, now).then_some(hold)
    }

    /// What time alone does: who is on its way for long keeps nobody waiting, and a gate that is closed for too long is
    /// shut. Returns what is free again, and what those left that were refused.
    pub(crate) fn advance(&mut self, settings: &Settings, now: Instant) -> (Vec<Hold>, Vec<Left>) {
        let freed = self.seats.expire(settings.slot(), now);
        self.rests = self.rests.filter(|rests| now < *rests);
        let mut left = Vec::new();
        if let Gate::Closed { since, .. } = self.gate
            && now >= since + settings.fence_max
        {
            let next_probe = now + settings.probe_every;
            self.gate = Gate::Shut { next_probe };
            while self.seats.waiting() > 0 {
                left.push(self.seats.evict_newest(Why::Fence, now));
            }
        }
        (freed, left)
    }

    /// Refuses the newest that waits.
    pub(crate) fn evict_newest(&mut self, why: Why, now: Instant) -> Left {
        self.seats.evict_newest(why, now)
    }

    /// When time alone will change something here. When one may ask is the pod's affair: [`Self::asks`].
    pub(crate) fn due(&self, settings: &Settings) -> Option<Instant> {
        let sent = self.seats.expiry(settings.slot());
        if self.seats.waiting() == 0 {
            return sent.or_else(|| self.forgotten(settings));
        }
        let shut = match self.gate {
            Gate::Open | Gate::Shut { .. } => None,
            Gate::Closed { since, .. } => Some(since + settings.fence_max),
        };
        [sent, shut, self.rests].into_iter().flatten().min()
    }

    /// When nothing of this needs to be known any longer; `None` while there are seats.
    pub(crate) fn forgotten(&self, settings: &Settings) -> Option<Instant> {
        if self.seats.len() > 0 {
            return None;
        }
        let ended = self.absence.map(|absence| absence.known_until(settings));
        Some(match self.gate {
            Gate::Open => ended.unwrap_or(self.touched),
            Gate::Closed { .. } => self.touched + settings.known(),
            Gate::Shut { .. } => self.touched + settings.idle(),
        })
    }

    /// The period, if it has ended by now, or everything is forgotten. Who was just sent may come back refused: the period
    /// is not over before that.
    pub(crate) fn end(&mut self, forgotten: bool, now: Instant) -> Option<Period> {
        let nobody = self.seats.waiting() == 0 && !self.seats.is_one_on_its_way();
        let over = self.gate == Gate::Open && nobody;
        if !over && !forgotten {
            return None;
        }
        let period = Period {
            epoch: self.place.epoch,
            longest: self.seats.take_longest(),
            ..self.period.take()?
        };
        if let Some(absence) = &mut self.absence
            && period.reason == Reason::Unready
        {
            absence.end(now);
        }
        Some(period)
    }

    /// Bytes that are kept for the newest that waits.
    pub(crate) fn newest_bytes(&self) -> usize {
        self.seats.newest_bytes()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.seats.waiting()
    }

    pub(crate) fn seats(&self) -> usize {
        self.seats.len()
    }
}
