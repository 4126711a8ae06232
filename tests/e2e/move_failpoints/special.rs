//! Ways that an ordinary move does not go: undone, failed and begun anew, its fence missed or failed inside, taken back, and
//! strays.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use http::Method;
use serde_json::json;
use shared::moves::{MoveId, MoveState};
use tests::fleet::say;
use tests::{Call, Fleet, wait_until};

use super::{ENDS_MAX, LANES, Lane};

/// The steps on these ways, as the binary names them.
pub(super) const STEPS: [&str; 15] = [
    "clean",
    "back-dump",
    "note-back-dump",
    "prepared-back",
    "note-must-fail",
    "lift",
    "fence-missed",
    "fail",
    "undone",
    "leftover-take",
    "leftover-take-over",
    "leftover-delete",
    "leftover-forget",
    "leftover-done",
    "note-strays",
];

/// A way, and the steps on it that have a point.
const WAYS: [(Detour, &[&str]); 7] = [
    (
        Detour::Undone,
        &[
            "lift",
            "undone",
            "leftover-take",
            "leftover-take-over",
            "leftover-delete",
            "leftover-forget",
            "leftover-done",
        ],
    ),
    (Detour::FenceMissed, &["lift", "fence-missed"]),
    (Detour::FailedInside, &["note-must-fail", "lift", "fail"]),
    (Detour::BegunAnew, &["fail", "clean"]),
    (Detour::TakenBack, &["prepared-back"]),
    (Detour::UndoneBack, &["back-dump", "note-back-dump"]),
    (Detour::Strays, &["note-strays"]),
];

#[derive(Debug, Clone, Copy)]
enum Detour {
    Undone,
    FenceMissed,
    FailedInside,
    BegunAnew,
    TakenBack,
    UndoneBack,
    Strays,
}

/// Each of them with a point before and after each of its steps.
pub(super) async fn run(fleet: &Fleet, what: &str) -> Result<()> {
    // Somebody writes past a home on purpose.
    fleet.announce_error("strays at the source")?;
    let points = fleet.with_own_failpoints().await?;
    let whens: &[&str] = if what == "twice" {
        &["after"]
    } else {
        &["before", "after"]
    };
    let mut cases = Vec::new();
    for (detour, steps) in WAYS {
        for step in steps {
            cases.extend(whens.iter().map(|when| (detour, format!("{step}.{when}"))));
        }
    }
    let lanes = try_join_all((0..LANES).map(|_| Lane::new(fleet, &points))).await?;
    let next = AtomicUsize::new(0);
    let lanes = lanes.into_iter().map(|mut lane| {
        let (cases, next) = (&cases, &next);
        async move {
            while let Some((detour, place)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                let ran = go(&mut lane, *detour, place, what).await;
                ran.with_context(|| {
                    format!("{detour:?}, {what} at {place} (shop {})", lane.shop.id)
                })?;
            }
            Ok::<_, anyhow::Error>(())
        }
    });
    let ended = try_join_all(lanes).await;
    say(&format!("  {} detours", cases.len()));
    fleet.without_own_failpoints(points).await?;
    ended.map(drop)
}

