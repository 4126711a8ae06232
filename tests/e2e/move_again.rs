//! A move that does something again: a fence that missed, and a move back that failed.

use std::time::Duration;

use anyhow::{Result, ensure};
use shared::moves::MoveState;
use tests::moves::ControlDoor;
use tests::suite::Test;
use tests::{Fleet, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: inv3_a_fence_that_missed_costs_no_second_comparison_of_the_shop,
            inv3_a_move_back_that_failed_copies_anew;
    ]
}

/// A small shop's move, on a machine that has more to do.
const ENDS_MAX: Duration = Duration::from_secs(120);

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
    points.set(shop.id, "verified.before", "stop")?;
    let id = fleet.order_move(&shop, 2).await?;
    points.happens(shop.id, "verified.before", ENDS_MAX).await?;
    points.set(shop.id, "followed.before", "error")?;
    // A second comparison would fail the move.
    points.set(shop.id, "compare.before", "fail")?;
    // The second fence waits until something was sold after the first one.
    points.go_on(shop.id, "verified.before");
    points.happens(shop.id, "followed.before", ENDS_MAX).await?;
    shop.buy("between", &[(&product, 1)]).await?;
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
