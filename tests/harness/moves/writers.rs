//! A writer at a pod's primary who goes by the shop's home, as a pod does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shared::ShopId;
use sqlx::mysql::{MySqlConnection, MySqlDatabaseError};
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::{Server, wait_until};

/// Another writer's rows in another order, and a lock that was not given in time.
const LOCKED: [u16; 2] = [1_213, 1_205];

/// Deadlocks come in pairs; so many in a row are a fault.
const TRIES_MAX: u32 = 50;

/// How its session must be to write whatever a table can hold.
const SESSION: &str = "set sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'";

/// How many changes writers have made by now.
#[derive(Debug, Default)]
pub struct Written(AtomicU64);

impl Written {
    /// So many, and not fewer at the end.
    pub fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits for so many: a move that is held meanwhile is not over before.
    pub async fn reaches(&self, least: u64, deadline: Duration) -> Result<()> {
        wait_until("enough is written", deadline, async || {
            let so_far = self.so_far();
            ensure!(so_far >= least, "{so_far} changes of {least}");
            Ok(())
        })
        .await
    }
}

/// Makes changes one after the other, `{shop}` in them being the shop, each in a transaction by the home's leave, until that
/// is taken away; counts them.
pub async fn write_until_fenced(
    server: &Server,
    shop: ShopId,
    changes: &[&str],
    pause: Duration,
    written: &Written,
) -> Result<()> {
    let mut session = server.connect().await?;
    session.execute(SESSION).await?;
    loop {
        for change in changes {
            let change = change.replace("{shop}", &shop.to_string());
            if !write(&mut session, shop, &change).await? {
                return Ok(());
            }
            written.0.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(pause).await;
        }
    }
}

/// One change; whether it was allowed.
async fn write(session: &mut MySqlConnection, shop: ShopId, change: &str) -> Result<bool> {
    let mut tries = 1;
    loop {
        match transaction(session, shop, change).await {
            Err(e) if tries < TRIES_MAX && number(&e).is_some_and(|n| LOCKED.contains(&n)) => {
                session.execute("rollback").await?;
                tries += 1;
            }
            Err(e) => return Err(e).with_context(|| format!("try {tries}: {change}")),
            Ok(allowed) => return Ok(allowed),
        }
    }
}

async fn transaction(
    session: &mut MySqlConnection,
    shop: ShopId,
    change: &str,
) -> sqlx::Result<bool> {
    let home = format!("select state from shop_home where shop_id = {shop} for share");
    session.execute("begin").await?;
    let row = session.fetch_one(AssertSqlSafe(home)).await?;
    if row.try_get::<String, _>(0)? != "serving" {
        session.execute("rollback").await?;
        return Ok(false);
    }
    session.execute(AssertSqlSafe(change.to_owned())).await?;
    session.execute("commit").await?;
    Ok(true)
}

/// MySQL's number of an error.
fn number(error: &sqlx::Error) -> Option<u16> {
    let fault = error.as_database_error()?;
    let fault = fault.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(fault.number())
}
