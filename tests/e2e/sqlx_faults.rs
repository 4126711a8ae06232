//! Why the pod does not use sqlx's `begin()` and `Transaction`: two faults of sqlx 0.9.0 on MySQL, shown on a real
//! server. When a test here fails, sqlx was mended, and that part of the pod's guard (`pod/src/db`) may go. What the
//! guard makes of the same cancellations is tested in `guard`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use tests::chaos::{Chaos, Wire};
use tests::suite::Test;
use tests::{BareMysql, tests};
use tokio::time::timeout;

pub(crate) fn list() -> Vec<Test> {
    tests![own: a_cancelled_begin_loses_the_next_write, a_cancelled_prepare_loses_its_pool_slot]
}

/// Answers take this long through the slowed wire, one way.
const WIRE: Duration = Duration::from_millis(80);
/// A client gives up while the answer is on its way.
const PATIENCE: Duration = Duration::from_millis(40);
/// Many times what the pool needs when it is well.
const SLOT_MAX: Duration = Duration::from_secs(4);

/// A pool of one connection through a wire that can be slowed.
async fn one_connection(mysql: &BareMysql) -> Result<(Chaos, MySqlPool)> {
    let chaos = Chaos::to(SocketAddr::from(([127, 0, 0, 1], mysql.server.port))).await?;
    let pool = MySqlPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false)
        .acquire_timeout(SLOT_MAX)
        .connect_with(mysql.server.at_port(chaos.address().port()).options())
        .await
        .context("connect a pool")?;
    Ok((chaos, pool))
}

/// A `begin()` that is dropped before its answer leaves the connection inside a transaction. The next borrower's
/// write is acknowledged, seen by nobody else, and gone when the pool closes.
async fn a_cancelled_begin_loses_the_next_write() -> Result<()> {
    let mysql = BareMysql::start().await?;
    mysql
        .server
        .run("create table fault (id int primary key)")
        .await?;
    let (chaos, pool) = one_connection(&mysql).await?;
    chaos.set(Wire::Slow(WIRE));
    assert!(
        timeout(PATIENCE, pool.begin()).await.is_err(),
        "begin was quicker than the wire"
    );
    chaos.set(Wire::Open);
    let insert = sqlx::query("insert into fault values (1)").execute(&pool);
    let acknowledged = insert.await.context("write after the cancelled begin")?;
    assert_eq!(acknowledged.rows_affected(), 1);
    let count = "select count(*) from fault";
    assert_eq!(
        mysql.server.number(count).await?,
        0,
        "sqlx is mended: others see the write"
    );
    pool.close().await;
    assert_eq!(
        mysql.server.number(count).await?,
        0,
        "sqlx is mended: the write stays"
    );
    Ok(())
}

/// A query that is dropped during its first PREPARE inside a transaction takes the pool's slot with it, for good.
async fn a_cancelled_prepare_loses_its_pool_slot() -> Result<()> {
    let mysql = BareMysql::start().await?;
    let (chaos, pool) = one_connection(&mysql).await?;
    let mut transaction = pool.begin().await.context("begin")?;
    chaos.set(Wire::Slow(WIRE));
    let query = sqlx::query("select ? + 1")
        .bind(1_i64)
        .fetch_one(&mut *transaction);
    assert!(
        timeout(PATIENCE, query).await.is_err(),
        "the query was quicker than the wire"
    );
    drop(transaction);
    chaos.set(Wire::Open);
    for _ in 0..2 {
        let slot = pool.acquire().await;
        assert!(
            matches!(slot, Err(sqlx::Error::PoolTimedOut)),
            "sqlx is mended: the pool serves again"
        );
    }
    Ok(())
}
