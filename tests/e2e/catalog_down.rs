//! Serving without the catalog: killed, frozen, and edges and pods that start cold meanwhile.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tests::fleet::RECOVER_MAX;
use tests::own_edge::OwnEdge;
use tests::suite::Test;
use tests::{Fleet, Shop, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![alone:
        inv5_the_fleet_sells_with_the_catalog_killed_cold_starts_included,
        inv5_the_fleet_sells_with_the_catalog_frozen,
        inv5_a_damaged_route_file_is_set_aside_and_said,
        inv5_past_max_stale_an_edge_stops_and_says_so,
    ]
}

/// Both shops sell one unit.
async fn sells(shops: [&Shop; 2], key: &str) -> Result<()> {
    for shop in shops {
        let mug = shop
            .product("Mug", "1.00", 1)
            .await
            .with_context(|| key.to_owned())?;
        shop.buy(&format!("{key} {}", mug.id), &[(&mug, 1)])
            .await
            .with_context(|| key.to_owned())?;
    }
    Ok(())
}

/// Waits until the edge's file knows these shops: it is written some seconds after a change.
async fn on_disk(fleet: &Fleet, shops: [&Shop; 2]) -> Result<()> {
    let file = fleet.edge_config()?.with_file_name("routes.bin");
    wait_until("the edge has written its table", RECOVER_MAX, async || {
        let bytes = std::fs::read(&file).with_context(|| file.display().to_string())?;
        for shop in shops {
            let handle = shop.handle.as_bytes();
            ensure!(
                bytes.windows(handle.len()).any(|part| part == handle),
                "no {}",
                shop.handle
            );
        }
        Ok(())
    })
    .await
}

/// Kills a unit, and waits until its successor runs.
async fn restarted(fleet: &Fleet, unit: &str) -> Result<()> {
    let before = fleet.unit(unit)?;
    before.kill().await?;
    wait_until(&format!("{unit} runs again"), RECOVER_MAX, async || {
        let now = fleet.unit(unit)?;
        ensure!(now != before, "it is not restarted");
        Ok(())
    })
    .await
}

/// The control server is killed and stays down: shops sell; an edge and a pod process that are killed start again
/// without it and sell; making a shop and freezing one is refused by name; all is well when it is back.
async fn inv5_the_fleet_sells_with_the_catalog_killed_cold_starts_included(
    fleet: &Fleet,
) -> Result<()> {
    let (a, b) = (fleet.shop(1).await?, fleet.shop(2).await?);
    on_disk(fleet, [&a, &b]).await?;
    fleet.kill_and_hold_down("control").await?;
    sells([&a, &b], "catalog down").await?;

    restarted(fleet, "edge-1").await?;
    wait_until("an edge started cold serves", RECOVER_MAX, async || {
        sells([&a, &b], "edge cold").await
    })
    .await?;
    restarted(fleet, "pod-1-1").await?;
    restarted(fleet, "pod-1-2").await?;
    wait_until(
        "pod processes started cold serve",
        RECOVER_MAX,
        async || sells([&a, &b], "pod cold").await,
    )
    .await?;

    let said = fleet
        .podctl
        .refused(&["shop", "create", "too-early", "--pod", "1"], 1)
        .await?;
    ensure!(
        said.contains("control server"),
        "what is missing is not named: {said}"
    );
    let said = fleet
        .podctl
        .refused(&["shop", "freeze", &a.handle], 1)
        .await?;
    ensure!(
        said.contains("control server"),
        "what is missing is not named: {said}"
    );
    sells([&a, &b], "nothing half done").await?;

    fleet.let_up("control").await?;
    wait_until("a new shop can be made", RECOVER_MAX, async || {
        fleet.shop(1).await
    })
    .await?;
    Ok(())
}

