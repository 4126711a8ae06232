//! Two control servers that both believe to own a move. The one that began it is frozen as a whole, by SIGSTOP, at a place
//! where it is about to change something, or just has. The other one, on the same catalog, takes the move over by its
//! lease and carries it on; the shop sells at its new pod, is frozen by an operator, comes back, or moves anew. Then the
//! loser thaws, deaf to what it lost, and goes on from its place until something refuses it: nothing may have changed.
//!
//! Some shops go side by side, each with a place of its own.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use tests::fleet::say;
use tests::own_control::OwnControl;
use tests::suite::Test;
use tests::{Fleet, tests, wait_until};
use toml::Value;

// Where a mover is frozen.
mod case;
// One shop of them, and all that can be seen of it.
mod lane;
use case::{Case, Then, Way};
use lane::Lane;

use crate::move_failpoints::{BEFORE_SWITCH, ENDS_MAX, FROM_SWITCH};

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: inv1_inv2_inv3_a_mover_frozen_where_it_matters_changes_nothing_when_it_thaws;
        long: inv1_inv2_inv3_a_mover_frozen_at_any_place_changes_nothing_when_it_thaws,
            inv1_inv2_inv3_a_mover_frozen_at_any_statement_changes_nothing_when_it_thaws;
    ]
}

/// Shops that move at once in the long tests: most of a round is waiting.
const LANES: usize = 8;

/// After the loser was refused, so much for what it might have sent besides.
const LATE: Duration = Duration::from_secs(1);

/// Steps whose loser has nothing more to do that could be refused: it has not begun, is over, or only looks on.
const SILENT: [&str; 3] = ["take.before", "handed-over.after", "leftover-take.before"];

/// No statement of a small shop's move has a number above this, from its order until its source's copy is gone.
const STATEMENTS_MAX: u32 = 2_000;

