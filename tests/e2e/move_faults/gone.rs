//! A move's target with all of its servers and processes gone, in each state of the move.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use shared::moves::MoveState;
use tests::moves::rows_left;
use tests::{Fleet, Server, wait_until};

use super::lanes::{ARRIVES_MAX, Held, Lane, Lanes, home_is, on_lanes};

/// All of pod 2.
const TARGET: [&str; 6] = [
    "mysql-2-1",
    "mysql-2-2",
    "mysql-2-3",
    "pod-2-1",
    "pod-2-2",
    "redis-2",
];

/// Before the target owns the shop it sells on at the source; its move says what it waits for and can be undone at once,
/// without the target. After that the move stays where it is, cannot be undone, and the source neither serves nor loses its
/// copy. When the pod is back after all, those moves arrive, and what the undone ones left there is deleted.
pub(super) async fn inv3_a_target_that_is_gone_costs_only_its_move(fleet: &Fleet) -> Result<()> {
    on_lanes(fleet, &Held::ALL, true, target_gone).await
}

async fn target_gone(lanes: &mut Lanes<'_>) -> Result<()> {
    let fleet = lanes.fleet;
    let source = fleet.primary(1).await?;
    lanes.hold(2).await?;
    try_join_all(TARGET.map(|unit| fleet.kill_and_hold_down(unit))).await?;
    lanes.go_on();
    let lanes = &*lanes;
    let source = &source;
    try_join_all(lanes.lanes.iter().map(|lane| async move {
        let seen = if lane.held.switched() {
            stands(lanes, lane, source).await
        } else {
            is_undone(lanes, lane, source).await
        };
        seen.with_context(|| format!("held {:?}, shop {}", lane.held, lane.shop.id))
    }))
    .await?;
    fleet.restore().await.context("the target is back")?;
    lanes.arrive(2, Held::switched).await?;
    let target = fleet.primary(2).await?;
    for lane in lanes.lanes.iter().filter(|lane| !lane.held.switched()) {
        wait_until(
            "what the undone move left is deleted",
            ARRIVES_MAX,
            async || {
                let left = rows_left(&target, lane.shop.id).await?;
                ensure!(left == 0, "{left} rows of shop {}", lane.shop.id);
                Ok(())
            },
        )
        .await?;
    }
    Ok(())
}

/// The shop sells; the move says which pod it waits for; it is undone while that is gone.
async fn is_undone(lanes: &Lanes<'_>, lane: &Lane, source: &Server) -> Result<()> {
    lane.trade
        .goes_on(4, ARRIVES_MAX)
        .await
        .context("sells on")?;
    let id = lane.id()?;
    wait_until("the move says what it waits for", ARRIVES_MAX, async || {
        let moving = lanes.control.show(id).await?;
        let told = [&moving.error, &moving.waits].into_iter().flatten();
        let mut told = told.filter(|text| text.contains("pod 2"));
        ensure!(told.next().is_some(), "{}", moving.words());
        Ok(())
    })
    .await?;
    let home = source.home(lane.shop.id).await?;
    ensure!(
        home == ("serving".to_owned(), lane.shop.epoch.get()),
        "{home:?}"
    );
    lanes.control.tell(id, "abort").await?.wants(200)?;
    lanes.reaches(lane, MoveState::Aborted).await?;
    let holder = format!(
        "select ifnull(move_id, 'nobody') from shop_home where shop_id = {}",
        lane.shop.id
    );
    let holder = source.text(&holder).await?;
    ensure!(holder == "nobody", "the home still belongs to {holder}");
    lane.trade
        .goes_on(4, ARRIVES_MAX)
        .await
        .context("sells after the abort")
}

/// The target owns the shop: nothing sells it at the source, and nobody undoes it.
async fn stands(lanes: &Lanes<'_>, lane: &Lane, source: &Server) -> Result<()> {
    let id = lane.id()?;
    home_is(source, &lane.shop, "moved").await?;
    let undo = lanes.control.tell(id, "abort").await?;
    ensure!(undo.status == 409, "abort: {} {}", undo.status, undo.text());
    let answer = lane.shop.get("/api/v1/products").await?;
    ensure!(
        answer.status == 503 && answer.header("retry-after").is_some(),
        "a dead pod's shop answers {} {}",
        answer.status,
        answer.text()
    );
    if lane.held == Held::Observing {
        let back = lanes.control.order(lane.shop.id, 1).await?;
        let text = back.text();
        ensure!(
            back.status >= 400 && text.contains("pod 2"),
            "back: {} {text}",
            back.status
        );
    }
    if lane.held != Held::Retiring {
        let kept = rows_left(source, lane.shop.id).await?;
        ensure!(kept > 0, "the source's copy is gone");
    }
    let moving = lanes.control.show(id).await?;
    ensure!(moving.state == lane.held.state(), "{}", moving.words());
    Ok(())
}
