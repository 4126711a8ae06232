//! What runs without a request: the lease, the relay, the application's jobs and the clean-ups.
//!
//! One process of the pod does it at a time, as long as it holds the lease. Each piece looks for what is due, and does it
//! shop by shop through the same transactions as requests, so whatever two processes believe, the home decides.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shared::error::chain;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::host::Job;
use crate::outbox::relay::Relay;
use crate::outbox::rows;
use crate::outbox::sink::{LogSink, RedisSink, Sink};
use crate::{App, Error, Shop, idempotency, meter};

/// The lease's name in `pod_lease`.
const LEASE: &str = "background";

/// How often caches and pools are tidied.
const TIDY: Duration = Duration::from_secs(5);

/// The lease as this process knows it: by its own monotonic clock, from before the question.
#[derive(Debug)]
pub(crate) struct Lease {
    until: Mutex<Option<Instant>>,
    owner: String,
}

impl Lease {
    fn new(app: &App) -> Self {
        let config = app.config();
        Self {
            until: Mutex::new(None),
            // A restarted process is another owner: it waits for its former self's lease to end.
            owner: format!(
                "{}-{}-{}",
                config.pod,
                config.process,
                uuid::Uuid::now_v7().simple()
            ),
        }
    }

    /// Whether it is held now.
    pub(crate) fn held(&self) -> bool {
        self.until
            .lock()
            .is_some_and(|until| until > Instant::now())
    }

    async fn keep(&self, app: &App) {
        let time = app.config().background.lease;
        let mut ticks = interval(time / 4);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let asked = Instant::now();
            let held = match app.db().lease(LEASE, &self.owner, time).await {
                Ok(held) => held,
                // Not renewed; what is held ends by itself.
                Err(error) => {
                    tracing::debug!(error = chain(&error), "the lease was not renewed");
                    continue;
                }
            };
            // Half of it, so that a paused process stops before another may start, whatever the clocks' speed.
            let until = held.then(|| asked + time / 2);
            let before = std::mem::replace(&mut *self.until.lock(), until).is_some();
            if held != before {
                tracing::info!(held, "the lease for background work");
            }
        }
    }

    async fn give_up(&self, app: &App) {
        if self.until.lock().take().is_some()
            && let Err(error) = app.db().release(LEASE, &self.owner).await
        {
            tracing::debug!(
                error = chain(&error),
                "the lease was not given up; it ends by itself"
            );
        }
    }
}

/// Runs everything until the token is cancelled.
pub(crate) async fn run(
    app: App,
    jobs: Vec<Job>,
    mut sinks: Vec<Arc<dyn Sink>>,
    stop: CancellationToken,
) {
    let config = app.config();
    if config.redis.is_some() {
        sinks.push(Arc::new(RedisSink::new(
            app.clone(),
            config.pod,
            config.background.stream_len,
        )));
    }
    // Last: what another sink does not take comes again, and would be in the log each time.
    sinks.push(Arc::new(LogSink));
    let lease = Arc::new(Lease::new(&app));
    let relay = Relay::new(app.clone(), sinks, lease.clone());
    let mut jobs = jobs;
    jobs.extend(clean_ups(&app));
    let jobs = jobs.iter().map(|job| run_job(&app, &lease, job));
    let all = async {
        tokio::join!(
            lease.keep(&app),
            run_relay(&app, &lease, &relay),
            futures::future::join_all(jobs),
            tidy(&app, &lease),
        )
    };
    stop.run_until_cancelled(Box::pin(all)).await;
    lease.give_up(&app).await;
}

async fn run_relay(app: &App, lease: &Lease, relay: &Relay) {
    let every = app.config().background.relay_every;
    loop {
        let relayed = if lease.held() {
            relay.look().await.unwrap_or_else(|error| {
                tracing::debug!(error = chain(&error), "the relay's look failed");
                0
            })
        } else {
            0
        };
        if relayed == 0 {
            // A write of this process wakes it; another process's is found by the clock.
            let _ = timeout(every, app.events().notified()).await;
        }
    }
}

async fn run_job(app: &App, lease: &Lease, job: &Job) {
    let mut ticks = interval(job.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !lease.held() {
            continue;
        }
        let shops = match app.db().due(&job.due).await {
            Ok(shops) => shops,
            Err(error) => {
                tracing::debug!(
                    job = job.name,
                    error = chain(&error),
                    "a job's look for due shops failed"
                );
                continue;
            }
        };
        for (shop, epoch) in shops {
            if !lease.held() {
                break;
            }
            let shop = app.job_shop(shop, epoch);
            let id = shop.id();
            if let Err(error) = (job.run)(app.clone(), shop).await {
                tracing::warn!(job = job.name, shop = %id, error = chain(&error), "a job failed; it runs again");
            }
        }
    }
}

async fn tidy(app: &App, lease: &Lease) {
    let mut ticks = interval(TIDY);
    loop {
        ticks.tick().await;
        app.db().pools().for_each(crate::db::Pool::sweep);
        app.cache().sweep();
        app.flights().sweep();
        if lease.held()
            && let Ok(count) = app.db().events_waiting().await
        {
            meter::events_waiting(count);
        }
    }
}

/// Old answers and old events go, some hundred rows in a transaction.
fn clean_ups(app: &App) -> [Job; 2] {
    let background = app.config().background.clone();
    let (keys_s, events_s) = (
        background.keys_kept.as_secs(),
        background.events_kept.as_secs(),
    );
    let batch = background.clean_batch;
    let keys = Job::new(
        "clean-keys",
        background.clean_every,
        idempotency::old_shops(keys_s),
        move |app, shop| {
            Box::pin(repeat(app, shop, batch, move |tx| {
                Box::pin(idempotency::clean(tx, keys_s, batch))
            }))
        },
    );
    let events = Job::new(
        "clean-events",
        background.clean_every,
        rows::old_shops(events_s),
        move |app, shop| {
            Box::pin(repeat(app, shop, batch, move |tx| {
                Box::pin(rows::clean(tx, events_s, batch))
            }))
        },
    );
    [keys, events]
}

/// Runs a deletion until there is less than a batch left.
async fn repeat<F>(app: App, shop: Shop, batch: u32, delete: F) -> Result<(), Error>
where
    F: for<'t> Fn(&'t mut crate::Tx) -> futures::future::BoxFuture<'t, Result<u64, Error>>
        + Copy
        + Send
        + Sync
        + 'static,
{
    while app.transact(&shop, delete).await? == u64::from(batch) {}
    Ok(())
}
