//! A move that fails between its fence and the point of no return: the reason is not lost with what comes in between.

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::json;
use shared::moves::{MoveId, MoveState};
use tests::moves::MOVED_MAX;
use tests::{Call, Fleet};

use super::Lane;
use super::special::{reaches, tell};

/// A move's failure, and what happens before its fence is lifted.
struct Case {
    fails: &'static str,
    before: &'static [(&'static str, &'static str)],
    /// What goes wrong after it, where the same step is done once before it too.
    late: Option<&'static str>,
    state: MoveState,
}

const CASES: [Case; 5] = [
    Case {
        fails: "compare-keys",
        before: &[],
        late: None,
        state: MoveState::Fenced,
    },
    Case {
        fails: "compare-keys",
        before: &[("lift.before", "error")],
        late: None,
        state: MoveState::Fenced,
    },
    Case {
        fails: "still-handing",
        before: &[("lift.after", "error")],
        late: None,
        state: MoveState::Cutover,
    },
    // The catalog is away for a moment, and knows nothing of the reason when the move is taken up.
    Case {
        fails: "compare-keys",
        before: &[("note-must-fail.before", "error")],
        late: Some("take.before"),
        state: MoveState::Fenced,
    },
    // Its control server is killed, and another one lifts the fence. It runs when the others have failed.
    Case {
        fails: "compare-keys",
        before: &[("lift.before", "kill")],
        late: None,
        state: MoveState::Fenced,
    },
];

/// The comparison inside of the fence fails, and then one connection is refused, the catalog does not answer, or the control
/// server is killed, before the fence is lifted. Each time the move ends `failed` and says why; it sells at its source, and a resume copies all of it
/// anew.
pub(super) async fn inv3_a_move_that_fails_inside_its_fence_has_failed_whatever_comes_before_the_lift(
    fleet: &Fleet,
) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    let lanes = try_join_all(CASES.iter().map(|_| Lane::new(fleet, &points))).await?;
    let ended = all(&lanes).await;
    fleet.without_own_failpoints(points).await?;
    ended
}

async fn all(lanes: &[Lane<'_>]) -> Result<()> {
    let cases: Vec<_> = lanes.iter().zip(&CASES).collect();
    let (together, last) = cases.split_at(CASES.len() - 1);
    let failing = together.iter().map(|(lane, case)| fails(lane, case));
    let mut ids = try_join_all(failing).await?;
    for (lane, case) in last {
        ids.push(fails(lane, case).await?);
    }
    let anew = cases.iter().zip(ids);
    try_join_all(anew.map(|((lane, case), id)| begins_anew(lane, case, id))).await?;
    Ok(())
}

async fn fails(lane: &Lane<'_>, case: &Case) -> Result<MoveId> {
    let (shop, place) = (lane.shop.id, format!("{}.after", case.fails));
    lane.points.set(shop, &place, "fail")?;
    for (before, what) in case.before {
        lane.points.set(shop, before, what)?;
    }
    let (from, to) = lane.places().await?;
    let before = format!("{}.before", case.fails);
    if case.late.is_some() {
        lane.points.set(shop, &before, "stop")?;
    }
    let id = lane.order(to, 0).await?;
    if let Some(late) = case.late {
        lane.points.happens(shop, &before, MOVED_MAX).await?;
        lane.points.set(shop, late, "error")?;
        lane.points.go_on(shop, &before);
    }
    reaches(lane, id, MoveState::Failed).await?;
    ensure!(lane.points.go_on(shop, &place), "it did not fail");
    let between = case.before.iter().map(|(before, _)| *before);
    for place in between.chain(case.late) {
        ensure!(lane.points.go_on(shop, place), "{place} was never reached");
    }
    let moving = lane.control.show(id).await?;
    let error = moving.error.clone().unwrap_or_default();
    let reason = format!("fail point {}", case.fails);
    ensure!(error.contains(&reason), "{}", moving.words());
    let (at, _) = lane.places().await?;
    ensure!(at == from, "the shop is at pod {at}");
    lane.shop
        .send(Call::get("/api/v1/products"))
        .await?
        .wants(200)?;
    Ok(id)
}

async fn begins_anew(lane: &Lane<'_>, case: &Case, id: MoveId) -> Result<()> {
    let (_, to) = lane.places().await?;
    tell(lane, id, "resume", &json!({})).await?;
    lane.ends(id, false).await?;
    lane.is_whole_at(to).await?;
    let mut wanted = vec![
        MoveState::Preparing,
        MoveState::Copying,
        MoveState::CatchingUp,
        MoveState::Verifying,
        MoveState::Fenced,
        MoveState::Cutover,
    ];
    let copied = wanted.clone();
    if case.state == MoveState::Fenced {
        wanted.pop();
    }
    wanted.push(MoveState::Failed);
    wanted.extend(copied);
    wanted.extend([MoveState::Observing, MoveState::Retiring, MoveState::Done]);
    let went = states(lane, id).await?;
    ensure!(went == wanted, "it went {went:?}");
    Ok(())
}

/// The states that a move went through.
async fn states(lane: &Lane<'_>, id: MoveId) -> Result<Vec<MoveState>> {
    #[derive(Deserialize)]
    struct Event {
        state: MoveState,
    }
    #[derive(Deserialize)]
    struct Events {
        events: Vec<Event>,
    }
    let call = Call::get(format!("/v1/moves/{id}/events?wait_ms=0"));
    let events: Events = lane.control.send(call).await?.wants(200)?.json()?;
    let mut states: Vec<_> = events.events.into_iter().map(|it| it.state).collect();
    states.dedup();
    Ok(states)
}
