//! A move is held in each of its states, and every command is given to it there.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use shared::moves::{MoveId, MoveState, Order, ResumePoint};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX, Moving};
use tests::{Fleet, Shop};

use super::refused;

/// Commands to a move; [`MoveState::ordered`] says what each makes of a state.
const COMMANDS: [(Order, &str); 4] = [
    (Order::Pause, "pause"),
    (Order::Resume, "resume"),
    (Order::Abort, "abort"),
    (Order::Finish, "finish"),
];

/// The state after a command, if the state takes it. What is paused here has not gone beyond its beginning.
fn after(state: MoveState, order: Order) -> Option<MoveState> {
    state.ordered(order, Some(ResumePoint::Preparing))
}

/// Commands that bring a move from this state to another one.
fn leading_on(state: MoveState) -> Vec<(&'static str, MoveState)> {
    COMMANDS
        .into_iter()
        .filter_map(|(order, word)| Some((word, after(state, order)?)))
        .filter(|(_, next)| *next != state)
        .collect()
}

/// Where a move has not begun.
const BEGINNING: &str = "take-over-source.before";

/// Where a move waits for what brings it into a state: an order, which finds it in `preparing`, or a fault.
const fn begins_at(state: MoveState) -> Option<&'static str> {
    match state {
        MoveState::Paused | MoveState::Aborting | MoveState::Aborted | MoveState::Failed => {
            Some(BEGINNING)
        }
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Done => None,
    }
}

/// The fail point at which a move stands in a state; states that last need none.
const fn held_at(state: MoveState) -> Option<&'static str> {
    match state {
        MoveState::Preparing => Some(BEGINNING),
        MoveState::Copying => Some("copied.before"),
        MoveState::CatchingUp => Some("caught-up.before"),
        MoveState::Verifying => Some("verified.before"),
        MoveState::Fenced => Some("followed.before"),
        MoveState::Cutover => Some("switch.before"),
        MoveState::Retiring => Some("dump.before"),
        MoveState::Aborting => Some("undone.before"),
        MoveState::Observing
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Aborted
        | MoveState::Failed => None,
    }
}

/// Every command in every state: refused with the move, its state and a way out, or done. Whatever was done, in the end the
/// shop sells where the catalog says. A state that has several ways on is reached for each of them.
pub(super) async fn every_command_in_every_state_has_its_answer(fleet: &Fleet) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    let answered = in_every_state(fleet, &points).await;
    fleet.without_own_failpoints(points).await?;
    answered
}

async fn in_every_state(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    for state in MoveState::ALL {
        let ways: Vec<Option<_>> = leading_on(state).into_iter().map(Some).collect();
        let ways = if ways.is_empty() { vec![None] } else { ways };
        for way in ways {
            in_one_state(fleet, points, state, way)
                .await
                .with_context(|| format!("in {state}, then {way:?}"))?;
        }
    }
    Ok(())
}

