//! Questions about a shop's rows that applications registered in `move_check`: each answer shall be empty.
//!
//! They are asked at the target, where rows arrive key by key and an order can be there before its items: what counts is
//! what is still there after everything seen has been applied, in several looks. What the source shows too is not the
//! move's doing; it is told, and stops nothing. Answers are compared whole: a part of one side's would look like a
//! difference where the other side's part is another one.

use std::collections::BTreeSet;

use mysql_async::Row;
use sha2::{Digest as _, Sha256};

use super::{Comparison, Pair, Verified};
use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::session::{Session, bytes, text};

/// Looks at one question before what all of them showed is believed.
const LOOKS: u32 = 5;
/// Rows of one answer that are compared: some megabytes. More are a fault of the question or of the application, which is
/// told; the rows themselves have been compared by then.
const ROWS_MAX: usize = 10_000;
/// What is kept of a row; of a longer one, its beginning and a digest.
const LINE_MAX: usize = 200;
/// Tries of one question at one side: what takes too long once may have met a busy hour, or a server whose pages were cold.
const TRIES: u32 = 3;

/// Asks every question that the target's database has.
pub(super) async fn ask(
    comparison: &Comparison<'_>,
    pair: &mut Pair,
    verified: &mut Verified,
) -> Result<(), MoveError> {
    let sql = "select name, question from move_check order by name";
    pair.awake().await?;
    let rows = pair.target.rows("read the checks", sql).await?;
    for row in &rows {
        let (Some(name), Some(question)) = (text(row, 0), text(row, 1)) else {
            continue;
        };
        let sql = format!(
            "{} limit {}",
            question.replace('?', &comparison.job.shop.to_string()),
            ROWS_MAX + 1
        );
        let (source, target) = (comparison.job.source.pod, comparison.job.target.pod);
        match shown(comparison, pair, &Check { name: &name, sql }).await? {
            Shown::Nothing => {}
            Shown::AtBoth(row) => {
                let told = format!("pod {source}: not so: {name}: {row}");
                tracing::warn!(move_id = %comparison.job.id, "{told}");
                verified.contradictions.push(told);
            }
            Shown::AtTarget(row) => {
                return Err(MoveError::Diverged(format!(
                    "at pod {target}, but not at pod {source}, it is not so that {name}: {row}"
                )));
            }
        }
    }
    Ok(())
}

/// A question about this shop, and what it is called.
struct Check<'a> {
    name: &'a str,
    sql: String,
}

/// What a question showed, with a row of its answer.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    Nothing,
    AtBoth(String),
    AtTarget(String),
}

async fn shown(
    comparison: &Comparison<'_>,
    pair: &mut Pair,
    check: &Check<'_>,
) -> Result<Shown, MoveError> {
    let job = comparison.job;
    let mut left: Option<Answer> = None;
    for _ in 0..LOOKS {
        let now = answer(job, &mut pair.target, check).await?;
        let still = now.still(left);
        if still.is_nothing() {
            return Ok(Shown::Nothing);
        }
        left = Some(still);
        // The source's session was silent while the target answered, and both are while everything is applied.
        pair.awake().await?;
        comparison.settled(pair).await?;
        pair.awake().await?;
    }
    let source = answer(job, &mut pair.source, check).await?;
    pair.awake().await?;
    Ok(left.map_or(Shown::Nothing, |left| left.beside(&source)))
}

/// An answer, in lines.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Whole(BTreeSet<String>),
    /// More rows than are compared, and one of them.
    Many(String),
}

