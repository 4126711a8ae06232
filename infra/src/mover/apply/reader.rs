//! Reads the rows of keys at the source: several sessions at once, within a bound of memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::session::Session;
use crate::mover::table::{self, Key, Limit, Rows, Table};

/// Keys in one statement: its text stays below some hundred kilobytes.
const KEYS_MAX: usize = 500;
/// One read may bring this many times what was expected of it before it is cut and done in halves.
const SURPRISE: u64 = 4;

/// Keys of one table to read.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) table: usize,
    pub(super) keys: Vec<Key>,
}

/// Their rows. Keys without a row are gone at the source.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) table: usize,
    pub(super) keys: Vec<Key>,
    pub(super) rows: Rows,
}

/// Sessions at the source, and what is known of the tables' rows.
pub(super) struct Reader {
    job: Job,
    tables: Arc<[Table]>,
    sessions: Vec<Session>,
    /// Bytes that a row of each table takes on its way, at most so far.
    row_bytes: Vec<AtomicU64>,
}

impl Reader {
    pub(super) async fn open(job: &Job, tables: Arc<[Table]>) -> Result<Self, MoveError> {
        let sessions = (0..job.limits.streams.max(1)).map(|_| Session::open(job, &job.source));
        Ok(Self {
            job: job.clone(),
            sessions: futures::future::try_join_all(sessions).await?,
            row_bytes: tables
                .iter()
                .map(|t| AtomicU64::new(t.row_bytes.max(1)))
                .collect(),
            tables,
        })
    }

    /// The first session, for questions of another kind.
    pub(super) fn session(&mut self) -> Result<&mut Session, MoveError> {
        self.sessions
            .first_mut()
            .ok_or(MoveError::Unexpected("the applier has no session"))
    }

    /// Says something on every session, and opens those anew that are gone.
    pub(super) async fn refresh(&mut self) -> Result<(), MoveError> {
        for session in &mut self.sessions {
            session.awake().await?;
        }
        Ok(())
    }

    /// Cuts keys of one table into parts that are read at once.
    pub(super) fn wishes(&self, table: usize, keys: Vec<Key>) -> Vec<Wish> {
        let row = self
            .row_bytes
            .get(table)
            .map_or(1, |b| b.load(Ordering::Relaxed));
        let fit = self.job.limits.chunk_bytes_max.get() as u64 / row.max(1);
        let size = usize::try_from(fit).unwrap_or(KEYS_MAX).clamp(1, KEYS_MAX);
        let mut keys = keys.into_iter();
        let mut wishes = Vec::new();
        loop {
            let part: Vec<Key> = keys.by_ref().take(size).collect();
            if part.is_empty() {
                return wishes;
            }
            wishes.push(Wish { table, keys: part });
        }
    }

    /// Reads wishes until about as much is in memory as a chunk may have; the others stay.
    pub(super) async fn read(
        &mut self,
        wishes: &mut VecDeque<Wish>,
    ) -> Result<Vec<Found>, MoveError> {
        let enough = self.job.limits.chunk_bytes_max.get() as u64;
        let (job, tables, row_bytes) = (&self.job, &self.tables, &self.row_bytes);
        let left = Mutex::new(std::mem::take(wishes));
        let found = Mutex::new(Vec::new());
        let total = AtomicU64::new(0);
        let each = self.sessions.iter_mut().map(|session| async {
            while total.load(Ordering::Relaxed) < enough {
                let Some(wish) = left.lock().pop_front() else {
                    break;
                };
                let Some(table) = tables.get(wish.table) else {
                    break;
                };
                let limit = Limit {
                    rows: None,
                    bytes: enough.saturating_mul(SURPRISE),
                };
                let predicate = table.keys_in(job.shop, &wish.keys);
                let rows = table::read(session, table, &predicate, limit).await?;
                if let Some(known) = row_bytes.get(wish.table) {
                    known.fetch_max(rows.bytes() / rows.count.max(1), Ordering::Relaxed);
                }
                if rows.cut {
                    let mut keys = wish.keys;
                    let half = keys.split_off(keys.len() / 2);
                    let mut left = left.lock();
                    for keys in [half, keys] {
                        left.push_front(Wish {
                            table: wish.table,
                            keys,
                        });
                    }
                    continue;
                }
                total.fetch_add(rows.bytes(), Ordering::Relaxed);
                found.lock().push(Found {
                    table: wish.table,
                    keys: wish.keys,
                    rows,
                });
            }
            Ok::<(), MoveError>(())
        });
        futures::future::try_join_all(each).await?;
        *wishes = left.into_inner();
        Ok(found.into_inner())
    }
}
