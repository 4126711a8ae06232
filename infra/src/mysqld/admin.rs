//! Database servers over SQL, as the fleet's own steps need them: short statements over the socket, each with a bound.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use secrecy::ExposeSecret as _;
use shared::PodId;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};
use tokio::time::timeout;

use crate::home_dir::HomeDir;
use crate::secrets::Account;
use crate::unit::Unit;

/// A server on this machine answers in milliseconds, or something is wrong with it.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A fleet that ends waits less: a server that does not answer is killed.
pub(crate) const STOP_ANSWER_WITHIN: Duration = Duration::from_millis(750);

/// How long an ending primary's sessions may take to let go after `offline_mode`; it took 27 ms when tried.
const LET_GO_WITHIN: Duration = Duration::from_millis(500);

/// How often something is looked at again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Access denied.
const ACCESS_DENIED: u16 = 1045;

/// A locked account.
const ACCOUNT_LOCKED: u16 = 3118;

/// A database server of a pod.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) pod: PodId,
    /// `mysql-<pod>-<k>`.
    pub(crate) name: String,
    pub(crate) socket: PathBuf,
    pub(crate) port: u16,
}

impl Server {
    /// The server that a unit runs, if it is one.
    pub(crate) fn of(unit: &Unit) -> Option<Self> {
        Some(Self {
            pod: unit.pod?,
            name: unit.name.clone(),
            socket: unit.facts.socket.clone()?,
            port: unit.facts.port?,
        })
    }

    /// Connects as the operator; to a server that nobody has set up yet, as root without a password. While a
    /// server is getting its accounts from its primary neither may be let in: then the operator is tried once more.
    pub(crate) async fn connect(&self, home: &HomeDir) -> anyhow::Result<Connection> {
        let password = Account::Operator.password(home, self.pod)?;
        let operator = options(&self.socket)
            .username(Account::Operator.user())
            .password(password.expose_secret());
        let root = options(&self.socket).username("root");
        for options in [&operator, &root] {
            match bounded(options.connect()).await? {
                Err(fault) if is_denied(&fault) => {}
                conn => return self.connection(conn),
            }
        }
        self.connection(bounded(operator.connect()).await?)
    }

    fn connection(&self, conn: sqlx::Result<MySqlConnection>) -> anyhow::Result<Connection> {
        let conn = conn.map_err(|fault| said(&format!("log in to {}", self.name), &fault))?;
        Ok(Connection {
            name: self.name.clone(),
            conn,
        })
    }
}

fn options(socket: &Path) -> MySqlConnectOptions {
    MySqlConnectOptions::new()
        .socket(socket)
        .pipes_as_concat(false)
        .disable_statement_logging()
}

/// sqlx's errors say what their sources say: without them a chain says everything once.
fn said(what: &str, fault: &sqlx::Error) -> anyhow::Error {
    anyhow::anyhow!("{what}: {fault}")
}

fn is_denied(fault: &sqlx::Error) -> bool {
    let number = fault
        .as_database_error()
        .and_then(|fault| fault.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>())
        .map(sqlx::mysql::MySqlDatabaseError::number);
    number.is_some_and(|number| [ACCESS_DENIED, ACCOUNT_LOCKED].contains(&number))
}

async fn bounded<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    timeout(ANSWER_WITHIN, work)
        .await
        .context("no answer from the server")
}

/// A connection with everything allowed. It is not kept: open, say, close.
#[derive(Debug)]
pub(crate) struct Connection {
    name: String,
    pub(super) conn: MySqlConnection,
}