/// The control server is frozen: connections to it stay open and say nothing. Nobody waits for it; the edge stays
/// ready; a command against it ends with a sentence instead of hanging.
async fn inv5_the_fleet_sells_with_the_catalog_frozen(fleet: &Fleet) -> Result<()> {
    let (a, b) = (fleet.shop(1).await?, fleet.shop(2).await?);
    on_disk(fleet, [&a, &b]).await?;
    let frozen = fleet.unit("control")?.freeze()?;
    sells([&a, &b], "catalog frozen").await?;
    restarted(fleet, "edge-1").await?;
    wait_until("an edge started cold serves", RECOVER_MAX, async || {
        sells([&a, &b], "edge cold").await
    })
    .await?;
    let started = std::time::Instant::now();
    let said = fleet
        .podctl
        .refused(&["shop", "freeze", &a.handle, "--timeout", "4s"], 1)
        .await?;
    ensure!(
        started.elapsed() < Duration::from_secs(10),
        "podctl hung for {:?}",
        started.elapsed()
    );
    ensure!(
        said.contains("control server"),
        "what is missing is not named: {said}"
    );
    frozen.thaw();
    // The freeze that was sent may still have been done after the thaw; the operator asks for what is wanted.
    wait_until("the shop serves", RECOVER_MAX, async || {
        fleet
            .podctl
            .ok(&["shop", "unfreeze", &a.handle])
            .await
            .map(drop)
    })
    .await?;
    wait_until("the shop sells", RECOVER_MAX, async || {
        sells([&a, &b], "thawed").await
    })
    .await
}

/// A route file with a flipped byte is not served from: the edge says so, keeps the file aside, and takes the table
/// from the catalog.
async fn inv5_a_damaged_route_file_is_set_aside_and_said(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let file = fleet.edge_config()?.with_file_name("routes.bin");
    // The table is written some time after a change: wait for one that can be damaged.
    wait_until("the edge has written its table", RECOVER_MAX, async || {
        ensure!(file.exists(), "no {}", file.display());
        Ok(())
    })
    .await?;
    fleet.announce_error("(?i)route.*(damaged|checksum|aside)")?;
    fleet.hold_down("edge-1").await?;
    wait_until("the edge is down", RECOVER_MAX, async || {
        ensure!(
            fleet
                .edge
                .send("nobody.example", &tests::Call::get("/"))
                .await
                .is_err(),
            "it answers"
        );
        Ok(())
    })
    .await?;
    let mut bytes = std::fs::read(&file).context("read the route file")?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    std::fs::write(&file, &bytes).context("damage the route file")?;
    fleet.let_up("edge-1").await?;
    wait_until("the shop is served", RECOVER_MAX, async || {
        shop.get("/api/v1/products").await?.wants(200)
    })
    .await?;
    let folder = file.parent().context("a folder")?;
    let names: Vec<String> = std::fs::read_dir(folder)
        .context("the edge's folder")?
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    ensure!(
        names
            .iter()
            .any(|n| n.starts_with("routes") && n != "routes.bin"),
        "nothing kept aside: {names:?}"
    );
    Ok(())
}

/// An edge whose `max_stale` is three seconds, with the catalog frozen: it serves, and then it does not, in time, with
/// 503 and readiness red; with the catalog back it serves again by itself.
async fn inv5_past_max_stale_an_edge_stops_and_says_so(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let own = OwnEdge::start(fleet, |config| {
        config.insert("max_stale".into(), toml::Value::String("3s".into()));
    })
    .await?;
    let list = tests::Call::get("/api/v1/products");
    let ask = || own.edge.send(&shop.host, &list);
    ask().await?.wants(200)?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    ask()
        .await?
        .wants(200)
        .context("the catalog answers, so nothing is stale")?;
    let frozen = fleet.unit("control")?.freeze()?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    ask()
        .await?
        .wants(200)
        .context("one second is within the bound")?;
    wait_until(
        "the edge stops serving",
        Duration::from_secs(6),
        async || ask().await?.wants_problem(503, "unavailable"),
    )
    .await?;
    ensure!(
        ask().await?.header("retry-after").is_some(),
        "503 without Retry-After"
    );
    ensure!(
        own.readyz().await? == 503,
        "ready with a table that is too old"
    );
    frozen.thaw();
    wait_until("the edge serves again", RECOVER_MAX, async || {
        ask().await?.wants(200)
    })
    .await?;
    Ok(())
}
