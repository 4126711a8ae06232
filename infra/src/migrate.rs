//! The one runner of schema changes, for the databases of pods (MySQL) and for the catalog (SQLite).
//!
//! Forward only. A ledger in each database says which files were applied and by which text. A MySQL statement that
//! defines something commits by itself, so a crash leaves half a file behind: its row then lacks `finished_at`, and the
//! next run does the whole file again (every statement of it is safe to run twice). sqlx's own runner is not used: it
//! waits for its lock for ever.

use std::time::Duration;

use migrations::Migration;
use shared::error::{Classify, Kind};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, SqlitePool};

/// The name of the lock that keeps two runners of one database apart.
const LOCK: &str = "podhost.migrate";
/// How long to wait for another runner: longer than any single statement of these files takes on a loaded machine.
const LOCK_WAIT_S: u32 = 10;
/// How often a statement is tried that waits for a table: each try gives up after a second (`lock_wait_timeout`), since
/// everything behind a waiting `alter table` waits too.
const TRIES_MAX: u32 = 20;
/// The pause between two tries, so that what queued behind the statement gets through.
const TRY_PAUSE: Duration = Duration::from_millis(250);

/// MySQL: a lock could not be had in time (`lock_wait_timeout` and `innodb_lock_wait_timeout` both say so).
const ER_LOCK_WAIT_TIMEOUT: u16 = 1205;

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The file's number.
    pub version: u32,
    /// Its name.
    pub name: &'static str,
}

/// Why a database could not be brought to the schema of this binary.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The database knows a file that this binary does not.
    #[error(
        "the schema has version {found}, newer than the {known} of this binary: use the newer binary"
    )]
    Newer {
        /// In the ledger.
        found: u32,
        /// The last one here.
        known: u32,
    },
    /// A file was applied with another text than it has now.
    #[error(
        "migration {version} ({name}) was applied with another text: a released file must never change"
    )]
    Changed {
        /// The file's number.
        version: u32,
        /// Its name.
        name: &'static str,
    },
    /// Another runner held the lock.
    #[error(
        "another migration of this database has been running for {LOCK_WAIT_S} s; try again when it has ended"
    )]
    Locked,
    /// A statement failed.
    #[error(
        "migration {version} ({name}), statement {statement}, failed; what was done stays, run it again once the cause is gone"
    )]
    Statement {
        /// The file's number.
        version: u32,
        /// Its name.
        name: &'static str,
        /// Counts from 1.
        statement: usize,
        /// What the database said.
        source: sqlx::Error,
    },
    /// The ledger could not be read or written.
    #[error("the schema ledger could not be read or written")]
    Ledger(#[source] sqlx::Error),
}

impl Classify for MigrateError {
    fn kind(&self) -> Kind {
        match self {
            Self::Newer { .. } | Self::Changed { .. } => Kind::Conflict,
            Self::Locked | Self::Statement { .. } | Self::Ledger(_) => Kind::Unavailable,
        }
    }

    fn client_text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// One row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    version: u32,
    checksum: String,
    finished: bool,
}

/// The files that are still to be run, in order. Pure.
fn pending<'a>(
    files: &'a [Migration],
    ledger: &[Entry],
) -> Result<Vec<&'a Migration>, MigrateError> {
    let known = files.last().map_or(0, |m| m.version);
    if let Some(entry) = ledger.iter().find(|e| e.version > known) {
        return Err(MigrateError::Newer {
            found: entry.version,
            known,
        });
    }
    let mut todo = Vec::new();
    for file in files {
        match ledger.iter().find(|e| e.version == file.version) {
            // A file that never finished may have been mended since.
            Some(Entry {
                finished: false, ..
            })
            | None => todo.push(file),
            Some(entry) if entry.checksum == file.checksum() => {}
            Some(_) => {
                return Err(MigrateError::Changed {
                    version: file.version,
                    name: file.name,
                });
            }
        }
    }
    Ok(todo)
}

/// Brings a pod's database to the schema of this binary. The connection is an operator's, with the database chosen.
/// Safe to run again after a crash anywhere, and beside another runner.
pub async fn pod(conn: &mut MySqlConnection) -> Result<Vec<Applied>, MigrateError> {
    lock(conn).await?;
    let done = pod_locked(conn).await;
    // A lost connection has lost its lock too.
    let released = sqlx::query("select release_lock(?)")
        .bind(LOCK)
        .execute(conn)
        .await;
    let done = done?;
    released.map_err(MigrateError::Ledger)?;
    Ok(done)
}

async fn lock(conn: &mut MySqlConnection) -> Result<(), MigrateError> {
    let got: Option<i64> = sqlx::query_scalar("select cast(get_lock(?, ?) as signed)")
        .bind(LOCK)
        .bind(LOCK_WAIT_S)
        .fetch_one(conn)
        .await
        .map_err(MigrateError::Ledger)?;
    match got {
        Some(1) => Ok(()),
        Some(_) | None => Err(MigrateError::Locked),
    }
}

