//! The control server's way into the databases of pods: homes, merchant tokens, opening the primary. No other part of
//! the control server speaks to MySQL.
//!
//! A pod's password is read for each session, from where the catalog says it is, and forgotten with it. Sessions are
//! few and short: one at a time for a pod, each with a deadline, so that a dead pod holds up nobody but its own shops. A
//! session that did not end well is dropped, which closes its connection: the server then undoes what was open.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use shared::PodId;
use shared::config::SecretRef;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use sqlx::{ConnectOptions as _, Connection as _, MySqlConnection};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout, timeout_at};

use crate::api::Address;
use crate::catalog::{Catalog, CatalogError, MysqlServer};
use crate::secrets::Account;
use crate::turns::Turns;

mod error;
// Homes of shops: made, taken away, set to a state.
mod homes;
// Merchant tokens of shops.
mod merchant_tokens;
// What servers say of themselves, and the steps that open one.
mod servers;

pub use error::PodStoreError;
#[cfg(test)]
pub(crate) use servers::ReplicaLook;
pub(crate) use servers::{Identity, ServerLook, Step, Watched};

/// The database of every pod.
pub const DATABASE: &str = "podhost";

/// A server that lives accepts in milliseconds; a dead one must not hold up the answer.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// All of a session: the longest statement waits for the writes in flight of one shop, each at most 2 s, and for a
/// replica's acknowledgement.
pub const SESSION_DEADLINE: Duration = Duration::from_secs(10);
/// How long a statement waits for a row: longer than a shop's write may take (2 s), shorter than the session.
const ROW_WAIT_S: u32 = 5;
/// How long a request waits for its turn at a pod.
pub const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens sessions at pods.
#[derive(Debug)]
pub struct PodStore {
    catalog: Arc<Catalog>,
    secrets_dir: PathBuf,
    turns: Turns<PodId>,
}

/// A session at the primary of one pod.
#[derive(Debug)]
pub struct Session {
    pod: PodId,
    address: Address,
    conn: MySqlConnection,
    deadline: Instant,
    _turn: OwnedMutexGuard<()>,
}

impl PodStore {
    /// Relative references to secrets start at `secrets_dir`.
    pub fn new(catalog: Arc<Catalog>, secrets_dir: PathBuf) -> Self {
        Self {
            catalog,
            secrets_dir,
            turns: Turns::default(),
        }
    }

    /// Opens a session at a pod's primary, when no other step is under way there.
    pub async fn session(&self, pod: PodId) -> Result<Session, PodStoreError> {
        let turn = timeout(TURN_TIMEOUT, self.turns.take(pod))
            .await
            .map_err(|_| PodStoreError::Busy { pod })?;
        let deadline = Instant::now() + SESSION_DEADLINE;
        let (_, servers) = self.catalog.mysql_servers(pod).await?;
        let primary = servers.iter().find(|s| s.primary);
        let server = primary.ok_or(PodStoreError::NoPrimary { pod })?;
        let conn = self.connect(pod, server).await?;
        let mut session = Session {
            pod,
            address: server.address.clone(),
            conn,
            deadline,
            _turn: turn,
        };
        session.greet().await?;
        Ok(session)
    }

    /// The operator's password at a server, from where the catalog says it is. A file or a command: it may take a moment.
    pub(crate) fn password(
        &self,
        pod: PodId,
        server: &MysqlServer,
    ) -> Result<SecretString, PodStoreError> {
        let address = &server.address;
        let secret = |text: String| PodStoreError::Secret { pod, text };
        let reference = server.secret.as_deref().ok_or_else(|| {
            secret(format!(
                "the catalog names no secret for the server {address}"
            ))
        })?;
        let source: SecretRef = reference
            .parse()
            .map_err(|e| secret(shared::error::chain(&e)))?;
        let source = match source {
            SecretRef::File(path) => SecretRef::File(self.secrets_dir.join(path)),
            other @ (SecretRef::Env(_) | SecretRef::Command(_)) => other,
        };
        source.read().map_err(|e| secret(shared::error::chain(&e)))
    }

