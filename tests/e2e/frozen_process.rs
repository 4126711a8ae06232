//! A pod process that stops inside a transaction must not hold the shop.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::mysql::HomeLock;
use tests::own_pod::OwnPod;
use tests::suite::Test;
use tests::tap::{Moment, Tap};
use tests::{Call, Fleet, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![shares: inv9_a_process_frozen_in_a_transaction_loses_its_lock_at_the_deadline]
}

/// The deadline of a transaction (2 s), with a server that looks at its clock once a second and a busy machine.
const LOCK_GONE_MAX: Duration = Duration::from_millis(4_000);

/// A process is frozen in the middle of a write, with the share lock on the home taken. A mover's lock on that row,
/// refused before, is granted after the deadline; nothing of the write is left; the other processes sell meanwhile; and
/// the thawed process serves on.
async fn inv9_a_process_frozen_in_a_transaction_loses_its_lock_at_the_deadline(
    fleet: &Fleet,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let port = OwnPod::primary_port(&OwnPod::config_of(fleet, shop.pod)?)?;
    let tap = Tap::to(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    let through = tap.address().port();
    let own = OwnPod::start(fleet, shop.pod, |config| {
        OwnPod::primary_at(config, through)
    })
    .await?;
    let body = json!({"title": "Frozen", "price": "1.00", "currency": "USD", "available": 1});
    let call = Call::post("/api/v1/products")
        .token(&shop.token)
        .json(&body);
    let primary = fleet.primary(1).await?;

    tap.set("into product", Moment::Held);
    let (door, id, epoch, held_call) = (own.door.clone(), shop.id, shop.epoch, call.clone());
    let write = tokio::spawn(async move { door.send(id, epoch, &held_call).await });
    tap.sprung(Duration::from_secs(5)).await?;
    let frozen = own.process()?.freeze()?;
    let since = Instant::now();
    let refused = primary
        .text(&format!(
            "select state from shop_home where shop_id = {id} for update nowait"
        ))
        .await;
    ensure!(
        refused.is_err(),
        "the frozen process holds no lock: the test shows nothing"
    );
    shop.get("/api/v1/products")
        .await?
        .wants(200)
        .context("others read")?;

    let mover = HomeLock::exclusive(&primary, shop.id)
        .await
        .context("the lock is not given back")?;
    let waited = since.elapsed();
    ensure!(waited < LOCK_GONE_MAX, "the lock was held for {waited:?}");
    mover.release().await?;
    let count = format!("select count(*) from product where shop_id = {id} and title = 'Frozen'");
    assert_eq!(
        primary.number(&count).await?,
        0,
        "the write was not acknowledged and is not there"
    );
    shop.product("Meanwhile", "1.00", 1)
        .await
        .context("others sell")?;

    frozen.thaw();
    let answer = write.await.context("the write")??;
    let made = primary.number(&count).await?;
    ensure!(
        made == i64::from(answer.status == 201),
        "{}: {made} rows",
        answer.status
    );
    wait_until(
        "the thawed process serves",
        Duration::from_secs(10),
        async || own.door.send(id, epoch, &call).await?.wants(201),
    )
    .await?;
    Ok(())
}
