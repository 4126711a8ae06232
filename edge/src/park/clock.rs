//! What wakes parked requests besides each other: time, and changes of the route table.

use std::time::{Duration, Instant};

use shared::{PlacementState, ShopId};
use tokio::time::sleep_until;

use super::lot::{BATCH, Lot};
use super::{Parking, Row};
use crate::routes::Routes;

/// The lot is looked at no more often than this because something may be due sooner.
const TICK_MIN: Duration = Duration::from_millis(2);
/// With nothing parked nothing is due.
const TICK_MAX: Duration = Duration::from_secs(60);

impl Parking {
    /// Keeps the lot's time, for ever.
    pub(crate) async fn run(&self, routes: &Routes) {
        let mut changes = routes.changes();
        let mut seen = None;
        loop {
            // Before the table is read: what changes meanwhile is seen the next time.
            let version = *changes.borrow_and_update();
            let due = self.look(routes, seen.replace(version) != Some(version));
            let looked = Instant::now();
            let due = due.map_or(looked + TICK_MAX, |due| due.max(looked + TICK_MIN));
            tokio::select! {
                () = sleep_until(due.into()) => {}
                () = self.sooner.notified() => sleep_until((looked + TICK_MIN).into()).await,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Tells the lot what the table says, if it has changed of all shops, else of those that were refused since the last
    /// time, perhaps by an older table; and what time it is.
    pub(super) fn look(&self, routes: &Routes, changed: bool) -> Option<Instant> {
        if self.is_quiet() {
            return None;
        }
        let shops = self.with(|lot, _| {
            let fresh = lot.take_fresh();
            if changed { lot.known() } else { fresh }
        });
        for shops in shops.chunks(BATCH) {
            let rows: Vec<_> = shops.iter().map(|shop| row(routes, *shop)).collect();
            self.with(|lot, now| {
                for (shop, row) in shops.iter().zip(rows) {
                    lot.routed(*shop, row, now);
                }
            });
        }
        self.with(Lot::advance)
    }
}

fn row(routes: &Routes, shop: ShopId) -> Option<Row> {
    let (pod, epoch, state) = routes.placed(shop)?;
    let offline = match state {
        PlacementState::Serving | PlacementState::Frozen => false,
        PlacementState::Offline => true,
    };
    Some(Row {
        pod,
        epoch,
        offline,
    })
}
