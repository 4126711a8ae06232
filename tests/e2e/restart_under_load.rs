//! Edge and pod processes that are killed and restarted while buyers buy.

use anyhow::{Context, Result, ensure};
use tests::fleet::RECOVER_MAX;
use tests::load::{Load, reconcile};
use tests::suite::Test;
use tests::{Fleet, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![alone:
        inv3_inv4_pod_processes_killed_under_load_lose_and_double_nothing,
        inv3_inv4_an_edge_killed_under_load_loses_and_doubles_nothing,
        a_pod_process_that_drains_fails_no_request,
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

/// A pod process that is stopped in order drains: it says so to the edge, ends what it has begun, and no buyer notices.
async fn a_pod_process_that_drains_fails_no_request(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 100_000).await?;
    let load = Load::start(&shop, &mug, 4);
    load.sells(20, RECOVER_MAX).await?;
    let process = fleet.unit("pod-1-2")?;
    fleet.hold_down("pod-1-2").await?;
    process
        .gone(RECOVER_MAX)
        .await
        .context("the drained process ends")?;
    load.sells(20, RECOVER_MAX).await?;
    fleet.let_up("pod-1-2").await?;
    load.sells(20, RECOVER_MAX).await?;
    let seen = load.stop().await?;
    ensure!(seen.failures() == 0, "buyers noticed: {:?}", seen.others);
    reconcile(&shop, &mug, &seen).await
}
