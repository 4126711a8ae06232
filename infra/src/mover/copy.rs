//! Copies the shop's rows in chunks by primary key.
//!
//! One reader goes through the tables, several loaders write. A chunk is one transaction at the target, with the move's
//! mark in it. The mark says up to which key everything is there: the key before the oldest chunk that is still on its
//! way. Whoever takes up the work begins there; chunks that were further than that are copied again, which changes
//! nothing but rows that changed at the source meanwhile, and those are in the changed keys anyway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::error::MoveError;
use super::job::Job;
use super::progress::Progress;
use super::run::of_shop;
use super::session::{Session, bytes, text};
use super::size;
use super::step::{Step, step};
use super::table::{Key, Limit, Rows, Table, load, read, unchanged};
use super::throttle::Throttle;
use super::tries::{self, Tries};

/// Rows of a table's first chunk: nothing is known of their cost yet.
const FIRST_ROWS: u64 = 1_000;
/// The mark of a table that is there whole.
const DONE: &str = "copy:done:";
/// Chunks that wait for a loader: the reader is one ahead.
const AHEAD: usize = 1;

/// How far a table is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Reached {
    /// Counts the chunks of the table, over all runs.
    chunk: u64,
    /// Rows up to there.
    rows: u64,
    /// Their bytes.
    bytes: u64,
    /// The last key that is there; `None` at the beginning.
    key: Option<Key>,
}

impl Reached {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.chunk, self.rows, self.bytes] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        if let Some(key) = &self.key {
            out.push(1);
            out.extend_from_slice(&key.to_bytes());
        }
        out
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (chunk, rest) = bytes.split_first_chunk::<8>()?;
        let (rows, rest) = rest.split_first_chunk::<8>()?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let key = match rest.split_first() {
            Some((_, key)) => Some(Key::from_bytes(key).ok()?),
            None => None,
        };
        Some(Self {
            chunk: u64::from_be_bytes(*chunk),
            rows: u64::from_be_bytes(*rows),
            bytes: u64::from_be_bytes(*size),
            key,
        })
    }
}

/// A chunk on its way.
struct Chunk {
    table: usize,
    number: u64,
    rows: Rows,
}

/// What the reader and the loaders share of one table.
#[derive(Debug, Default)]
struct Course {
    /// Where the table stood before each chunk that is on its way.
    open: Mutex<BTreeMap<u64, Reached>>,
    /// How many rows the next chunk shall have.
    rows_next: AtomicU64,
}

impl Course {
    /// Up to where everything is there.
    fn reached(&self) -> Option<Reached> {
        self.open.lock().first_key_value().map(|(_, s)| s.clone())
    }
}

/// What all tasks of a copy share.
struct Shared {
    job: Job,
    tables: Arc<[Table]>,
    courses: Vec<Course>,
    throttle: Throttle,
}

/// Copies all tables, from where an earlier run of the same move got to.
pub(crate) async fn copy_all(
    job: &Job,
    tables: &Arc<[Table]>,
    throttle: Throttle,
) -> Result<(), MoveError> {
    let mut target = Session::open(job, &job.target).await?;
    let (done, tables_reached) = tables_reached(&mut target, job).await?;
    unchanged(&mut target, tables).await?;
    target.close().await;
    let there = tables_reached.values();
    let there = there.fold((0, 0), |(rows, bytes), reached| {
        (rows + reached.rows, bytes + reached.bytes)
    });
    job.progress.found.set(there.0, there.1);
    let shared = Arc::new(Shared {
        job: job.clone(),
        tables: Arc::clone(tables),
        courses: tables.iter().map(|_| Course::default()).collect(),
        throttle,
    });
    let (to_loaders, chunks) = mpsc::channel(AHEAD);
    let chunks = Arc::new(AsyncMutex::new(chunks));
    // Dropped with this call, which ends the loaders and closes their connections.
    let mut loaders = JoinSet::new();
    for slot in 0..job.limits.streams.max(1) {
        let (shared, chunks) = (Arc::clone(&shared), Arc::clone(&chunks));
        let load = async move { load_chunks(&shared, slot, &chunks).await };
        loaders.spawn(of_shop(job.shop, load));
    }
    drop(chunks);
    both(
        read_tables(&shared, done, tables_reached, to_loaders),
        loaders,
    )
    .await
}

