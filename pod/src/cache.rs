//! The cache in the process (moka) and in Redis.
//!
//! Keys begin with pod, shop and epoch, so that nothing stale follows a moved shop. A commit that changes a thing drops
//! it in both layers and in the pod's other processes. A fill may have begun before that: so a drop leaves its mark for a
//! while, with the set of transactions that the primary had executed after the commit, and a fill is refused unless the
//! server that it was read from had executed that set **before** the fill was read. With Redis down everything works,
//! from the process's own layer.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use rand::RngExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::error::{Classify as _, Kind};
use shared::wire::Fence;
use shared::{Epoch, ShopId};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::actor::Actor;
use crate::config::Config;
use crate::db::{Consistency, Found, GtidSet, Look};
use crate::{App, Error, meter};

// Marks of drops in this process.
mod drops;
// The layer in Redis.
pub(crate) mod redis;
use drops::Drops;
use redis::{Observed, Redis};

/// How long the mark of a drop lives: longer than any fill takes that had begun before (a transaction's deadline of 2 s,
/// with reruns and waiting), and longer than a replica in band is behind.
pub(crate) const DROP_MARK: Duration = Duration::from_secs(15);

/// A thing larger than this is read each time: it would push out hundreds of others.
const VALUE_MAX: usize = 256 * 1024;

/// Ids are UUIDs and short page names; what is longer came from outside unchecked.
const ID_MAX: usize = 200;

/// What an entry costs beside its bytes.
const OVERHEAD: usize = 256;

/// A kind of cached thing, as a `static`.
#[derive(Debug)]
pub struct Entity {
    name: &'static str,
    age_max: Duration,
}

impl Entity {
    /// `age_max` is how old an answer from the cache may be, counted from the read that filled it (negative entries
    /// too); commits that name the thing drop it long before.
    pub const fn new(name: &'static str, age_max: Duration) -> Self {
        Self { name, age_max }
    }
}

/// The key of a thing, without the pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(Arc<str>);

impl Key {
    pub(crate) fn new(shop: ShopId, epoch: Epoch, entity: &Entity, id: &str) -> Self {
        Self(format!("{shop}:{}:{}:{id}", epoch.get(), entity.name).into())
    }

    fn as_str(&self) -> &str {
        &self.0
    }
}

/// A cached thing: an `Option<Arc<T>>` of its entity's type.
#[derive(Clone)]
struct Slot {
    value: Arc<dyn Any + Send + Sync>,
    bytes: usize,
    expires: Instant,
}

type Flight = Shared<BoxFuture<'static, Result<Slot, Arc<Error>>>>;

/// Both layers.
pub(crate) struct Cache {
    process: moka::future::Cache<Key, Slot>,
    redis: Option<Redis>,
    flights: Mutex<HashMap<Key, Flight>>,
    drops: Drops,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({} entries)", self.process.entry_count())
    }
}

impl Cache {
    pub(crate) fn new(config: &Config) -> Result<Self, ::redis::RedisError> {
        let weigh = |key: &Key, slot: &Slot| {
            u32::try_from(key.as_str().len() + slot.bytes + OVERHEAD).unwrap_or(u32::MAX)
        };
        let process = moka::future::Cache::builder()
            .max_capacity(config.reads.cache_bytes.get() as u64)
            .weigher(weigh)
            // Entries say themselves when they expire; this clears what is not asked for again.
            .time_to_live(Duration::from_secs(300))
            .build();
        let redis = match &config.redis {
            Some(url) => Some(Redis::new(url, config.pod, config.reads.redis_wait)?),
            None => None,
        };
        Ok(Self {
            process,
            redis,
            flights: Mutex::default(),
            drops: Drops::default(),
        })
    }

    pub(crate) const fn redis(&self) -> Option<&Redis> {
        self.redis.as_ref()
    }

