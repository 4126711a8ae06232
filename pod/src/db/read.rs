//! Reads: one consistent snapshot of one server, which says in its first round trip what the home allows.

use std::sync::Arc;

use futures::future::BoxFuture;
use shared::error::{Classify as _, Kind};
use shared::{Epoch, ShopId};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::QueryAs;
use sqlx::{Execute, FromRow, MySql, SqlStr};
use tokio::time::{Instant, timeout_at};

use crate::actor::Actor;
use crate::db::GtidSet;
use crate::db::fault::{Fault, Lost};
use crate::db::fence::{Seen, begin_read};
use crate::db::guard::Guard;
use crate::db::pool::Pool;
use crate::db::statement::check_read;
use crate::db::tx::decode;
use crate::db::{Consistency, Db};
use crate::{Error, meter};

/// A read as it is run, and run again on another server.
pub(crate) type Look<T> =
    dyn for<'r> Fn(&'r mut Reader) -> BoxFuture<'r, Result<T, Error>> + Send + Sync;

/// A read changes nothing, so it may be sent again where a connection was lost; a second loss is the server's.
const TRIES: u32 = 2;

/// A read-only snapshot of one shop's rows on one server.
#[derive(Debug)]
pub struct Reader {
    guard: Guard,
    shop: ShopId,
    epoch: Epoch,
}

impl Reader {
    /// The tenant: bind it into every statement on shop data.
    pub const fn shop(&self) -> ShopId {
        self.shop
    }

    /// The epoch under which this read acts.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The one row of a query; a bug if there is none.
    pub async fn fetch_one<O>(
        &mut self,
        query: QueryAs<'_, MySql, O, MySqlArguments>,
    ) -> Result<O, Error>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        self.fetch_optional(query)
            .await?
            .ok_or_else(|| Error::bug("a query that always has a row has none"))
    }

    /// The first row of a query, if there is one.
    pub async fn fetch_optional<O>(
        &mut self,
        query: QueryAs<'_, MySql, O, MySqlArguments>,
    ) -> Result<Option<O>, Error>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        Ok(self.fetch_all(query).await?.into_iter().next())
    }

    /// The rows of a query; give it a `limit` (10,000 rows are an error).
    pub async fn fetch_all<O>(
        &mut self,
        mut query: QueryAs<'_, MySql, O, MySqlArguments>,
    ) -> Result<Vec<O>, Error>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        let arguments = query
            .take_arguments()
            .map_err(|e| Error::bug(format!("a value cannot be bound: {e}")))?;
        let sql: SqlStr = query.sql();
        check_read(sql.as_str()).map_err(|e| Error::bug(e.to_string()))?;
        let arguments = Some(arguments.unwrap_or_default());
        let (rows, _) = self.guard.run("query", sql, arguments).await?;
        decode(&rows)
    }
}

/// Which server a read is sent to, and what it must be.
#[derive(Clone, Copy)]
enum At<'a> {
    Primary,
    Replica(&'a Pool),
}

/// What a read gave, and what its server had executed before its snapshot was made.
#[derive(Debug)]
pub(crate) struct Found<T> {
    pub value: T,
    pub executed: GtidSet,
}

impl Db {
    /// Runs a read.
    pub(crate) async fn read<T>(
        &self,
        actor: &Actor,
        need: Consistency,
        run: Arc<Look<T>>,
    ) -> Result<Found<T>, Error> {
        match need {
            Consistency::Strong | Consistency::Session => {
                self.read_at(At::Primary, actor, &*run).await
            }
            Consistency::Eventual => self.read_eventual(actor, &*run).await,
        }
    }

    async fn read_eventual<T>(&self, actor: &Actor, run: &Look<T>) -> Result<Found<T>, Error> {
        let home = self.allowed_home(actor).await?;
        let candidates = self
            .servers
            .candidates(home.as_deref().and_then(|h| h.ready.as_ref()));
        for server in candidates {
            match self.read_at(At::Replica(&server.pool), actor, run).await {
                // This replica has not seen the home as it is now, or cannot be asked: the next one.
                Err(Error::Fence(_) | Error::NoPrimary { .. }) => meter::read("replica-refused"),
                Err(error) if error.kind() == Kind::Overloaded => meter::read("replica-busy"),
                answer => return answer,
            }
        }
        meter::read("primary-fallback");
        self.read_at(At::Primary, actor, run).await
    }

    async fn read_at<T>(
        &self,
        at: At<'_>,
        actor: &Actor,
        run: &Look<T>,
    ) -> Result<Found<T>, Error> {
        let pool = match at {
            At::Primary => &self.read,
            At::Replica(pool) => pool,
        };
        let mut tries = 0;
        loop {
            tries += 1;
            let lost = match self.snapshot(at, pool, actor, run).await {
                Ok(found) => return Ok(found),
                Err(Failed::Error(error)) => return Err(error),
                Err(Failed::Fault(fault)) => fault,
            };
            if !matches!(lost, Fault::Gone { .. }) {
                return Err(lost.into());
            }
            pool.drop_idle();
            if tries == TRIES {
                return Err(lost.into());
            }
        }
    }

    async fn snapshot<T>(
        &self,
        at: At<'_>,
        pool: &Pool,
        actor: &Actor,
        run: &Look<T>,
    ) -> Result<Found<T>, Failed> {
        let shop = match at {
            At::Primary => Some(actor.shop()),
            At::Replica(_) => None,
        };
        let conn = pool.acquire(shop).await?;
        let started = Instant::now();
        let deadline = started + self.limits.transaction;
        let wait_timeout_s = self.limits.transaction.as_secs().max(1);
        let (guard, row) =
            Guard::begin(conn, begin_read(actor.shop(), wait_timeout_s), deadline).await?;
        let executed = match self.judge_read(at, &row, actor, started).await {
            Ok(executed) => executed,
            Err(error) => {
                tokio::spawn(guard.rollback());
                return Err(Failed::Error(error));
            }
        };
        meter::read(pool.settings().role);
        let mut reader = Reader {
            guard,
            shop: actor.shop(),
            epoch: actor.epoch(),
        };
        let outcome = timeout_at(deadline, run(&mut reader)).await;
        let mut guard = reader.guard;
        if let Some(fault) = guard.take_poison() {
            if fault.connection_lives() {
                tokio::spawn(guard.rollback());
            }
            return Err(Failed::Fault(fault));
        }
        // The answer need not wait for the end of its snapshot.
        tokio::spawn(guard.rollback());
        match outcome {
            Ok(Ok(value)) => Ok(Found { value, executed }),
            Ok(Err(error)) => Err(Failed::Error(error)),
            Err(_) => Err(Failed::Error(Error::Slow("the read"))),
        }
    }
}

impl Db {
    async fn judge_read(
        &self,
        at: At<'_>,
        row: &MySqlRow,
        actor: &Actor,
        when: Instant,
    ) -> Result<GtidSet, Error> {
        let seen = Seen::read(row)?;
        if let At::Primary = at {
            self.check_primary(&seen)?;
            self.homes.learn(actor.shop(), &seen, when).await;
        }
        seen.allows(self.pod, actor, actor.access())?;
        executed(row)
    }
}

enum Failed {
    Fault(Fault),
    Error(Error),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

fn executed(row: &MySqlRow) -> Result<GtidSet, Error> {
    use sqlx::Row as _;
    let text: String = row
        .try_get("executed")
        .map_err(|source| Error::from(Fault::of("read gtid_executed", source, Lost::Within)))?;
    GtidSet::parse(&text).map_err(|e| Error::bug(e.to_string()))
}
