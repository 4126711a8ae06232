//! Moves: those that stand still, and what they left at pods.

use std::collections::{BTreeMap, BTreeSet};

use shared::home::HomeState;
use shared::moves::{MoveId, MoveState};
use shared::{PodId, ShopId};
use time::{Duration, OffsetDateTime};

use super::Found;
use crate::api::Move;
use crate::doctor::Severity;
use crate::doctor::facts::{Catalog, Home, Pod};
use crate::mover::throttle::SHOPS_SELL;
use crate::output::count;

/// A fence and a hand-over take moments; the park window of the edges is over by then.
const HAND_OVER_MAX: Duration = Duration::seconds(15);
/// An abort takes one transaction at the source.
const ABORT_MAX: Duration = Duration::seconds(60);
/// A move that has waited that long for something needs somebody to look at it.
const WAIT_MAX: Duration = Duration::minutes(10);
/// One fence that misses is a slow write; after so many the next ones will miss too, until the move fails.
const FENCES_MISSED_MAX: u32 = 5;
/// What stands in the way of a deletion is tried again every few seconds.
const LEFTOVER_MAX: Duration = Duration::minutes(15);
/// Rows are dumped and deleted in throttled chunks, which is work of minutes for all but the largest shops.
const DELETING_MAX: Duration = Duration::hours(1);
/// Somebody paused it and meant to come back.
const PAUSE_MAX: Duration = Duration::days(1);

/// Moves that stand still, strays, copies that stay.
pub(super) fn moves(catalog: &Catalog, at: OffsetDateTime, found: &mut Found) {
    for it in &catalog.moves {
        stands_still(it, at, found);
        if it.open && it.strays_told() > 0 {
            found.error(
                "move",
                &it.shop.handle,
                format!(
                    "{} of its rows at {} after its fence, which nobody should have made (move {})",
                    count(it.strays_told(), "change"),
                    it.source.name,
                    it.id
                ),
                format!(
                    "`podctl move show {0}` lists them; find who writes there past the pod's library, take over by hand \
                     what is missed, then `podctl move finish {0} --despite-strays {1}` (a move back undoes them, and takes \
                     the same word)",
                    it.id,
                    it.strays_told()
                ),
            );
        }
        let max = if it.waits.is_some() {
            LEFTOVER_MAX
        } else {
            DELETING_MAX
        };
        if let Some(age) = it.leftover_since.map(|since| at - since)
            && age > max
        {
            left_behind(it, age, found);
        }
    }
}

/// A copy that should be gone by now. Where nothing stands in its way somebody is at it.
fn left_behind(it: &Move, age: Duration, found: &mut Found) {
    let left = match it.state {
        MoveState::Aborted if it.clears => {
            let what = format!("what order {} is to clear", it.id);
            Some((what, &it.target.name))
        }
        MoveState::Aborted => {
            let what = format!("the copy that the aborted move {} left", it.id);
            Some((what, &it.target.name))
        }
        // A source that is gone for good is waited for in silence, for years if need be; one that came back and does not
        // get on says why.
        MoveState::Done if it.source_gone && it.waits.is_some() => {
            let what = format!("the copy that the move without its source {} left", it.id);
            Some((what, &it.source.name))
        }
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Aborting
        | MoveState::Failed => None,
    };
    let Some((what, pod)) = left else { return };
    // (`error` is why the move itself ended so.)
    let (how, fix) = match &it.waits {
        Some(text) => (
            format!("cannot be deleted: {text}"),
            format!("it is tried again by itself; bring {pod} back if it is away"),
        ),
        None => (
            format!("is being deleted for {} min", age.whole_minutes()),
            format!("`podctl move show {}` says how far it is", it.id),
        ),
    };
    found.warning(
        "move",
        &it.shop.handle,
        format!("{what} at {pod} {how}"),
        format!("{fix}. Until it is gone the shop cannot move there"),
    );
}

/// What is wrong with a move that stands still, and what to do.
struct Stall {
    severity: Severity,
    wrong: String,
    fix: String,
}

/// Counts from the last change of its state: a note of what was tried again is none.
fn stands_still(it: &Move, at: OffsetDateTime, found: &mut Found) {
    let age = at - it.state_since;
    let because = it.error.as_ref().or(it.waits.as_ref());
    let because = because.map(|text| format!(": {text}")).unwrap_or_default();
    let stall = match it.state {
        MoveState::Failed => Some(failed(it, &because)),
        MoveState::Fenced | MoveState::Cutover | MoveState::Aborting => {
            between_homes(it, age, &because)
        }
        MoveState::CatchingUp | MoveState::Verifying
            if it.record.fence_tries >= FENCES_MISSED_MAX =>
        {
            Some(missed(it, &because))
        }
        MoveState::Copying if held_back(it).is_some() => held_back(it).map(|by| held(it, by)),
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Retiring => slow(it, age, at - it.changed_at, &because),
        MoveState::Paused => forgotten(it, age),
        MoveState::Observing | MoveState::Done | MoveState::Aborted => None,
    };
    if let Some(Stall {
        severity,
        wrong,
        fix,
    }) = stall
    {
        found.add(severity, "move", &it.shop.handle, wrong, fix);
    }
}

fn failed(it: &Move, because: &str) -> Stall {
    Stall {
        severity: Severity::Warning,
        wrong: format!("its move {} failed{because}", it.id),
        fix: format!(
            "the shop sells at {}; mend the reason, then `podctl move resume {1}`, or undo the move with \
             `podctl move abort {1}`",
            it.source.name, it.id
        ),
    }
}