async fn go(lane: &mut Lane<'_>, detour: Detour, place: &str, what: &str) -> Result<()> {
    let (from, to) = lane.places().await?;
    let shop = lane.shop.id;
    lane.points.set(shop, place, what)?;
    let at = match detour {
        Detour::Undone => {
            lane.points.set(shop, "copied.after", "stop")?;
            let id = lane.order(to, 0).await?;
            lane.points.happens(shop, "copied.after", ENDS_MAX).await?;
            lane.abort(id, true).await?;
            lane.points.go_on(shop, "copied.after");
            lane.ends(id, true).await?;
            from
        }
        Detour::FenceMissed => {
            lane.points.set(shop, "followed.before", "error")?;
            let id = lane.order(to, 0).await?;
            lane.ends(id, false).await?;
            lane.points.go_on(shop, "followed.before");
            to
        }
        Detour::FailedInside => {
            fails(lane, to, "compare-keys.after", (place, what)).await?;
            to
        }
        Detour::BegunAnew => {
            fails(lane, to, "compare.after", (place, what)).await?;
            to
        }
        Detour::TakenBack => {
            let id = lane.order(to, 3_600_000).await?;
            reaches(lane, id, MoveState::Observing).await?;
            let back = lane.order(from, 0).await?;
            lane.ends(back, false).await?;
            from
        }
        Detour::UndoneBack => {
            let id = lane.order(to, 3_600_000).await?;
            reaches(lane, id, MoveState::Observing).await?;
            lane.points.set(shop, "caught-up.before", "stop")?;
            let back = lane.order(from, 0).await?;
            let held = lane.points.happens(shop, "caught-up.before", ENDS_MAX);
            held.await?;
            lane.abort(back, true).await?;
            lane.points.go_on(shop, "caught-up.before");
            lane.ends(back, true).await?;
            to
        }
        Detour::Strays => {
            let id = lane.order(to, 3_600_000).await?;
            reaches(lane, id, MoveState::Observing).await?;
            stray(lane, from, id).await?;
            to
        }
    };
    // The leftover of an abort ends after it.
    wait_until("the point has happened", ENDS_MAX, async || {
        ensure!(
            lane.points.go_on(shop, place),
            "the place was never reached"
        );
        Ok(())
    })
    .await?;
    lane.is_whole_at(at).await
}

/// A comparison fails, and the move is begun anew.
async fn fails(lane: &Lane<'_>, to: u32, at: &str, (place, what): (&str, &str)) -> Result<()> {
    let shop = lane.shop.id;
    lane.points.set(shop, at, "fail")?;
    let id = lane.order(to, 0).await?;
    lane.points.happens(shop, at, ENDS_MAX).await?;
    // A mover that ends before the failure is noted compares anew, and finds nothing.
    let inside = at.starts_with("compare-keys");
    let noted = if inside { "note-must-fail" } else { "fail" };
    let forgotten = what == "kill" && place == format!("{noted}.before");
    if !forgotten {
        reaches(lane, id, MoveState::Failed).await?;
        tell(lane, id, "resume", &json!({})).await?;
    }
    lane.points.go_on(shop, at);
    lane.ends(id, false).await
}

/// A row is changed at the source past its home: the move keeps the copy until an operator says that it may go.
async fn stray(lane: &Lane<'_>, source: u32, id: MoveId) -> Result<()> {
    let server = &lane.servers[usize::try_from(source - 1)?];
    let shop = lane.shop.id;
    server
        .run(&format!(
            "update product set title = concat(title, '!') where shop_id = {shop} limit 1"
        ))
        .await?;
    wait_until("the stray is told", ENDS_MAX, async || {
        let moving = lane.control.show(id).await?;
        ensure!(moving.strays.len() == 1, "{:?}", moving.strays);
        Ok(())
    })
    .await?;
    let refused = lane.control.tell(id, "finish").await;
    if let Ok(answer) = refused {
        answer.wants(409)?;
    }
    tell(lane, id, "finish", &json!({"despite_strays": 1})).await?;
    lane.ends(id, false).await
}

pub(super) async fn reaches(lane: &Lane<'_>, id: MoveId, state: MoveState) -> Result<()> {
    wait_until(&format!("move {id} is {state}"), ENDS_MAX, async || {
        let moving = lane.control.show(id).await?;
        ensure!(moving.state == state, "{}", moving.words());
        Ok(())
    })
    .await
}

/// An order that may meet a control server which was just killed for another shop.
pub(super) async fn tell(
    lane: &Lane<'_>,
    id: MoveId,
    order: &str,
    body: &serde_json::Value,
) -> Result<()> {
    wait_until(&format!("{order} is answered"), ENDS_MAX, async || {
        let call = Call::new(Method::POST, format!("/v1/moves/{id}/{order}"));
        lane.control
            .send(call.json(body))
            .await?
            .wants(200)
            .map(drop)
    })
    .await
}
