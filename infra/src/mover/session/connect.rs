//! How a connection is made, and what is fixed on it.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, DriverError, Error, OptsBuilder, SslOpts};
use secrecy::ExposeSecret as _;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{READ_LIMIT, Session, fault};
use crate::api::Address;
use crate::mover::error::MoveError;
use crate::mover::job::End;
use crate::pod_store::DATABASE;

/// A server that lives greets in milliseconds; one under load may need a second.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// The largest row that is read, the largest packet of the protocol.
const PACKET_MAX: usize = 1 << 30;

/// How long a statement waits for a row that another transaction holds. Longer than a shop's write may take (2 s), since
/// a mover waits for those in flight; shorter than a statement's deadline.
const ROW_WAIT_S: u32 = 5;
/// How long the server keeps a session that says nothing, with its locks: a mover that was stopped in a transaction
/// holds the home's row for that long. Above the longest wait of a stream between two chunks (the throttle), which is
/// spent outside of transactions.
const SILENCE_S: u32 = 30;

/// The error of a `kill` that comes too late.
const NO_SUCH_SESSION: u16 = 1094;

/// A read ends by itself a minute after the longest that is waited for: its mover may be gone, and can end nothing.
const EXECUTION_MAX: Duration = READ_LIMIT.saturating_add(Duration::from_secs(60));

/// What is fixed on each connection, so that a value is stored again as it was read, whatever the server's own settings:
///
/// * strict, so that a value that does not fit is an error and not another value; invalid and zero dates, and zero in a
///   column that counts by itself, are values like others;
/// * times in UTC, both ways;
/// * what comes out of a column is its bytes, not a translation of them;
/// * no look at parents of foreign keys (rows arrive table by table), but at unique values;
/// * read committed: a chunk locks its rows, not the gaps between them.
const SETTINGS: &str = "set sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION', \
    time_zone = '+00:00', character_set_client = utf8mb4, character_set_connection = utf8mb4, \
    collation_connection = utf8mb4_0900_ai_ci, character_set_results = null, foreign_key_checks = 0, unique_checks = 1, \
    autocommit = 1, sql_safe_updates = 0, sql_auto_is_null = 0, sql_select_limit = default, \
    transaction_isolation = 'READ-COMMITTED', transaction_read_only = 0, group_concat_max_len = 1048576, \
    max_error_count = 65535, range_optimizer_max_mem_size = 0, information_schema_stats_expiry = 0, \
    max_sort_length = 8388608, div_precision_increment = 4, default_week_format = 0, lc_time_names = 'en_US', \
    end_markers_in_json = 0, show_create_table_verbosity = 1, session_track_gtids = 'OFF', big_tables = 0";

/// One server of a pod, and how to log in there.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) end: End,
    pub(super) address: Address,
}

impl Server {
    pub(super) fn of(end: &End, address: &Address) -> Arc<Self> {
        Arc::new(Self {
            end: end.clone(),
            address: address.clone(),
        })
    }
}

/// Connects to a primary.
pub(super) async fn primary(end: &End, stop: &CancellationToken) -> Result<Session, MoveError> {
    server(Server::of(end, &end.primary), stop).await
}

/// Connects to any server of a pod and fixes the settings.
pub(super) async fn server(
    server: Arc<Server>,
    stop: &CancellationToken,
) -> Result<Session, MoveError> {
    let Server { end, address } = &*server;
    let doing = "connect";
    let pod = end.pod;
    if let Some(cause) = &end.unknown {
        return Err(MoveError::Waits(format!("pod {pod}: no session: {cause}")));
    }
    let made = async {
        let mut conn = connect(end, address).await?;
        conn.query_drop(SETTINGS).await?;
        let (silence, execution) = (silence_s(), EXECUTION_MAX.as_millis());
        let waits = format!(
            "set innodb_lock_wait_timeout = {ROW_WAIT_S}, lock_wait_timeout = {ROW_WAIT_S}, \
             max_execution_time = {execution}, wait_timeout = {silence}, net_read_timeout = {SILENCE_S}, net_write_timeout = {SILENCE_S}"
        );
        conn.query_drop(waits).await?;
        mysql_async::Result::Ok(conn)
    };
    let until = Instant::now() + CONNECT_LIMIT;
    let answer = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(MoveError::Stopped),
        answer = timeout_at(until, made) => answer,
    };
    let limit = CONNECT_LIMIT;
    let conn = answer
        .map_err(|_| MoveError::Timeout { pod, doing, limit })?
        .map_err(|error| fault::of(pod, doing, error))?;
    Ok(Session {
        id: conn.id(),
        server,
        stop: stop.clone(),
        conn: Some(conn),
        spoken: Instant::now(),
        squeezed: false,
    })
}

/// How long a session may say nothing; a test may let it outlive a stop.
#[cfg(feature = "failpoints")]
fn silence_s() -> u32 {
    crate::mover::failpoint::silence_s(SILENCE_S)
}

#[cfg(not(feature = "failpoints"))]
const fn silence_s() -> u32 {
    SILENCE_S
}

/// Ends a session of this account, if there is one of that number.
pub(super) async fn kill(server: &Server, id: u32) -> mysql_async::Result<()> {
    let Server { end, address } = server;
    let mut conn = connect(end, address).await?;
    // A server that was started anew gives the numbers out again, to anybody.
    let sql = format!(
        "select 1 from performance_schema.threads where processlist_id = {id} \
         and processlist_user = substring_index(user(), '@', 1)"
    );
    let found: Option<u8> = conn.query_first(sql).await?;
    if found.is_some() {
        match conn.query_drop(format!("kill {id}")).await {
            // It has ended by itself.
            Err(Error::Server(said)) if said.code == NO_SUCH_SESSION => {}
            killed => killed?,
        }
    }
    conn.disconnect().await
}

/// Encrypted where the server can and is not on this machine; as the control server's other sessions are.
async fn connect(end: &End, address: &Address) -> mysql_async::Result<Conn> {
    let plain = OptsBuilder::default()
        .ip_or_hostname(address.host.clone())
        .tcp_port(address.port)
        .user(Some(end.user.clone()))
        .pass(Some(end.password.expose_secret().to_owned()))
        .db_name(Some(DATABASE))
        // A socket named by the server may be another server's here.
        .prefer_socket(false)
        .stmt_cache_size(0)
        // The server bounds what it takes; what it sends may be larger, since a row can have several large values.
        .max_allowed_packet(Some(PACKET_MAX))
        .tcp_nodelay(true);
    let here = ["127.0.0.1", "::1", "localhost"].contains(&address.host.as_str());
    if !here {
        let tls = SslOpts::default()
            .with_danger_accept_invalid_certs(true)
            .with_danger_skip_domain_validation(true);
        match Conn::new(plain.clone().ssl_opts(tls)).await {
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) => {}
            made => return made,
        }
    }
    Conn::new(plain).await
}
