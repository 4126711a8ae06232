//! Chunks: ranges of the primary key, of all tables, one after the other; compared by several sessions at once.
//!
//! The source gives a digest of each row and with them where the chunk ends; the target's rows up to there are summed up
//! by its server, and only where the two differ are they asked for one by one. No row leaves its server for that.
//!
//! How much one chunk reads is bounded three ways: at first by the bytes of a row that the table's statistics tell, then
//! by the time that the one before took, and where rows are suddenly larger by a deadline of the server's, at which the
//! chunk is asked for again with fewer rows.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use mysql_async::Row;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::stand::Position;
use super::{Comparison, Pair, keys};
use crate::mover::error::MoveError;
use crate::mover::fingerprint;
use crate::mover::progress::Progress;
use crate::mover::session::{bytes, number};
use crate::mover::size;
use crate::mover::table::{Key, Table};

/// What a chunk may read by the table's statistics: what a server digests in a tenth of a second.
const BYTES: u64 = 16 << 20;
/// Rows of a table's first chunk, by whose time the next ones go.
const FIRST_ROWS: u64 = 2_000;
/// A chunk that takes so many times what it shall has rows that are larger than those before.
const TOO_LONG: u32 = 20;
/// By how much it is made smaller then.
const FEWER: u64 = 8;

/// The chunks that are left, and what came of the others.
pub(super) struct Plan<'a> {
    comparison: &'a Comparison<'a>,
    next: AsyncMutex<Next>,
    front: Mutex<Front>,
}

/// The next chunk.
#[derive(Debug)]
struct Next {
    number: u64,
    place: Position,
    /// How many rows it shall have.
    rows: u64,
}

/// How far the chunks are.
#[derive(Debug)]
pub(super) struct Front {
    /// Where each chunk begins that is on its way.
    open: BTreeMap<u64, Position>,
    /// Where the next one begins.
    next: Position,
    /// Rows of the chunks that are done.
    rows: u64,
}

impl Front {
    pub(super) fn new(from: Position) -> Self {
        Self {
            open: BTreeMap::new(),
            rows: from.rows,
            next: from,
        }
    }

    pub(super) fn begun(&mut self, number: u64, begins: Position, next: Position) {
        self.open.insert(number, begins);
        self.next = next;
    }

    pub(super) fn done(&mut self, number: u64, rows: u64) {
        self.open.remove(&number);
        self.rows += rows;
    }

    /// Where the first chunk begins that is not done.
    pub(super) fn position(&self) -> Position {
        let oldest = self.open.first_key_value();
        oldest.map_or(&self.next, |(_, begins)| begins).clone()
    }
}

/// A range of one table, and what the source has there.
struct Chunk {
    number: u64,
    table: usize,
    after: Option<Key>,
    upto: Option<Key>,
    /// Keys with digests.
    rows: Vec<Row>,
}

impl<'a> Plan<'a> {
    /// From there to the last row.
    pub(super) fn new(comparison: &'a Comparison<'a>, from: Position) -> Self {
        let table = comparison.tables.get(from.table);
        let rows = table.map_or(1, |t| first_rows(comparison, t));
        let compared = &comparison.job.progress.rows_compared;
        compared.store(from.rows, Ordering::Relaxed);
        comparison
            .job
            .progress
            .compares
            .store(true, Ordering::Relaxed);
        Self {
            comparison,
            front: Mutex::new(Front::new(from.clone())),
            next: AsyncMutex::new(Next {
                number: 0,
                place: from,
                rows,
            }),
        }
    }

    /// Rows of the source that were compared.
    pub(super) fn rows(&self) -> u64 {
        self.front.lock().rows
    }

    /// Up to where every row was compared; what differs is in the ledger.
    pub(super) fn position(&self) -> Position {
        self.front.lock().position()
    }

    /// Compares all chunks.
    pub(super) async fn run(&self, pairs: &mut [Pair]) -> Result<(), MoveError> {
        let each = pairs.iter_mut().map(|pair| self.work(pair));
        futures::future::try_join_all(each).await.map(drop)
    }

    async fn work(&self, pair: &mut Pair) -> Result<(), MoveError> {
        loop {
            self.comparison.throttle.pass_gently().await?;
            pair.awake().await?;
            let Some(chunk) = self.take(pair).await? else {
                return Ok(());
            };
            let began = Instant::now();
            self.compare(pair, chunk).await?;
            self.comparison.throttle.worked(began.elapsed());
        }
    }

