//! Questions about a shop's rows that applications registered in `move_check`: each answer shall be empty.
//!
//! They are asked at the target, where rows arrive key by key and an order can be there before its items: what counts is
//! what is still there after everything seen has been applied, in several looks. What the source shows too is not the
//! move's doing; it is told, and stops nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_async::Row;

use super::{Comparison, Pair, Verified};
use crate::mover::error::MoveError;
use crate::mover::session::{Session, bytes, text};

/// Looks at one question before what all of them showed is believed.
const LOOKS: u32 = 5;
/// Rows of one answer: one is enough to stop, some help to see why.
const ROWS_MAX: usize = 100;
/// A question joins all rows of a shop.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);

/// Asks every question that the target's database has.
pub(super) async fn ask(
    comparison: &Comparison<'_>,
    pair: &mut Pair,
    verified: &mut Verified,
) -> Result<(), MoveError> {
    let sql = "select name, question from move_check order by name";
    let rows = pair.target.rows("read the checks", sql).await?;
    for row in &rows {
        let (Some(name), Some(question)) = (text(row, 0), text(row, 1)) else {
            continue;
        };
        let sql = format!(
            "{} limit {ROWS_MAX}",
            question.replace('?', &comparison.job.shop.to_string())
        );
        let Some(shown) = shown(comparison, pair, &sql).await? else {
            continue;
        };
        let (source, target) = (comparison.job.source.pod, comparison.job.target.pod);
        match shown {
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

/// A row of an answer.
enum Shown {
    AtBoth(String),
    AtTarget(String),
}

async fn shown(
    comparison: &Comparison<'_>,
    pair: &mut Pair,
    sql: &str,
) -> Result<Option<Shown>, MoveError> {
    let mut left: Option<BTreeSet<String>> = None;
    for _ in 0..LOOKS {
        let now = answer(&mut pair.target, sql).await?;
        let still = match left {
            None => now,
            Some(before) => before.intersection(&now).cloned().collect(),
        };
        if still.is_empty() {
            return Ok(None);
        }
        left = Some(still);
        comparison.settled(pair).await?;
    }
    let source = answer(&mut pair.source, sql).await?;
    let left = left.unwrap_or_default();
    let only = left.iter().find(|row| !source.contains(*row));
    Ok(match only {
        Some(row) => Some(Shown::AtTarget(row.clone())),
        None => left.first().cloned().map(Shown::AtBoth),
    })
}

async fn answer(session: &mut Session, sql: &str) -> Result<BTreeSet<String>, MoveError> {
    let rows = session
        .rows_within("ask a check", sql, ANSWER_WITHIN)
        .await?;
    Ok(rows.iter().map(line).collect())
}

/// A row in a line.
fn line(row: &Row) -> String {
    let value = |at: usize| match bytes(row, at) {
        None => "null".to_owned(),
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    };
    let values: Vec<String> = (0..row.len()).map(value).collect();
    values.join(", ")
}
