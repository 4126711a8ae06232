//! A move that is ended, undone, repeated or failed at every place where its driver changes something. The places are those
//! that the binary names, so that a new one cannot be forgotten.
//!
//! Some small shops go there and back on one fleet, each with a fail point of its own per move. A kill hits the moves of
//! the other shops too, wherever they are just then.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use serde_json::json;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::{OwnFailPoints, steps};
use tests::fleet::say;
use tests::moves::{ControlDoor, Copies, Moving, differences, rows_left, rows_of, rows_rest};
use tests::suite::Test;
use tests::{Call, Fleet, Server, Shop, tests, wait_until};

// Failures inside a fence.
mod inside;
// Ways that an ordinary move does not go.
mod special;

use inside::inv3_a_move_that_fails_inside_its_fence_has_failed_whatever_comes_before_the_lift;

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: inv1_inv3_a_move_killed_where_it_matters_is_taken_up_and_ends,
            inv3_a_move_that_fails_inside_its_fence_has_failed_whatever_comes_before_the_lift;
        long: inv1_inv3_a_move_killed_undone_repeated_or_failed_at_any_place_ends_as_it_should;
    ]
}

/// A move whose control server is killed for the other shops' sake again and again, on a machine that has more to do.
pub(crate) const ENDS_MAX: Duration = Duration::from_secs(180);

/// Shops that move at once: each move spends most of its time waiting.
const LANES: usize = 4;

/// The steps of a move that nothing disturbs, as `podctl-failpoints failpoints` names them, until the target owns the shop.
pub(crate) const BEFORE_SWITCH: [&str; 20] = [
    "take",
    "take-over-source",
    "take-over-target",
    "incoming",
    "prepared",
    "note-start",
    "copy",
    "copy-chunk",
    "copied",
    "catch-up",
    "caught-up",
    "compare",
    "verified",
    "fence",
    "follow",
    "compare-keys",
    "followed",
    "handing",
    "ready",
    "still-handing",
];
/// The same from there on.
pub(crate) const FROM_SWITCH: [&str; 14] = [
    "switch",
    "serving",
    "moved",
    "handed-over",
    "finish",
    "dump",
    "dump-piece",
    "note-dump",
    "delete",
    "forget-target-marks",
    "forget-source-marks",
    "release-target",
    "release-source",
    "retired",
];
/// Steps of a failover under a move, of a comparison that takes long, and of a source that is gone for good: they have tests
/// of their own.
const ELSEWHERE: [&str; 7] = [
    "primary-changed",
    "note-compared",
    "gone-mark",
    "gone-dump",
    "gone-delete",
    "gone-release",
    "gone-done",
];

/// What a case does to the move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Kill,
    Abort,
    Twice,
    Error,
}

/// One move with one fail point.
#[derive(Debug, Clone)]
struct Case {
    step: &'static str,
    place: String,
    way: Way,
}

impl Case {
    fn new(step: &'static str, when: &str, way: Way) -> Self {
        Self {
            step,
            place: format!("{step}.{when}"),
            way,
        }
    }

    /// Whether the shop stays where it is.
    fn stays(&self) -> bool {
        let switched = FROM_SWITCH.contains(&self.step) && self.place != "switch.before";
        self.way == Way::Abort && !switched
    }
}

/// A shop that goes to and fro.
struct Lane<'f> {
    fleet: &'f Fleet,
    points: &'f OwnFailPoints,
    control: ControlDoor,
    servers: [Server; 2],
    shop: Shop,
    /// Its rows; nobody changes them.
    rows: Copies,
}

impl<'f> Lane<'f> {
    async fn new(fleet: &'f Fleet, points: &'f OwnFailPoints) -> Result<Self> {
        let shop = fleet.shop(1).await?;
        let product = shop.product("A thing that is moved", "10.00", 50).await?;
        shop.buy("before", &[(&product, 1)]).await?;
        let servers = [fleet.primary(1).await?, fleet.primary(2).await?];
        rows_rest(&servers[0], shop.id, ENDS_MAX).await?;
        let rows = rows_of(&servers[0], shop.id).await?;
        Ok(Self {
            fleet,
            points,
            control: ControlDoor::of(fleet).await?,
            servers,
            shop,
            rows,
        })
    }