    /// The next chunk, read at the source. Its end is a key of the source; the last one of a table has none, so that rows
    /// which only the target has are in a chunk too.
    async fn take(&self, pair: &mut Pair) -> Result<Option<Chunk>, MoveError> {
        let Comparison { job, tables, .. } = self.comparison;
        let mut next = self.next.lock().await;
        let Some(table) = tables.get(next.place.table) else {
            return Ok(None);
        };
        let began = Instant::now();
        let rows = self.read(pair, table, &mut next).await?;
        let took = began.elapsed();
        self.comparison.throttle.worked(took);
        let whole = (rows.len() as u64) < next.rows || table.key.len() == 1;
        let upto = match rows.last().filter(|_| !whole) {
            Some(row) => {
                Some(Key::of_key_row(table, row).map_err(|_| keys::unreadable(job, table))?)
            }
            None => None,
        };
        let begins = next.place.clone();
        next.number += 1;
        next.place.rows += rows.len() as u64;
        next.place.after.clone_from(&upto);
        if upto.is_some() {
            let rows = size::next(next.rows, took, self.comparison.throttle.piece());
            next.rows = rows.min(most_rows(self.comparison, table));
        } else {
            next.place.table += 1;
            let table = tables.get(next.place.table);
            next.rows = table.map_or(1, |t| first_rows(self.comparison, t));
        }
        let mut front = self.front.lock();
        front.begun(next.number, begins.clone(), next.place.clone());
        Ok(Some(Chunk {
            number: next.number,
            table: begins.table,
            after: begins.after,
            upto,
            rows,
        }))
    }

    /// Keys and digests of up to `next.rows` rows; fewer are asked for where the server cannot do so many in time.
    async fn read(
        &self,
        pair: &mut Pair,
        table: &Table,
        next: &mut Next,
    ) -> Result<Vec<Row>, MoveError> {
        let job = self.comparison.job;
        let range = table.key_range(job.shop, next.place.after.as_ref(), None);
        let within = (job.limits.chunk_time * TOO_LONG).as_millis();
        loop {
            let hint = if next.rows > 1 {
                format!("/*+ max_execution_time({within}) */ ")
            } else {
                String::new()
            };
            let sql = format!(
                "select {hint}{} {} where {range} order by {} limit {}",
                keys::listed(table),
                table.by_key(),
                table.order_by(),
                next.rows
            );
            match pair.source.rows("read a chunk's digests", &sql).await {
                Err(error) if error.is_out_of_time() && next.rows > 1 => {
                    next.rows = (next.rows / FEWER).max(1);
                }
                rows => return rows,
            }
        }
    }

    async fn compare(&self, pair: &mut Pair, chunk: Chunk) -> Result<(), MoveError> {
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
        let sql = format!(
            "select {} {} where {range}",
            fingerprint::of_rows(table),
            table.by_key()
        );
        let target = pair.target.rows("compare a chunk", &sql).await?;
        let count = target.first().and_then(|row| number(row, 0));
        let bits = target.first().and_then(|row| bytes(row, 1));
        let rows = chunk.rows.len() as u64;
        // Of no rows the function gives neutral bits of its own length.
        let digests = chunk.rows.iter().map(|row| keys::digest(job, table, row));
        let equal = count == Some(rows) && (rows == 0 || bits == Some(&summed(digests)?[..]));
        if !equal {
            let sql = format!("{} {} where {range}", keys::selected(table), table.by_key());
            let target = pair.target.rows("compare a chunk's rows", &sql).await?;
            let source = keys::digests(job, table, &chunk.rows)?;
            let target = keys::digests(job, table, &target)?;
            let unlike = keys::different(&source, &target);
            ledger.suspect(unlike.into_iter().map(|key| (chunk.table, key)));
        }
        Progress::add(&job.progress.rows_compared, rows);
        Progress::add(&job.progress.pieces, 1);
        self.front.lock().done(chunk.number, rows);
        Ok(())
    }
}

/// The exclusive or of digests, as the server sums them up.
fn summed<'d>(
    digests: impl Iterator<Item = Result<&'d [u8], MoveError>>,
) -> Result<[u8; fingerprint::DIGEST_BYTES], MoveError> {
    let mut sum = [0; fingerprint::DIGEST_BYTES];
    for digest in digests {
        for (sum, byte) in sum.iter_mut().zip(digest?) {
            *sum ^= byte;
        }
    }
    Ok(sum)
}

/// As many rows as a chunk of this table may have.
fn most_rows(comparison: &Comparison<'_>, table: &Table) -> u64 {
    let fitting = BYTES / table.row_bytes.max(1);
    fitting.clamp(1, comparison.job.limits.chunk_rows_max.max(1))
}

fn first_rows(comparison: &Comparison<'_>, table: &Table) -> u64 {
    most_rows(comparison, table).min(FIRST_ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_summed_as_the_server_does() {
        let digests = [[0x0f; 32], [0xff; 32], [0x01; 32]];
        let sum = summed(digests.iter().map(|digest| Ok(&digest[..])));
        assert_eq!(sum.unwrap(), [0xf1; 32]);
        let one = summed([Ok(&[7; 32][..]), Err(MoveError::Stopped)].into_iter());
        assert!(one.is_err());
    }

    /// Chunks that are done in another order than they were begun.
    #[test]
    fn what_is_compared_ends_before_the_first_chunk_that_is_not() {
        let place = |table, rows| Position {
            table,
            after: None,
            rows,
        };
        let mut front = Front::new(place(0, 0));
        front.begun(1, place(0, 0), place(0, 10));
        front.begun(2, place(0, 10), place(1, 15));
        front.begun(3, place(1, 15), place(1, 25));
        front.done(2, 5);
        assert_eq!(front.position(), place(0, 0));
        front.done(1, 10);
        assert_eq!(front.position(), place(1, 15));
        front.done(3, 10);
        assert_eq!((front.position(), front.rows), (place(1, 25), 25));
    }
}