async fn pod_locked(conn: &mut MySqlConnection) -> Result<Vec<Applied>, MigrateError> {
    sqlx::raw_sql("set session lock_wait_timeout = 1")
        .execute(&mut *conn)
        .await
        .map_err(MigrateError::Ledger)?;
    sqlx::raw_sql(
        "create table if not exists schema_ledger (version int not null primary key, name varchar(64) not null, \
         checksum char(64) not null, started_at timestamp(3) not null default current_timestamp(3), \
         finished_at timestamp(3) null)",
    )
    .execute(&mut *conn)
    .await
    .map_err(MigrateError::Ledger)?;
    let rows: Vec<(i32, String, bool)> = sqlx::query_as(
        "select version, checksum, finished_at is not null from schema_ledger order by version",
    )
    .fetch_all(&mut *conn)
    .await
    .map_err(MigrateError::Ledger)?;
    let ledger: Vec<Entry> = rows.into_iter().map(entry).collect();
    let mut applied = Vec::new();
    for file in pending(migrations::POD, &ledger)? {
        pod_file(conn, file).await?;
        applied.push(Applied {
            version: file.version,
            name: file.name,
        });
    }
    Ok(applied)
}

fn entry((version, checksum, finished): (i32, String, bool)) -> Entry {
    Entry {
        version: u32::try_from(version).unwrap_or(u32::MAX),
        checksum,
        finished,
    }
}

async fn pod_file(conn: &mut MySqlConnection, file: &Migration) -> Result<(), MigrateError> {
    sqlx::query(
        "insert into schema_ledger (version, name, checksum) values (?, ?, ?) \
         on duplicate key update name = values(name), checksum = values(checksum), \
         started_at = current_timestamp(3)",
    )
    .bind(file.version)
    .bind(file.name)
    .bind(file.checksum())
    .execute(&mut *conn)
    .await
    .map_err(MigrateError::Ledger)?;
    for (index, statement) in file.statements().into_iter().enumerate() {
        pod_statement(conn, &statement)
            .await
            .map_err(|source| MigrateError::Statement {
                version: file.version,
                name: file.name,
                statement: index + 1,
                source,
            })?;
    }
    sqlx::query("update schema_ledger set finished_at = current_timestamp(3) where version = ?")
        .bind(file.version)
        .execute(conn)
        .await
        .map_err(MigrateError::Ledger)?;
    Ok(())
}

async fn pod_statement(conn: &mut MySqlConnection, statement: &str) -> Result<(), sqlx::Error> {
    for _ in 1..TRIES_MAX {
        match sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut *conn)
            .await
        {
            Err(error) if mysql_number(&error) == Some(ER_LOCK_WAIT_TIMEOUT) => {
                tokio::time::sleep(TRY_PAUSE).await;
            }
            Err(error) => return Err(error),
            Ok(_) => return Ok(()),
        }
    }
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
        .execute(conn)
        .await
        .map(drop)
}

/// The number of a MySQL error.
pub(crate) fn mysql_number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    error
        .try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
        .map(|e| e.number())
}

/// Brings the catalog to the schema of this binary: each file in one transaction with its row of the ledger.
pub async fn catalog(pool: &SqlitePool) -> Result<Vec<Applied>, MigrateError> {
    catalog_files(pool, migrations::CATALOG).await
}

async fn catalog_files(
    pool: &SqlitePool,
    files: &'static [Migration],
) -> Result<Vec<Applied>, MigrateError> {
    let mut conn = pool.acquire().await.map_err(MigrateError::Ledger)?;
    sqlx::raw_sql(
        "create table if not exists schema_ledger (version bigint not null primary key, name text not null, \
         checksum text not null, started_at bigint not null, finished_at bigint null)",
    )
    .execute(&mut *conn)
    .await
    .map_err(MigrateError::Ledger)?;
    let mut applied = Vec::new();
    loop {
        // Read and written under one lock: another server may be starting too.
        let mut tx = conn
            .begin_with("begin immediate")
            .await
            .map_err(MigrateError::Ledger)?;
        let rows: Vec<(i32, String, bool)> = sqlx::query_as(
            "select version, checksum, finished_at is not null from schema_ledger order by version",
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(MigrateError::Ledger)?;
        let ledger: Vec<Entry> = rows.into_iter().map(entry).collect();
        let Some(file) = pending(files, &ledger)?.first().copied() else {
            return Ok(applied);
        };
        for (index, statement) in file.statements().into_iter().enumerate() {
            sqlx::raw_sql(AssertSqlSafe(statement))
                .execute(&mut *tx)
                .await
                .map_err(|source| MigrateError::Statement {
                    version: file.version,
                    name: file.name,
                    statement: index + 1,
                    source,
                })?;
        }
        let now = crate::catalog::now_ms();
        sqlx::query(
            "insert into schema_ledger (version, name, checksum, started_at, finished_at) values ($1, $2, $3, $4, $4)",
        )
        .bind(file.version)
        .bind(file.name)
        .bind(file.checksum())
        .bind(now)
        .execute(&mut *tx)
        .await
        .map_err(MigrateError::Ledger)?;
        tx.commit().await.map_err(MigrateError::Ledger)?;
        applied.push(Applied {
            version: file.version,
            name: file.name,
        });
    }
}

#[cfg(test)]
mod tests;