    /// Where it is, and where else it can be.
    async fn places(&self) -> Result<(u32, u32)> {
        let what = "the catalog says where the shop is";
        let (at, _) =
            wait_until(what, ENDS_MAX, async || self.fleet.owner(&self.shop).await).await?;
        Ok((at, 3 - at))
    }

    async fn order(&self, to: u32, observe_ms: u64) -> Result<MoveId> {
        let body = json!({"shop": self.shop.id.to_string(), "to": to.to_string(), "observe_ms": observe_ms});
        // A control server that was just killed for another shop answers again in a moment.
        wait_until("a move is ordered", ENDS_MAX, async || {
            let answer = self.control.send(Call::post("/v1/moves").json(&body)).await;
            match answer.and_then(|answer| answer.wants(201)?.json::<Moving>()) {
                Ok(moving) => Ok(moving.id),
                Err(error) => {
                    // The answer may have been lost after the order was kept.
                    let open = self.control.of_shop(self.shop.id).await?;
                    match open.into_iter().find(|moving| moving.state.is_open()) {
                        Some(moving) => Ok(moving.id),
                        None => Err(error),
                    }
                }
            }
        })
        .await
    }

    async fn run(&self, case: &Case) -> Result<()> {
        let (from, to) = self.places().await?;
        let what = match case.way {
            Way::Kill => "kill",
            Way::Abort => "stop",
            Way::Twice => "twice",
            Way::Error => "error",
        };
        if case.way == Way::Abort {
            // Inside of a fence too it stands until the abort is answered.
            self.points.have_patience(self.shop.id)?;
        }
        self.points.set(self.shop.id, &case.place, what)?;
        let id = self.order(to, 0).await?;
        if case.way == Way::Abort {
            self.points
                .happens(self.shop.id, &case.place, ENDS_MAX)
                .await?;
            self.abort(id, case.stays()).await?;
            self.points.go_on(self.shop.id, &case.place);
        }
        self.ends(id, case.stays()).await?;
        if case.way != Way::Abort {
            ensure!(
                self.points.go_on(self.shop.id, &case.place),
                "the place was never reached"
            );
        }
        let at = if case.stays() { from } else { to };
        self.is_whole_at(at).await
    }

    async fn abort(&self, id: MoveId, allowed: bool) -> Result<()> {
        wait_until("the abort is answered", ENDS_MAX, async || {
            let answer = self.control.tell(id, "abort").await?;
            let wanted = if allowed { 200 } else { 409 };
            answer.wants(wanted).map(drop)
        })
        .await
    }

    async fn ends(&self, id: MoveId, aborted: bool) -> Result<()> {
        let end = if aborted {
            MoveState::Aborted
        } else {
            MoveState::Done
        };
        self.control.reaches(id, &[end], ENDS_MAX).await.map(drop)
    }

    /// The shop is whole at one pod, and nowhere else; both homes say so and belong to nobody.
    async fn is_whole_at(&self, at: u32) -> Result<()> {
        let (here, there) = match at {
            1 => (&self.servers[0], &self.servers[1]),
            _ => (&self.servers[1], &self.servers[0]),
        };
        wait_until("what an abort left is gone", ENDS_MAX, async || {
            let left = rows_left(there, self.shop.id).await?;
            ensure!(left == 0, "{left} rows are left behind");
            let homes = format!(
                "select ifnull(max(move_id), '') from shop_home where shop_id = {}",
                self.shop.id
            );
            for server in [here, there] {
                let holder = server.text(&homes).await?;
                ensure!(holder.is_empty(), "a home still belongs to move {holder}");
            }
            Ok(())
        })
        .await?;
        let found = differences(&self.rows, &rows_of(here, self.shop.id).await?);
        ensure!(found.is_empty(), "the rows have changed: {found:?}");
        let what = "the catalog says where the shop is";
        let (owner, epoch) =
            wait_until(what, ENDS_MAX, async || self.fleet.owner(&self.shop).await).await?;
        ensure!(owner == at, "the catalog says pod {owner}");
        let home = here.home(self.shop.id).await?;
        ensure!(
            home == ("serving".to_owned(), epoch),
            "its home is {home:?}"
        );
        let (mark, _) = there.home(self.shop.id).await?;
        ensure!(mark == "moved", "the other home is {mark}");
        self.shop
            .send(Call::get("/api/v1/products"))
            .await?
            .wants(200)
            .map(drop)
    }
}

