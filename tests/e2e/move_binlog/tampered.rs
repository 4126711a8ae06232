//! Somebody changes the shop's rows at the target behind the mover's back, in each state of the move.

use anyhow::{Context, Result};
use tests::Fleet;
use tests::failpoint::FailPoint;
use tests::moves::ControlDoor;

use super::{TABLE, fails, held, of, on_both, shop_with_rows};

/// What happens to the mover after somebody changed the shop's rows at its target.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    GoesOn,
    /// Another one takes the move up.
    IsKilled,
}

/// Where a move stands when somebody changes the shop's rows at its target, how, and what happens then.
const TAMPERED: &[(&str, &str, Then)] = &[
    (
        "copy:before:stop",
        "insert into x_note (shop_id, id) values ({shop}, 99)",
        Then::GoesOn,
    ),
    (
        "copied:before:stop",
        "update x_note set text = 'other' where shop_id = {shop} and id = 2",
        Then::IsKilled,
    ),
    (
        "caught-up:before:stop",
        "delete from x_note where shop_id = {shop} and id = 3",
        Then::GoesOn,
    ),
    // After all chunks compared equal.
    (
        "verified:before:stop",
        "update x_note set text = 'other' where shop_id = {shop} and id = 2",
        Then::GoesOn,
    ),
    (
        "verified:after:stop",
        "delete from x_note where shop_id = {shop} and id = 1",
        Then::IsKilled,
    ),
    (
        "fence:after:stop",
        "delete from x_note where shop_id = {shop}",
        Then::GoesOn,
    ),
    (
        "followed:before:stop",
        "insert into x_note (shop_id, id) values ({shop}, 99)",
        Then::GoesOn,
    ),
    (
        "handing:after:stop",
        "update x_note set text = 'other' where shop_id = {shop} and id = 2",
        Then::GoesOn,
    ),
];

pub(super) async fn tampering_at_the_target_is_found_in_each_state(fleet: &Fleet) -> Result<()> {
    on_both(fleet, TABLE).await?;
    let mut done = Ok(());
    for (place, sql, then) in TAMPERED {
        let point = fleet.with_failpoint(place).await?;
        done = tamper(fleet, point, sql, *then)
            .await
            .with_context(|| *place);
        if done.is_err() {
            break;
        }
    }
    on_both(fleet, "drop table if exists x_note").await?;
    done
}

async fn tamper(fleet: &Fleet, point: FailPoint, sql: &str, then: Then) -> Result<()> {
    let control = ControlDoor::of(fleet).await?;
    let shop = shop_with_rows(fleet).await?;
    let held = held(fleet, &point, &shop).await;
    let done = fleet.primary(2).await?.run(&of(sql, &shop)).await;
    if then == Then::GoesOn {
        point.go_on()?;
    }
    let words = ["pod 2", "x_note", "not the mover's"];
    let found = async {
        fails(&control, fleet, held?, &words).await?;
        done
    };
    if then == Then::IsKilled {
        fleet.without_failpoint(point).await?;
        return found.await;
    }
    let found = found.await;
    fleet.without_failpoint(point).await?;
    found
}
