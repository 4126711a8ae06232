//! The database of a pod. Only this module's files open connections, begin and end transactions.
//!
//! In reading order: `statement` (what may be sent), `fence` (the first round trip), `guard` (an open transaction),
//! `commit` (its end), `write` (all of a write), `read`, `servers` (which replica may answer), `pool`, `fault`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use shared::PodId;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use crate::config::{Config, Limits, Mysql, Tls};
use crate::home::Homes;

mod breaker;
mod commit;
mod fault;
mod fence;

mod guard;
mod lease;
mod pool;
mod read;
mod servers;
mod statement;
mod tx;
mod write;

pub use read::Reader;
pub use tx::Tx;

pub(crate) use breaker::Breaker;
pub(crate) use fault::{Fault, Lost, number};
pub(crate) use fence::{Seen, look};
pub(crate) use guard::IDLE_WAIT_TIMEOUT_S;
pub(crate) use pool::{Pool, Settings};
pub(crate) use read::{Found, Look};
pub(crate) use servers::Servers;
pub(crate) use shared::gtid::GtidSet;
pub(crate) use write::{Run, Written};

/// What a read must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Every write acknowledged before the read began: the primary.
    Strong,
    /// This client's own writes.
    Session,
    /// What a replica in band has.
    Eventual,
}

/// The pod's servers and what this process knows of them.
#[derive(Debug)]
pub(crate) struct Db {
    pub(crate) pod: PodId,
    /// Transactions at the primary.
    pub(crate) write: Pool,
    /// Snapshots at the primary.
    pub(crate) read: Pool,
    pub(crate) servers: Arc<Servers>,
    pub(crate) homes: Homes,
    pub(crate) limits: Limits,
    /// The highest term of a primary that this process has seen.
    term: AtomicU64,
}

impl Db {
    pub(crate) fn new(config: &Config) -> Self {
        let Config {
            pools,
            mysql,
            reads,
            ..
        } = config;
        let options = |at: &shared::config::Endpoint| {
            options(mysql, at, &mysql.user, mysql.password.expose())
        };
        let primary = options(&mysql.primary);
        let settings = |role, max, breaker: &Arc<Breaker>| Settings {
            breaker: breaker.clone(),
            role,
            max,
            wait: pools.wait,
            connect: pools.connect,
            ping: pools.ping,
            idle: pools.idle,
            life: pools.life,
            queue: pools.queue,
            per_shop: pools.per_shop(max),
            queue_per_shop: pools.shop_queue,
            session: session(role == "write", config),
        };
        // The longest that the first round trip of the one that tries may take.
        let breaker = || Arc::new(Breaker::new(pools.connect + config.limits.transaction));
        let at_primary = breaker();
        let servers = Servers::new(config, |at| {
            Pool::new(options(at), settings("replica", pools.replica, &breaker()))
        });
        Self {
            pod: config.pod,
            write: Pool::new(primary.clone(), settings("write", pools.write, &at_primary)),
            read: Pool::new(primary, settings("read", pools.read, &at_primary)),
            servers: Arc::new(servers),
            homes: Homes::new(reads.home_age),
            limits: config.limits.clone(),
            term: AtomicU64::new(0),
        }
    }

    /// Every pool, for the task that sweeps them.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Pool> {
        [&self.write, &self.read]
            .into_iter()
            .chain(self.servers.pools())
    }
}

/// How to reach a server as an account. sqlx's own settings of the session are off: `||` keeps its meaning, and what
/// there is to set is in [`session`].
pub(crate) fn options(
    mysql: &Mysql,
    at: &shared::config::Endpoint,
    user: &str,
    password: &str,
) -> MySqlConnectOptions {
    let mode = match mysql.tls {
        Tls::Disabled => MySqlSslMode::Disabled,
        Tls::Preferred => MySqlSslMode::Preferred,
        Tls::Required => MySqlSslMode::Required,
        Tls::VerifyCa => MySqlSslMode::VerifyCa,
        Tls::VerifyIdentity => MySqlSslMode::VerifyIdentity,
    };
    let options = MySqlConnectOptions::new()
        .host(&at.host)
        .port(at.port)
        .username(user)
        .password(password)
        .database(&mysql.database)
        .ssl_mode(mode)
        .pipes_as_concat(false)
        .no_engine_substitution(false)
        .timezone(None)
        .statement_cache_capacity(STATEMENTS);
    match &mysql.ca_file {
        Some(file) => options.ssl_ca(file),
        None => options,
    }
}

/// Prepared statements kept on a connection: more than the application has, and times all connections of both processes
/// still under the server's default `max_prepared_stmt_count` of 16382.
const STATEMENTS: usize = 200;

/// What each connection is told first. Everything a statement's meaning hangs on is pinned here, whatever the server's
/// defaults are.
///
/// `read committed`: a statement sees what is committed when it begins, and locks no gaps, which are most deadlocks; reads
/// of several statements have snapshots of their own. `innodb_lock_wait_timeout` 1 s is the shortest there is, and half
/// of a transaction's deadline.
fn session(writes: bool, config: &Config) -> String {
    let deadline_ms = config.limits.transaction.as_millis();
    let (isolation, read_only) = if writes {
        ("READ-COMMITTED", "off")
    } else {
        ("REPEATABLE-READ", "on")
    };
    format!(
        "set session sql_mode = 'ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,\
         ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', autocommit = on, \
         transaction_isolation = '{isolation}', transaction_read_only = {read_only}, innodb_lock_wait_timeout = 1, \
         lock_wait_timeout = 1, max_execution_time = {deadline_ms}, wait_timeout = {IDLE_WAIT_TIMEOUT_S}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_all_connections_stay_under_the_servers_default() {
        let pools = (crate::config::limits::WRITE_CONNECTIONS
            + crate::config::limits::READ_CONNECTIONS)
            * crate::config::limits::PROCESSES;
        assert!(pools as usize * STATEMENTS < 16_382);
    }
}
