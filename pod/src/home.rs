//! The process's cached homes, for reads that do not ask the primary anyway: at most a second old, and read again on
//! the primary before anything is refused by one.

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use shared::ShopId;
use shared::home::Access;
use shared::wire::Fence;
use tokio::time::{Instant, timeout};

use crate::actor::Actor;
use crate::db::{Db, Fault, GtidSet, Lost, Seen, look};
use crate::{Error, meter};

/// Homes kept: some 200 bytes each, and no more shops than that are asked for within a second.
const HOMES_MAX: u64 = 100_000;

/// A home as it was read on the primary.
#[derive(Debug)]
pub(crate) struct CachedHome {
    seen: Seen,
    /// What a replica must have executed before it answers for this shop.
    pub(crate) ready: Option<GtidSet>,
    /// When the read began.
    at: Instant,
}

/// The cached homes.
#[derive(Debug)]
pub(crate) struct Homes {
    cache: Cache<ShopId, Arc<CachedHome>>,
    age_max: Duration,
}

impl Homes {
    pub(crate) fn new(age_max: Duration) -> Self {
        let cache = Cache::builder()
            .max_capacity(HOMES_MAX)
            .time_to_live(age_max)
            .build();
        Self { cache, age_max }
    }

    async fn get(&self, shop: ShopId) -> Option<Arc<CachedHome>> {
        let home = self.cache.get(&shop).await;
        // moka counts from the insertion, which comes after the read.
        home.filter(|h| h.at.elapsed() <= self.age_max)
    }

    /// Takes note of a home that a transaction or a read of the primary has shown.
    pub(crate) async fn learn(&self, shop: ShopId, seen: &Seen, at: Instant) {
        if let Ok(home) = cached(seen.clone(), at) {
            self.cache.insert(shop, home).await;
        }
    }
}

fn cached(seen: Seen, at: Instant) -> Result<Arc<CachedHome>, Error> {
    let ready = match &seen.ready_gtid {
        Some(text) => Some(
            GtidSet::parse(text).map_err(|e| Error::bug(format!("a home's ready_gtid: {e}")))?,
        ),
        None => None,
    };
    Ok(Arc::new(CachedHome { seen, ready, at }))
}

impl Db {
    /// The home that allows this, from the cache or the primary. `None` where there is no primary to ask and replicas
    /// may stand in: then each replica's own home decides, in the snapshot that it answers from.
    pub(crate) async fn allowed_home(
        &self,
        actor: &Actor,
    ) -> Result<Option<Arc<CachedHome>>, Error> {
        let access = actor.access();
        let known = self.homes.get(actor.shop()).await;
        meter::home_cached(known.is_some());
        if let Some(home) = known
            && home.seen.allows(self.pod, actor, access).is_ok()
        {
            return Ok(Some(home));
        }
        match self.look_at_home(actor.shop()).await {
            Ok(home) => {
                home.seen.allows(self.pod, actor, access)?;
                Ok(Some(home))
            }
            Err(Error::NoPrimary { .. } | Error::Fence(Fence::Unready))
                if access == Access::Read && self.servers.may_stand_in() =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a home on the primary.
    pub(crate) async fn look_at_home(&self, shop: ShopId) -> Result<Arc<CachedHome>, Error> {
        const WHAT: &str = "read a home";
        let mut conn = self.read.acquire(Some(shop)).await?;
        let at = Instant::now();
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(look(shop)));
        let row = timeout(self.limits.transaction, sql.fetch_all(conn.raw())).await;
        let rows = match row {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) => {
                self.read.drop_idle();
                return Err(Fault::of(WHAT, error, Lost::Before).into());
            }
            Err(_) => {
                conn.pool().settings().breaker.silent();
                return Err(Fault::Silent(WHAT).into());
            }
        };
        conn.pool().settings().breaker.answered();
        conn.give_back();
        let row = rows
            .first()
            .ok_or_else(|| Error::bug("pod_identity is empty"))?;
        let seen = Seen::read(row)?;
        self.check_primary(&seen)?;
        let home = cached(seen, at)?;
        self.homes.cache.insert(shop, home.clone()).await;
        Ok(home)
    }
}
