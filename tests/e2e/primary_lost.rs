//! A pod without its primary, and what the other pod notices of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::{join, join_all};
use serde_json::json;
use shared::wire::Fence;
use tests::fleet::RECOVER_MAX;
use tests::load::{Load, reconcile};
use tests::shop::checkout_body;
use tests::suite::Test;
use tests::{Call, Fleet, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![alone:
        inv6_a_killed_primary_stops_only_its_own_shops,
        inv6_a_silent_primary_stops_only_its_own_shops,
        inv3_a_primary_killed_under_load_loses_nothing_acknowledged,
    ]
}

/// "Fast" for an answer that cannot be given: no longer than a transaction may take, and a margin for the machine.
const REFUSAL_MAX: Duration = Duration::from_millis(3_000);

/// An edge waits so long for a primary to come back (its park window, 10 s), and then tells the client to.
const PARKED_MAX: Duration = Duration::from_secs(14);

/// Most refusals come at once: nobody waits out a deadline for a server of which it is known that it does not answer. One
/// request at a time tries whether it is back.
const REFUSAL_USUAL: Duration = Duration::from_millis(600);

/// The one in the middle of them by length.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Pod 1's primary is killed and stays down: it refuses writes fast, the edge waits for it and then answers 503 with
/// `Retry-After`, and reads go on from replicas; a load on pod 2 has not one failed request meanwhile. When the primary is back, pod 1 sells
/// again without a restart of its processes, and its acknowledged orders are all there.
async fn inv6_a_killed_primary_stops_only_its_own_shops(fleet: &Fleet) -> Result<()> {
    let (hurt, well) = (fleet.shop(1).await?, fleet.shop(2).await?);
    let mug = hurt.product("Mug", "1.00", 100).await?;
    let cup = well.product("Cup", "1.00", 100_000).await?;
    let order = hurt.buy("before", &[(&mug, 1)]).await?;
    let load = Load::start(&well, &cup, 2);
    load.sells(5, RECOVER_MAX).await?;

    fleet.kill_and_hold_down("mysql-1-1").await?;
    let door = fleet.pod_door(hurt.pod).await?;
    let refused = |n: u32| {
        let (hurt, mug, door) = (hurt.clone(), mug.clone(), door.clone());
        async move {
            let started = Instant::now();
            let body = checkout_body(&[(&mug, 1)], "approve");
            let call = Call::post("/api/v1/checkouts").key(format!("down-{n}"));
            let answer = door.send(hurt.id, hurt.epoch, &call.json(&body)).await?;
            let unready = answer.fence() == Some(Fence::Unready);
            ensure!(unready, "{}: {}", answer.status, answer.text());
            let took = started.elapsed();
            ensure!(took < REFUSAL_MAX, "took {took:?}");
            anyhow::Ok(took)
        }
    };
    let waits = async {
        let started = Instant::now();
        let answer = hurt.checkout("down", &[(&mug, 1)], "approve").await?;
        ensure!(answer.header("retry-after").is_some(), "no Retry-After");
        ensure!(started.elapsed() < PARKED_MAX, "{:?}", started.elapsed());
        answer.wants_problem(503, "unavailable")
    };
    let mut took = Vec::new();
    for n in 0..4 {
        took.push(refused(n).await.context("one write")?);
    }
    let (thirty, waited) = join(join_all((10..40).map(refused)), waits).await;
    waited.context("through an edge")?;
    for answer in thirty {
        took.push(answer.context("thirty writes at once")?);
    }
    let usual = median(took);
    ensure!(usual < REFUSAL_USUAL, "a refusal takes {usual:?}");
    hurt.get("/api/v1/products")
        .await?
        .wants(200)
        .context("reads go on")?;
    load.sells(20, RECOVER_MAX)
        .await
        .context("the other pod sells on")?;

    fleet.let_up("mysql-1-1").await?;
    wait_until("pod 1 sells again", RECOVER_MAX, async || {
        hurt.checkout("after", &[(&mug, 1)], "approve")
            .await?
            .wants(201)
    })
    .await?;
    assert_eq!(hurt.order(&order.id).await?.status, "paid");
    let seen = load.stop().await?;
    ensure!(
        seen.failures() == 0,
        "pod 2's buyers noticed: {:?}",
        seen.others
    );
    ensure!(
        seen.slowest < REFUSAL_MAX,
        "pod 2's slowest answer took {:?}",
        seen.slowest
    );
    reconcile(&well, &cup, &seen).await
}

