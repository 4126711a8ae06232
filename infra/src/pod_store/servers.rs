//! What database servers say of themselves, and the single steps that open a primary or mend a replica. Which step to
//! take is decided elsewhere ([`crate::serve`]); every one can be done again.

use std::time::Duration;

use shared::PodId;
use sqlx::{MySqlConnection, Row as _};
use tokio::time::timeout;

use super::{PodStore, PodStoreError};
use crate::catalog::MysqlServer;

/// Each look and each step: these statements touch no rows of shops and take milliseconds.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// Writing the term waits for a replica's acknowledgement.
const TERM_TIMEOUT: Duration = Duration::from_secs(5);

/// A server seen from within.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerLook {
    pub(crate) uuid: String,
    pub(crate) read_only: bool,
    pub(crate) super_read_only: bool,
    pub(crate) offline: bool,
    pub(crate) executed: String,
    /// Whether semi-sync's source side is on; `None` without the plugin.
    pub(crate) source_on: Option<bool>,
    /// Whether semi-sync's replica side is on; `None` without the plugin.
    pub(crate) replica_on: Option<bool>,
    /// Replicas that acknowledge to it now.
    pub(crate) acknowledgers: u64,
    /// Whom it follows, if it is set up to follow.
    pub(crate) follows: Option<ReplicaLook>,
}

/// A server's own view of whom it follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaLook {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) source_uuid: String,
    /// Whether the receiver has a connection; `Connecting` is not one.
    pub(crate) receiving: bool,
    pub(crate) receiver_stopped: bool,
    pub(crate) applying: bool,
    pub(crate) error: Option<String>,
}

/// Whose a database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pod: u32,
    pub(crate) term: u64,
}

/// One server of a pod, with a connection that is kept while it works.
#[derive(Debug)]
pub(crate) struct Watched {
    pod: PodId,
    pub(crate) server: MysqlServer,
    conn: Option<MySqlConnection>,
}

impl Watched {
    pub(crate) fn new(pod: PodId, server: MysqlServer) -> Self {
        Self {
            pod,
            server,
            conn: None,
        }
    }

    /// Looks at the server.
    pub(crate) async fn look(&mut self, store: &PodStore) -> Result<ServerLook, PodStoreError> {
        let mut conn = self.take(store).await?;
        let answer = timeout(STEP_TIMEOUT, look(&mut conn)).await;
        self.keep(conn, answer)
    }

    /// Whose database it is; `None` before it is provisioned.
    pub(crate) async fn identity(
        &mut self,
        store: &PodStore,
    ) -> Result<Option<Identity>, PodStoreError> {
        let mut conn = self.take(store).await?;
        let query = sqlx::query_as("select pod, term from pod_identity where one = 1");
        let answer = timeout(STEP_TIMEOUT, query.fetch_optional(&mut conn)).await;
        let row: Option<(u32, u64)> = self.keep(conn, answer)?;
        Ok(row.map(|(pod, term)| Identity { pod, term }))
    }

    /// Whether it has executed a whole GTID set.
    pub(crate) async fn holds(
        &mut self,
        store: &PodStore,
        set: &str,
    ) -> Result<bool, PodStoreError> {
        let mut conn = self.take(store).await?;
        let query = sqlx::query_scalar("select gtid_subset(?, @@global.gtid_executed)").bind(set);
        let answer = timeout(STEP_TIMEOUT, query.fetch_one(&mut conn)).await;
        let holds: i64 = self.keep(conn, answer)?;
        Ok(holds == 1)
    }

    /// Sends one of [`Step`].
    pub(crate) async fn step(&mut self, store: &PodStore, step: Step) -> Result<(), PodStoreError> {
        use sqlx::Executor as _;
        let mut conn = self.take(store).await?;
        let answer = timeout(STEP_TIMEOUT, conn.execute(sqlx::raw_sql(step.sql()))).await;
        self.keep(conn, answer).map(drop)
    }

    /// The primary's first transaction: writes the term, unless a higher one stands there (`false`). Comes back when a
    /// replica has acknowledged it.
    pub(crate) async fn write_term(
        &mut self,
        store: &PodStore,
        term: u64,
    ) -> Result<bool, PodStoreError> {
        let mut conn = self.take(store).await?;
        let update =
            sqlx::query("update pod_identity set term = ? where one = 1 and pod = ? and term <= ?")
                .bind(term)
                .bind(self.pod.get())
                .bind(term);
        let answer = timeout(TERM_TIMEOUT, update.execute(&mut conn)).await;
        // sqlx counts the rows found, not only those that got another value.
        self.keep(conn, answer)
            .map(|done| done.rows_affected() == 1)
    }

