//! Chunks: ranges of the primary key, of all tables, one after the other; compared by several sessions at once.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

use super::{Comparison, Pair, Verified, keys};
use crate::mover::error::MoveError;
use crate::mover::fingerprint;
use crate::mover::progress::Progress;
use crate::mover::session::{bytes, number};
use crate::mover::table::{Key, Table};

/// What the first chunk of a table may read, by the table's statistics; later ones go by time.
const FIRST_BYTES: u64 = 16 << 20;
/// A chunk grows and shrinks by this at most: one slow read says little.
const STEP: f64 = 2.0;

/// The chunks that are left, and what came of the others.
pub(super) struct Plan<'a> {
    comparison: &'a Comparison<'a>,
    next: Turn<Next>,
    so_far: Mutex<Verified>,
}

/// Where the next chunk begins.
#[derive(Debug)]
struct Next {
    table: usize,
    after: Option<Key>,
    rows: u64,
}

/// A range of one table.
struct Chunk {
    table: usize,
    after: Option<Key>,
    upto: Option<Key>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(comparison: &'a Comparison<'a>) -> Self {
        let rows = comparison
            .tables
            .first()
            .map_or(1, |t| first_rows(comparison, t));
        Self {
            comparison,
            next: Turn::new(Next {
                table: 0,
                after: None,
                rows,
            }),
            so_far: Mutex::default(),
        }
    }

    /// What came of it.
    pub(super) fn verified(&self) -> Verified {
        self.so_far.lock().clone()
    }

    /// Compares all chunks.
    pub(super) async fn run(&self, pairs: &mut [Pair]) -> Result<(), MoveError> {
        let each = pairs.iter_mut().map(|pair| self.work(pair));
        futures::future::try_join_all(each).await.map(drop)
    }

    async fn work(&self, pair: &mut Pair) -> Result<(), MoveError> {
        loop {
            self.comparison.throttle.pass().await?;
            pair.awake().await?;
            let Some(chunk) = self.take(pair).await? else {
                return Ok(());
            };
            self.compare(pair, &chunk).await?;
        }
    }

    /// The next chunk. Its end is a key of the source; the last one of a table has none, so that rows which only the
    /// target has are in a chunk too.
    async fn take(&self, pair: &mut Pair) -> Result<Option<Chunk>, MoveError> {
        let mut next = self.next.lock().await;
        let Some(table) = self.comparison.tables.get(next.table) else {
            return Ok(None);
        };
        let sql = format!(
            "select {} {} where {} order by {} limit {}",
            table.key_list(),
            table.by_key(),
            table.key_range(self.comparison.job.shop, next.after.as_ref(), None),
            table.order_by(),
            next.rows
        );
        let (mut last, mut count) = (None, 0);
        let doing = "find the end of a chunk";
        pair.source
            .each_row(doing, &sql, &mut |row| {
                last = Some(row);
                count += 1;
                true
            })
            .await?;
        let whole = count < next.rows;
        let upto = match last.filter(|_| !whole && table.key.len() > 1) {
            Some(row) => {
                Some(
                    Key::of_key_row(table, &row).map_err(|_| MoveError::SchemaChanged {
                        pod: self.comparison.job.source.pod,
                        text: format!("a key of {} cannot be read", table.name),
                    })?,
                )
            }
            None => None,
        };
        let chunk = Chunk {
            table: next.table,
            after: next.after.take(),
            upto: upto.clone(),
        };
        if upto.is_some() {
            next.after = upto;
        } else {
            next.table += 1;
            let table = self.comparison.tables.get(next.table);
            next.rows = table.map_or(1, |t| first_rows(self.comparison, t));
        }
        Ok(Some(chunk))
    }

    async fn compare(&self, pair: &mut Pair, chunk: &Chunk) -> Result<(), MoveError> {
        let Comparison {
            job,
            tables,
            ledger,
            ..
        } = self.comparison;
        let Some(table) = tables.get(chunk.table) else {
            return Ok(());
        };
        let range = table.key_range(job.shop, chunk.after.as_ref(), chunk.upto.as_ref());
        let began = Instant::now();
        let sql = format!(
            "select {} {} where {range}",
            fingerprint::of_rows(table),
            table.by_key()
        );
        let (source, target) = pair.rows("compare a chunk", &sql).await?;
        let took = began.elapsed();
        let of = |rows: &[mysql_async::Row]| {
            let row = rows.first()?;
            let count = number(row, 0)?;
            // Of no rows the function gives neutral bits of its own length.
            let bits = bytes(row, 1).filter(|_| count > 0).unwrap_or_default();
            Some((count, bits.to_vec()))
        };
        let (source, target) = (of(&source), of(&target));
        let rows = source.as_ref().map_or(0, |(count, _)| *count);
        let equal = source.is_some() && source == target;
        if !equal {
            let sql = format!("{} {} where {range}", keys::selected(table), table.by_key());
            let (source, target) = pair.rows("compare a chunk's rows", &sql).await?;
            let source = keys::digests(job, table, &source)?;
            let target = keys::digests(job, table, &target)?;
            let unlike = keys::different(&source, &target);
            ledger.suspect(unlike.into_iter().map(|key| (chunk.table, key)));
        }
        Progress::add(&job.progress.rows_compared, rows);
        self.so_far.lock().rows += rows;
        self.learn(chunk.table, took).await;
        Ok(())
    }

    /// The next chunk of this table takes about as long as a chunk shall.
    async fn learn(&self, table: usize, took: Duration) {
        let limits = &self.comparison.job.limits;
        let mut next = self.next.lock().await;
        if next.table == table {
            next.rows = sized(next.rows, took, limits.chunk_time).min(limits.chunk_rows_max);
        }
    }
}

/// A size for the next piece of work, when one of size `now` took that long.
pub(crate) fn sized(now: u64, took: Duration, wanted: Duration) -> u64 {
    let factor = wanted.as_secs_f64() / took.as_secs_f64().max(0.000_1);
    let factor = factor.clamp(1.0 / STEP, STEP);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of rows, far below 2^52"
    )]
    let next = (now as f64 * factor) as u64;
    next.max(1)
}

fn first_rows(comparison: &Comparison<'_>, table: &Table) -> u64 {
    let limits = &comparison.job.limits;
    (FIRST_BYTES / table.row_bytes.max(1)).clamp(1, limits.chunk_rows_min.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_follows_the_time_in_steps() {
        let wanted = Duration::from_millis(100);
        assert_eq!(sized(100, Duration::from_millis(50), wanted), 200);
        assert_eq!(sized(100, Duration::from_millis(1), wanted), 200);
        assert_eq!(sized(100, Duration::from_millis(80), wanted), 125);
        assert_eq!(sized(100, Duration::from_secs(9), wanted), 50);
        assert_eq!(sized(1, Duration::from_secs(9), wanted), 1);
    }
}
