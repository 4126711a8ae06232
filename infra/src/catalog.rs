//! The catalog: which pod owns which shop. All of its SQL is here and in `catalog/`, and nowhere else.
//!
//! One writer: every change is one transaction that holds the write lock from its first statement (`begin immediate`;
//! with PostgreSQL the row of `catalog_meta`). What an edge or a pod may see takes the next version in it, and is audited
//! in it. A commit is on the disk before it is answered (`synchronous=FULL`). Readers work on snapshots (WAL) and are
//! woken by [`Catalog::watch`] after a commit.
//!
//! Statements are written for SQLite and PostgreSQL alike: `$1`, `on conflict`, `returning`, no `rowid`. What looks into
//! JSON is not alike: `->>` takes a path here (`'$.record.fence_tries'`), and PostgreSQL's takes one name.

use std::fs::File;
use std::time::{Duration, Instant};

use shared::telemetry::metric;
use shared::{Epoch, Host, PodId, ShopId};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePool;
use sqlx::{Sqlite, SqliteConnection};
use tokio::sync::watch;

// Where new shops of each bucket go, and where one shop goes.
mod buckets;
// Making a shop: names, home, placement.
mod create;
mod error;
// Registered domains of shops.
mod hosts;
// Moves of shops between pods.
mod moves;
// Opening the file.
mod open;
// Work of several steps, and the audit of single ones.
mod operations;
// Compare-and-swap of placements, their history, removal.
mod placements;
// Registering pods.
mod pod_put;
// Pods, their endpoints, who is primary.
mod pods;
// What edges follow: the whole table and its changes.
mod routes;
// Shops as an operator sees them.
mod shops;
// Freezing a shop, taking it offline, and back.
mod states;
// Who may ask the control server.
mod tokens;

pub use buckets::BUCKETS;
pub use create::{Begun, Creation, NewShop};
pub use error::CatalogError;
pub use hosts::HOSTS_PER_SHOP_MAX;
#[cfg(test)]
pub(crate) use moves::MoveKind;
pub use moves::{ClearOrder, MoveFilter, MoveRef, NewMove, Planned};
pub(crate) use moves::{Leftover, MoveDetail, MoveOrder, MoveRow, counts};
pub use open::{BUSY_TIMEOUT, OpenError};
pub(crate) use operations::OWN_KINDS;
pub use placements::{HISTORY_MAX, PlacementRow};
pub use pods::MysqlServer;
pub use routes::{CHANGES_PAGE_MAX, TABLE_PAGE, TableReader};
pub use shops::ShopRef;
pub use states::StateOrder;
pub use tokens::{ApiToken, Role};

/// Readers at once: a few for requests, and one for each full table that is being streamed.
pub const READERS: u32 = 8;
/// How long a request waits for the writer or a reader: a write takes milliseconds, so this is many of them.
pub const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Milliseconds since 1970, UTC: how the catalog keeps instants.
pub(crate) fn now_ms() -> i64 {
    let nanos = time::OffsetDateTime::now_utc().unix_timestamp_nanos();
    i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)
}

/// An instant as the catalog keeps it.
pub(crate) fn instant(ms: i64) -> Result<time::OffsetDateTime, CatalogError> {
    time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .map_err(|_| CatalogError::Corrupt(format!("the instant {ms} ms")))
}

/// The domains that names of shops depend on.
#[derive(Debug, Clone)]
pub struct Domains {
    /// Each shop has `<handle>.<base>`.
    pub base: Host,
    /// Shops are also reached by a path here.
    pub platform: Host,
}

/// The catalog. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Catalog {
    write: SqlitePool,
    read: SqlitePool,
    changed: watch::Sender<u64>,
    /// Counts changes of moves.
    moves: watch::Sender<u64>,
    domains: Domains,
    /// Whether other control servers may have the file too.
    shared: bool,
    /// Held as long as this process owns the file.
    _lock: File,
}

impl Catalog {
    /// The domains.
    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// Woken after each commit with the last version. Subscribe before looking: a change after the look then wakes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Where the catalog stands.
    pub async fn position(&self) -> Result<Position, CatalogError> {
        let mut conn = self.read.acquire().await?;
        Position::read(&mut conn).await
    }

    /// A consistent view of everything, until it is dropped.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, CatalogError> {
        let mut conn = self.read.acquire().await?;
        sqlx::raw_sql("begin").execute(&mut *conn).await?;
        Ok(Snapshot(conn))
    }

    /// Begins a change; it holds the write lock until [`Change::commit`], or until it is dropped, which undoes it.
    pub(crate) async fn change(&self, actor: &str) -> Result<Change<'_>, CatalogError> {
        let begun = Instant::now();
        let mut conn = self.write.acquire().await?;
        sqlx::raw_sql("begin immediate").execute(&mut *conn).await?;
        let actor = actor.to_owned();
        Ok(Change {
            conn,
            catalog: self,
            actor,
            at_ms: now_ms(),
            version: None,
            moves: false,
            begun,
        })
    }
}

