//! Moves for people.

use std::time::Duration;

use indicatif::HumanBytes;
use shared::moves::MoveState;
use time::OffsetDateTime;

use crate::api::{MOVE_EVENTS_FIRST, Move, MoveEventRow, MoveRecord};
use crate::output::{count, facts, instant, or_dash, table};

// What the mover is doing.
mod progress;
pub use progress::progress_line;
pub(super) use progress::rows_there;

/// More strays than this are told by number: the first ones show where to look.
const STRAYS_SHOWN: usize = 20;

/// One sentence.
pub fn headline(it: &Move) -> String {
    if it.clears {
        return format!(
            "the rows of {} at {} {}{} (order {})",
            it.shop.handle,
            it.target.name,
            if it.leftover_since.is_some() {
                "are being cleared"
            } else {
                "are cleared"
            },
            why(it),
            it.id
        );
    }
    format!(
        "move {} of {} from {} to {} is {}{}",
        it.id,
        it.shop.handle,
        it.source.name,
        it.target.name,
        it.state,
        why(it)
    )
}

/// The same after an order, with how to see what follows from it.
pub fn ordered(it: &Move) -> String {
    let goes_on = match it.state {
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Retiring
        | MoveState::Aborting => true,
        // Its copy goes by itself, and so do rows that are being cleared.
        MoveState::Aborted => it.leftover_since.is_some(),
        MoveState::Observing | MoveState::Done | MoveState::Paused | MoveState::Failed => false,
    };
    let follows = if goes_on {
        format!("\nfollow it with `podctl move watch {}`", it.id)
    } else {
        String::new()
    };
    headline(it) + &follows
}

/// Its state, or that of an order to clear rows, which is no move.
fn state(it: &Move) -> &'static str {
    match it.leftover_since {
        _ if !it.clears => it.state.as_str(),
        Some(_) => "clearing",
        None => "cleared",
    }
}

/// Why it stands where it stands.
fn why(it: &Move) -> String {
    if let Some(by) = it.taken_back_by {
        return format!("; it was taken back by move {by}");
    }
    match (&it.error, &it.waits) {
        (Some(error), _) => format!(": {error}"),
        (None, Some(waits)) => format!("; it waits: {waits}"),
        (None, None) => String::new(),
    }
}

pub(super) fn row(it: &Move) -> [String; 7] {
    let back = it.taken_back_by.map(|by| format!("taken back by {by}"));
    let note = back.as_ref().or(it.error.as_ref()).or(it.waits.as_ref());
    [
        it.id.to_string(),
        it.shop.handle.to_string(),
        it.source.name.clone(),
        it.target.name.clone(),
        state(it).to_owned(),
        instant(it.created_at),
        or_dash(note),
    ]
}

/// Everything about one; `before` is how many of its events came before these.
pub(super) fn whole(it: &Move, events: &[MoveEventRow], before: u64) -> String {
    let kind = match it.back_of {
        Some(id) => Some(format!("takes back {id}")),
        None => it
            .clears
            .then(|| format!("no move: clears what {} has of the shop", it.target.name)),
    };
    let taken_back = it.taken_back_by.map(|id| format!("by {id}"));
    let mut lines = vec![
        ("id", it.id.to_string()),
        ("shop", format!("{} ({})", it.shop.handle, it.shop.id)),
        (
            "from",
            format!("{} at epoch {}", it.source.name, it.source_epoch.get()),
        ),
        (
            "to",
            format!("{} at epoch {}", it.target.name, it.epoch.get()),
        ),
        (
            "state",
            format!("{} since {}", state(it), instant(it.state_since)),
        ),
        (
            "ordered",
            format!("{} by {}", instant(it.created_at), it.actor),
        ),
        ("reason", or_dash(it.reason.as_ref())),
        ("observe", observed(it)),
        ("owner", it.owner.to_string()),
    ];
    lines.extend(kind.map(|text| ("kind", text)));
    lines.extend(taken_back.map(|text| ("taken back", text)));
    lines.extend(it.waits.clone().map(|text| ("waits", text)));
    lines.extend(it.error.clone().map(|text| ("error", text)));
    lines.extend(progress_line(it).map(|text| ("progress", text)));
    lines.extend(record(&it.record));
    lines.extend(leftover(it).map(|text| ("leftover", text)));
    let mut parts = vec![facts(&lines)];
    parts.extend(strays(it));
    parts.extend(earlier(it, before));
    let rows = events.iter().map(|event| {
        [
            instant(event.at),
            event.state.to_string(),
            event.actor.clone(),
            or_dash(event.note.as_ref()),
        ]
    });
    parts.push(table(
        "no events",
        ["at", "state", "actor", "note"],
        rows.collect(),
    ));
    parts.join("\n\n")
}

