//! The primary of a move's source, and then of its target, in each state of the move: named anew under the next term, killed
//! and started again, killed and away for long. Each pass has a move in each state at once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;
use tests::{Call, Fleet};

use super::lanes::{Held, Lanes, on_lanes};

/// The pod whose primary has the fault: the source of the moves there, the target of those back.
const POD: u32 = 1;
const PRIMARY: &str = "mysql-1-1";

/// A primary that is started again at once.
const DOWN_SHORT: Duration = Duration::from_secs(2);
/// One that is away for longer than a binlog's connection is tried, a fence stands and requests are parked.
const DOWN_LONG: Duration = Duration::from_secs(25);

/// What happens to the primary.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The catalog names it again, under the next term.
    NewTerm,
    /// It is killed, and away for so long.
    Killed(Duration),
}

/// Under a move in each state the source's primary is killed; the moves go on into that, and arrive when it is back. On the
/// way back the target's primary is named anew: before the target owns the shop, what was compared does not count any more:
/// the move says so, goes back to the changed keys (one that copies, on with its chunks) and arrives; after that it goes on.
/// Nothing acknowledged is missing or doubled.
pub(super) async fn inv3_a_primary_killed_or_named_anew_in_each_state_of_a_move(
    fleet: &Fleet,
) -> Result<()> {
    let ways = [(2, Fault::Killed(DOWN_SHORT)), (1, Fault::NewTerm)];
    on_lanes(fleet, &Held::ALL, true, async |lanes| {
        faults(lanes, &ways).await
    })
    .await
}

/// The source's primary named anew, which nobody notices, and both primaries away for long.
pub(super) async fn inv3_a_primary_away_for_long_in_each_state_of_a_move() -> Result<()> {
    let fleet = Fleet::start().await?;
    let ways = [(2, Fault::NewTerm)];
    on_lanes(&fleet, &Held::ALL, false, async |lanes| {
        faults(lanes, &ways).await
    })
    .await?;
    let away = Fault::Killed(DOWN_LONG);
    let ways = [(2, away), (1, away)];
    on_lanes(&fleet, &Held::ALL, true, async |lanes| {
        faults(lanes, &ways).await
    })
    .await?;
    fleet.stop().await
}

async fn faults(lanes: &mut Lanes<'_>, ways: &[(u32, Fault)]) -> Result<()> {
    for (to, fault) in ways {
        let ended = one_way(lanes, *to, *fault).await;
        ended.with_context(|| format!("to pod {to}, {fault:?}"))?;
    }
    Ok(())
}

async fn one_way(lanes: &mut Lanes<'_>, to: u32, fault: Fault) -> Result<()> {
    lanes.hold(to).await?;
    match fault {
        Fault::NewTerm => {
            new_term(lanes, POD).await?;
            lanes.go_on();
        }
        Fault::Killed(down) => {
            lanes.fleet.kill_and_hold_down(PRIMARY).await?;
            lanes.go_on();
            tokio::time::sleep(down).await;
            lanes.fleet.let_up(PRIMARY).await?;
        }
    }
    lanes.arrive(to, |_| true).await?;
    match fault {
        Fault::NewTerm => begun_again(lanes, true).await,
        Fault::Killed(_) => Ok(()),
    }
}

/// Names the primary of a pod again, which the catalog takes for another one: its term is the next.
async fn new_term(lanes: &Lanes<'_>, pod: u32) -> Result<()> {
    let primary = lanes.fleet.status().await?.pod(pod)?.mysql.primary.clone();
    let address = format!("{}:{}", primary.host, primary.port);
    let server = lanes.fleet.primary(pod).await?;
    let term = server.number("select term from pod_identity").await?;
    let call = Call::new(Method::PUT, format!("/v1/pods/{pod}/primary"));
    let body = json!({"address": address, "term": term});
    let named = lanes.control.send(call.json(&body)).await?;
    named.wants(200).map(drop)
}

/// Each move that could still be undone says that it began again, and where. Where the dead server came first, its run ended
/// by that, and the next one may have begun when the catalog named the new primary already: then it was only taken up again.
pub(super) async fn begun_again(lanes: &Lanes<'_>, told_first: bool) -> Result<()> {
    for lane in &lanes.lanes {
        let notes = lanes.notes(lane).await?;
        let told = |state: &str| {
            let begins = format!("{state}: ");
            let mut notes = notes.iter();
            let says =
                |note: &str| note.contains("primary changed") || note.contains("primary of pod");
            notes.any(|note| note.starts_with(&begins) && says(note))
        };
        let again = !told_first && lanes.takeovers(lane).await? > 1;
        let began = match lane.held {
            // It begins with whatever primary there is.
            Held::Preparing => true,
            Held::Copying => told("copying") || told("catching_up") || again,
            Held::CatchingUp | Held::Verifying | Held::Fenced | Held::Cutover => {
                told("catching_up") || again
            }
            Held::Switched | Held::Observing | Held::Retiring => {
                let back = notes
                    .iter()
                    .any(|note| note.starts_with("catching_up: ") && note.contains("primary"));
                ensure!(!back, "{:?} went back: {notes:#?}", lane.held);
                true
            }
        };
        ensure!(
            began,
            "{:?} says nothing of another primary: {notes:#?}",
            lane.held
        );
    }
    Ok(())
}
