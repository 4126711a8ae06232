//! What a mover is doing, for people.

use indicatif::{HumanBytes, HumanCount};
use shared::moves::MoveState;

use crate::api::{Move, MoveProgress};

/// What the mover is doing, in a line; none where it is not driven just now.
pub fn progress_line(it: &Move) -> Option<String> {
    let MoveProgress {
        now,
        rows_per_s,
        bytes_per_s,
        seconds_left,
        held_back_by,
    } = it.progress.as_ref()?;
    let lag = format!(
        "{} to apply, lag {} ms",
        counted(now.keys_pending, "key"),
        now.feed_lag_ms
    );
    let text = match it.state {
        MoveState::Copying => {
            let left = seconds_left.map(|seconds| format!(", copied in about {seconds} s"));
            let left = left.unwrap_or_default();
            format!(
                "{} rows, {}, {} rows/s, {}/s, {lag}{left}",
                of(now.rows_copied, now.rows_expected),
                HumanBytes(now.bytes_copied),
                HumanCount(*rows_per_s),
                HumanBytes(*bytes_per_s)
            )
        }
        MoveState::CatchingUp | MoveState::Fenced | MoveState::Cutover => {
            format!("{} applied, {lag}", counted(now.keys_applied, "key"))
        }
        MoveState::Verifying if now.compares => format!(
            "{} rows compared, {} to compare again, {lag}",
            of(now.rows_compared, rows_there(it)),
            counted(now.keys_uncompared, "key")
        ),
        MoveState::Verifying => format!(
            "{} applied, {lag}; the comparison goes on after that",
            counted(now.keys_applied, "key")
        ),
        MoveState::Retiring | MoveState::Aborted => format!(
            "{} dumped, {} deleted",
            counted(
                now.rows_dumped.saturating_add(now.rows_dumped_before),
                "row"
            ),
            HumanCount(now.rows_deleted)
        ),
        MoveState::Preparing
        | MoveState::Aborting
        | MoveState::Observing
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Failed => return None,
    };
    let throttled = match held_back_by {
        Some(reason) => format!(", held back: {reason}"),
        None if now.throttled_ms > 0 => format!(", {} s throttled", now.throttled_ms / 1000),
        None => String::new(),
    };
    Some(text + &throttled)
}

/// So many of what was expected; of more than that nobody knows how many there are.
fn of(done: u64, all: u64) -> String {
    if all >= done && all > 0 {
        format!("{} of about {}", HumanCount(done), HumanCount(all))
    } else {
        HumanCount(done).to_string()
    }
}

fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", HumanCount(number))
}

/// How many rows the shop has, as far as that is known: what was copied was counted, what was expected is an estimate.
pub(in crate::command::moves) fn rows_there(it: &Move) -> u64 {
    let expected = it.progress.as_ref().map(|p| p.now.rows_expected);
    match it.record.compared_rows.max(it.record.copied_rows) {
        0 => expected.unwrap_or(it.record.expected_rows),
        rows => rows,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::a_move;
    use super::*;

    #[test]
    fn progress_says_what_matters_in_the_state() {
        let text = progress_line(&a_move("copying")).unwrap();
        for part in [
            "1,000 of about 4,000",
            "100 rows/s",
            "3 keys",
            "12 ms",
            "in about 30 s",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(progress_line(&a_move("observing")), None);
    }

    /// The estimate of before is not what a comparison is measured by, and what is not known is not made up.
    #[test]
    fn a_comparison_counts_against_what_was_copied() {
        let mut it = a_move("verifying");
        let line = |it: &Move| progress_line(it).unwrap();
        assert!(line(&it).contains("goes on after that"), "{}", line(&it));
        let mut say = |compared: u64, copied: u64| {
            it.record.copied_rows = copied;
            if let Some(progress) = &mut it.progress {
                progress.now.compares = true;
                progress.now.keys_uncompared = 1;
                progress.now.rows_compared = compared;
            }
            line(&it)
        };
        for (compared, copied, expected) in [
            (1_775, 5_422, "1,775 of about 5,422 rows compared, 1 key to"),
            (5_422, 5_422, "5,422 of about 5,422 rows compared"),
            // Rows come while it is compared.
            (5_430, 5_422, "5,430 rows compared"),
            // A move back copies nothing.
            (1_000, 0, "1,000 of about 4,000 rows compared"),
        ] {
            let text = say(compared, copied);
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