/// Waits for the reader and all loaders. One loader that fails ends the others and the reader at once: its chunk stays the
/// oldest on its way, so that no mark would come further, whatever else were copied. A reader that fails lets them load
/// what it has read; where one fails too, nobody takes the reader's chunks, and the loader's reason is the one to tell.
async fn both(
    reader: impl Future<Output = Result<(), MoveError>>,
    mut loaders: JoinSet<Result<(), MoveError>>,
) -> Result<(), MoveError> {
    let mut reader = std::pin::pin!(reader);
    let mut read = None;
    loop {
        tokio::select! {
            biased;
            ended = loaders.join_next() => match ended {
                Some(ended) => ended.unwrap_or(Err(MoveError::Unexpected("a loader did not end")))?,
                None => return read.unwrap_or(Err(MoveError::Unexpected("the loaders ended first"))),
            },
            ended = &mut reader, if read.is_none() => read = Some(ended),
        }
    }
}

/// The tables that are there whole, and how far the others are.
async fn tables_reached(
    target: &mut Session,
    job: &Job,
) -> Result<(Vec<String>, BTreeMap<String, Reached>), MoveError> {
    let sql = format!(
        "select part, at from move_mark where move_id = '{}' and part like 'copy:%'",
        job.id
    );
    let mut done = Vec::new();
    let mut tables_reached: BTreeMap<String, Reached> = BTreeMap::new();
    for row in target.rows("read the marks of the copy", &sql).await? {
        let part = text(&row, 0).unwrap_or_default();
        let Some(reached) = bytes(&row, 1).and_then(Reached::from_bytes) else {
            continue;
        };
        if let Some(table) = part.strip_prefix(DONE) {
            done.push(table.to_owned());
            tables_reached.insert(table.to_owned(), reached);
        } else if let Some((_, table)) = part.trim_start_matches("copy:").split_once(':')
            && !done.iter().any(|name| name == table)
            && tables_reached
                .get(table)
                .is_none_or(|s| s.chunk < reached.chunk)
        {
            tables_reached.insert(table.to_owned(), reached);
        }
    }
    Ok((done, tables_reached))
}

async fn read_tables(
    shared: &Shared,
    done: Vec<String>,
    mut tables_reached: BTreeMap<String, Reached>,
    to_loaders: mpsc::Sender<Chunk>,
) -> Result<(), MoveError> {
    let mut source = Session::open(&shared.job, &shared.job.source).await?;
    for (index, table) in shared.tables.iter().enumerate() {
        if done.contains(&table.name) {
            continue;
        }
        let reached = tables_reached.remove(&table.name).unwrap_or_default();
        let reader = Reader {
            shared,
            index,
            to_loaders: &to_loaders,
        };
        reader.read_table(&mut source, reached).await?;
    }
    source.close().await;
    Ok(())
}

struct Reader<'a> {
    shared: &'a Shared,
    index: usize,
    to_loaders: &'a mpsc::Sender<Chunk>,
}

