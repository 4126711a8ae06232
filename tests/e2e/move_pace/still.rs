//! The target's primary stands still for some seconds, with shops on their way to it in every state of a move.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::fleet::say;
use tests::moves::{ControlDoor, MOVED_MAX};
use tests::trade::{Crew, Trade};
use tests::{Fleet, Shop};

/// Where the moves are by then: those before the fence, and those whose shops wait.
const BEFORE: [&str; 3] = ["copy.before", "catch-up.before", "compare.before"];
const INSIDE: [&str; 2] = ["fence.after", "handing.after"];
/// Longer than a pause may last (5 s), less than an edge parks (10 s) and than a statement may take (20 s).
const STILL: Duration = Duration::from_secs(7);

/// Five moves that go on at once, some of them from their beginning.
const ARRIVE_MAX: Duration = Duration::from_secs(180);

/// Acts of a shop's clients before and after.
const SOME: usize = 10;

/// What this machine carries beside five moves.
const CREW: Crew = Crew {
    buyers: 1,
    clerk: true,
    readers: 0,
    pause: Duration::from_millis(100),
};

/// A shop that trades, and its move.
struct Lane {
    place: &'static str,
    shop: Shop,
    trade: Trade,
}

/// The shops' clients get nothing but 2xx and the 4xx that they asked for. A fence that stood is lifted while the target
/// still stands, and closed again later; every shop arrives.
pub(super) async fn a_target_that_stands_still_holds_up_moves_and_no_buyer(
    fleet: &Fleet,
) -> Result<()> {
    let points = fleet
        .with_own_failpoints_and_moves(&[("moves_per_pod", 8), ("fences_max", 4)])
        .await?;
    let done = Box::pin(stands_still(fleet, &points)).await;
    fleet.without_own_failpoints(points).await?;
    done
}

async fn stands_still(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let control = ControlDoor::of(fleet).await?;
    let mut lanes = Vec::new();
    for place in BEFORE.into_iter().chain(INSIDE) {
        let shop = fleet.shop(1).await?;
        let trade = Trade::start(&shop, CREW).await?;
        trade.goes_on(SOME, MOVED_MAX).await?;
        lanes.push(Lane { place, shop, trade });
    }
    let (before, inside) = lanes.split_at(BEFORE.len());
    let mut ids = hold(fleet, points, before).await?;
    ids.extend(hold(fleet, points, inside).await?);
    let frozen = fleet.unit("mysql-2-1")?.freeze()?;
    for lane in &lanes {
        points.go_on(lane.shop.id, lane.place);
    }
    tokio::time::sleep(STILL).await;
    let stood = try_join_all(ids.iter().map(|id| control.show(*id))).await?;
    frozen.thaw();
    for (lane, stood) in lanes.iter().zip(stood) {
        let moved = control
            .reaches(stood.id, &[MoveState::Observing], ARRIVE_MAX)
            .await
            .context(lane.place)?;
        ensure!(moved.strays.is_empty(), "strays: {:?}", moved.strays);
        ensure!(
            !matches!(stood.state, MoveState::Fenced | MoveState::Cutover),
            "{}: after {STILL:?}: {}",
            lane.place,
            stood.words()
        );
        let tries = moved.took("fence_tries").unwrap_or_default();
        let stood_inside = INSIDE.contains(&lane.place);
        ensure!(tries > 1 || !stood_inside, "{}: {tries} fences", lane.place);
        lane.trade.goes_on(SOME, MOVED_MAX).await?;
    }
    for lane in lanes {
        let closed = lane.trade.stop().await?;
        say(&format!("  {}: {}", lane.place, closed.figures()));
        closed.must_be_sound(false).context(lane.place)?;
    }
    try_join_all(ids.iter().map(|id| fleet.finish_move(*id)))
        .await
        .map(drop)
}

/// Orders the moves of some shops at once, and waits until each is where it is held.
async fn hold(fleet: &Fleet, points: &OwnFailPoints, lanes: &[Lane]) -> Result<Vec<MoveId>> {
    let held = lanes.iter().map(|lane| async {
        points.set(lane.shop.id, lane.place, "stop")?;
        let id = fleet.order_move(&lane.shop, 2).await?;
        points.happens(lane.shop.id, lane.place, MOVED_MAX).await?;
        Ok::<_, anyhow::Error>(id)
    });
    try_join_all(held).await
}