/// Goes through the cases, a lane each that takes the next one when it is free.
async fn run(fleet: &Fleet, cases: &[Case]) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    let lanes = try_join_all((0..LANES).map(|_| Lane::new(fleet, &points))).await?;
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    let lanes = lanes.iter().map(|lane| async {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let ran = lane.run(case).await;
            ran.with_context(|| {
                format!("{:?} at {} (shop {})", case.way, case.place, lane.shop.id)
            })?;
        }
        Ok::<_, anyhow::Error>(())
    });
    let ended = try_join_all(lanes).await;
    say(&format!(
        "  {} cases in {:.1?}",
        cases.len(),
        begun.elapsed()
    ));
    // As it was, also for the tests that come after a failure.
    fleet.without_own_failpoints(points).await?;
    ended.map(drop)
}

/// Every place of an ordinary move, this way.
fn everywhere(way: Way, whens: &[&str]) -> Vec<Case> {
    let steps = BEFORE_SWITCH.into_iter().chain(FROM_SWITCH);
    steps
        .flat_map(|step| whens.iter().map(move |when| Case::new(step, when, way)))
        .collect()
}

/// Steps that the short test kills after: those that change what somebody may do, and those that take long.
const MATTERS: [&str; 12] = [
    "take-over-source",
    "incoming",
    "copy",
    "verified",
    "fence",
    "followed",
    "handing",
    "ready",
    "switch",
    "serving",
    "moved",
    "delete",
];

/// The control server is killed after each step that matters. The next one takes the move up and ends it; the shop is
/// whole at one pod and its rows are what they were. Every step that the binary names has a case here or in the long test.
async fn inv1_inv3_a_move_killed_where_it_matters_is_taken_up_and_ends(
    fleet: &Fleet,
) -> Result<()> {
    let known: BTreeSet<String> = BEFORE_SWITCH
        .into_iter()
        .chain(FROM_SWITCH)
        .chain(special::STEPS)
        .chain(ELSEWHERE)
        .chain(crate::move_cleared::STEPS)
        .map(str::to_owned)
        .collect();
    let named: BTreeSet<String> = steps().await?.into_iter().collect();
    if known != named {
        let differ: Vec<_> = known.symmetric_difference(&named).collect();
        bail!("steps without a case, or cases without a step: {differ:?}");
    }
    let mut cases = everywhere(Way::Kill, &["after"]);
    cases.retain(|case| MATTERS.contains(&case.step));
    run(fleet, &cases).await
}

/// Before and after each step the control server is killed; an operator undoes the move, which is refused from the switch on; each step is done twice;
/// each step seems to have failed, before it and after it. The same at each place of the ways that a move takes when it is
/// undone, fails (inside of its fence too), misses its fence, comes back, or finds strays.
async fn inv1_inv3_a_move_killed_undone_repeated_or_failed_at_any_place_ends_as_it_should()
-> Result<()> {
    let fleet = Fleet::start().await?;
    let mut cases = everywhere(Way::Kill, &["before", "after"]);
    cases.extend(everywhere(Way::Abort, &["before", "after"]));
    // Once it is over there is nothing to stop at.
    cases.retain(|case| case.way != Way::Abort || case.place != "retired.after");
    cases.extend(everywhere(Way::Twice, &["after"]));
    cases.extend(everywhere(Way::Error, &["before", "after"]));
    run(&fleet, &cases).await?;
    special::run(&fleet, "kill").await?;
    special::run(&fleet, "error").await?;
    special::run(&fleet, "twice").await?;
    fleet.stop().await
}
