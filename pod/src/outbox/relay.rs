//! The relay: takes what waits, shop by shop, to the sinks, and marks it.
//!
//! Whether events may be taken, and whether they may be marked, is asked of the home each time (by the read's and the
//! write's own first round trip): only where it is `serving`. A fence in between leaves them waiting; the next owner
//! relays them again, under the same ids.

use std::sync::Arc;
use std::time::Duration;

use shared::error::chain;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::background::Lease;
use crate::outbox::rows;
use crate::outbox::sink::Sink;
use crate::{App, Consistency, Error, Shop, meter};

/// With a sink down each look meets it once for each shop, several times a second: the log hears of it this often.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// The relay of a process. It works only while the process holds the lease.
pub(crate) struct Relay {
    app: App,
    sinks: Vec<Arc<dyn Sink>>,
    lease: Arc<Lease>,
    /// Where the last look ended.
    after: Mutex<u64>,
    refused: Seldom,
}

impl Relay {
    pub(crate) fn new(app: App, sinks: Vec<Arc<dyn Sink>>, lease: Arc<Lease>) -> Self {
        Self {
            app,
            sinks,
            lease,
            after: Mutex::new(0),
            refused: Seldom::default(),
        }
    }

    /// One look over the shops that have something waiting. The number of events relayed.
    pub(crate) async fn look(&self) -> Result<usize, Error> {
        let mut after = self.after.lock().await;
        let shops = self.app.db().due(&rows::waiting_shops(*after)).await?;
        // Where the next look begins: busy shops with low numbers starve nobody, and a page that is not full was the last.
        *after = match shops.iter().map(|(shop, _)| shop.get()).max() {
            Some(last) if shops.len() >= rows::SHOPS_MAX as usize => last,
            Some(_) | None => 0,
        };
        drop(after);
        let mut relayed = 0;
        for (shop, epoch) in shops {
            let shop = self.app.job_shop(shop, epoch);
            match self.relay(&shop).await {
                Ok(events) => relayed += events,
                Err(error) => {
                    tracing::debug!(shop = %shop.id(), error = chain(&error), "events stay waiting");
                }
            }
        }
        meter::relayed(relayed);
        Ok(relayed)
    }

    async fn relay(&self, shop: &Shop) -> Result<usize, Error> {
        let batch = self.app.config().background.relay_batch;
        let events = self
            .app
            .read(shop, Consistency::Strong, move |read| {
                Box::pin(rows::waiting(read, batch))
            })
            .await?;
        // A process that was paused since the read must not come in between its successor's events.
        if events.is_empty() || !self.lease.held() {
            return Ok(0);
        }
        for sink in &self.sinks {
            if let Err(error) = sink.take(&events).await {
                let (shop, error) = (shop.id(), chain(&error));
                if self.refused.due() {
                    tracing::warn!(%shop, error, "events stay waiting");
                } else {
                    tracing::debug!(%shop, error, "events stay waiting");
                }
                return Ok(0);
            }
        }
        let positions: Vec<u64> = events.iter().map(|e| e.position).collect();
        self.app
            .transact(shop, move |tx| {
                let positions = positions.clone();
                Box::pin(async move { rows::mark(tx, &positions).await })
            })
            .await?;
        Ok(events.len())
    }
}

/// Something that goes on and is said once in a while.
#[derive(Debug, Default)]
struct Seldom(parking_lot::Mutex<Option<Instant>>);

impl Seldom {
    /// Whether to say it now.
    fn due(&self) -> bool {
        let mut said = self.0.lock();
        let due = said.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if due {
            *said = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_stays_away_is_told_of_at_once_and_then_seldom() {
        let refused = Seldom::default();
        assert!(refused.due());
        assert!(!refused.due());
        tokio::time::advance(WARN_EVERY).await;
        assert!(refused.due() && !refused.due());
    }
}
