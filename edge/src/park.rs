//! Parked requests: those of shops that change hands, or whose pod has no primary, wait here instead of failing.
//!
//! `lot` and `queue` decide, and know neither clock nor sockets; this is what lies between them and the requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use parking_lot::Mutex;
use shared::telemetry::metric;
use shared::{Epoch, PodId, ShopId};
use tokio::sync::{Notify, oneshot};

use crate::retry::Why;

// The times in which a pod has no primary.
mod absence;
// Keeping time, and telling the lot of new routes.
mod clock;
// Whether a shop's pod takes requests.
mod gate;
// Who stands in line for what.
mod lines;
// All shops: room, and who goes next.
mod lot;
// A time in which a shop's requests were parked.
mod period;
// What the shops of one pod share.
mod pods;
// One shop: its gate and its seats.
mod queue;
// What is told of a request that is to be parked.
mod refused;
// Telling the control server.
pub(crate) mod report;
// The seats of one shop.
mod seats;
// Limits and times.
mod settings;

pub(crate) use gate::Arrival;
use lot::Lot;
use period::Period;
pub(crate) use refused::{Refused, Row};
use report::{Report, Reports};
pub(crate) use seats::{Body, Guest, Turn};
pub(crate) use settings::{BODY_MAX, Reason, Settings};

/// The parked requests of this edge.
pub(crate) struct Parking {
    pub(crate) settings: Settings,
    lot: Mutex<Lot>,
    /// Shops of which something is known; with none, a request costs one load of this.
    shops: AtomicUsize,
    /// Something may be due sooner than it was.
    sooner: Notify,
    reports: Reports,
    metrics: ParkMetrics,
}

struct ParkMetrics {
    now: Gauge,
    bytes: Gauge,
    parked: [(Reason, Counter); 2],
    again: Counter,
    probes: Counter,
    drained: Counter,
    sent: Histogram,
    refused: Histogram,
    left: Histogram,
}

impl ParkMetrics {
    fn new() -> Self {
        let parked = |r: Reason| counter!(metric::PARKED_TOTAL, metric::REASON => r.as_str());
        let out = |what| counter!(metric::PARK_SENT, metric::REASON => what);
        let wait = |how| histogram!(metric::FENCE_WAIT_SECONDS, metric::OUTCOME => how);
        Self {
            now: gauge!(metric::PARKED),
            bytes: gauge!(metric::PARKED_BYTES),
            parked: [Reason::Fenced, Reason::Unready].map(|r| (r, parked(r))),
            again: counter!(metric::PARK_REFUSED_AGAIN),
            probes: out("probe"),
            drained: out("drain"),
            sent: wait("sent"),
            refused: wait("refused"),
            left: wait("left"),
        }
    }
}

impl Parking {
    pub(crate) fn new(settings: Settings, reports: Reports) -> Arc<Self> {
        Arc::new(Self {
            settings,
            lot: Mutex::new(Lot::new(settings)),
            shops: AtomicUsize::new(0),
            sooner: Notify::new(),
            reports,
            metrics: ParkMetrics::new(),
        })
    }

    /// Whether no shop is fenced, as far as this edge knows.
    pub(crate) fn is_quiet(&self) -> bool {
        self.shops.load(Ordering::Relaxed) == 0
    }

    /// What a new request of this shop may do.
    pub(crate) fn arrive(&self, shop: ShopId, write: bool) -> Result<Arrival, Why> {
        if self.is_quiet() {
            return Ok(Arrival::Go);
        }
        self.with(|lot, now| lot.arrive(shop, write, now))
    }

    /// Gives a request a seat, and a way to hear that its turn has come.
    pub(crate) fn sit(
        self: &Arc<Self>,
        refused: Refused,
        guest: Guest,
    ) -> Result<(Place, oneshot::Receiver<Turn>), Why> {
        let (waker, turn) = oneshot::channel();
        let number = self.change(|lot, now| lot.sit(refused, guest, waker, now))?;
        let reason = refused.by_pod.map_or(Reason::Fenced, |(reason, _)| reason);
        for (of, counter) in &self.metrics.parked {
            counter.increment(u64::from(*of == reason));
        }
        let place = Place {
            parking: Arc::clone(self),
            shop: refused.shop,
            number,
            since: Instant::now(),
            end: End::Left,
        };
        Ok((place, turn))
    }

    /// A request that was let through to ask was not refused.
    pub(crate) fn scouted(&self, shop: ShopId) {
        self.change(|lot, now| lot.scouted(shop, now));
    }

