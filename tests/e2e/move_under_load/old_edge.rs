//! Moves through an edge that does not hear of them.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::chaos::{Chaos, Silence, Wire};
use tests::fleet::RECOVER_MAX;
use tests::history::{Again, Told};
use tests::moves::{ControlDoor, MOVED_MAX};
use tests::own_edge::OwnEdge;
use tests::trade::{CREW, Trade};
use tests::{Fleet, Shop, status, wait_until};

use super::{MOVED_WITH_KILLS_MAX, SOME, close, settled};

/// An edge that hears nothing of the catalog any more. After one move it follows the mark, and its buyers notice nothing;
/// after a second one, back to where it was, no mark leads on: it says 503 with `Retry-After` and sends nobody to a pod
/// that would take a write it may not. When it hears of the catalog again all is well, and nothing acknowledged through it
/// is missing.
pub(super) async fn inv4_an_edge_with_a_table_from_before_two_moves_sends_nobody_astray(
    fleet: &Fleet,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let control = fleet.status().await?.controls;
    let control = status::address(&control.first().context("a control server")?.http)?;
    let wire = Chaos::to(control).await?;
    let through = format!("http://{}", wire.address());
    let own = OwnEdge::start(fleet, |config| {
        let urls = toml::Value::Array(vec![toml::Value::String(through.clone())]);
        tests::own_edge::set(config, "control", "urls", urls);
    })
    .await?;
    let by_old_edge = own.shows(&shop).await?;
    wire.set(Wire::Silent(Silence::Both));
    let by_mark = Trade::start(&by_old_edge, CREW).await?;
    let there = fleet.move_shop(&shop, 2).await?;
    by_mark
        .goes_on(SOME, MOVED_MAX)
        .await
        .context("by the mark")?;
    close([by_mark], false).await?;

    let astray = Trade::start(&by_old_edge, CREW).await?;
    let well = Trade::start(&shop, CREW).await?;
    fleet.move_shop(&shop, 1).await?;
    well.goes_on(SOME, MOVED_MAX).await?;
    is_told_to_come_back(&by_old_edge).await?;
    wait_until("its buyers are told so", RECOVER_MAX, async || {
        let told = astray.told(Told::Status(503, Again::Later));
        ensure!(told > 0, "none is");
        Ok(())
    })
    .await?;
    wire.set(Wire::Open);
    astray
        .goes_on(SOME, MOVED_MAX)
        .await
        .context("with the catalog back")?;
    // These were told to come again later (503): an edge that is cut off from the catalog is the one fault here that buyers
    // can notice.
    close([astray], true).await?;
    close([well], false).await?;
    let control = ControlDoor::of(fleet).await?;
    // All of them went to pod 1 first; the edge tells that once it can.
    wait_until("late arrivals are told", RECOVER_MAX, async || {
        let late = control.show(there.id).await?.took("late_arrivals");
        ensure!(late >= Some(SOME as u64), "{late:?} arrivals were late");
        Ok(())
    })
    .await?;
    settled(&control, &shop, MOVED_WITH_KILLS_MAX).await
}

/// No write is done, however often it is sent.
async fn is_told_to_come_back(shop: &Shop) -> Result<()> {
    let body = json!({"title": "New", "price": "1.00", "currency": "USD", "available": 1});
    for _ in 0..3 {
        let answer = shop.merchant_post("/api/v1/products", &body).await?;
        let later = answer.header("retry-after").is_some();
        ensure!(
            answer.status == 503 && later,
            "with a table from before two moves: {} {}",
            answer.status,
            answer.text()
        );
    }
    Ok(())
}
