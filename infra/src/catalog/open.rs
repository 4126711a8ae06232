//! Opening the catalog's file: alone, or beside other control servers on this machine.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sqlx::SqliteConnection;
use sqlx::pool::PoolConnectionMetadata;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::sync::watch;

use super::{ACQUIRE_TIMEOUT, Catalog, CatalogError, Domains, READERS};

/// How long SQLite waits for a lock that another program holds (a backup by `sqlite3`, a checkpoint).
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a catalog that others share is asked whether they changed it: a fraction of what a parked request waits.
const OTHERS_EVERY: Duration = Duration::from_millis(50);

impl Catalog {
    /// Opens the file, makes it if there is none, and brings its schema up to date. A file in use by another control
    /// server is refused.
    pub async fn open(path: &Path, domains: Domains) -> Result<Self, OpenError> {
        Self::open_as(path, domains, false).await
    }

    /// The same, beside other control servers on this machine that share it too: `SQLite`'s own locks keep their changes
    /// apart, and [`Self::follow_others`] hears of theirs.
    pub async fn open_shared(path: &Path, domains: Domains) -> Result<Self, OpenError> {
        Self::open_as(path, domains, true).await
    }

    async fn open_as(path: &Path, domains: Domains, shared: bool) -> Result<Self, OpenError> {
        let lock = lock_file(path, shared)?;
        let options = SqliteConnectOptions::from_str("sqlite:")
            .map_err(OpenError::Open)?
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        // One connection writes: waiting for it is fair, waiting for SQLite's lock is not.
        let write = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(None)
            .max_lifetime(None)
            .after_release(end_transaction)
            .connect_with(options.clone())
            .await
            .map_err(OpenError::Open)?;
        crate::migrate::catalog(&write)
            .await
            .map_err(OpenError::Migrate)?;
        let read = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_release(end_transaction)
            .connect_with(options.read_only(true).create_if_missing(false))
            .await
            .map_err(OpenError::Open)?;
        let catalog = Self {
            write,
            read,
            changed: watch::Sender::new(0),
            moves: watch::Sender::new(0),
            domains,
            shared,
            _lock: lock,
        };
        catalog.begin_history().await.map_err(OpenError::History)?;
        Ok(catalog)
    }

    /// A new catalog begins a history of its own. Its number is the time, so that edges which followed a lost catalog
    /// see another incarnation and not a version they believe to have.
    async fn begin_history(&self) -> Result<(), CatalogError> {
        let mut change = self.change("control").await?;
        let now = change.at_ms;
        sqlx::query(
            "insert into catalog_meta (one, incarnation, reconciled, version, pruned, shop_last, event_last, created_ms) \
             values (1, $1, $1, 0, 0, 0, 0, $2) on conflict (one) do nothing",
        )
        .bind(now / 1000)
        .bind(now)
        .execute(change.conn())
        .await?;
        sqlx::query(
            "with recursive bucket (n) as (select 0 union all select n + 1 from bucket where n < 1023) \
             insert into bucket_placement (bucket) select n from bucket where true on conflict (bucket) do nothing",
        )
        .execute(change.conn())
        .await?;
        change.commit().await?;
        let position = self.position().await?;
        self.changed.send_replace(position.version);
        Ok(())
    }

    /// Whether other control servers may have it too.
    pub const fn is_shared(&self) -> bool {
        self.shared
    }

    /// Wakes those who wait here for what another control server changed; ends never.
    pub async fn follow_others(&self) {
        let mut last = None;
        loop {
            tokio::time::sleep(OTHERS_EVERY).await;
            match self.data_version().await {
                Ok(now) if last.replace(now) == Some(now) => {}
                Ok(_) => match self.position().await {
                    Ok(position) => {
                        self.changed.send_if_modified(|last| {
                            let newer = position.version > *last;
                            *last = position.version.max(*last);
                            newer
                        });
                        self.moves.send_modify(|count| *count += 1);
                    }
                    Err(error) => tracing::warn!("{}", shared::error::chain(&error)),
                },
                Err(error) => tracing::warn!("{}", shared::error::chain(&error)),
            }
        }
    }

    /// Changes when another process has changed the file, as seen from one connection.
    async fn data_version(&self) -> Result<i64, CatalogError> {
        let mut conn = self.write.acquire().await?;
        let version: i64 = sqlx::query_scalar("pragma data_version")
            .fetch_one(&mut *conn)
            .await?;
        Ok(version)
    }
}

/// Why the catalog could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The lock file could not be made.
    #[error("cannot make the lock file {path}")]
    LockFile {
        /// Beside the catalog.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another server has it.
    #[error(
        "the catalog {path} is in use by another control server; stop that one first, or set `catalog_shared = true` for both"
    )]
    InUse {
        /// The catalog.
        path: String,
    },
    /// SQLite could not open the file.
    #[error("cannot open the catalog's file")]
    Open(#[source] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("cannot bring the catalog's schema up to date")]
    Migrate(#[source] crate::migrate::MigrateError),
    /// The first rows could not be written.
    #[error("cannot begin the catalog's history")]
    History(#[source] CatalogError),
}

fn lock_file(path: &Path, shared: bool) -> Result<File, OpenError> {
    let lock_path = path.with_extension("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock_path)
        .map_err(|source| OpenError::LockFile {
            path: lock_path.display().to_string(),
            source,
        })?;
    let lock = if shared {
        rustix::fs::FlockOperation::NonBlockingLockShared
    } else {
        rustix::fs::FlockOperation::NonBlockingLockExclusive
    };
    rustix::fs::flock(&file, lock).map_err(|_| OpenError::InUse {
        path: path.display().to_string(),
    })?;
    Ok(file)
}

/// Ends what a connection that comes back to its pool may have open.
///
/// sqlx's own `Transaction` is not used: SQLite ends a transaction by itself when the disk is full or fails, sqlx does
/// not notice, and the connection then refuses every later transaction.
fn end_transaction(
    conn: &mut SqliteConnection,
    _: PoolConnectionMetadata,
) -> futures::future::BoxFuture<'_, Result<bool, sqlx::Error>> {
    Box::pin(async move {
        /// What SQLite says when nothing is open (`SQLITE_ERROR`).
        const NOTHING_OPEN: &str = "1";
        match sqlx::raw_sql("rollback").execute(conn).await {
            Ok(_) => Ok(true),
            Err(sqlx::Error::Database(error)) => Ok(error.code().as_deref() == Some(NOTHING_OPEN)),
            Err(_) => Ok(false),
        }
    })
}