    /// The thing, from the nearest layer; read once for all who ask at the same time.
    pub(crate) async fn get<T>(
        &self,
        app: &App,
        actor: Actor,
        entity: &'static Entity,
        id: &str,
        load: Arc<Look<Option<T>>>,
    ) -> Result<Option<Arc<T>>, Error>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        app.db().allowed_home(&actor).await?;
        if id.len() > ID_MAX {
            return Err(Error::bug("the id of a cached thing is too long"));
        }
        let key = Key::new(actor.shop(), actor.epoch(), entity, id);
        let now = Instant::now();
        if let Some(slot) = self.process.get(&key).await.filter(|s| s.expires > now) {
            meter::cache("process", true);
            return thing(slot);
        }
        meter::cache("process", false);
        let flight = self.join(app, actor, entity, &key, load);
        match flight.await {
            Ok(slot) => thing(slot),
            Err(error) => Err(error.echo()),
        }
    }

    fn join<T>(
        &self,
        app: &App,
        actor: Actor,
        entity: &'static Entity,
        key: &Key,
        load: Arc<Look<Option<T>>>,
    ) -> Flight
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(key) {
            return flight.clone();
        }
        let (owned, own_key) = (app.clone(), key.clone());
        let fill = async move {
            let cache = owned.cache();
            let filled = cache.fill(&owned, actor, entity, &own_key, load).await;
            cache.flights.lock().remove(&own_key);
            filled
        };
        // Spawned, so that a client that leaves does not take the others' read with it, and so that it always comes to
        // its end and makes room for the next one. The lock held here keeps that from coming before the insertion.
        let task = app.work().spawn(fill.in_current_span());
        let flight = async move {
            let ended = task
                .await
                .map_err(|e| Error::bug(format!("a fill of the cache ended: {e}")));
            ended.flatten().map_err(Arc::new)
        };
        let flight = flight.boxed().shared();
        flights.insert(key.clone(), flight.clone());
        flight
    }

    /// From Redis or the database into the layers.
    async fn fill<T>(
        &self,
        app: &App,
        actor: Actor,
        entity: &'static Entity,
        key: &Key,
        load: Arc<Look<Option<T>>>,
    ) -> Result<Slot, Error>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let observed = match &self.redis {
            Some(redis) => redis.get(key).await,
            None => Observed::Away,
        };
        if let Observed::Value(stored) = &observed
            && let Some(slot) = self.take_stored::<T>(key, entity, stored).await
        {
            meter::cache("redis", true);
            return Ok(slot);
        }
        meter::cache("redis", false);
        // What changed a moment ago is read where it is certain to be seen, so that it can be kept.
        let fresh = self.drops.has(key) || matches!(observed, Observed::Dropped(..));
        let (loaded_ms, began) = (unix_ms(), Instant::now());
        let found = read(app, &actor, fresh, load).await?;
        let text = serde_json::to_string(&found.value)
            .map_err(|e| Error::bug(format!("a cached thing is not JSON: {e}")))?;
        let slot = Slot {
            value: Arc::new(found.value.map(Arc::new)),
            bytes: text.len(),
            expires: began + jittered(entity.age_max),
        };
        if text.len() <= VALUE_MAX {
            self.keep(key, &slot, &found.executed).await;
            if let Some(redis) = &self.redis {
                redis
                    .fill(
                        key,
                        &observed,
                        loaded_ms,
                        &found.executed,
                        &text,
                        entity.age_max,
                    )
                    .await;
            }
        }
        Ok(slot)
    }

    async fn take_stored<T>(
        &self,
        key: &Key,
        entity: &Entity,
        stored: &redis::Stored,
    ) -> Option<Slot>
    where
        T: DeserializeOwned + Send + Sync + 'static,
    {
        // An instant in the future is another machine's wrong clock.
        let age = Duration::from_millis(unix_ms().checked_sub(stored.loaded_ms)?);
        let left = entity.age_max.checked_sub(age)?;
        let value: Option<T> = serde_json::from_str(&stored.text).ok()?;
        let slot = Slot {
            value: Arc::new(value.map(Arc::new)),
            bytes: stored.text.len(),
            expires: Instant::now() + left,
        };
        // Refused by a drop of this process that Redis did not take.
        self.keep(key, &slot, &stored.executed)
            .await
            .then_some(slot)
    }

    /// Into the process's layer, unless a drop refuses it; and out again if it was dropped meanwhile.
    async fn keep(&self, key: &Key, slot: &Slot, executed: &GtidSet) -> bool {
        let before = self.drops.count(key);
        if !self.drops.allow(key, executed) {
            return false;
        }
        self.process.insert(key.clone(), slot.clone()).await;
        if self.drops.count(key) != before {
            self.process.invalidate(key).await;
        }
        true
    }

    /// Drops things after a commit: here, in Redis, and in the pod's other processes.
    pub(crate) async fn drop_keys(&self, keys: &[Key], executed: Option<&str>) {
        for key in keys {
            self.drop_here(key, executed).await;
        }
        if let Some(redis) = &self.redis {
            redis.drop_keys(keys, executed).await;
        }
    }

    /// Drops a thing here: the mark first, then the read that is on its way (whoever asks from now on starts a new one),
    /// then the entry.
    pub(crate) async fn drop_here(&self, key: &Key, executed: Option<&str>) {
        self.drops
            .mark(key, executed.and_then(|text| GtidSet::parse(text).ok()));
        self.flights.lock().remove(key);
        self.process.invalidate(key).await;
    }

    /// Drops everything here: other processes' drops may have been missed.
    pub(crate) fn drop_all_here(&self) {
        self.process.invalidate_all();
    }

    pub(crate) fn sweep(&self) {
        self.drops.sweep();
    }
}

async fn read<T>(
    app: &App,
    actor: &Actor,
    fresh: bool,
    load: Arc<Look<Option<T>>>,
) -> Result<Found<Option<T>>, Error> {
    if fresh {
        match app
            .db()
            .read(actor, Consistency::Strong, load.clone())
            .await
        {
            Err(Error::NoPrimary { .. } | Error::Fence(Fence::Unready)) => {}
            Err(error) if error.kind() == Kind::Overloaded => {}
            answer => return answer,
        }
    }
    app.db().read(actor, Consistency::Eventual, load).await
}

fn thing<T: Send + Sync + 'static>(slot: Slot) -> Result<Option<Arc<T>>, Error> {
    slot.value
        .downcast::<Option<Arc<T>>>()
        .map(|value| (*value).clone())
        .map_err(|_| Error::bug("an entity is cached under two types"))
}

/// Entries that were filled together do not expire together.
fn jittered(age_max: Duration) -> Duration {
    age_max.mul_f64(rand::rng().random_range(0.75..=1.0))
}

fn unix_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