impl Answer {
    fn of(mut lines: impl Iterator<Item = String>) -> Self {
        let whole: BTreeSet<String> = lines.by_ref().take(ROWS_MAX).collect();
        match lines.next() {
            Some(line) => Self::Many(line),
            None => Self::Whole(whole),
        }
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Whole(lines) if lines.is_empty())
    }

    /// What this look shows of what those before it showed.
    fn still(self, before: Option<Self>) -> Self {
        match (before, self) {
            (Some(Self::Whole(before)), Self::Whole(now)) => {
                Self::Whole(before.intersection(&now).cloned().collect())
            }
            // Of many rows it is not known which they were: those of the smaller answer are looked at.
            (Some(Self::Whole(lines)), Self::Many(_))
            | (None | Some(Self::Many(_)), Self::Whole(lines)) => Self::Whole(lines),
            (None | Some(Self::Many(_)), Self::Many(line)) => Self::Many(line),
        }
    }

    /// What it means that the target still shows this and the source that.
    fn beside(self, source: &Self) -> Shown {
        let many = |line| format!("{line}, and more than {ROWS_MAX} others");
        match (self, source) {
            (Self::Whole(target), Self::Whole(source)) => {
                match target.iter().find(|line| !source.contains(*line)) {
                    Some(line) => Shown::AtTarget(line.clone()),
                    None => target
                        .into_iter()
                        .next()
                        .map_or(Shown::Nothing, Shown::AtBoth),
                }
            }
            (Self::Many(line), Self::Whole(_)) => Shown::AtTarget(many(line)),
            (Self::Whole(_) | Self::Many(_), Self::Many(line)) => Shown::AtBoth(many(line.clone())),
        }
    }
}

/// Asks one side. A question that takes too long each time would do so in the next run too.
async fn answer(job: &Job, session: &mut Session, check: &Check<'_>) -> Result<Answer, MoveError> {
    let limit = job.limits.check_bound;
    for _ in 0..TRIES {
        match session.rows_within("ask a check", &check.sql, limit).await {
            Err(error) if error.is_late() => session.awake().await?,
            rows => return Ok(Answer::of(rows?.iter().map(line))),
        }
    }
    Err(MoveError::Bound(format!(
        "pod {}: the check `{}` took longer than {} s, {TRIES} times; mend its question in `move_check` (an index, fewer rows), \
         raise `moves.check_bound` of fleet.toml, or move at a calmer time",
        session.end().pod,
        check.name,
        limit.as_secs_f64()
    )))
}

/// A row in a line.
fn line(row: &Row) -> String {
    let value = |at: usize| match bytes(row, at) {
        None => "null".to_owned(),
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    };
    let values: Vec<String> = (0..row.len()).map(value).collect();
    short(values.join(", "))
}

/// Two lines that differ stay different.
fn short(line: String) -> String {
    if line.len() <= LINE_MAX {
        return line;
    }
    let digest = Sha256::digest(line.as_bytes());
    let digest: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
    let begin = line.get(..line.floor_char_boundary(LINE_MAX));
    format!("{}... ({digest})", begin.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(numbers: std::ops::Range<usize>) -> Answer {
        Answer::of(numbers.map(|n| format!("{n:06}")))
    }

    /// The longer each looks, the less is left; a contradiction of the source too is told, another one ends the move.
    #[test]
    fn what_stays_at_the_target_alone_is_a_difference() {
        let left = lines(0..10).still(None);
        let left = lines(5..20).still(Some(left));
        assert_eq!(left, lines(5..10));
        assert!(lines(30..40).still(Some(lines(0..3))).is_nothing());
        assert_eq!(
            lines(5..10).beside(&lines(0..10)),
            Shown::AtBoth("000005".into())
        );
        assert_eq!(
            lines(5..10).beside(&lines(6..10)),
            Shown::AtTarget("000005".into())
        );
    }

    /// However many contradict at both sides, and whichever of them each server tells first.
    #[test]
    fn many_rows_at_both_sides_are_no_difference() {
        let (some, others) = (lines(0..9_000), lines(0..9_000));
        assert!(matches!(some.still(None).beside(&others), Shown::AtBoth(_)));
        let (many, others) = (lines(0..20_000), lines(20_000..40_000));
        let left = others.still(Some(many));
        assert!(matches!(left.beside(&lines(5..30_000)), Shown::AtBoth(_)));
        let few = lines(0..20_000).beside(&lines(0..3));
        assert!(matches!(few, Shown::AtTarget(_)), "{few:?}");
    }

    #[test]
    fn long_rows_stay_different() {
        let (a, b) = ("ü".repeat(500) + "a", "ü".repeat(500) + "b");
        assert_ne!(short(a.clone()), short(b));
        assert!(short(a).len() < LINE_MAX + 40);
    }
}