/// The same with a primary that is frozen: connections stay open and nobody answers. Bounded all the same; and once that is
/// known, requests are refused at once instead of each waiting for it.
async fn inv6_a_silent_primary_stops_only_its_own_shops(fleet: &Fleet) -> Result<()> {
    let (hurt, well) = (fleet.shop(1).await?, fleet.shop(2).await?);
    let mug = hurt.product("Mug", "1.00", 100).await?;
    let cup = well.product("Cup", "1.00", 100_000).await?;
    let load = Load::start(&well, &cup, 2);
    load.sells(3, RECOVER_MAX).await?;
    let frozen = fleet.unit("mysql-1-1")?.freeze()?;
    let body = json!({"title": "New", "price": "1.00", "currency": "USD", "available": 1});
    let door = fleet.pod_door(hurt.pod).await?;
    let call = Call::post("/api/v1/products")
        .token(&hurt.token)
        .json(&body);
    for _ in 0..3 {
        let started = Instant::now();
        let answer = door.send(hurt.id, hurt.epoch, &call).await?;
        ensure!(
            [421, 503, 504].contains(&answer.status),
            "{}: {}",
            answer.status,
            answer.text()
        );
        // A write that was sent is waited for until its deadline (2 s), with what settling it takes.
        ensure!(
            started.elapsed() < 2 * REFUSAL_MAX,
            "took {:?}",
            started.elapsed()
        );
    }
    let mut took = Vec::new();
    for _ in 0..12 {
        let started = Instant::now();
        let answer = door.send(hurt.id, hurt.epoch, &call).await?;
        ensure!(
            [421, 503, 504].contains(&answer.status),
            "{}",
            answer.status
        );
        took.push(started.elapsed());
    }
    let usual = median(took);
    ensure!(usual < REFUSAL_USUAL, "a refusal takes {usual:?}");
    load.sells(20, RECOVER_MAX)
        .await
        .context("the other pod sells on")?;
    frozen.thaw();
    wait_until("pod 1 sells again", RECOVER_MAX, async || {
        hurt.checkout("after", &[(&mug, 1)], "approve")
            .await?
            .wants(201)
    })
    .await?;
    let seen = load.stop().await?;
    ensure!(
        seen.failures() == 0,
        "pod 2's buyers noticed: {:?}",
        seen.others
    );
    reconcile(&well, &cup, &seen).await
}

/// The primary is killed twice in the middle of a load that then goes on: every acknowledged order is there, once, and
/// the stock agrees.
async fn inv3_a_primary_killed_under_load_loses_nothing_acknowledged(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 100_000).await?;
    let load = Load::start(&shop, &mug, 6);
    for _ in 0..2 {
        load.sells(30, RECOVER_MAX).await?;
        // The supervisor restarts it, the control server opens it.
        let killed = fleet.unit("mysql-1-1")?;
        killed.kill().await?;
        wait_until("another primary runs", RECOVER_MAX, async || {
            let now = fleet.unit("mysql-1-1")?;
            ensure!(now != killed && now.alive(), "it is {}", now.pid());
            Ok(())
        })
        .await?;
        load.sells(10, RECOVER_MAX)
            .await
            .context("sells again after the kill")?;
    }
    // Whether a buyer notices is left to the machine: a quick one has the primary back within the edge's park window.
    let seen = load.stop().await?;
    reconcile(&shop, &mug, &seen).await
}
