//! What moves leave to others: rests beside shops that sell, and a pod's connections.

use std::time::Duration;

use anyhow::{Result, ensure};
use shared::ShopId;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX};
use tests::trade::{CREW, Trade};
use tests::{Fleet, wait_until};
use toml::Value;

use super::{COPIED_MAX, says, shop_with_rows, small_chunks, tidy_up};

/// A mover takes a pod for one that sells until it has seen some seconds of it.
const SEEN_AFTER: Duration = Duration::from_secs(5);

/// A neighbour at the target sells: the copy rests after each piece and says so, for as long as that lasts. The neighbour
/// notices nothing; when it sells no more the copy comes to its end.
pub(super) async fn a_copy_rests_beside_shops_that_sell(fleet: &Fleet) -> Result<()> {
    let mut moves = small_chunks().to_vec();
    // Hundreds of rests that together are longer than the test: it ends since they end.
    moves.push(("nice_ratio", Value::from(100)));
    let points = fleet.with_own_failpoints_and_moves(&moves).await?;
    let done = beside_a_neighbour(fleet, &points).await;
    tidy_up(fleet, points).await?;
    done
}

async fn beside_a_neighbour(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let control = ControlDoor::of(fleet).await?;
    let shop = shop_with_rows(fleet).await?;
    let neighbour = fleet.shop(2).await?;
    let trade = Trade::start(&neighbour, CREW).await?;
    trade.goes_on(20, MOVED_MAX).await?;
    let id = fleet.order_move(&shop, 2).await?;
    let words = ["copying", "held back: shops sell", "nice_ratio"];
    says(fleet, id, &words).await?;
    tokio::time::sleep(SEEN_AFTER).await;
    says(fleet, id, &words).await?;
    passes(&control, points, (shop.id, id)).await?;
    trade.stop().await?.must_be_sound(false)?;
    control
        .reaches(id, &[MoveState::Observing], COPIED_MAX)
        .await?;
    fleet.finish_move(id).await.map(drop)
}

/// What ends a run is told until the next one has copied something, and not until all is copied.
async fn passes(
    control: &ControlDoor,
    points: &OwnFailPoints,
    (shop, id): (ShopId, MoveId),
) -> Result<()> {
    points.set(shop, "copy-chunk.after", "error")?;
    for told in [true, false] {
        wait_until(&format!("told: {told}"), MOVED_MAX, async || {
            let moving = control.show(id).await?;
            ensure!(moving.error.is_some() == told, "{}", moving.words());
            let copies = moving.state == MoveState::Copying;
            ensure!(copies, "{}", moving.words());
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Each move that is observed reads the binlog of its source: when a pod has as many as it may, the next move from it waits
/// before it begins, says why, and goes on when one of them is over.
pub(super) async fn a_pod_with_enough_observed_moves_lets_the_next_one_wait(
    fleet: &Fleet,
) -> Result<()> {
    let moves = [("observed_per_pod", Value::from(1))];
    let points = fleet.with_own_failpoints_and_moves(&moves).await?;
    let done = one_after_the_other(fleet).await;
    fleet.without_own_failpoints(points).await?;
    done
}

async fn one_after_the_other(fleet: &Fleet) -> Result<()> {
    let control = ControlDoor::of(fleet).await?;
    let (one, two) = (fleet.shop(1).await?, fleet.shop(1).await?);
    let first = fleet.move_shop(&one, 2).await?;
    let second = fleet.order_move(&two, 2).await?;
    let words = [
        "preparing",
        "1 moves from pod 1 are observed already",
        "observed_per_pod",
    ];
    says(fleet, second, &words).await?;
    // Moves from elsewhere do not wait for it.
    let elsewhere = fleet.shop(2).await?;
    let third = fleet.move_shop(&elsewhere, 1).await?;
    fleet.finish_move(first.id).await?;
    control
        .reaches(second, &[MoveState::Observing], MOVED_MAX)
        .await?;
    for id in [second, third.id] {
        fleet.finish_move(id).await?;
    }
    Ok(())
}