/// The command that is given last, and the state that it leads to.
type Way = Option<(&'static str, MoveState)>;

async fn in_one_state(
    fleet: &Fleet,
    points: &OwnFailPoints,
    state: MoveState,
    way: Way,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    for place in [begins_at(state), held_at(state)].into_iter().flatten() {
        points.set(shop.id, place, "stop")?;
    }
    // Inside of a fence it stands for as long as ten commands take.
    points.have_patience(shop.id)?;
    let moving = brought_to(fleet, points, &shop, state).await?;
    ensure!(moving.state == state, "{}", moving.words());
    commands(fleet, &shop, &moving, way).await?;
    if let Some(place) = held_at(state) {
        points.go_on(shop.id, place);
    }
    at_rest(fleet, &shop).await
}

/// A move in that state, held there unless the state lasts.
async fn brought_to(
    fleet: &Fleet,
    points: &OwnFailPoints,
    shop: &Shop,
    state: MoveState,
) -> Result<Moving> {
    let control = ControlDoor::of(fleet).await?;
    let id = fleet.order_move(shop, 2).await?;
    let ordered = match state {
        MoveState::Paused => Some("pause"),
        MoveState::Aborting | MoveState::Aborted => Some("abort"),
        MoveState::Retiring | MoveState::Done => {
            control
                .reaches(id, &[MoveState::Observing], MOVED_MAX)
                .await?;
            Some("finish")
        }
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Observing
        | MoveState::Failed => None,
    };
    if let Some(place) = begins_at(state) {
        points.happens(shop.id, place, MOVED_MAX).await?;
    }
    if let Some(word) = ordered {
        fleet.podctl.ok(&["move", word, &shop.handle]).await?;
    }
    if state == MoveState::Failed {
        return failed(fleet, points, shop, id).await;
    }
    if let Some(place) = begins_at(state) {
        points.go_on(shop.id, place);
    }
    match held_at(state) {
        Some(place) => {
            points.happens(shop.id, place, MOVED_MAX).await?;
            control.show(id).await
        }
        None => control.reaches(id, &[state], MOVED_MAX).await,
    }
}

/// What was right when the move was ordered is wrong when it is prepared.
async fn failed(fleet: &Fleet, points: &OwnFailPoints, shop: &Shop, id: MoveId) -> Result<Moving> {
    let control = ControlDoor::of(fleet).await?;
    let target = fleet.primary(2).await?;
    target
        .run("alter table product add column colour varchar(9) null")
        .await?;
    points.go_on(shop.id, BEGINNING);
    let failed = control.reaches(id, &[MoveState::Failed], MOVED_MAX).await;
    target.run("alter table product drop column colour").await?;
    let moving = failed?;
    let error = moving.error.as_deref().unwrap_or_default();
    ensure!(error.contains("colour"), "{}", moving.words());
    Ok(moving)
}

/// Refused commands first, then those that change nothing, then the one that leads on.
async fn commands(fleet: &Fleet, shop: &Shop, moving: &Moving, way: Way) -> Result<()> {
    let id = moving.id.to_string();
    let (handle, state) = (shop.handle.as_str(), moving.state);
    for (order, command) in COMMANDS {
        if after(state, order).is_none() {
            let parts = [id.as_str(), handle, state.as_str(), "podctl"];
            refused(fleet, &["move", command, handle], &parts).await?;
        }
    }
    // The source owns the shop, or answers, or the move is over.
    let gone = ["move", "finish", handle, "--source-gone"];
    refused(fleet, &gone, &[id.as_str(), handle, "podctl"]).await?;
    if state.is_open() && state != MoveState::Observing {
        let parts = ["open move", id.as_str(), state.as_str(), "podctl move"];
        refused(fleet, &["shop", "move", handle, "--to", "2"], &parts).await?;
        refused(
            fleet,
            &["shop", "isolate", handle],
            &["open move", id.as_str()],
        )
        .await?;
    }
    if matches!(
        state,
        MoveState::Fenced | MoveState::Cutover | MoveState::Aborting
    ) {
        for word in ["freeze", "offline"] {
            refused(
                fleet,
                &["shop", word, handle],
                &["changing hands", "try again"],
            )
            .await?;
        }
    }
    if state.is_open() {
        let listed: Value = fleet
            .podctl
            .json(&["move", "list", "--shop", handle, "--open"])
            .await?;
        ensure!(listed["moves"][0]["state"] == state.as_str(), "{listed}");
    }
    let same = COMMANDS
        .into_iter()
        .filter(|(order, _)| after(state, *order) == Some(state))
        .map(|(_, word)| (word, state));
    for (command, next) in same.chain(way) {
        let it: Value = fleet.podctl.json(&["move", command, &id]).await?;
        ensure!(it["state"] == next.as_str(), "{command}: {it}");
    }
    Ok(())
}

/// Brings the shop's move to an end: what still can be undone is undone.
async fn at_rest(fleet: &Fleet, shop: &Shop) -> Result<()> {
    let control = ControlDoor::of(fleet).await?;
    let moves = control.of_shop(shop.id).await?;
    let last = moves.first().context("a move")?;
    if last.state.is_open() {
        for command in ["abort", "resume", "finish"] {
            // One of them fits; the others are refused.
            fleet.podctl.run(&["move", command, &shop.handle]).await?;
        }
        let over = [MoveState::Done, MoveState::Aborted];
        control
            .reaches(last.id, &over, MOVED_MAX + Duration::from_secs(30))
            .await?;
    }
    let (owner, _) = fleet.owner(shop).await?;
    let target = control.show(last.id).await?;
    let wanted = if target.state == MoveState::Done {
        2
    } else {
        1
    };
    ensure!(
        owner == wanted,
        "pod {owner} owns it after {}",
        target.words()
    );
    shop.get("/api/v1/products").await?.wants(200).map(drop)
}