/// How both servers move: all shops at once, with a short lease.
fn moves() -> [(&'static str, Value); 5] {
    let many = || Value::from(64);
    let time = |text: &str| Value::from(text);
    [
        ("moves_per_pod", many()),
        ("moves_max", many()),
        ("fences_max", many()),
        ("lease", time("2s")),
        ("fence_retry", time("100ms")),
    ]
}

/// One round: each shop's mover is frozen at its place, all of them in one process. Says how many were.
async fn round(fleet: &Fleet, lanes: &[Lane<'_>], cases: &[Case]) -> Result<usize> {
    let own = OwnControl::start(fleet).await?;
    let all = || lanes.iter().zip(cases);
    let other = fleet.freeze_control().await?;
    let begun = all().map(|(lane, case)| lane.begin(&own, case));
    let caught = try_join_all(begun).await?;
    let loser = own.freeze().await?;
    other.thaw();
    let all = || {
        let caught = all().zip(&caught);
        caught.filter_map(|((lane, case), it)| Some((lane, case, it.as_ref()?)))
    };
    try_join_all(all().map(|(lane, case, it)| lane.carry_on(case, it))).await?;
    let before = try_join_all(all().map(|(lane, ..)| lane.seen())).await?;
    let since = own.log().len();
    for (lane, case, _) in all() {
        own.deafen(lane.shop.id)?;
        ensure!(own.go_on(lane.shop.id, case.place()), "it did not stop");
    }
    loser.thaw();
    let refused = all().map(|(_, case, it)| refused(&own, since, case, &it.id));
    let refused = try_join_all(refused).await;
    tokio::time::sleep(LATE).await;
    let after = try_join_all(all().map(|(lane, ..)| lane.seen())).await?;
    for ((lane, case, _), (before, after)) in all().zip(before.iter().zip(&after)) {
        before.must_be(after).with_context(|| {
            format!(
                "{case:?} (shop {}): the loser changed something",
                lane.shop.id
            )
        })?;
    }
    refused?;
    drop(own);
    try_join_all(all().map(|(lane, case, _)| lane.finish(case))).await?;
    Ok(before.len())
}

/// Waits until the loser's log says that it cannot go on with a move.
async fn refused(own: &OwnControl, since: usize, case: &Case, id: &str) -> Result<()> {
    if SILENT.contains(&case.place()) {
        return Ok(());
    }
    let what = format!("{case:?}: the loser is refused");
    wait_until(&what, ENDS_MAX, async || {
        let log = own.log();
        let mut late = log.get(since..).unwrap_or_default().lines();
        let ends = |line: &str| line.contains("verdict=") || line.contains("what a move left");
        ensure!(
            late.any(|line| line.contains(id) && ends(line)),
            "its log does not say so"
        );
        Ok(())
    })
    .await
}

/// Round after round.
async fn rounds(fleet: &Fleet, lanes: usize, cases: &[Case]) -> Result<()> {
    let was = fleet.share_catalog(&moves()).await?;
    let went = async {
        let lanes = try_join_all((0..lanes).map(|_| Lane::new(fleet))).await?;
        for (number, cases) in cases.chunks(lanes.len()).enumerate() {
            let caught = round(fleet, &lanes, cases).await?;
            say(&format!("  round {number}: {caught} losers refused"));
            ensure!(caught == cases.len(), "a place was never reached");
        }
        Ok(())
    }
    .await;
    // As it was, also for the tests that come after a failure.
    fleet.share_catalog_no_more(was).await?;
    went
}

/// The places at which a late statement would do most harm: at the homes, in the rows, in the catalog, after a move back,
/// after an abort.
async fn inv1_inv2_inv3_a_mover_frozen_where_it_matters_changes_nothing_when_it_thaws(
    fleet: &Fleet,
) -> Result<()> {
    let quick = [
        Case::new("take-over-source.before", Way::Plain, Then::Sold),
        Case::new("copy-chunk.before", Way::Plain, Then::Sold),
        Case::new("fence.before", Way::Plain, Then::Sold),
        Case::new("ready.before", Way::Plain, Then::Sold),
        Case::new("switch.before", Way::Plain, Then::Sold),
        Case::new("serving.before", Way::Plain, Then::Frozen),
    ];
    let slow = [
        Case::new("incoming.before", Way::Plain, Then::Back),
        Case::new("moved.before", Way::Plain, Then::Back),
        Case::new("delete.before", Way::Ends, Then::Back),
        Case::new("leftover-delete.before", Way::Undone, Then::Again),
    ];
    rounds(
        fleet,
        quick.len(),
        &[quick.as_slice(), slow.as_slice()].concat(),
    )
    .await
}

/// Before and after each step of a move's life, of its undoing, of a second try and of a move back.
async fn inv1_inv2_inv3_a_mover_frozen_at_any_place_changes_nothing_when_it_thaws() -> Result<()> {
    const ENDS_FROM: &str = "finish";
    let fleet = Fleet::start().await?;
    let mut cases = Vec::new();
    let mut way = Way::Plain;
    for step in BEFORE_SWITCH.into_iter().chain(FROM_SWITCH) {
        if step == ENDS_FROM {
            way = Way::Ends;
        }
        // At other times what comes after would hide or harm other things.
        for (when, then) in [("before", Then::Sold), ("after", Then::Back)] {
            let then = if way == Way::Ends { Then::Back } else { then };
            cases.push(Case::new(&format!("{step}.{when}"), way, then));
        }
    }
    for (way, steps, then) in [
        (
            Way::Undone,
            &[
                "lift",
                "undone",
                "leftover-take",
                "leftover-take-over",
                "leftover-delete",
                "leftover-forget",
                "leftover-done",
            ][..],
            Then::Again,
        ),
        (Way::FenceMissed, &["lift", "fence-missed"], Then::Sold),
        (Way::BegunAnew, &["clean"], Then::Back),
        (
            Way::TakenBack,
            &["prepared-back", "catch-up", "compare"],
            Then::Sold,
        ),
    ] {
        for step in steps {
            for when in ["before", "after"] {
                cases.push(Case::new(&format!("{step}.{when}"), way, then));
            }
        }
    }
    // After these all is over, and there is nothing to take over; after an abort its server clears the copy at once.
    let over = ["retired.after", "undone.after", "leftover-done.after"];
    cases.retain(|case| !over.contains(&case.place()));
    // Those that are frozen for as long together.
    cases.sort_by_key(|case| case.then == Then::Back);
    rounds(&fleet, LANES, &cases).await?;
    fleet.stop().await
}

/// Before each statement with which a move changes something at a pod, inside of its transactions too, by its number from the
/// order until the source's copy is gone.
async fn inv1_inv2_inv3_a_mover_frozen_at_any_statement_changes_nothing_when_it_thaws() -> Result<()>
{
    let fleet = Fleet::start().await?;
    let was = fleet.share_catalog(&moves()).await?;
    let lanes = try_join_all((0..LANES).map(|_| Lane::new(&fleet))).await?;
    let mut number = 1;
    loop {
        let cases: Vec<Case> = (number..).take(LANES).map(Case::statement).collect();
        let caught = round(&fleet, &lanes, &cases)
            .await
            .with_context(|| format!("from statement {number} on"))?;
        say(&format!(
            "  from statement {number} on: {caught} losers refused"
        ));
        if caught == 0 {
            break;
        }
        number += u32::try_from(LANES)?;
        ensure!(number < STATEMENTS_MAX, "a move without an end");
    }
    fleet.share_catalog_no_more(was).await?;
    fleet.stop().await
}