    /// Connects to one server of a pod, as the operator.
    pub(crate) async fn connect(
        &self,
        pod: PodId,
        server: &MysqlServer,
    ) -> Result<MySqlConnection, PodStoreError> {
        let address = &server.address;
        let password = self.password(pod, server)?;
        let options = MySqlConnectOptions::new()
            .host(&address.host)
            .port(address.port)
            .username(Account::Operator.user())
            .password(password.expose_secret())
            .database(DATABASE)
            .ssl_mode(MySqlSslMode::Preferred)
            .pipes_as_concat(false)
            .statement_cache_capacity(16)
            .disable_statement_logging();
        let unreachable = |source| PodStoreError::Unreachable {
            pod,
            address: address.to_string(),
            source: Some(source),
        };
        match timeout(CONNECT_TIMEOUT, MySqlConnection::connect_with(&options)).await {
            Ok(conn) => conn.map_err(unreachable),
            Err(_) => Err(PodStoreError::Unreachable {
                pod,
                address: address.to_string(),
                source: None,
            }),
        }
    }
}

impl Session {
    /// Bounds what the session may wait for, and makes sure that it is at the right pod.
    async fn greet(&mut self) -> Result<(), PodStoreError> {
        let wait = format!(
            "set session innodb_lock_wait_timeout = {ROW_WAIT_S}, lock_wait_timeout = {ROW_WAIT_S}, wait_timeout = {}",
            SESSION_DEADLINE.as_secs()
        );
        self.run(sqlx::raw_sql(sqlx::AssertSqlSafe(wait))).await?;
        let row: Option<(u32, bool)> = {
            let query = sqlx::query_as(
                "select pod, @@global.read_only = 1 from pod_identity where one = 1",
            );
            let (conn, deadline) = (&mut self.conn, self.deadline);
            let answer = timeout_at(deadline, query.fetch_optional(conn)).await;
            self.settle(answer)?
        };
        match row {
            Some((pod, _)) if pod != self.pod.get() => Err(PodStoreError::OtherPod {
                pod: self.pod,
                found: pod,
                address: self.at(),
            }),
            Some((_, true)) => Err(PodStoreError::Closed {
                pod: self.pod,
                address: self.at(),
            }),
            Some((_, false)) => Ok(()),
            None => Err(PodStoreError::NoIdentity {
                pod: self.pod,
                address: self.at(),
            }),
        }
    }

    fn at(&self) -> String {
        self.address.to_string()
    }

    /// Sends a statement without an answer.
    async fn run<'q, E>(&mut self, statement: E) -> Result<u64, PodStoreError>
    where
        E: 'q + sqlx::Execute<'q, sqlx::MySql>,
    {
        use sqlx::Executor as _;
        let answer = timeout_at(self.deadline, self.conn.execute(statement)).await;
        self.settle(answer).map(|done| done.rows_affected())
    }

    /// Names the pod in what went wrong.
    fn settle<T>(
        &self,
        answer: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, PodStoreError> {
        match answer {
            Ok(Ok(it)) => Ok(it),
            Ok(Err(source)) => Err(PodStoreError::of_statement(self.pod, self.at(), source)),
            Err(_) => Err(PodStoreError::Timeout {
                pod: self.pod,
                address: self.at(),
            }),
        }
    }

    async fn begin(&mut self) -> Result<(), PodStoreError> {
        self.run(sqlx::raw_sql("begin")).await.map(drop)
    }

    async fn commit(&mut self) -> Result<(), PodStoreError> {
        self.run(sqlx::raw_sql("commit")).await.map(drop)
    }

    /// Ends the session politely.
    pub async fn close(self) {
        // Dropping it would do; the server logs one aborted connection less.
        let _ = timeout(CONNECT_TIMEOUT, self.conn.close()).await;
    }
}

impl From<CatalogError> for PodStoreError {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(error)
    }
}