/// Changes of the copy that nobody should have made.
fn strays(it: &Move) -> Option<String> {
    if it.strays_told() == 0 {
        return None;
    }
    let rows = it.strays.iter().take(STRAYS_SHOWN).map(|stray| {
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(stray.at_ms) * 1_000_000);
        [
            stray.table.clone(),
            stray.gtid.clone(),
            or_dash(at.ok().map(instant)),
        ]
    });
    let what = if it.clears {
        format!(
            "at {} while rows were cleared, which the last dumps have",
            it.target.name
        )
    } else {
        format!(
            "at {} after the fence, which a move back would undo",
            it.source.name
        )
    };
    Some(format!(
        "{} {what}:\n{}",
        count(it.strays_told(), "stray change"),
        table("", ["table", "transaction", "at"], rows.collect())
    ))
}

/// How long the source's copy is kept, and until when that is.
fn observed(it: &Move) -> String {
    let kept = Duration::from_millis(it.observe_ms);
    let text = shared::config::format_duration(kept);
    if it.state == MoveState::Observing {
        format!("{text}, until {}", instant(observed_until(it)))
    } else {
        text
    }
}

/// Until when a move in `observing` keeps the source's copy, if nobody ends it and nobody changes that copy.
pub(super) fn observed_until(it: &Move) -> OffsetDateTime {
    it.state_since + Duration::from_millis(it.observe_ms)
}

/// That events came before those that are shown, and how to see them.
pub(super) fn earlier(it: &Move, before: u64) -> Option<String> {
    let (gone, id) = (it.events_left_out, it.id);
    if before == 0 {
        None
    } else if before == gone {
        Some(format!(
            "{gone} of its events are not kept any more: they came after the first {MOVE_EVENTS_FIRST} of these"
        ))
    } else {
        Some(format!(
            "{} came before these; `podctl move show {id} --all` prints what is kept of them",
            count(before, "event")
        ))
    }
}

/// What it left at a pod, if that is still there. It goes by itself, and is said to wait where something stands in the way.
fn leftover(it: &Move) -> Option<String> {
    let since = instant(it.leftover_since?);
    let (source, target) = (&it.source.name, &it.target.name);
    Some(match &it.waits {
        _ if it.source_gone => format!(
            "what {source} has of it is deleted when that pod comes back; it was gone at {since}"
        ),
        Some(_) if it.clears => {
            format!("what {target} has of the shop waits to be dumped and deleted since {since}")
        }
        None if it.clears => {
            format!("what {target} has of the shop is being dumped and deleted, ordered at {since}")
        }
        Some(_) => format!("its copy at {target} waits to be deleted since {since}"),
        None => format!("its copy at {target} is being deleted, left there at {since}"),
    })
}

