//! A move that does something again: a fence that missed, a move back that failed, and one that was undone.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use shared::moves::MoveState;
use tests::moves::{ControlDoor, rows_of};
use tests::suite::Test;
use tests::{Call, Fleet, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: inv3_a_fence_that_missed_costs_no_second_comparison_of_the_shop,
            inv3_a_move_back_that_failed_copies_anew,
            inv1_inv3_a_move_back_that_was_undone_leaves_nothing_in_the_way_of_the_next;
    ]
}

/// A small shop's move, on a machine that has more to do.
const ENDS_MAX: Duration = Duration::from_secs(240);

/// The fence is lifted, the shop sells, and the next one closes without a second look at every row; what was sold meanwhile
/// is at the target all the same.
async fn inv3_a_fence_that_missed_costs_no_second_comparison_of_the_shop(
    fleet: &Fleet,
) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    let control = ControlDoor::of(fleet).await?;
    let shop = fleet.shop(1).await?;
    let product = shop.product("Lamp", "10.00", 9).await?;
    shop.buy("before", &[(&product, 1)]).await?;
    // Its one fence that misses is the one that is told to.
    points.have_patience(shop.id)?;
    points.set(shop.id, "verified.before", "stop")?;
    let id = fleet.order_move(&shop, 2).await?;
    points.happens(shop.id, "verified.before", ENDS_MAX).await?;
    points.set(shop.id, "followed.before", "error")?;
    // A second comparison would fail the move.
    points.set(shop.id, "compare.before", "fail")?;
    // The second fence waits until something was sold after the first one.
    points.set(shop.id, "verified.before", "stop")?;
    points.go_on(shop.id, "verified.before");
    points.happens(shop.id, "followed.before", ENDS_MAX).await?;
    points.happens(shop.id, "verified.before", ENDS_MAX).await?;
    shop.buy("between", &[(&product, 1)]).await?;
    points.go_on(shop.id, "verified.before");
    let moving = control
        .reaches(id, &[MoveState::Observing], ENDS_MAX)
        .await?;
    let tries = moving.took("fence_tries");
    ensure!(tries == Some(2), "{tries:?}: {}", moving.words());
    ensure!(!points.go_on(shop.id, "compare.before"), "compared twice");
    shop.buy("after", &[(&product, 1)]).await?;
    let orders = shop.order_ids().await?.len();
    ensure!(orders == 3, "{orders} orders");
    fleet.without_own_failpoints(points).await
}

/// What a move back finds at its target may be the reason why it failed: begun anew, it takes nothing from there.
async fn inv3_a_move_back_that_failed_copies_anew(fleet: &Fleet) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    let control = ControlDoor::of(fleet).await?;
    let shop = fleet.shop(1).await?;
    let product = shop.product("Lamp", "10.00", 9).await?;
    shop.buy("before", &[(&product, 1)]).await?;
    fleet.move_shop(&shop, 2).await?;
    shop.buy("away", &[(&product, 1)]).await?;
    // One that failed before it used the old rows goes on from them.
    let places = [
        ("caught-up.before", 1, true),
        ("take-over-target.after", 2, false),
    ];
    for (place, to, anew) in places {
        points.set(shop.id, place, "fail")?;
        let back = fleet.order_move(&shop, to).await?;
        control
            .reaches(back, &[MoveState::Failed], ENDS_MAX)
            .await?;
        points.go_on(shop.id, place);
        shop.buy(place, &[(&product, 1)]).await?;
        control.tell(back, "resume").await?.wants(200)?;
        let moving = control
            .reaches(back, &[MoveState::Observing], ENDS_MAX)
            .await?;
        ensure!(moving.back_of.is_some(), "{}", moving.words());
        let copied = moving.took("copied_rows");
        ensure!((copied > Some(0)) == anew, "{copied:?}: {}", moving.words());
    }
    let orders = shop.order_ids().await?.len();
    ensure!(orders == 4, "{orders} orders");
    fleet.without_own_failpoints(points).await
}

/// Nobody is to delete the shop's old copy but what undoes the move back, however early that was: the move that left the copy
/// is over. So the shop can go there again, by a copy.
async fn inv1_inv3_a_move_back_that_was_undone_leaves_nothing_in_the_way_of_the_next(
    fleet: &Fleet,
) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    let control = ControlDoor::of(fleet).await?;
    let shop = fleet.shop(1).await?;
    let product = shop.product("Lamp", "10.00", 9).await?;
    shop.buy("before", &[(&product, 1)]).await?;
    let home = fleet.primary(1).await?;
    // Before the old home is the move's, before it is changed, and when it has been.
    for place in [
        "take-over-target.before",
        "incoming.before",
        "prepared-back.after",
    ] {
        fleet.move_shop(&shop, 2).await?;
        points.set(shop.id, place, "stop")?;
        let back = fleet.order_move(&shop, 1).await?;
        points.happens(shop.id, place, ENDS_MAX).await?;
        shop.buy(place, &[(&product, 1)]).await?;
        control.tell(back, "abort").await?.wants(200)?;
        points.go_on(shop.id, place);
        control
            .reaches(back, &[MoveState::Aborted], ENDS_MAX)
            .await?;
        wait_until("the old copy is deleted", ENDS_MAX, async || {
            let told = control.send(Call::get(format!("/v1/moves/{back}"))).await?;
            let told: Value = told.wants(200)?.json()?;
            ensure!(told["leftover_since"].is_null(), "{told}");
            Ok(())
        })
        .await?;
        let left: usize = rows_of(&home, shop.id).await?.values().map(Vec::len).sum();
        ensure!(left == 0, "{left} rows are left, undone at {place}");
        let again = fleet.move_shop(&shop, 1).await.context(place)?;
        ensure!(again.back_of.is_none(), "{}", again.words());
        ensure!(again.took("copied_rows") > Some(0), "{}", again.words());
        fleet.finish_move(again.id).await?;
    }
    let orders = shop.order_ids().await?.len();
    ensure!(orders == 4, "{orders} orders");
    fleet.without_own_failpoints(points).await
}
