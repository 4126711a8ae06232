//! The target's primary stands still for some seconds, with shops on their way to it in every state of a move.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::fleet::say;
use tests::moves::{ControlDoor, MOVED_MAX, Moving};
use tests::trade::{Crew, Trade};
use tests::{Fleet, Shop, wait_until};

/// Where the moves are by then: those before the fence, and those whose shops wait.
const BEFORE: [&str; 3] = ["copy.before", "catch-up.before", "compare.before"];
const INSIDE: [&str; 2] = ["fence.after", "handing.after"];
/// Where a move waits that is to go inside of its fence together with the other one: each stands there for a pause (5 s).
const DOOR: &str = "verified.before";
/// How often both are sent inside, on a machine that is too slow for that at first.
const TRIES: u32 = 5;
/// A fence is lifted after its pause (5 s), while the target stands: less than a statement there may take (20 s), which would
/// end it too.
const LIFTED_MAX: Duration = Duration::from_secs(15);
/// The target stands for so long at least, for moves that are before their fence.
const STILL: Duration = Duration::from_secs(7);

/// Five moves that go on at once, some of them from their beginning.
const ARRIVE_MAX: Duration = Duration::from_secs(360);

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
    let mut ids = hold(fleet, points, before, |lane| lane.place).await?;
    ids.extend(hold(fleet, points, inside, |_| DOOR).await?);
    both_inside(&control, points, inside, &ids[BEFORE.len()..]).await?;
    let frozen = fleet.unit("mysql-2-1")?.freeze()?;
    for lane in &lanes {
        points.go_on(lane.shop.id, lane.place);
    }
    let least = tokio::time::sleep(STILL);
    let lifted = wait_until("no fence stands", LIFTED_MAX, async || {
        for id in &ids {
            let moving = control.show(*id).await?;
            ensure!(!is_inside(&moving), "{}", moving.words());
        }
        Ok(())
    });
    let (lifted, ()) = tokio::join!(lifted, least);
    frozen.thaw();
    lifted?;
    for (lane, id) in lanes.iter().zip(&ids) {
        let moved = control
            .reaches(*id, &[MoveState::Observing], ARRIVE_MAX)
            .await
            .context(lane.place)?;
        ensure!(moved.strays.is_empty(), "strays: {:?}", moved.strays);
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
async fn hold(
    fleet: &Fleet,
    points: &OwnFailPoints,
    lanes: &[Lane],
    place: impl Fn(&Lane) -> &'static str,
) -> Result<Vec<MoveId>> {
    let held = lanes.iter().map(|lane| async {
        let place = place(lane);
        points.set(lane.shop.id, place, "stop")?;
        let id = fleet.order_move(&lane.shop, 2).await?;
        points.happens(lane.shop.id, place, MOVED_MAX).await?;
        Ok::<_, anyhow::Error>(id)
    });
    try_join_all(held).await
}

const fn is_inside(moving: &Moving) -> bool {
    matches!(moving.state, MoveState::Fenced | MoveState::Cutover)
}

/// Sends moves into their fences until all of them stand there at once: one whose fence was lifted is held at the door again,
/// before the next one closes.
async fn both_inside(
    control: &ControlDoor,
    points: &OwnFailPoints,
    lanes: &[Lane],
    ids: &[MoveId],
) -> Result<()> {
    for _ in 0..TRIES {
        for lane in lanes {
            points.set(lane.shop.id, lane.place, "stop")?;
            points.set(lane.shop.id, DOOR, "stop")?;
        }
        try_join_all(lanes.iter().map(|lane| async {
            points.go_on(lane.shop.id, DOOR);
            points.happens(lane.shop.id, lane.place, MOVED_MAX).await
        }))
        .await?;
        let moving = try_join_all(ids.iter().map(|id| control.show(*id))).await?;
        if moving.iter().all(is_inside) {
            for lane in lanes {
                points.unset(lane.shop.id, DOOR)?;
            }
            return Ok(());
        }
        // The others come to the end of their pause too.
        for lane in lanes {
            points.happens(lane.shop.id, DOOR, MOVED_MAX).await?;
            points.go_on(lane.shop.id, lane.place);
        }
    }
    bail!("no two fences stood at once in {TRIES} tries")
}
