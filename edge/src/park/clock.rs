//! What wakes parked requests besides each other: time, and changes of the route table.

use std::time::{Duration, Instant};

use shared::{PlacementState, ShopId};
use tokio::time::sleep_until;

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
        loop {
            let due = self.look(routes);
            let looked = Instant::now();
            let due = due.map_or(looked + TICK_MAX, |due| due.max(looked + TICK_MIN));
            tokio::select! {
                () = sleep_until(due.into()) => {}
                () = self.sooner.notified() => sleep_until((looked + TICK_MIN).into()).await,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Tells the lot what the table says of its shops, and what time it is.
    fn look(&self, routes: &Routes) -> Option<Instant> {
        if self.is_quiet() {
            return None;
        }
        self.with(|lot, now| {
            for shop in lot.known() {
                lot.routed(shop, row(routes, shop), now);
            }
            lot.advance(now)
        })
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
