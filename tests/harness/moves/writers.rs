//! A writer at a pod's primary who goes by the shop's home, as a pod does.

use std::time::Duration;

use anyhow::{Context, Result};
use shared::ShopId;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::Server;

/// How its session must be to write whatever a table can hold.
const SESSION: &str = "set sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'";

/// Makes changes one after the other, `{shop}` in them being the shop, each in a transaction by the home's leave, until that
/// is taken away; says how many.
pub async fn write_until_fenced(
    server: &Server,
    shop: ShopId,
    changes: &[&str],
    pause: Duration,
) -> Result<u64> {
    let mut session = server.connect().await?;
    session.execute(SESSION).await?;
    let mut written = 0;
    loop {
        for change in changes {
            let change = change.replace("{shop}", &shop.to_string());
            if !write(&mut session, shop, &change).await? {
                return Ok(written);
            }
            written += 1;
            tokio::time::sleep(pause).await;
        }
    }
}

/// One transaction; whether it was allowed.
async fn write(session: &mut MySqlConnection, shop: ShopId, change: &str) -> Result<bool> {
    let home = format!("select state from shop_home where shop_id = {shop} for share");
    loop {
        session.execute("begin").await?;
        let row = session.fetch_one(AssertSqlSafe(home.clone())).await?;
        if row.try_get::<String, _>(0)? != "serving" {
            session.execute("rollback").await?;
            return Ok(false);
        }
        let changed = session.execute(AssertSqlSafe(change.to_owned())).await;
        match changed {
            Ok(_) => {
                session.execute("commit").await?;
                return Ok(true);
            }
            // Another writer's rows in another order.
            Err(e) if e.to_string().contains("Deadlock") => {
                session.execute("rollback").await?;
            }
            Err(e) => return Err(e).context(change.to_owned()),
        }
    }
}
