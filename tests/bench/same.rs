//! Whether the raw checkout still sends what a pod's does: both are written down by the server and compared, verb by
//! table.

use anyhow::{Context, Result};
use regex::Regex;
use sqlx::Row;
use tests::{Server, Shop, mysql};

/// The pod's account, as the fleet makes it.
const POD: &str = "podhost_app";

/// Runs both once under the server's general log. Gives a sentence when they differ, which makes the ratio of the table
/// say less than it should.
pub(crate) async fn differs(
    server: &Server,
    shop: &Shop,
    pod: impl AsyncFnOnce() -> Result<()>,
    raw: impl AsyncFnOnce() -> Result<()>,
) -> Result<Option<String>> {
    let mut admin = server.connect().await?;
    let before = mysql::text(&mut admin, "select @@global.log_output").await?;
    server
        .run("set global log_output = 'TABLE', global general_log = on")
        .await?;
    let both = async {
        pod().await?;
        raw().await
    };
    let ran = both.await;
    server
        .run(&format!(
            "set global general_log = off, global log_output = '{before}'"
        ))
        .await?;
    ran.context("a checkout of each")?;
    let rows = sqlx::query(
        "select user_host, left(argument, 400) as text from mysql.general_log
         where command_type in ('Execute', 'Query')",
    );
    let rows = rows
        .fetch_all(&mut admin)
        .await
        .context("read the general log")?;
    let (mut of_pod, mut of_raw) = (Vec::new(), Vec::new());
    for row in rows {
        let user: Vec<u8> = row.try_get_unchecked("user_host")?;
        let text: Vec<u8> = row.try_get_unchecked("text")?;
        let list = if user.starts_with(POD.as_bytes()) {
            &mut of_pod
        } else {
            &mut of_raw
        };
        list.extend(shape(&String::from_utf8_lossy(&text), shop.id.get()));
    }
    server.run("truncate table mysql.general_log").await?;
    of_pod.sort_unstable();
    of_raw.sort_unstable();
    let differ = of_pod != of_raw;
    Ok(differ.then(|| {
        format!("note: the raw checkout no longer sends what a pod sends.\npod: {of_pod:?}\nraw: {of_raw:?}")
    }))
}

/// `verb table` of a statement on the shop's rows; background work of the pod names no shop, or other tables.
fn shape(text: &str, shop: u64) -> Option<String> {
    // Not the fence: the outbox relay reads the same home at the same time, for the events of this very checkout.
    const TABLES: &str =
        "product|inventory|customer|shop_order|order_item|payment|bogus_charge|idempotency|outbox";
    let text = text.to_lowercase();
    let form = format!(r"(?s)\b(insert into|update|delete from|select\b.*?\bfrom)\s+({TABLES})\b");
    let form = Regex::new(&form).ok()?;
    let found = form.captures(&text)?;
    let verb = found[1].split_whitespace().next()?.to_owned();
    let relay = &found[2] == "outbox" && verb != "insert";
    let ours = text.contains(&shop.to_string()) && !relay;
    ours.then(|| format!("{verb} {}", &found[2]))
}
