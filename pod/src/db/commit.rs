//! The end of a write transaction, and what to do when nobody knows whether it came.

use std::time::Duration;

use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Either, Executor as _, Row as _};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::db::fault::{Fault, Lost, number};
use crate::db::guard::{Guard, IDLE_WAIT_TIMEOUT_S, rollback};
use crate::db::pool::{Place, Pool};
use crate::db::statement::GUARD_SAVEPOINT;
use crate::meter;

/// How long to look whether a killed session is gone. It goes at once unless it waits for a replica to acknowledge its
/// commit, and then its outcome is that replica's to say.
const SETTLE_WAIT: Duration = Duration::from_secs(3);

/// How often to look.
const SETTLE_STEP: Duration = Duration::from_millis(20);

/// A commit is not begun with less than this left of the transaction's deadline: it would as likely be cut off, and an
/// unknown commit costs more than one that was rolled back.
const COMMIT_MIN: Duration = Duration::from_millis(200);

/// How often to look whether a session that stands on is gone by now, and its place free.
const KEEP_STEP: Duration = Duration::from_millis(500);

/// "Unknown thread id": the session is gone.
const NO_SUCH_SESSION: u16 = 1094;

/// "Savepoint does not exist": the transaction in which the guard set it has ended behind its back.
const NO_SAVEPOINT: u16 = 1305;

/// Errors with which a server refuses a commit and rolls back: demotion (1290, 1792, 1836), conflict (1213, 1205), a
/// replication plugin's veto before the commit (3100).
const REFUSED: [u16; 6] = [1290, 1792, 1836, 1213, 1205, 3100];

/// How a commit ended.
#[derive(Debug)]
pub(crate) enum Committed {
    /// It is durable. The server's executed set afterwards, unless only the answer's end was lost.
    Yes(Option<String>),
    /// It is not, and the transaction is gone.
    No(Fault),
    /// A statement ended the transaction before its time, so that a part may be committed: a bug.
    EndedBefore,
    /// The answer never came. The session to settle, and the place that it takes up until then.
    Unknown(u64, Place),
}

impl Guard {
    /// Commits, in one round trip. The guard's savepoint is released first: had anything ended the transaction since
    /// its beginning (an implicit commit, a deadlock's rollback), the server has forgotten it and the commit is not run.
    pub(crate) async fn commit(mut self) -> Committed {
        if self.deadline.saturating_duration_since(Instant::now()) < COMMIT_MIN {
            rollback(self.conn).await;
            return Committed::No(Fault::Slow("the write"));
        }
        let session = self.conn.id();
        let sql = format!(
            "release savepoint {GUARD_SAVEPOINT}; commit; set session wait_timeout = {IDLE_WAIT_TIMEOUT_S}; \
             select @@global.gtid_executed as executed"
        );
        let mut steps = 0;
        let mut executed = None;
        let deadline = self.deadline;
        let answer = timeout_at(deadline, async {
            let mut stream = self
                .conn
                .raw()
                .fetch_many(sqlx::raw_sql(AssertSqlSafe(sql)));
            while let Some(item) = stream.try_next().await? {
                match item {
                    Either::Left(_) => steps += 1,
                    Either::Right(row) => executed = Some(row.try_get::<String, _>("executed")?),
                }
            }
            Ok::<_, sqlx::Error>(())
        })
        .await;
        match (answer, steps) {
            (Ok(Ok(())), _) => {
                self.conn.give_back();
                Committed::Yes(executed)
            }
            (Ok(Err(error)), 0) if number(&error) == Some(NO_SAVEPOINT) => {
                rollback(self.conn).await;
                Committed::EndedBefore
            }
            (Ok(Err(error)), 0 | 1) if number(&error).is_some_and(|n| REFUSED.contains(&n)) => {
                rollback(self.conn).await;
                Committed::No(Fault::of("commit", error, Lost::Within))
            }
            (Ok(Err(_)) | Err(_), 0 | 1) => Committed::Unknown(session, self.conn.close()),
            // The commit itself was confirmed.
            (Ok(Err(_)) | Err(_), _) => Committed::Yes(None),
        }
    }
}

/// What became of a session that is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The server has forgotten it: its transaction is committed or never will be.
    Gone,
    /// It still stands: its commit waits for a replica to acknowledge it.
    Stands,
    /// The server cannot be asked.
    Unasked,
}

/// Makes an unknown outcome final: kills the session and waits until the server has forgotten it. After that its
/// transaction is either committed or never will be, and the closure, run again with the same key, finds out which.
/// A plain look at the rows would not do: the commit could still land after it.
pub(crate) async fn settle(pool: &Pool, session: u64) -> Settled {
    let settled = end(pool, session, SETTLE_STEP).await;
    meter::commit_settled(settled == Settled::Gone);
    settled
}

/// Keeps the place of a session that stands on, until it is gone. Without that a pod whose replicas are away would put
/// the next write into each place that a hanging commit has left, until the server has no connection for anybody.
pub(crate) async fn keep_place(pool: Pool, session: u64, place: Place) {
    while end(&pool, session, KEEP_STEP).await == Settled::Stands {}
    drop(place);
}

async fn end(pool: &Pool, session: u64, step: Duration) -> Settled {
    let ended = timeout(SETTLE_WAIT, async {
        let mut raw = match pool.connect().await {
            Ok((raw, _)) => raw,
            Err(Fault::Busy) => {
                sleep(step).await;
                return Settled::Stands;
            }
            Err(_) => return Settled::Unasked,
        };
        loop {
            let kill = sqlx::raw_sql(AssertSqlSafe(format!("kill {session}")));
            match raw.execute(kill).await {
                Ok(_) => sleep(step).await,
                Err(error) if number(&error) == Some(NO_SUCH_SESSION) => return Settled::Gone,
                Err(_) => return Settled::Unasked,
            }
        }
    })
    .await;
    ended.unwrap_or(Settled::Stands)
}
