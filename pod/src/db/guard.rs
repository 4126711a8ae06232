//! An open transaction on one connection. It ends by a commit or a rollback that the server has confirmed, and then the
//! connection goes back to its pool; or it is dropped, and then the connection is closed, which rolls back.

use std::time::Duration;

use futures::TryStreamExt as _;
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{AssertSqlSafe, Either, Executor as _, SqlStr};
use tokio::time::{Instant, timeout, timeout_at};

use crate::db::fault::{Fault, Lost};
use crate::db::pool::Conn;

/// Rows that one statement may return: a page is a hundred, so a statement that returns more lacks its `limit`, and
/// memory per transaction stays bounded.
pub(crate) const ROWS_MAX: usize = 10_000;

/// A rollback has nothing to wait for but the network and undo; a connection that does not answer is closed instead.
const ROLLBACK_WAIT: Duration = Duration::from_secs(1);

/// What idle connections get back after a transaction's own short `wait_timeout`: longer than any pool keeps them.
pub(crate) const IDLE_WAIT_TIMEOUT_S: u64 = 600;

/// An open transaction. `poison` is the first fault that makes it useless, whatever the closure made of it.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(super) conn: Conn,
    pub(super) deadline: Instant,
    poison: Option<Fault>,
    /// A statement was sent and its answer not read to its end.
    busy: bool,
}

impl Guard {
    /// Sends the first round trip, several statements in one packet whose last one gives one row.
    pub(crate) async fn begin(
        mut conn: Conn,
        sql: String,
        deadline: Instant,
    ) -> Result<(Self, MySqlRow), Fault> {
        const WHAT: &str = "begin a transaction";
        let first = async {
            let rows = conn
                .raw()
                .fetch_all(sqlx::raw_sql(AssertSqlSafe(sql)))
                .await?;
            rows.into_iter().next_back().ok_or(sqlx::Error::RowNotFound)
        };
        match timeout_at(deadline, first).await {
            Ok(Ok(row)) => {
                conn.pool().settings().breaker.answered();
                let guard = Self {
                    conn,
                    deadline,
                    poison: None,
                    busy: false,
                };
                Ok((guard, row))
            }
            Ok(Err(error)) => {
                let fault = Fault::of(WHAT, error, Lost::Before);
                if fault.connection_lives() {
                    tokio::spawn(rollback(conn));
                }
                Err(fault)
            }
            Err(_) => {
                conn.pool().settings().breaker.silent();
                Err(Fault::Silent(WHAT))
            }
        }
    }

    /// Sends one statement and reads its answer whole.
    pub(crate) async fn run(
        &mut self,
        what: &'static str,
        sql: SqlStr,
        arguments: Option<MySqlArguments>,
    ) -> Result<(Vec<MySqlRow>, u64), Fault> {
        // A deadlock has rolled all of it back, whatever the closure made of the error: a further statement would run
        // outside of any transaction, commit by itself, and stand beside what the rerun writes.
        if let Some(fault) = &self.poison {
            return Err(fault.echo());
        }
        let deadline = self.deadline;
        self.busy = true;
        let answer = timeout_at(deadline, read_whole(self.conn.raw(), sql, arguments)).await;
        self.busy = answer.is_err();
        let fault = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Fault::of(what, error, Lost::Within),
            Err(_) => Fault::Slow(what),
        };
        match fault {
            // The statement's own fault: the transaction goes on, and what it means is the closure's business.
            Fault::Statement { .. } => return Err(fault),
            // A `nowait` of the closure. The home's lock was taken in the first round trip.
            Fault::Locked => {
                let source = sqlx::Error::Protocol("a row is locked (nowait)".into());
                return Err(Fault::Statement { what, source });
            }
            Fault::Busy
            | Fault::Silent(_)
            | Fault::Slow(_)
            | Fault::Conflict { .. }
            | Fault::NotPrimary { .. }
            | Fault::Gone { .. } => {}
        }
        let echo = fault.echo();
        self.poison.get_or_insert(fault);
        Err(echo)
    }

    /// Makes sure that nothing of this commits.
    pub(crate) fn poison(&mut self, fault: Fault) {
        self.poison.get_or_insert(fault);
    }

    /// The fault that makes a commit wrong, if there was one.
    pub(crate) fn take_poison(&mut self) -> Option<Fault> {
        // A closure that dropped a statement on the way leaves an answer on the wire: never to be taken for another's.
        let dropped = self
            .busy
            .then_some(Fault::Slow("a statement that was dropped"));
        self.poison.take().or(dropped)
    }

    /// Ends it without an effect. A connection in doubt is closed.
    pub(crate) async fn rollback(self) {
        rollback(self.conn).await;
    }
}

/// Reads rows and counts up to the last packet, so that an error after the first row is seen too.
async fn read_whole(
    raw: &mut sqlx::MySqlConnection,
    sql: SqlStr,
    arguments: Option<MySqlArguments>,
) -> Result<(Vec<MySqlRow>, u64), sqlx::Error> {
    let mut rows = Vec::new();
    let mut affected = 0;
    let mut stream = match arguments {
        Some(arguments) => raw.fetch_many(sqlx::query_with(sql, arguments)),
        None => raw.fetch_many(sqlx::raw_sql(sql)),
    };
    while let Some(item) = stream.try_next().await? {
        match item {
            Either::Left(done) => affected += done.rows_affected(),
            Either::Right(_) if rows.len() == ROWS_MAX => {
                let text = format!("a statement gave more than {ROWS_MAX} rows");
                return Err(sqlx::Error::Decode(text.into()));
            }
            Either::Right(row) => rows.push(row),
        }
    }
    Ok((rows, affected))
}

/// Rolls back and returns the connection, or closes it.
pub(crate) async fn rollback(mut conn: Conn) {
    let sql = format!("rollback; set session wait_timeout = {IDLE_WAIT_TIMEOUT_S}");
    let done = timeout(
        ROLLBACK_WAIT,
        conn.raw().execute(sqlx::raw_sql(AssertSqlSafe(sql))),
    )
    .await;
    if matches!(done, Ok(Ok(_))) {
        conn.give_back();
    }
}
