//! Moves for people.

use indicatif::{HumanBytes, HumanCount};
use shared::moves::MoveState;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::api::{MOVE_EVENTS_FIRST, Move, MoveEventRow, MoveProgress, MoveRecord};
use crate::output::{count, facts, or_dash, table};

/// More strays than this are told by number: the first ones show where to look.
const STRAYS_SHOWN: usize = 20;

/// One sentence.
pub fn headline(it: &Move) -> String {
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
        it.state.to_string(),
        instant(it.created_at),
        or_dash(note),
    ]
}

/// Everything about one; `before` is how many of its events came before these.
pub(super) fn whole(it: &Move, events: &[MoveEventRow], before: u64) -> String {
    let back = it.back_of.map(|id| format!("takes back {id}"));
    let taken_back = it.taken_back_by.map(|id| format!("by {id}"));
    let kept = std::time::Duration::from_millis(it.observe_ms);
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
            format!("{} since {}", it.state, instant(it.state_since)),
        ),
        (
            "ordered",
            format!("{} by {}", instant(it.created_at), it.actor),
        ),
        ("reason", or_dash(it.reason.as_ref())),
        ("observe", shared::config::format_duration(kept)),
        ("owner", it.owner.to_string()),
    ];
    lines.extend(back.map(|text| ("kind", text)));
    lines.extend(taken_back.map(|text| ("taken back", text)));
    lines.extend(it.waits.clone().map(|text| ("waits", text)));
    lines.extend(it.error.clone().map(|text| ("error", text)));
    lines.extend(progress_line(it).map(|text| ("progress", text)));
    lines.extend(record(&it.record));
    lines.extend(leftover(it).map(|text| ("leftover", text)));
    let mut parts = vec![facts(&lines)];
    if it.strays_told() > 0 {
        let rows = it.strays.iter().take(STRAYS_SHOWN).map(|stray| {
            let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(stray.at_ms) * 1_000_000);
            [
                stray.table.clone(),
                stray.gtid.clone(),
                or_dash(at.ok().map(instant)),
            ]
        });
        parts.push(format!(
            "{} at {} after the fence, which a move back would undo:\n{}",
            count(it.strays_told(), "stray change"),
            it.source.name,
            table("", ["table", "transaction", "at"], rows.collect())
        ));
    }
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

/// What it left at a pod, if that is still there.
fn leftover(it: &Move) -> Option<String> {
    let since = instant(it.leftover_since?);
    Some(if it.source_gone {
        format!(
            "what {} has of it is deleted when that pod comes back; it was gone at {since}",
            it.source.name
        )
    } else {
        format!(
            "its copy at {} waits to be deleted since {since}",
            it.target.name
        )
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
    ];
    all.into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
        .collect()
}

/// What the mover is doing, in a line; none where it is not driven just now.
pub fn progress_line(it: &Move) -> Option<String> {
    let MoveProgress {
        now,
        rows_per_s,
        bytes_per_s,
        seconds_left,
        held_back_by,
    } = it.progress.as_ref()?;
    let of = |done: u64, all: u64| {
        if all > 0 {
            format!(
                "{} of about {}",
                HumanCount(done),
                HumanCount(all.max(done))
            )
        } else {
            HumanCount(done).to_string()
        }
    };
    let lag = format!(
        "{} keys to apply, lag {} ms",
        HumanCount(now.keys_pending),
        now.feed_lag_ms
    );
    let text = match it.state {
        MoveState::Copying => {
            let left = match seconds_left {
                Some(seconds) => format!(", {seconds} s left"),
                None => String::new(),
            };
            format!(
                "{} rows, {}, {} rows/s, {}/s, {lag}{left}",
                of(now.rows_copied, now.rows_expected),
                HumanBytes(now.bytes_copied),
                HumanCount(*rows_per_s),
                HumanBytes(*bytes_per_s)
            )
        }
        MoveState::CatchingUp | MoveState::Fenced | MoveState::Cutover => {
            format!("{} keys applied, {lag}", HumanCount(now.keys_applied))
        }
        MoveState::Verifying => format!(
            "{} rows compared, {lag}",
            of(now.rows_compared, now.rows_expected)
        ),
        MoveState::Retiring => format!(
            "{} rows dumped, {} deleted",
            HumanCount(now.rows_dumped),
            HumanCount(now.rows_deleted)
        ),
        MoveState::Preparing
        | MoveState::Aborting
        | MoveState::Observing
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Aborted
        | MoveState::Failed => return None,
    };
    let throttled = match held_back_by {
        Some(reason) => format!(", held back: {reason}"),
        None if now.throttled_ms > 0 => format!(", {} s throttled", now.throttled_ms / 1000),
        None => String::new(),
    };
    Some(text + &throttled)
}

/// An instant in UTC.
pub(super) fn instant(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_else(|_| at.to_string())
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
    fn progress_says_what_matters_in_the_state() {
        let text = progress_line(&a_move("copying")).unwrap();
        for part in [
            "1,000 of about 4,000",
            "100 rows/s",
            "3 keys",
            "12 ms",
            "30 s left",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            progress_line(&a_move("verifying"))
                .unwrap()
                .contains("compared")
        );
        assert_eq!(progress_line(&a_move("observing")), None);
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
            "waits to be deleted",
            "15m",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
