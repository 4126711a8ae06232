//! Tables that are the same on all pods are the same on these two: a shop's rows refer to them.

use std::time::{Duration, Instant};

use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::session::{Session, quoted, text};
use crate::mover::table::Survey;

/// To compare one means to read all of it, at both primaries, which sell: some million rows. Less than a statement waits for a
/// lock.
const WITHIN: Duration = Duration::from_secs(4);
/// All of them: whoever orders a move waits for the answer.
const ALL_WITHIN: Duration = Duration::from_secs(10);

/// What the two pods have of them. A table that takes too long is refused: it would the next time too.
pub(super) async fn compare(
    job: &Job,
    source: (&mut Session, &Survey),
    target: (&mut Session, &Survey),
    reasons: &mut Vec<String>,
) -> Result<(), MoveError> {
    let ((source, at_source), (target, at_target)) = (source, target);
    let (here, there) = (job.source.pod, job.target.pod);
    let (a, b) = (&at_source.references, &at_target.references);
    let missing = [(a, here, b, there), (b, there, a, here)];
    for (some, at, others, other) in missing {
        let names = some.iter().filter(|name| !others.contains(name));
        reasons.extend(names.map(|name| format!(
            "table {name}: it is registered as `reference` at pod {at} and is not one at pod {other}; migrate both pods to the same schema first"
        )));
    }
    let until = Instant::now() + ALL_WITHIN;
    for name in a.iter().filter(|name| b.contains(name)) {
        let limit = until.saturating_duration_since(Instant::now()).min(WITHIN);
        if limit.is_zero() {
            reasons.push(format!(
                "the tables that are registered as `reference` cannot be compared within {} s (from {name} on none is); register the large ones as `local` at both pods, and see to their rows yourself, or try again at a calmer time",
                ALL_WITHIN.as_secs()
            ));
            return Ok(());
        }
        let sums = tokio::try_join!(sum(source, name, limit), sum(target, name, limit));
        match sums {
            Ok((at_source, at_target)) if at_source == at_target => {}
            Ok(_) => reasons.push(format!(
                "table {name}: it is registered as `reference`, which is the same on all pods, and pods {here} and {there} differ; bring them to the same rows first"
            )),
            Err(error) if error.is_late() => {
                reasons.push(format!(
                    "table {name}: it is registered as `reference`, and whether it is the same at pods {here} and {there} takes longer to find out than {} s; register it as `local` at both, and see to its rows yourself, or try again at a calmer time",
                    limit.as_secs_f64()
                ));
                // Each that follows would be read for as long, at primaries that sell.
                tokio::try_join!(source.awake(), target.awake())?;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn sum(
    session: &mut Session,
    name: &str,
    limit: Duration,
) -> Result<Option<String>, MoveError> {
    let sql = format!("checksum table {}", quoted(name));
    let rows = session
        .rows_within("sum up a reference table", &sql, limit)
        .await?;
    Ok(rows.first().and_then(|row| text(row, 1)))
}
