//! Whether a move can be done: everything that would stop it later is asked here, before anything is changed, and all
//! that is found is told at once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use shared::mysql::{Role, wrong_settings, wrong_version};

use super::error::MoveError;
use super::job::{End, Job};
use super::session::{Session, text};
use super::table::{Survey, Table, survey};
use super::throttle::{Free, data_folder};

// Tables that are the same on all pods.
mod references;
// How many rows are the shop's.
mod rows;
// The servers' settings, alone and against each other.
mod servers;
// What stands at the target already.
pub(super) mod target;

/// What a copy with its verification gets done in a second on a small server; a guess, for a first estimate.
const ROWS_PER_SECOND: u64 = 15_000;
/// The same in bytes.
const BYTES_PER_SECOND: u64 = 10 << 20;
/// A row takes its bytes in the table, about as much in indexes, and its bytes in the binlog.
const ROOM_FOR_EACH_BYTE: u64 = 3;
/// To look into all documents means to read all rows. Whoever orders the move of a large shop does not wait for that: the copy
/// asks the same of each row.
const DOCUMENTS_WITHIN: Duration = Duration::from_secs(5);
/// A slow row, a slow hour: binlogs are kept for so many times the estimate, or nothing begins.
const BINLOG_FACTOR: u64 = 4;
/// The least that binlogs are kept: a move may be paused.
const BINLOG_MIN_SECONDS: u64 = 3_600;

/// How large a move is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// The shop's tables.
    pub(crate) tables: Vec<TableEstimate>,
    /// The shop's rows in all of them, as the source's optimizer guesses.
    pub(crate) rows: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// How long it may take, alone on its pods.
    pub(crate) seconds: u64,
    /// The same beside shops that sell.
    pub(crate) seconds_beside_shops: u64,
}

/// What [`check`] found where nothing stands against a move.
#[derive(Debug)]
pub(crate) struct Checked {
    /// How large it is.
    pub(crate) estimate: Estimate,
    /// The shop's tables.
    pub(crate) tables: Vec<Table>,
}

/// One table of an [`Estimate`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TableEstimate {
    /// Its name.
    pub(crate) name: String,
    /// The shop's rows in it.
    pub(crate) rows: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// Whether documents of the shop are looked into, which reads all of them, or as many as can be read in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Documents {
    /// Before a move is taken on.
    Ask,
    /// They were when the move was ordered, which a resume may come long after. The copy asks the same of each row.
    Asked,
}

/// Asks everything. Changes nothing. The error names every reason.
pub(crate) async fn check(job: &Job, look_into: Documents) -> Result<Checked, MoveError> {
    let mut reasons = Vec::new();
    if job.source.pod == job.target.pod {
        reasons.push(format!("the shop is at pod {} already", job.source.pod));
        return Err(MoveError::Refused { reasons });
    }
    let mut source = Session::open(job, &job.source).await?;
    let mut target = Session::open(job, &job.target).await?;
    let (settings_a, settings_b) = (variables(&mut source).await?, variables(&mut target).await?);
    servers::alone(&job.source, &settings_a, &mut reasons);
    servers::alone(&job.target, &settings_b, &mut reasons);
    servers::against_each_other(job, &settings_a, &settings_b, &mut reasons);
    let (survey_a, survey_b) = (survey(&mut source).await?, survey(&mut target).await?);
    for (end, survey) in [(&job.source, &survey_a), (&job.target, &survey_b)] {
        let named = survey
            .faults
            .iter()
            .map(|fault| format!("pod {}: {fault}", end.pod));
        reasons.extend(named);
    }
    compare(job, &survey_a, &survey_b, &mut reasons);
    references::compare(
        job,
        (&mut source, &survey_a),
        (&mut target, &survey_b),
        &mut reasons,
    )
    .await?;
    if look_into == Documents::Ask {
        documents(&mut source, job, &survey_a.tables, &mut reasons).await?;
    }
    let estimate = estimate(&mut source, job, &survey_a.tables).await?;
    servers::keeps_binlogs(job.source.pod, &settings_a, &estimate, &mut reasons);
    let (to, observe) = (job.target.pod, job.observe);
    servers::keeps_way_back(to, observe, &settings_b, &estimate, &mut reasons);
    room(&mut target, job, &estimate, &mut reasons).await;
    target::look(&mut target, job, &survey_b.tables, &mut reasons).await?;
    source.close().await;
    target.close().await;
    if reasons.is_empty() {
        let tables = survey_a.tables;
        return Ok(Checked { estimate, tables });
    }
    reasons.dedup();
    Err(MoveError::Refused { reasons })
}