/// Where the catalog stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Of its history.
    pub incarnation: u64,
    /// Its last change that an edge or a pod may see.
    pub version: u64,
    /// Changes up to here may be incomplete.
    pub pruned: u64,
    /// Whether shops may be made and moved.
    pub reconciled: bool,
}

impl Position {
    pub(crate) async fn read(conn: &mut SqliteConnection) -> Result<Self, CatalogError> {
        let (incarnation, reconciled, version, pruned): (i64, i64, i64, i64) = sqlx::query_as(
            "select incarnation, reconciled, version, pruned from catalog_meta where one = 1",
        )
        .fetch_one(conn)
        .await?;
        Ok(Self {
            incarnation: unsigned(incarnation)?,
            version: unsigned(version)?,
            pruned: unsigned(pruned)?,
            reconciled: incarnation == reconciled,
        })
    }
}

/// A consistent view of everything.
pub(crate) struct Snapshot(PoolConnection<Sqlite>);

impl std::ops::Deref for Snapshot {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        &self.0
    }
}

impl std::ops::DerefMut for Snapshot {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.0
    }
}

/// A change in the making: one transaction, with the write lock held.
pub(crate) struct Change<'c> {
    conn: PoolConnection<Sqlite>,
    catalog: &'c Catalog,
    pub(crate) actor: String,
    pub(crate) at_ms: i64,
    version: Option<u64>,
    /// Whether it changes a move.
    moves: bool,
    begun: Instant,
}

impl Change<'_> {
    /// The connection inside the transaction.
    pub(crate) fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }

    /// Takes the next version; one for each row that changes, so that a page of changes can end anywhere.
    pub(crate) async fn next_version(&mut self) -> Result<i64, CatalogError> {
        let version: i64 = sqlx::query_scalar(
            "update catalog_meta set version = version + 1 where one = 1 returning version",
        )
        .fetch_one(&mut *self.conn)
        .await?;
        self.version = Some(unsigned(version)?);
        Ok(version)
    }

    /// Who waits for changes of moves is woken by the commit.
    pub(crate) const fn touch_moves(&mut self) {
        self.moves = true;
    }

    /// Makes it durable, then wakes who waits.
    pub(crate) async fn commit(self) -> Result<(), CatalogError> {
        let Self {
            mut conn,
            catalog,
            actor: _,
            at_ms: _,
            version,
            moves,
            begun,
        } = self;
        let (changed, woken) = (catalog.changed.clone(), catalog.moves.clone());
        let commit = async move {
            sqlx::raw_sql("commit").execute(&mut *conn).await?;
            metrics::histogram!(metric::CATALOG_COMMIT_SECONDS)
                .record(begun.elapsed().as_secs_f64());
            if let Some(version) = version {
                changed.send_if_modified(|last| {
                    let newer = version > *last;
                    *last = version.max(*last);
                    newer
                });
            }
            if moves {
                woken.send_modify(|count| *count += 1);
            }
            Ok::<(), CatalogError>(())
        };
        // Whoever asked for it may be dropped meanwhile; what is committed is told all the same.
        let committed = tokio::spawn(commit).await;
        committed.unwrap_or(Err(CatalogError::Storage(sqlx::Error::WorkerCrashed)))
    }
}

pub(crate) fn unsigned(raw: i64) -> Result<u64, CatalogError> {
    u64::try_from(raw).map_err(|_| CatalogError::Corrupt(format!("the number {raw}")))
}

/// SQL has no unsigned 64-bit numbers. Ids come from here and count from 1, so that a larger one is nobody's.
pub(crate) fn signed(raw: u64) -> i64 {
    i64::try_from(raw).unwrap_or(i64::MAX)
}

pub(crate) fn shop_id(raw: i64) -> Result<ShopId, CatalogError> {
    ShopId::new(unsigned(raw)?).map_err(|e| CatalogError::Corrupt(e.to_string()))
}

pub(crate) fn pod_id(raw: i64) -> Result<PodId, CatalogError> {
    PodId::new(unsigned(raw)?).map_err(|e| CatalogError::Corrupt(e.to_string()))
}

pub(crate) fn epoch(raw: i64) -> Result<Epoch, CatalogError> {
    Epoch::try_from(unsigned(raw)?).map_err(|e| CatalogError::Corrupt(e.to_string()))
}

/// Reads a word of one of our enums.
pub(crate) fn word<T>(parsed: Option<T>, text: &str) -> Result<T, CatalogError> {
    parsed.ok_or_else(|| CatalogError::Corrupt(format!("the word {text:?}")))
}

#[cfg(test)]
pub(crate) mod tests;
