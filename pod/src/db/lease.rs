//! Statements on the pod's own tables, which belong to no shop: leases, and which shops have something due.

use std::time::Duration;

use shared::{Epoch, ShopId};
use tokio::time::timeout;

use crate::Error;
use crate::db::fault::{Fault, Lost};
use crate::db::{Db, Pool};

impl Db {
    /// Takes a lease, or renews it, by the server's clock. Whether it is held now.
    pub(crate) async fn lease(
        &self,
        name: &'static str,
        owner: &str,
        time: Duration,
    ) -> Result<bool, Error> {
        // Assignments run from left to right: the second one sees the first one's owner.
        const TAKE: &str = "insert into pod_lease (name, owner, expires_at) values (?, ?, now(3) + interval ? microsecond) \
             as mine on duplicate key update \
             owner = if(pod_lease.expires_at < now(3), mine.owner, pod_lease.owner), \
             expires_at = if(pod_lease.owner = mine.owner, mine.expires_at, pod_lease.expires_at)";
        const HELD: &str =
            "select cast(count(*) as unsigned) from pod_lease where name = ? and owner = ?";
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (held,): (u64,) = on(
            &self.write,
            self.limits.transaction,
            "take a lease",
            async |raw| {
                sqlx::query(TAKE)
                    .bind(name)
                    .bind(owner)
                    .bind(micros)
                    .execute(&mut *raw)
                    .await?;
                sqlx::query_as(HELD)
                    .bind(name)
                    .bind(owner)
                    .fetch_one(&mut *raw)
                    .await
            },
        )
        .await?;
        Ok(held == 1)
    }

    /// Gives a lease up, so that another process need not wait for its end.
    pub(crate) async fn release(&self, name: &'static str, owner: &str) -> Result<(), Error> {
        on(
            &self.write,
            self.limits.transaction,
            "give up a lease",
            async |raw| {
                sqlx::query("delete from pod_lease where name = ? and owner = ?")
                    .bind(name)
                    .bind(owner)
                    .execute(&mut *raw)
                    .await
            },
        )
        .await?;
        Ok(())
    }

    /// Of the shops that a query names, those whose home here is `serving`, with its epoch. `due` is a constant of a
    /// program and has one column, `shop_id`.
    pub(crate) async fn due(&self, due: &str) -> Result<Vec<(ShopId, Epoch)>, Error> {
        let sql = format!(
            "select h.shop_id, h.epoch from ({due}) d join shop_home h on h.shop_id = d.shop_id where h.state = 'serving'"
        );
        let rows: Vec<(u64, u64)> = on(
            &self.read,
            self.limits.transaction,
            "look for due shops",
            async |raw| {
                // Some of these texts hold a cursor: kept, each would take a place among the prepared statements.
                sqlx::query_as(sqlx::AssertSqlSafe(sql.clone()))
                    .persistent(false)
                    .fetch_all(&mut *raw)
                    .await
            },
        )
        .await?;
        rows.into_iter()
            .map(|(shop, epoch)| {
                let shop = ShopId::new(shop).map_err(|e| Error::bug(e.to_string()))?;
                let epoch = Epoch::try_from(epoch).map_err(|e| Error::bug(e.to_string()))?;
                Ok((shop, epoch))
            })
            .collect()
    }
}

impl Db {
    /// How many events wait, for the gauge: counted up to a bound, since after a long outage there may be millions.
    pub(crate) async fn events_waiting(&self) -> Result<i64, Error> {
        const COUNT: &str = "select cast(count(*) as signed) from \
             (select shop_id from outbox where waiting = 1 limit 100000) w";
        let (count,): (i64,) = on(
            &self.read,
            self.limits.transaction,
            "count waiting events",
            async |raw| sqlx::query_as(COUNT).fetch_one(&mut *raw).await,
        )
        .await?;
        Ok(count)
    }
}

/// Statements without a transaction, with a deadline. A connection that did not end well is closed.
async fn on<T>(
    pool: &Pool,
    deadline: Duration,
    what: &'static str,
    run: impl AsyncFnOnce(&mut sqlx::MySqlConnection) -> Result<T, sqlx::Error>,
) -> Result<T, Error> {
    let mut conn = pool.acquire(None).await?;
    match timeout(deadline, run(conn.raw())).await {
        Ok(Ok(value)) => {
            conn.give_back();
            Ok(value)
        }
        Ok(Err(error)) => {
            let fault = Fault::of(what, error, Lost::Within);
            if fault.connection_lives() {
                conn.give_back();
            } else {
                pool.drop_idle();
            }
            Err(fault.into())
        }
        Err(_) => Err(Fault::Slow(what).into()),
    }
}