    /// A pod's mark says where the shop is.
    pub(crate) fn marked(&self, shop: ShopId, pod: PodId, epoch: Epoch) {
        if !self.is_quiet() {
            self.change(|lot, now| lot.marked(shop, pod, epoch, now));
        }
    }

    /// A parked request is sent: to ask, or since its pod takes requests.
    pub(crate) fn count_sent(&self, probe: bool) {
        let metrics = &self.metrics;
        let sent = if probe {
            &metrics.probes
        } else {
            &metrics.drained
        };
        sent.increment(1);
    }

    /// Sets the gauges, for a scrape.
    pub(crate) fn observe(&self) {
        let lot = self.lot.lock();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        self.metrics.now.set(number(lot.seats()));
        self.metrics.bytes.set(number(lot.bytes()));
    }

    /// Requests that hold a seat.
    #[cfg(test)]
    pub(crate) fn seats(&self) -> usize {
        self.lot.lock().seats()
    }

    /// Something may be due sooner after it.
    fn change<T>(&self, f: impl FnOnce(&mut Lot, Instant) -> T) -> T {
        let result = self.with(f);
        self.sooner.notify_one();
        result
    }

    fn with<T>(&self, f: impl FnOnce(&mut Lot, Instant) -> T) -> T {
        let mut lot = self.lot.lock();
        let result = f(&mut lot, Instant::now());
        self.shops.store(lot.shops(), Ordering::Relaxed);
        let ended = lot.take_ended();
        drop(lot);
        for (shop, period) in ended {
            self.tell(shop, &period);
        }
        result
    }

    /// A request came to a pod that had handed its shop over under this epoch.
    pub(crate) fn came_late(&self, shop: ShopId, epoch: Epoch) {
        self.reports.late(shop, epoch);
    }

    fn tell(&self, shop: ShopId, period: &Period) {
        if period.reason == Reason::Fenced {
            self.reports.fence(Report {
                shop,
                epoch: period.epoch,
                parked: period.parked,
                longest_ms: ms(period.longest),
            });
        }
        tracing::info!(
            shop = shop.get(),
            reason = period.reason.as_str(),
            took_ms = ms(period.since.elapsed()),
            parked = period.parked,
            refused_again = period.refused,
            longest_ms = ms(period.longest),
            "requests of shop {shop} were parked: {}, {} ms at most",
            period.parked,
            ms(period.longest)
        );
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A request's seat; given up when it is dropped, however the request ends.
pub(crate) struct Place {
    parking: Arc<Parking>,
    shop: ShopId,
    number: u64,
    since: Instant,
    end: End,
}

/// How a request's stay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A pod has answered it, which shows that it takes requests or not.
    Sent { open: bool },
    /// The edge has, at a limit.
    Refused,
    /// Its client left, or its pod broke off.
    Left,
}

impl Place {
    /// Back to the seat, after it was sent and refused, or the edge had no room for it.
    pub(crate) fn back(&self, refused: Refused) -> Result<oneshot::Receiver<Turn>, Why> {
        let (waker, turn) = oneshot::channel();
        self.parking
            .change(|lot, now| lot.back(refused, self.number, waker, now))?;
        let again = u64::from(refused.by_pod.is_some());
        self.parking.metrics.again.increment(again);
        Ok(turn)
    }

    /// The request's body is here to its end.
    pub(crate) fn whole(&self) {
        self.parking
            .change(|lot, now| lot.whole(self.shop, self.number, now));
    }

    /// Why the request goes that waited for a whole window.
    pub(crate) fn why_over(&self) -> Why {
        self.parking.lot.lock().why_over(self.shop)
    }

    /// When the seat was taken.
    pub(crate) const fn since(&self) -> Instant {
        self.since
    }

    /// A pod answered, and did not refuse. `open` where that shows that it takes the shop's requests.
    pub(crate) fn passed(mut self, open: bool) {
        self.end = End::Sent { open };
    }

    /// A limit was reached.
    pub(crate) fn refuse(mut self) {
        self.end = End::Refused;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        let (shop, number) = (self.shop, self.number);
        self.parking.change(|lot, now| match self.end {
            End::Sent { open } => lot.passed(shop, number, open, now),
            End::Refused | End::Left => lot.leave(shop, number, now),
        });
        let metrics = &self.parking.metrics;
        let histogram = match self.end {
            End::Sent { .. } => &metrics.sent,
            End::Refused => &metrics.refused,
            End::Left => &metrics.left,
        };
        histogram.record(waited.as_secs_f64());
    }
}
