//! All servers of a pod are killed and started again, in each order. Nothing acknowledged is missing, and the primary
//! opens only when a replica that may acknowledge holds everything it has.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::{try_join, try_join_all};
use tests::fleet::RECOVER_MAX;
use tests::load::{Load, reconcile};
use tests::suite::Test;
use tests::{Fleet, Server, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![alone:
        inv3_servers_started_again_in_each_order_miss_nothing,
        a_primary_stays_shut_while_the_control_server_is_down,
        an_unacknowledged_commit_is_not_shown_before_a_replica_has_it,
    ]
}

const PRIMARY: &str = "mysql-1-1";
const REPLICAS: [&str; 2] = ["mysql-1-2", "mysql-1-3"];
/// The control server looks twice a second: four seconds are eight chances to open what must stay shut.
const STAYS_SHUT_FOR: Duration = Duration::from_secs(4);

async fn answers(server: &Server) -> Result<()> {
    wait_until("a started server answers", RECOVER_MAX, async || {
        server.connect().await.map(drop)
    })
    .await
}

async fn stays_shut(server: &Server, why: &str) -> Result<()> {
    answers(server).await?;
    let until = tokio::time::Instant::now() + STAYS_SHUT_FOR;
    while tokio::time::Instant::now() < until {
        ensure!(!server.writable().await?, "the primary opened {why}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn opens(server: &Server) -> Result<()> {
    wait_until("the primary opens", RECOVER_MAX, async || {
        ensure!(server.writable().await?, "it is read only");
        Ok(())
    })
    .await
}

/// Six orders of three servers, three at each pod, each after a kill of all three under load. A primary alone stays shut;
/// with a replica that has all of its transactions it opens; every acknowledged order is there.
async fn inv3_servers_started_again_in_each_order_miss_nothing(fleet: &Fleet) -> Result<()> {
    // By their numbers; 1 is the primary.
    let one = started_again(fleet, 1, [[1, 2, 3], [2, 1, 3], [3, 2, 1]]);
    let two = started_again(fleet, 2, [[1, 3, 2], [3, 1, 2], [2, 3, 1]]);
    try_join(one, two).await.map(drop)
}

async fn started_again(fleet: &Fleet, pod: u32, orders: [[u32; 3]; 3]) -> Result<()> {
    let unit = |number: u32| format!("mysql-{pod}-{number}");
    let shop = fleet.shop(pod).await?;
    let mug = shop.product("Mug", "1.00", 100_000).await?;
    let primary = fleet.primary(pod).await?;
    for order in orders {
        let load = Load::start(&shop, &mug, 4);
        load.sells(15, RECOVER_MAX)
            .await
            .with_context(|| format!("pod {pod}, before {order:?}"))?;
        try_join_all([1, 2, 3].map(async |number| fleet.kill_and_hold_down(&unit(number)).await))
            .await?;
        for (place, number) in order.into_iter().enumerate() {
            fleet.let_up(&unit(number)).await?;
            if (number, place) == (1, 0) {
                stays_shut(&primary, "without a replica").await?;
            }
        }
        opens(&primary)
            .await
            .with_context(|| format!("pod {pod}, {order:?}"))?;
        load.sells(5, RECOVER_MAX)
            .await
            .with_context(|| format!("pod {pod}, after {order:?}"))?;
        let seen = load.stop().await?;
        // One of the two processes sold; the other may still be about to find the primary again.
        let stored = wait_until("the orders are listed", RECOVER_MAX, async || {
            shop.order_ids().await
        })
        .await?;
        for (key, id) in &seen.orders {
            ensure!(
                stored.contains(id),
                "pod {pod}, {order:?}: order {id} of {key} is gone"
            );
        }
    }
    // A last load without a break, and the whole account.
    let load = Load::start(&shop, &mug, 4);
    load.sells(5, RECOVER_MAX).await?;
    let mut seen = load.stop().await?;
    seen.given_up += shop.order_ids().await?.len() - seen.orders.len();
    reconcile(&shop, &mug, &seen).await
}

/// A primary that is restarted while no control server runs stays shut; its replicas go on serving reads; the control
/// server opens it when it is back.
async fn a_primary_stays_shut_while_the_control_server_is_down(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 10).await?;
    let primary = fleet.primary(1).await?;
    fleet.kill_and_hold_down("control").await?;
    shop.buy("before", &[(&mug, 1)]).await?;
    fleet.unit(PRIMARY)?.kill().await?;
    // The old process is gone; the next answer is that of the new one.
    stays_shut(&primary, "without a control server").await?;
    shop.get("/api/v1/products")
        .await?
        .wants(200)
        .context("reads from replicas")?;
    let refused = shop.checkout("shut", &[(&mug, 1)], "approve").await?;
    ensure!(
        refused.status == 503 && refused.header("retry-after").is_some(),
        "{}",
        refused.text()
    );
    fleet.let_up("control").await?;
    opens(&primary).await?;
    wait_until("the shop sells", RECOVER_MAX, async || {
        shop.checkout("shut", &[(&mug, 1)], "approve")
            .await?
            .wants(201)
    })
    .await?;
    Ok(())
}

/// With both replicas stopped a write cannot be acknowledged: it is not, within its deadline. The primary is killed
/// with that commit in its binlog and restarted alone: crash recovery commits it, nobody may see it, the primary stays
/// shut. With a replica back the same key gives one order.
async fn an_unacknowledged_commit_is_not_shown_before_a_replica_has_it(
    fleet: &Fleet,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 10).await?;
    let primary = fleet.primary(1).await?;
    for replica in REPLICAS {
        fleet.kill_and_hold_down(replica).await?;
    }
    let started = std::time::Instant::now();
    let unacknowledged = shop.checkout("alone", &[(&mug, 1)], "approve").await?;
    ensure!(
        [503, 504].contains(&unacknowledged.status),
        "no replica had it: {}",
        unacknowledged.text()
    );
    ensure!(
        started.elapsed() < Duration::from_secs(12),
        "took {:?}",
        started.elapsed()
    );
    fleet.unit(PRIMARY)?.kill().await?;
    stays_shut(&primary, "with a transaction that no replica has").await?;
    // A strong read of a server that is nobody's primary must not be answered from it.
    let path = format!("/api/v1/products/{}/inventory", mug.id);
    let strong = shop.merchant_get(&path).await?;
    ensure!(
        strong.status == 503,
        "a strong read was answered: {} {}",
        strong.status,
        strong.text()
    );
    for replica in REPLICAS {
        fleet.let_up(replica).await?;
    }
    opens(&primary).await?;
    wait_until("the same key gives the order", RECOVER_MAX, async || {
        shop.checkout("alone", &[(&mug, 1)], "approve")
            .await?
            .wants(201)
    })
    .await?;
    assert_eq!(shop.order_ids().await?.len(), 1);
    assert_eq!(shop.available(&mug).await?, 9);
    Ok(())
}
