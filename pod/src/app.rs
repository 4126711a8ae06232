//! The state that handlers get.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::error::{Classify as _, Kind};
use shared::keys::PodKeys;
use shared::{PodId, ShopId};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::actor::Actor;
use crate::cache::{Cache, Key};
use crate::config::Config;
use crate::db::{Db, Run, Written};
use crate::idempotency::flight::{Entered, Flights};
use crate::idempotency::{self, Claim};
use crate::{Call, Consistency, Entity, Error, First, Reader, Reply, Shop, Tx};

/// How often a duplicate looks whether another process has ended the call.
const DUPLICATE_POLL: Duration = Duration::from_millis(100);

/// Before what was begun asks again for a connection that it was refused: some transactions end in that time.
const OVERLOADED_PAUSE: Duration = Duration::from_millis(50);

/// The state that handlers get; cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    config: Config,
    db: Arc<Db>,
    cache: Cache,
    flights: Flights,
    /// Work at the database goes on when its client leaves; a drain waits for it.
    work: TaskTracker,
    /// Events were written.
    events: Notify,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "App(pod {})", self.0.config.pod)
    }
}

impl App {
    pub(crate) fn new(config: Config) -> Result<Self, redis::RedisError> {
        let db = Arc::new(Db::new(&config));
        let cache = Cache::new(&config)?;
        Ok(Self(Arc::new(Inner {
            config,
            db,
            cache,
            flights: Flights::default(),
            work: TaskTracker::new(),
            events: Notify::new(),
        })))
    }

    /// One write: effect and answer in one transaction under the call's key. The closure is run again whole after a
    /// deadlock, a lock wait or an unknown commit, so it changes nothing but rows.
    pub async fn write<F>(&self, shop: &Shop, call: Call, run: F) -> Result<Reply, Error>
    where
        F: for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<Reply, Error>> + Send + Sync + 'static,
    {
        let (started, wait) = (Instant::now(), self.limit_wait());
        let turn = match self
            .0
            .flights
            .enter(shop.id(), &call, started + wait)
            .await?
        {
            Entered::Answer(reply) => return Ok(reply),
            Entered::Run(turn) => turn,
        };
        let app = self.clone();
        let actor = *shop.actor();
        self.spawn(async move {
            let (run, shared_call) = (Arc::new(run), Arc::new(call.clone()));
            let once: Arc<Run<Reply>> = Arc::new(move |tx: &mut Tx| {
                let (run, call) = (run.clone(), shared_call.clone());
                Box::pin(async move {
                    match idempotency::claim(tx, &call, Duration::ZERO, started, wait).await? {
                        Claim::Answered(reply) => return Ok(reply),
                        Claim::New => {}
                        Claim::Begun(_) => {
                            return Err(Error::bug(format!(
                                "{} has one step and was begun",
                                call.endpoint
                            )));
                        }
                    }
                    let reply = run(tx).await?;
                    idempotency::store(tx, &call, &reply).await?;
                    Ok(reply)
                })
            });
            let reply = app.run(&actor, once).await?;
            turn.done(&call, &reply);
            Ok(reply)
        })
        .await
    }