/// States that last moments: some of the shop's requests wait.
fn between_homes(it: &Move, age: Duration, because: &str) -> Option<Stall> {
    let seconds = age.whole_seconds();
    if it.state == MoveState::Aborting {
        return (age > ABORT_MAX).then(|| Stall {
            severity: Severity::Error,
            wrong: format!("its move {} is aborting for {seconds} s{because}", it.id),
            fix: format!(
                "bring {} back: its home there is set free first",
                it.source.name
            ),
        });
    }
    (age > HAND_OVER_MAX).then(|| Stall {
        severity: Severity::Error,
        wrong: format!(
            "its move {} is {} for {seconds} s, and its writes wait{because}",
            it.id, it.state
        ),
        fix: format!(
            "a control server takes it up within seconds: see that one runs (`podctl process list`) and that the \
             primaries of {0} and {1} can be reached. If {1} sells the shop already and {0} is gone for good: \
             `podctl move finish {2} --source-gone`",
            it.source.name, it.target.name, it.id
        ),
    })
}

/// Between two tries the shop sells as ever, and the move does not get on.
fn missed(it: &Move, because: &str) -> Stall {
    Stall {
        severity: Severity::Warning,
        wrong: format!(
            "{} fences of its move {} did not hold{because}",
            it.record.fence_tries, it.id
        ),
        fix: format!(
            "look for what holds transactions of the shop open at {}, or pause the move until a quieter hour \
             (`podctl move pause {}`)",
            it.source.name, it.id
        ),
    }
}

/// What keeps a copy from getting on at all, where that is not the rest that it takes beside shops that write.
fn held_back(it: &Move) -> Option<&str> {
    let progress = it.progress.as_ref().filter(|it| it.rows_per_s == 0)?;
    progress
        .held_back_by
        .as_deref()
        .filter(|by| *by != SHOPS_SELL)
}

fn held(it: &Move, by: &str) -> Stall {
    Stall {
        severity: Severity::Warning,
        wrong: format!("its move {} does not copy: {by}", it.id),
        fix: "mend that, or raise the limit in `[moves]` of fleet.toml; the move goes on by itself then".to_owned(),
    }
}

fn slow(it: &Move, age: Duration, still: Duration, because: &str) -> Option<Stall> {
    let silent = it.progress.is_none() && still > WAIT_MAX;
    let stuck = age > WAIT_MAX && (silent || !because.is_empty());
    let told = if because.is_empty() {
        format!(" and makes no progress since {} min", still.whole_minutes())
    } else {
        format!(" for {} min{because}", age.whole_minutes())
    };
    // Only then the target owns the shop already.
    let without = if it.state == MoveState::Retiring {
        format!(
            ". If {} is gone for good: `podctl move finish {} --source-gone`",
            it.source.name, it.id
        )
    } else {
        String::new()
    };
    stuck.then(|| Stall {
        severity: Severity::Warning,
        wrong: format!(
            "its move {} is {}{told}",
            it.id, it.state
        ),
        fix: format!(
            "`podctl move show {0}` says more; pause it with `podctl move pause {0}` while you mend the reason{without}",
            it.id
        ),
    })
}

fn forgotten(it: &Move, age: Duration) -> Option<Stall> {
    (age > PAUSE_MAX).then(|| Stall {
        severity: Severity::Warning,
        wrong: format!("its move {} is paused since {} h", it.id, age.whole_hours()),
        fix: format!(
            "the binlogs that it needs are purged some day: `podctl move resume {}`, or abort it",
            it.id
        ),
    })
}

/// What homes say of moves must be what the catalog says of them.
pub(super) fn homes(catalog: &Catalog, pods: &BTreeMap<PodId, Pod>, found: &mut Found) {
    let known: BTreeSet<MoveId> = catalog
        .moves
        .iter()
        .filter(|it| it.open || it.leftover_since.is_some())
        .map(|it| it.id)
        .collect();
    let moving: BTreeSet<ShopId> = catalog
        .moves
        .iter()
        .filter(|it| it.open)
        .map(|it| it.shop.id)
        .collect();
    for (pod, facts) in pods {
        let Ok(contents) = &facts.contents else {
            continue;
        };
        for (shop, home) in &contents.homes {
            if home.move_id.is_some_and(|id| known.contains(&id)) {
                continue;
            }
            astray(catalog, *pod, *shop, home, moving.contains(shop), found);
        }
    }
}

/// A home in the hands of no open move.
fn astray(
    catalog: &Catalog,
    pod: PodId,
    shop: ShopId,
    home: &Home,
    moving: bool,
    found: &mut Found,
) {
    let of = catalog.shops.iter().find(|it| it.id == shop);
    let subject = of.map_or_else(|| format!("shop {shop}"), |it| it.handle.to_string());
    let state = home.state.as_str();
    match home.state {
        HomeState::Fenced | HomeState::Handing | HomeState::Ready if !moving => found.error(
            "move",
            subject,
            format!("its home at pod {pod} is {state}, and no move of it is open"),
            "its writes are refused there. A restored catalog or database does this: a person must decide who owns it",
        ),
        HomeState::Incoming => found.error(
            "move",
            subject,
            format!("its home at pod {pod} is incoming, and no move fills it"),
            format!(
                "a restored catalog or database does this; once nothing is missed there, delete the shop's rows and \
                 that home on the primary of pod {pod}"
            ),
        ),
        HomeState::Serving | HomeState::Frozen | HomeState::Offline => {
            if let Some(id) = home.move_id {
                found.warning(
                    "move",
                    subject,
                    format!("its home at pod {pod} names the move {id}, which is not open"),
                    "the shop serves; the next move of it takes the home over. If it stays after that, look at the \
                     control server's log",
                );
            }
        }
        // A mark stays; what hands over in an open move is that move's.
        HomeState::Moved | HomeState::Fenced | HomeState::Handing | HomeState::Ready => {}
    }
}