impl Reader<'_> {
    async fn read_table(
        &self,
        source: &mut Session,
        mut reached: Reached,
    ) -> Result<(), MoveError> {
        let (job, table) = (&self.shared.job, &self.shared.tables[self.index]);
        let course = &self.shared.courses[self.index];
        let limits = &job.limits;
        let chunk_bytes = limits.chunk_bytes_max.get() as u64;
        let mut row_bytes = table.row_bytes.max(1);
        course.rows_next.store(FIRST_ROWS, Ordering::Relaxed);
        loop {
            self.shared.throttle.pass_gently().await?;
            source.awake().await?;
            let fitting = (chunk_bytes / row_bytes).max(1);
            let wanted = course.rows_next.load(Ordering::Relaxed);
            let wanted = wanted.clamp(limits.chunk_rows_min, limits.chunk_rows_max);
            let wanted = wanted.min(fitting);
            let limit = Limit {
                rows: Some(wanted),
                bytes: chunk_bytes,
            };
            let range = table.key_range(job.shop, reached.key.as_ref(), None);
            let began = Instant::now();
            let rows = read(source, table, &range, limit).await?;
            self.shared.throttle.worked(began.elapsed());
            let whole = !rows.cut && rows.count < wanted;
            let mut next = reached.clone();
            if let Some(average) = rows.bytes().checked_div(rows.count) {
                row_bytes = average.max(1);
                next.chunk += 1;
                next.rows += rows.count;
                next.bytes += rows.bytes();
                next.key.clone_from(&rows.last);
                course.open.lock().insert(reached.chunk, reached.clone());
                let chunk = Chunk {
                    table: self.index,
                    number: reached.chunk,
                    rows,
                };
                if self.to_loaders.send(chunk).await.is_err() {
                    return Err(MoveError::Stopped);
                }
            }
            reached = next;
            // A chunk may be a whole one by chance; a row with no more key than the shop is the only one.
            if whole || table.key.len() == 1 {
                course.open.lock().insert(u64::MAX, reached);
                return Ok(());
            }
        }
    }
}

/// Takes chunks until there are no more.
async fn load_chunks(
    shared: &Shared,
    slot: usize,
    chunks: &AsyncMutex<mpsc::Receiver<Chunk>>,
) -> Result<(), MoveError> {
    let job = &shared.job;
    let mut target = Session::open(job, &job.target).await?;
    target.squeeze().await?;
    loop {
        let waiting = async { chunks.lock().await.recv().await };
        let chunk = tokio::select! {
            () = job.stop.cancelled() => return Err(MoveError::Stopped),
            chunk = waiting => chunk,
        };
        let Some(chunk) = chunk else { break };
        target.awake().await?;
        let took =
            step!(Step::CopyChunk => load_chunk(shared, &mut target, slot, &chunk).await).await?;
        let course = &shared.courses[chunk.table];
        shared.throttle.worked(took);
        let next = size::next(chunk.rows.count, took, shared.throttle.piece());
        course.rows_next.store(next, Ordering::Relaxed);
        course.open.lock().remove(&chunk.number);
        Progress::add(&job.progress.rows_copied, chunk.rows.count);
        Progress::add(&job.progress.bytes_copied, chunk.rows.bytes());
        Progress::add(&job.progress.pieces, 1);
        finish(shared, &mut target).await?;
    }
    target.awake().await?;
    finish(shared, &mut target).await?;
    target.close().await;
    Ok(())
}

/// Writes one chunk; says how long its rows took. The transaction around them takes what it takes, however few they are:
/// a slow disk must not make chunks small, which would make it slower.
async fn load_chunk(
    shared: &Shared,
    target: &mut Session,
    slot: usize,
    chunk: &Chunk,
) -> Result<Duration, MoveError> {
    let table = &shared.tables[chunk.table];
    let part = format!("copy:{slot}:{}", table.name);
    let mut tries = Tries::default();
    loop {
        let reached = shared.courses[chunk.table].reached().unwrap_or_default();
        let tried = async {
            target
                .begin_owned_at(&shared.job, &part, &reached.to_bytes())
                .await?;
            let began = Instant::now();
            load(target, table, &chunk.rows).await?;
            let took = began.elapsed();
            target.commit().await?;
            Ok::<_, MoveError>(took)
        };
        match tried.await {
            Ok(took) => return Ok(took),
            Err(error) => tries.undo(target, error).await?,
        }
    }
}

/// Marks the tables that are there whole: all read, nothing on its way.
async fn finish(shared: &Shared, target: &mut Session) -> Result<(), MoveError> {
    for (course, table) in shared.courses.iter().zip(&*shared.tables) {
        let whole = {
            let mut open = course.open.lock();
            let last = open.first_key_value().is_some_and(|(n, _)| *n == u64::MAX);
            if last { open.remove(&u64::MAX) } else { None }
        };
        if let Some(reached) = whole {
            let part = format!("{DONE}{}", table.name);
            tries::note(target, &shared.job, &part, &reached.to_bytes()).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