async fn variables(session: &mut Session) -> Result<HashMap<String, String>, MoveError> {
    let rows = session
        .rows("read the settings", "show global variables")
        .await?;
    let pair = |row: &mysql_async::Row| Some((text(row, 0)?.to_lowercase(), text(row, 1)?));
    Ok(rows.iter().filter_map(pair).collect())
}

/// The tables of both pods against each other.
fn compare(job: &Job, a: &Survey, b: &Survey, reasons: &mut Vec<String>) {
    let (here, there) = (
        format!("pod {}", job.source.pod),
        format!("pod {}", job.target.pod),
    );
    let missing = |name: &str, at: &str| {
        format!(
            "table {name}: it is missing at {at}, or is registered as another kind there; migrate {at} to the same schema first"
        )
    };
    let find = |survey: &Survey, name: &str| survey.tables.iter().position(|t| t.name == name);
    for table in &a.tables {
        let Some(other) = find(b, &table.name) else {
            reasons.push(missing(&table.name, &there));
            continue;
        };
        for text in table
            .shape
            .differences(&b.tables[other].shape, &here, &there)
        {
            reasons.push(format!(
                "table {}: {text}; migrate both pods to the same schema first",
                table.name
            ));
        }
    }
    for table in &b.tables {
        if find(a, &table.name).is_none() {
            reasons.push(missing(&table.name, &here));
        }
    }
}

/// JSON documents that no text can carry, as far as they are found in time.
async fn documents(
    source: &mut Session,
    job: &Job,
    tables: &[Table],
    reasons: &mut Vec<String>,
) -> Result<(), MoveError> {
    let until = Instant::now() + DOCUMENTS_WITHIN;
    for table in tables {
        for (question, column) in super::table::json_questions(table, job.shop) {
            let left = until.saturating_duration_since(Instant::now());
            let ms = left.as_millis();
            if ms == 0 {
                return Ok(());
            }
            let sql = format!("select /*+ max_execution_time({ms}) */ {question}");
            match source.rows("look into JSON documents", &sql).await {
                Ok(rows) => {
                    if let Some(row) = rows.first() {
                        reasons.push(super::table::json_refusal(table, column, row));
                    }
                }
                Err(error) if error.is_out_of_time() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

async fn estimate(
    source: &mut Session,
    job: &Job,
    tables: &[Table],
) -> Result<Estimate, MoveError> {
    let mut estimate = Estimate::default();
    for table in tables {
        let rows = rows::of_shop(source, job, table).await?;
        let bytes = rows.saturating_mul(table.row_bytes);
        estimate.rows += rows;
        estimate.bytes += bytes;
        estimate.tables.push(TableEstimate {
            name: table.name.clone(),
            rows,
            bytes,
        });
    }
    estimate.seconds = 1 + (estimate.rows / ROWS_PER_SECOND).max(estimate.bytes / BYTES_PER_SECOND);
    let times = u64::from(job.limits.nice_ratio) + 1;
    estimate.seconds_beside_shops = estimate.seconds.saturating_mul(times);
    Ok(estimate)
}

/// Room on the target's disk, where it can be seen.
async fn room(target: &mut Session, job: &Job, estimate: &Estimate, reasons: &mut Vec<String>) {
    let Some(folder) = data_folder(target).await else {
        return;
    };
    let Some(disk) = Free::of(&folder) else {
        return;
    };
    let kept = disk.total / 100 * u64::from(job.limits.disk_free_min_percent);
    let needed = estimate.bytes.saturating_mul(ROOM_FOR_EACH_BYTE);
    if disk.free.saturating_sub(needed) < kept {
        reasons.push(format!(
            "pod {}: the disk of its primary has {} MiB free; the shop needs about {} MiB and {} MiB must stay free; make room there, or move to another pod",
            job.target.pod,
            disk.free >> 20,
            needed >> 20,
            kept >> 20
        ));
    }
}