    /// The first step of a call that does something outside between two transactions (a payment). The closure's bytes
    /// are noted under the key in the same transaction. A call that was begun before is not run again: its note comes
    /// back, unless another request is at it just now (waits, then 409 `in-flight`).
    pub async fn begin<F>(&self, shop: &Shop, call: Call, run: F) -> Result<First, Error>
    where
        F: for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<Vec<u8>, Error>> + Send + Sync + 'static,
    {
        let (started, wait) = (Instant::now(), self.limit_wait());
        let turn = match self
            .0
            .flights
            .enter(shop.id(), &call, started + wait)
            .await?
        {
            Entered::Answer(reply) => return Ok(First::Done(reply)),
            Entered::Run(turn) => turn,
        };
        let app = self.clone();
        let actor = *shop.actor();
        self.spawn(async move {
            let hold = app.0.config.limits.hold;
            let (run, shared_call) = (Arc::new(run), Arc::new(call.clone()));
            let once: Arc<Run<First>> = Arc::new(move |tx: &mut Tx| {
                let (run, call) = (run.clone(), shared_call.clone());
                Box::pin(async move {
                    match idempotency::claim(tx, &call, hold, started, wait).await? {
                        Claim::Answered(reply) => Ok(First::Done(reply)),
                        Claim::Begun(note) => Ok(First::Begun {
                            note,
                            resumed: true,
                        }),
                        Claim::New => {
                            let note = run(tx).await?;
                            idempotency::note(tx, &call, &note).await?;
                            Ok(First::Begun {
                                note,
                                resumed: false,
                            })
                        }
                    }
                })
            });
            loop {
                match app.run(&actor, once.clone()).await {
                    Ok(First::Done(reply)) => {
                        turn.done(&call, &reply);
                        return Ok(First::Done(reply));
                    }
                    Ok(begun @ First::Begun { .. }) => {
                        turn.park(Instant::now() + hold);
                        return Ok(begun);
                    }
                    // Another process is between the two steps.
                    Err(Error::Problem {
                        kind: Kind::InFlight,
                        ..
                    }) if started.elapsed() + DUPLICATE_POLL < wait => {
                        sleep(DUPLICATE_POLL).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        })
        .await
    }

    /// The last step of a call that [`Self::begin`] began: effect and answer in one transaction. Once it is done, the
    /// stored answer comes back and the closure is not run.
    pub async fn finish<F>(&self, shop: &Shop, call: Call, run: F) -> Result<Reply, Error>
    where
        F: for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<Reply, Error>> + Send + Sync + 'static,
    {
        let (started, hold) = (Instant::now(), self.0.config.limits.hold);
        let turn = self.0.flights.resume(shop.id(), &call);
        let app = self.clone();
        let actor = *shop.actor();
        self.spawn(async move {
            let (run, shared_call) = (Arc::new(run), Arc::new(call.clone()));
            let once: Arc<Run<Reply>> = Arc::new(move |tx: &mut Tx| {
                let (run, call) = (run.clone(), shared_call.clone());
                Box::pin(async move {
                    if let Some(reply) = idempotency::resume(tx, &call).await? {
                        return Ok(reply);
                    }
                    let reply = run(tx).await?;
                    idempotency::store(tx, &call, &reply).await?;
                    Ok(reply)
                })
            });
            let reply = loop {
                match app.run(&actor, once.clone()).await {
                    // What was begun is worth more than what has not: it waits once more, as long as the call is its
                    // own.
                    Err(error) if error.kind() == Kind::Overloaded && started.elapsed() < hold => {
                        // A full queue refuses at once; asking without a pause would take the very processor that those
                        // in it need.
                        sleep(OVERLOADED_PAUSE).await;
                    }
                    ended => break ended?,
                }
            };
            if let Some(turn) = turn {
                turn.done(&call, &reply);
            }
            Ok(reply)
        })
        .await
    }

    /// Gives a begun call up before its last step: what it needed from outside did not come. The same request, sent
    /// again, then need not wait until the hold has run out.
    pub async fn leave(&self, shop: &Shop, call: Call) -> Result<(), Error> {
        let turn = self.0.flights.resume(shop.id(), &call);
        let left = self
            .transact(shop, move |tx| {
                let call = call.clone();
                Box::pin(async move { idempotency::leave(tx, &call).await })
            })
            .await;
        drop(turn);
        left
    }

    /// A write without a key, for jobs: the closure must be safe to run again by itself.
    pub async fn transact<T, F>(&self, shop: &Shop, run: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<T, Error>> + Send + Sync + 'static,
    {
        let app = self.clone();
        let actor = *shop.actor();
        self.spawn(async move { app.run(&actor, Arc::new(run)).await })
            .await
    }

    /// A read, of one consistent snapshot.
    pub async fn read<T, F>(&self, shop: &Shop, need: Consistency, run: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'r> Fn(&'r mut Reader) -> BoxFuture<'r, Result<T, Error>> + Send + Sync + 'static,
    {
        let db = self.0.db.clone();
        let actor = *shop.actor();
        self.spawn(async move { Ok(db.read(&actor, need, Arc::new(run)).await?.value) })
            .await
    }

    /// An `eventual` read through the cache; `None` is cached too.
    pub async fn cached<T, F>(
        &self,
        shop: &Shop,
        entity: &'static Entity,
        id: &str,
        load: F,
    ) -> Result<Option<Arc<T>>, Error>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
        F: for<'r> Fn(&'r mut Reader) -> BoxFuture<'r, Result<Option<T>, Error>>
            + Send
            + Sync
            + 'static,
    {
        self.0
            .cache
            .get(self, *shop.actor(), entity, id, Arc::new(load))
            .await
    }

    /// The pod's keys, to seal what clients bring back (order access tokens, cursors).
    pub fn keys(&self) -> &PodKeys {
        &self.0.config.keys
    }

    /// Which pod this is.
    pub fn pod(&self) -> PodId {
        self.0.config.pod
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn db(&self) -> &Arc<Db> {
        &self.0.db
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.0.cache
    }

    pub(crate) fn flights(&self) -> &Flights {
        &self.0.flights
    }

    pub(crate) fn work(&self) -> &TaskTracker {
        &self.0.work
    }

    pub(crate) fn events(&self) -> &Notify {
        &self.0.events
    }

    fn limit_wait(&self) -> Duration {
        self.0.config.limits.duplicate_wait
    }

    /// Runs a write, and drops from the cache what it changed.
    async fn run<T>(&self, actor: &Actor, once: Arc<Run<T>>) -> Result<T, Error> {
        let Written {
            result,
            executed,
            changed,
        } = self.0.db.write(actor, once).await;
        self.drop_cached(changed, executed).await;
        if result.is_ok() {
            self.0.events.notify_one();
        }
        result
    }

    async fn drop_cached(&self, changed: Vec<Key>, executed: Option<String>) {
        if !changed.is_empty() {
            self.0.cache.drop_keys(&changed, executed.as_deref()).await;
        }
    }

    /// Runs work that is not to be dropped when its client leaves.
    pub(crate) async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let span = tracing::Span::current();
        match self.0.work.spawn(work.instrument(span)).await {
            Ok(result) => result,
            Err(error) => Err(Error::bug(format!("a task at the database ended: {error}"))),
        }
    }

    /// The shop of a job.
    pub(crate) fn job_shop(&self, shop: ShopId, epoch: shared::Epoch) -> Shop {
        Shop::job(Actor::job(shop, self.pod(), epoch))
    }
}