impl Connection {
    /// Runs a statement that gives nothing back. The text is never put into an error: it may hold a password.
    pub(crate) async fn run(&mut self, what: &str, sql: String) -> anyhow::Result<()> {
        let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.conn);
        let ran = timeout(Duration::from_secs(10), ran).await;
        let ran = ran.with_context(|| format!("{} did not {what} in time", self.name))?;
        ran.map(|_| ())
            .map_err(|fault| said(&format!("{what} on {}", self.name), &fault))
    }

    async fn row(&mut self, sql: &'static str) -> anyhow::Result<Option<MySqlRow>> {
        let row = bounded(sqlx::raw_sql(sql).fetch_optional(&mut self.conn)).await?;
        row.map_err(|fault| said(&format!("ask {}: {sql}", self.name), &fault))
    }

    /// Whether the server takes writes from anybody.
    pub(crate) async fn is_open(&mut self) -> anyhow::Result<bool> {
        let row = self
            .row("select cast(@@global.read_only as signed)")
            .await?;
        Ok(row.context("no row")?.try_get::<i64, _>(0)? == 0)
    }

    /// The pod whose database this is, if it is one's.
    pub(crate) async fn identity(&mut self) -> anyhow::Result<Option<u32>> {
        const THERE: &str = "select table_name from information_schema.tables \
            where table_schema = 'podhost' and table_name = 'pod_identity'";
        if self.row(THERE).await?.is_none() {
            return Ok(None);
        }
        let row = self
            .row("select pod from podhost.pod_identity where one = 1")
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Whether the schema is the one of this program, or newer.
    pub(crate) async fn is_migrated(&mut self) -> anyhow::Result<bool> {
        const NEWEST: &str = "select cast(coalesce(max(version), 0) as signed) from podhost.schema_ledger \
            where finished_at is not null";
        let newest: i64 = self.row(NEWEST).await?.context("no row")?.try_get(0)?;
        Ok(newest >= migrations::POD.last().map_or(0, |it| i64::from(it.version)))
    }

    /// Why a replica's receiver or applier stands still, if it says so.
    pub(crate) async fn replication_fault(&mut self) -> anyhow::Result<Option<String>> {
        let Some(row) = self.row("show replica status").await? else {
            return Ok(Some("it follows nobody".into()));
        };
        let fault = |column: &str| {
            row.try_get::<String, _>(column)
                .ok()
                .filter(|text| !text.is_empty())
        };
        Ok(fault("Last_IO_Error").or_else(|| fault("Last_SQL_Error")))
    }

    async fn waiting_sessions(&mut self) -> anyhow::Result<u64> {
        let row = self
            .row("show global status like 'Rpl_semi_sync_source_wait_sessions'")
            .await?;
        let Some(row) = row else {
            bail!("{} has no semi-synchronous plugin", self.name)
        };
        Ok(row.try_get::<String, _>(1)?.parse()?)
    }

    /// Says goodbye. A fault is of no interest: the server ends the session by itself.
    pub(crate) async fn close(self) {
        let _ = timeout(ANSWER_WITHIN, self.conn.close()).await;
    }
}

/// Whether a unit's server takes writes, or cannot say that it does not.
pub(crate) async fn may_take_writes(home: &HomeDir, unit: &Unit) -> bool {
    let Some(server) = Server::of(unit) else {
        return false;
    };
    let ask = async {
        let mut conn = server.connect(home).await?;
        let open = conn.is_open().await;
        conn.close().await;
        open
    };
    matches!(
        timeout(STOP_ANSWER_WITHIN, ask).await,
        Err(_) | Ok(Err(_) | Ok(true))
    )
}

/// Whether a server may be ended by SIGTERM. One that takes writes is first put into `offline_mode`, which cuts its
/// sessions without an answer; while a session still waits for a replica's acknowledgement an ordinary end would tell
/// that client OK. One that does not answer is killed.
pub(crate) async fn may_be_asked_to_end(home: &HomeDir, unit: &Unit) -> bool {
    let Some(server) = Server::of(unit) else {
        return true;
    };
    let take = async {
        let mut conn = server.connect(home).await?;
        let may = take_offline(&mut conn).await;
        conn.close().await;
        may
    };
    matches!(timeout(STOP_ANSWER_WITHIN, take).await, Ok(Ok(true)))
}

async fn take_offline(conn: &mut Connection) -> anyhow::Result<bool> {
    if !conn.is_open().await? {
        return Ok(true);
    }
    conn.run("go offline", "set global offline_mode = on".into())
        .await?;
    let began = tokio::time::Instant::now();
    while conn.waiting_sessions().await? > 0 {
        if began.elapsed() > LET_GO_WITHIN {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(true)
}
