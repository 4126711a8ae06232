//! Edge and pod processes that are killed and restarted while buyers buy.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use serde_json::json;
use tests::fleet::RECOVER_MAX;
use tests::load::{Load, reconcile};
use tests::own_edge::{OwnEdge, set};
use tests::suite::Test;
use tests::{Call, Fleet, Shop, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![alone:
        inv3_inv4_pod_processes_killed_under_load_lose_and_double_nothing,
        inv3_inv4_an_edge_killed_under_load_loses_and_doubles_nothing,
        a_pod_process_that_drains_fails_no_request,
        inv4_inv6_a_frozen_process_gets_each_request_once_and_hurts_no_other_pod,
    ]
}

/// Each process of a pod is killed in turn. Buyers may see errors and ask again with their key; in the end every
/// acknowledged order is there once. The edge answers what it may not send again instead of sending it twice.
async fn inv3_inv4_pod_processes_killed_under_load_lose_and_double_nothing(
    fleet: &Fleet,
) -> Result<()> {
    let shop = fleet.shop(2).await?;
    let mug = shop.product("Mug", "1.00", 100_000).await?;
    let load = Load::start(&shop, &mug, 6);
    for unit in ["pod-2-1", "pod-2-2", "pod-2-1"] {
        load.sells(20, RECOVER_MAX).await?;
        fleet.unit(unit)?.kill().await?;
        load.sells(20, RECOVER_MAX)
            .await
            .with_context(|| format!("after {unit} was killed"))?;
    }
    let seen = load.stop().await?;
    reconcile(&shop, &mug, &seen).await
}

/// The edge is killed twice; the supervisor has it back in a second, and it serves from its table at once.
async fn inv3_inv4_an_edge_killed_under_load_loses_and_doubles_nothing(
    fleet: &Fleet,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 100_000).await?;
    let load = Load::start(&shop, &mug, 6);
    for _ in 0..2 {
        load.sells(20, RECOVER_MAX).await?;
        fleet.unit("edge-1")?.kill().await?;
        load.sells(20, RECOVER_MAX)
            .await
            .context("after the edge was killed")?;
    }
    let seen = load.stop().await?;
    ensure!(
        seen.failures() > 0,
        "the kills were noticed by nobody: did they hit the edge?"
    );
    reconcile(&shop, &mug, &seen).await
}

/// Connects of the fleet's edge to pods that failed.
async fn unconnected(fleet: &Fleet) -> Result<f64> {
    let status = fleet.status().await?;
    let edge = status.edges.first().context("an edge")?;
    let name = "podhost_upstream_attempts_total";
    tests::metrics::sum(&edge.admin, name, "unconnected").await
}

/// A pod process that is stopped in order drains: it says so to the edge, which has stopped asking it before it stops
/// listening; it ends what it has begun, and no buyer notices.
async fn a_pod_process_that_drains_fails_no_request(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 100_000).await?;
    let load = Load::start(&shop, &mug, 4);
    load.sells(20, RECOVER_MAX).await?;
    let before = unconnected(fleet).await?;
    let process = fleet.unit("pod-1-2")?;
    fleet.hold_down("pod-1-2").await?;
    process
        .gone(RECOVER_MAX)
        .await
        .context("the drained process ends")?;
    load.sells(20, RECOVER_MAX).await?;
    let refused = unconnected(fleet).await? - before;
    ensure!(
        refused < 0.5,
        "the edge asked a process that had said it drains, {refused} times, when it was gone"
    );
    fleet.let_up("pod-1-2").await?;
    load.sells(20, RECOVER_MAX).await?;
    let seen = load.stop().await?;
    ensure!(seen.failures() == 0, "buyers noticed: {:?}", seen.others);
    reconcile(&shop, &mug, &seen).await
}

/// One of a pod's two processes is frozen: it takes requests and does not answer. An edge that waits two seconds says
/// 504 to those and sends none of them to the other process, which may double it; the health check takes the frozen
/// one out, after which all requests are served; the other pod's buyers notice nothing. When the process is thawed, each
/// product that was asked for is there once or not at all, and each acknowledged one is there.
async fn inv4_inv6_a_frozen_process_gets_each_request_once_and_hurts_no_other_pod(
    fleet: &Fleet,
) -> Result<()> {
    let (shop, well) = (fleet.shop(1).await?, fleet.shop(2).await?);
    let cup = well.product("Cup", "1.00", 100_000).await?;
    let own = OwnEdge::start(fleet, |config| {
        set(
            config,
            "timeouts",
            "answer",
            toml::Value::String("11s".into()),
        );
    })
    .await?;
    let load = Load::start(&well, &cup, 2);
    load.sells(5, RECOVER_MAX).await?;
    let frozen = fleet.unit("pod-1-1")?.freeze()?;
    let titles: Vec<String> = (0..16).map(|n| format!("Mug {n}")).collect();
    let make = |title: &str| {
        let body = json!({"title": title, "price": "1.00", "currency": "USD", "available": 1});
        Call::post("/api/v1/products")
            .token(&shop.token)
            .json(&body)
    };
    let calls: Vec<Call> = titles.iter().map(|title| make(title)).collect();
    let answers = join_all(calls.iter().map(|call| own.edge.send(&shop.host, call))).await;
    let (mut made, mut unknown) = (Vec::new(), 0);
    for (title, answer) in titles.iter().zip(answers) {
        let answer = answer?;
        match answer.status {
            201 => made.push(title.clone()),
            504 => {
                answer.wants_problem(504, "timeout")?;
                unknown += 1;
            }
            status => anyhow::bail!("{title}: {status} {}", answer.text()),
        }
    }
    ensure!(
        unknown > 0,
        "the frozen process got no request: the test shows nothing"
    );
    ensure!(!made.is_empty(), "the other process served nobody");
    for _ in 0..8 {
        let answer = own
            .edge
            .send(&shop.host, &Call::get("/api/v1/products"))
            .await?;
        answer
            .wants(200)
            .context("the frozen process is taken out")?;
    }
    load.sells(5, RECOVER_MAX).await?;
    frozen.thaw();
    let seen = load.stop().await?;
    ensure!(
        seen.failures() == 0,
        "the other pod's buyers noticed: {:?}",
        seen.others
    );
    fleet.processes_ready(1).await?;
    // What the thawed process still had in hand is done or dropped within the deadline of a transaction.
    tokio::time::sleep(Duration::from_secs(3)).await;
    are_there_once(fleet, &shop, &made).await
}

/// No product of a shop is there twice, and none of these is missing.
async fn are_there_once(fleet: &Fleet, shop: &Shop, made: &[String]) -> Result<()> {
    let primary = fleet.primary(1).await?;
    let stored = primary
        .texts(&format!(
            "select title from product where shop_id = {}",
            shop.id
        ))
        .await?;
    let mut once = stored.clone();
    once.sort_unstable();
    once.dedup();
    ensure!(
        once.len() == stored.len(),
        "a request was executed twice: {stored:?}"
    );
    for title in made {
        ensure!(
            stored.contains(title),
            "{title} was acknowledged and is gone"
        );
    }
    Ok(())
}