fn record(record: &MoveRecord) -> Vec<(&'static str, String)> {
    let MoveRecord {
        fence_ms,
        writes_in_flight,
        drain_ms,
        writes_ended,
        tail_keys,
        fence_tries,
        requests_parked,
        longest_park_ms,
        late_arrivals,
        // What was guessed is of interest while it goes on.
        expected_rows: _,
        expected_bytes: _,
        copied_rows,
        copied_bytes,
        applied_keys,
        compared_rows,
        repaired_rows,
        deleted_rows,
        dump,
        gone_dump,
        back_dump,
    } = record;
    let ms = |it: &Option<u64>| it.map(|ms| format!("{ms} ms"));
    let number = |it: &Option<u64>| it.map(|n| n.to_string());
    let copied =
        (*copied_rows > 0).then(|| format!("{copied_rows} rows, {}", HumanBytes(*copied_bytes)));
    let positive = |it: u64| (it > 0).then(|| it.to_string());
    let all = [
        ("copied", copied),
        ("applied keys", positive(*applied_keys)),
        ("compared rows", positive(*compared_rows)),
        ("repaired rows", positive(*repaired_rows)),
        ("fences tried", positive(u64::from(*fence_tries))),
        ("fence", ms(fence_ms)),
        ("writes in flight", number(writes_in_flight)),
        ("waited for them", ms(drain_ms)),
        ("of them ended", positive(*writes_ended)),
        ("tail keys", number(tail_keys)),
        ("requests parked", number(requests_parked)),
        ("longest park", ms(longest_park_ms)),
        ("late arrivals", positive(*late_arrivals)),
        ("deleted rows", positive(*deleted_rows)),
        ("dump", dump.clone()),
        ("dump of the source that came back", gone_dump.clone()),
        ("dump of the former copy", back_dump.clone()),
    ];
    all.into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A move of `milk` from one to two.
    pub(in crate::command::moves) fn a_move(state: &str) -> Move {
        let at = "2026-01-31T12:00:00Z";
        let json = serde_json::json!({
            "id": "01890000-0000-7000-8000-000000000001", "shop": { "id": 1, "handle": "milk" },
            "source": { "id": 1, "name": "one" }, "target": { "id": 2, "name": "two" }, "source_epoch": 1, "epoch": 2,
            "state": state, "open": true, "owner": 1, "reason": null, "observe_ms": 900_000, "back_of": null,
            "waits": null, "error": null, "record": {}, "strays": [], "leftover_since": null, "actor": "ops",
            "created_at": at, "changed_at": at, "state_since": at, "progress": { "rows_expected": 4000, "rows_copied": 1000,
            "bytes_copied": 2048, "keys_pending": 3, "feed_lag_ms": 12, "rows_per_s": 100, "bytes_per_s": 1024,
            "seconds_left": 30 },
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn events_that_are_not_shown_are_counted() {
        let mut it = a_move("cutover");
        assert_eq!(earlier(&it, 0), None);
        let text = whole(&it, &[], 70);
        assert!(
            text.contains("70 events came before these") && text.contains("--all"),
            "{text}"
        );
        it.events_left_out = 70;
        let text = whole(&it, &[], 70);
        assert!(
            text.contains("70 of its events are not kept") && text.contains("the first 100"),
            "{text}"
        );
    }

    #[test]
    fn the_whole_tells_strays_leftovers_and_what_it_took() {
        let mut it = a_move("observing");
        it.record.fence_ms = Some(31);
        it.strays.push(crate::api::Stray {
            table: "orders".into(),
            gtid: "a:7".into(),
            at_ms: 1,
        });
        it.leftover_since = Some(it.created_at);
        let text = whole(&it, &[], 0);
        for part in [
            "fence",
            "31 ms",
            "1 stray change at one",
            "a:7",
            "its copy at two is being deleted, left there at 2026-01-31T12:00:00.000Z",
            "15m, until 2026-01-31T12:15:00.000Z",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    /// It is kept as a move that was over before it began, which nobody would understand.
    #[test]
    fn an_order_to_clear_rows_is_told_as_what_it_is() {
        let mut it = a_move("aborted");
        it.clears = true;
        it.leftover_since = Some(it.created_at);
        it.waits = Some("two is away".into());
        assert_eq!(row(&it)[4], "clearing");
        let texts = [ordered(&it), whole(&it, &[], 0)];
        for part in ["two", "milk", "it waits: two is away", "podctl move watch"] {
            assert!(texts[0].contains(part), "{}", texts[0]);
        }
        for part in ["no move", "waits to be dumped and deleted since"] {
            assert!(texts[1].contains(part), "{}", texts[1]);
        }
        it.waits = None;
        let text = whole(&it, &[], 0);
        let work = "what two has of the shop is being dumped and deleted, ordered at 2026";
        assert!(text.contains(work) && !text.contains("wait"), "{text}");
        it.leftover_since = None;
        assert_eq!(row(&it)[4], "cleared");
        let text = ordered(&it);
        assert!(
            text.contains("the rows of milk at two are cleared"),
            "{text}"
        );
    }
}