    async fn take(&mut self, store: &PodStore) -> Result<MySqlConnection, PodStoreError> {
        match self.conn.take() {
            Some(conn) => Ok(conn),
            None => store.connect(self.pod, &self.server).await,
        }
    }

    /// Keeps a connection that gave an answer; one that did not is closed by being dropped.
    fn keep<T>(
        &mut self,
        conn: MySqlConnection,
        answer: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, PodStoreError> {
        let (pod, address) = (self.pod, self.server.address.to_string());
        match answer {
            Ok(Ok(it)) => {
                self.conn = Some(conn);
                Ok(it)
            }
            Ok(Err(source)) => Err(PodStoreError::of_statement(pod, address, source)),
            Err(_) => Err(PodStoreError::Timeout { pod, address }),
        }
    }
}

/// The single steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Semi-sync's source side on: before a primary opens.
    SourceOn,
    /// Semi-sync's source side off: left on in a replica it stops its applier for ever.
    SourceOff,
    /// The operator may write, nobody else.
    HalfOpen,
    /// Everybody may write.
    Open,
    /// The receiver and the applier go on.
    StartReplica,
}

impl Step {
    const fn sql(self) -> &'static str {
        match self {
            Self::SourceOn => "set global rpl_semi_sync_source_enabled = on",
            Self::SourceOff => "set global rpl_semi_sync_source_enabled = off",
            Self::HalfOpen => "set global super_read_only = off",
            Self::Open => "set global read_only = off",
            Self::StartReplica => "start replica",
        }
    }
}

async fn look(conn: &mut MySqlConnection) -> Result<ServerLook, sqlx::Error> {
    let (uuid, read_only, super_read_only, offline, executed): (String, i64, i64, i64, String) =
        sqlx::query_as(
            "select cast(@@global.server_uuid as char), cast(@@global.read_only as signed), \
             cast(@@global.super_read_only as signed), cast(@@global.offline_mode as signed), \
             cast(@@global.gtid_executed as char)",
        )
        .fetch_one(&mut *conn)
        .await?;
    // These are there only with the plugins, so they are asked for by name.
    let semisync: Vec<(String, String)> = sqlx::query_as(
        "show global variables where variable_name in \
         ('rpl_semi_sync_source_enabled', 'rpl_semi_sync_replica_enabled')",
    )
    .fetch_all(&mut *conn)
    .await?;
    let clients: Option<(String, String)> =
        sqlx::query_as("show global status like 'Rpl_semi_sync_source_clients'")
            .fetch_optional(&mut *conn)
            .await?;
    let follows = sqlx::query("show replica status")
        .fetch_optional(conn)
        .await?;
    let on = |name: &str| {
        let found = semisync.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.eq_ignore_ascii_case("on"))
    };
    Ok(ServerLook {
        uuid,
        read_only: read_only != 0,
        super_read_only: super_read_only != 0,
        offline: offline != 0,
        executed,
        source_on: on("rpl_semi_sync_source_enabled"),
        replica_on: on("rpl_semi_sync_replica_enabled"),
        acknowledgers: clients.and_then(|(_, n)| n.parse().ok()).unwrap_or(0),
        follows: follows.as_ref().map(replica_look).transpose()?,
    })
}

fn replica_look(row: &sqlx::mysql::MySqlRow) -> Result<ReplicaLook, sqlx::Error> {
    let text = |name: &str| row.try_get::<String, _>(name);
    let receiver = text("Replica_IO_Running")?;
    let errors = [text("Last_IO_Error")?, text("Last_SQL_Error")?];
    Ok(ReplicaLook {
        host: text("Source_Host")?,
        port: u16::try_from(row.try_get::<u32, _>("Source_Port")?).unwrap_or(0),
        source_uuid: text("Source_UUID")?,
        receiving: receiver == "Yes",
        receiver_stopped: receiver == "No",
        applying: text("Replica_SQL_Running")? == "Yes",
        error: errors.into_iter().find(|text| !text.is_empty()),
    })
}
