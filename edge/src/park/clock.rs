//! What wakes parked requests besides each other: time, and changes of the route table.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use shared::{Epoch, PlacementState, PodId, ShopId};
use tokio::time::sleep_until;

use super::Parking;
use crate::routes::Routes;

/// The lot is looked at no more often than this because something may be due sooner.
const TICK_MIN: Duration = Duration::from_millis(2);
/// With nothing parked nothing is due.
const TICK_MAX: Duration = Duration::from_secs(60);

/// A shop's row of the route table, as far as its parked requests care.
type Row = Option<(PodId, Epoch, PlacementState)>;

impl Parking {
    /// Keeps the lot's time, for ever.
    pub(crate) async fn run(&self, routes: &Routes) {
        let mut changes = routes.changes();
        let mut rows = HashMap::new();
        loop {
            let due = self.look(routes, &mut rows);
            let looked = Instant::now();
            let due = due.map_or(looked + TICK_MAX, |due| due.max(looked + TICK_MIN));
            tokio::select! {
                () = sleep_until(due.into()) => {}
                () = self.sooner.notified() => sleep_until((looked + TICK_MIN).into()).await,
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Tells the lot of rows that changed, and what time it is.
    fn look(&self, routes: &Routes, rows: &mut HashMap<ShopId, Row>) -> Option<Instant> {
        if self.is_quiet() {
            rows.clear();
            return None;
        }
        self.with(|lot, now| {
            let mut is = HashMap::new();
            for shop in lot.known() {
                let row = routes.placed(shop);
                let was = rows.get(&shop).copied().flatten();
                let known = rows.contains_key(&shop);
                // A shop that was removed wakes its requests too, wherever they ask.
                if known
                    && was != row
                    && let Some((pod, _, _)) = row.or(was)
                {
                    lot.routed(shop, pod, None, now);
                }
                is.insert(shop, row);
            }
            *rows = is;
            lot.advance(now)
        })
    }
}
