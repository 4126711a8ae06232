//! One connection of a mover to one pod: every call has a deadline and ends when the run is told to stop.
//!
//! A session is never pooled and never used again after a call that gave no answer: the connection is taken out for the
//! call and put back by its answer, so that a call which is dropped half way takes its connection along. The server then
//! undoes what was open. What a session writes it writes inside [`Session::begin_owned`], which holds the home's row
//! until commit and goes on only if that row names this move and this owner.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use shared::gtid::GtidSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::error::MoveError;
use super::job::{End, Job};

// A session that was left alone.
mod awake;
// How a connection is made, and what is fixed on it.
mod connect;
// One question and its answer.
mod exchange;
// Which faults pass by themselves.
mod fault;
// The binlog's files.
mod file;
// Transactions that name the move.
mod owned;
// Values and names in statements and rows.
mod value;

pub(crate) use value::{bytes, literal, number, quoted, text};

/// A statement of a mover: a chunk is aimed at a tenth of a second, a slow disk may need a hundred times that.
pub(crate) const STATEMENT_LIMIT: Duration = Duration::from_secs(20);
/// A large row may take longer, by its size: no disk that a shop can live on is slower.
const LOAD_BYTES_PER_SECOND: u64 = 1 << 20;
/// All rows of one read: each of them has the deadline of a statement besides.
pub(crate) const READ_LIMIT: Duration = Duration::from_secs(600);
/// A commit waits for a replica's acknowledgement, which a restart of replicas can hold up.
pub(crate) const COMMIT_LIMIT: Duration = Duration::from_secs(30);
/// What the server may spend on waiting for executed transactions less than its client, so that its answer comes first.
const WAIT_MARGIN: Duration = Duration::from_millis(500);
/// The shortest wait for executed transactions: zero would mean for ever.
const WAIT_MIN: Duration = Duration::from_millis(10);

/// What a statement without rows answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Rows that changed.
    pub(crate) affected: u64,
    /// Warnings of the statement.
    pub(crate) warnings: u16,
    /// The server's line about it: `Records: 2  Deleted: 0  Skipped: 0  Warnings: 0`.
    pub(crate) info: String,
}

/// A connection to one server of a pod.
#[derive(Debug)]
pub(crate) struct Session {
    server: Arc<connect::Server>,
    stop: CancellationToken,
    /// `None` once a call has not answered.
    conn: Option<Conn>,
    id: u32,
    /// When the server answered last.
    spoken: Instant,
    /// Whether its transactions are compressed in the binlog.
    squeezed: bool,
}

impl Session {
    /// Connects to the primary of one of the move's two pods, and makes sure that it is the one that is meant: the pod,
    /// the term, and that it takes writes.
    pub(crate) async fn open(job: &Job, end: &End) -> Result<Self, MoveError> {
        Self::open_primary(end, &job.stop).await
    }

    /// The same for whoever is no run of a move.
    pub(crate) async fn open_primary(
        end: &End,
        stop: &CancellationToken,
    ) -> Result<Self, MoveError> {
        let mut session = connect::primary(end, stop).await?;
        session.greet().await?;
        Ok(session)
    }

    /// Connects to any server of a pod, a replica too, and asks nothing.
    pub(crate) async fn open_at(
        end: &End,
        address: &crate::api::Address,
        stop: &CancellationToken,
    ) -> Result<Self, MoveError> {
        connect::server(connect::Server::of(end, address), stop).await
    }

    /// Which pod it speaks to.
    pub(crate) fn end(&self) -> &End {
        &self.server.end
    }

    /// The server's number of the connection.
    pub(crate) fn connection_id(&self) -> u32 {
        self.id
    }

    /// Whether a call has not answered: nothing can be asked any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.conn.is_none()
    }

    /// All rows of one statement; the text bounds them.
    pub(crate) async fn rows(
        &mut self,
        doing: &'static str,
        sql: &str,
    ) -> Result<Vec<Row>, MoveError> {
        self.rows_within(doing, sql, STATEMENT_LIMIT).await
    }

    /// The same with its own deadline.
    pub(crate) async fn rows_within(
        &mut self,
        doing: &'static str,
        sql: &str,
        limit: Duration,
    ) -> Result<Vec<Row>, MoveError> {
        let mut asked = self.take(doing)?;
        let work = async {
            let result = asked.conn.query_iter(sql).await?;
            result.collect_and_drop::<Row>().await
        };
        let answer = self.bounded(limit, work).await;
        self.settle(doing, limit, asked, answer)
    }

    /// The rows of one statement as they come, until `take` has enough (`false`): the rest is not read, and the session
    /// goes on with another connection. Not for use inside a transaction.
    pub(crate) async fn each_row(
        &mut self,
        doing: &'static str,
        sql: &str,
        take: &mut (dyn FnMut(Row) -> bool + Send),
    ) -> Result<(), MoveError> {
        let mut asked = self.take(doing)?;
        let silent = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        let work = async {
            let begun = timeout(STATEMENT_LIMIT, asked.conn.query_iter(sql)).await;
            let mut result = begun.map_err(silent)??;
            let Some(mut rows) = result.stream::<Row>().await? else {
                return Ok(true);
            };
            loop {
                let next = timeout(STATEMENT_LIMIT, rows.next()).await;
                let Some(row) = next.map_err(silent)? else {
                    break;
                };
                if !take(row?) {
                    return Ok(false);
                }
            }
            drop(rows);
            result.drop_result().await?;
            Ok(true)
        };
        let answer = self.bounded(READ_LIMIT, work).await;
        let whole = self.settle(doing, READ_LIMIT, asked, answer)?;
        if !whole {
            self.abandon().await;
            self.renew().await?;
        }
        Ok(())
    }

    /// The first value of the first row, as a number.
    pub(crate) async fn number(
        &mut self,
        doing: &'static str,
        sql: &str,
    ) -> Result<Option<u64>, MoveError> {
        let rows = self.rows(doing, sql).await?;
        Ok(rows.first().and_then(|row| number(row, 0)))
    }

    /// A statement without rows; says how many rows it changed.
    pub(crate) async fn exec(&mut self, doing: &'static str, sql: &str) -> Result<u64, MoveError> {
        #[cfg(feature = "failpoints")]
        super::failpoint::statement(doing).await;
        let mut asked = self.take(doing)?;
        let answer = self
            .bounded(STATEMENT_LIMIT, asked.conn.query_drop(sql))
            .await;
        let affected = asked.conn.affected_rows();
        self.settle(doing, STATEMENT_LIMIT, asked, answer)
            .map(|()| affected)
    }

    /// A `load data local infile` whose file is `data`.
    pub(crate) async fn load(
        &mut self,
        doing: &'static str,
        sql: &str,
        data: bytes::Bytes,
    ) -> Result<Done, MoveError> {
        let mut asked = self.take(doing)?;
        let limit =
            STATEMENT_LIMIT + Duration::from_secs(data.len() as u64 / LOAD_BYTES_PER_SECOND);
        asked.conn.set_infile_handler(async move {
            // Parts, so that none is larger than a packet may be.
            let parts = parts(data).into_iter().map(Ok);
            Ok(futures::stream::iter(parts).boxed())
        });
        let answer = self.bounded(limit, asked.conn.query_drop(sql)).await;
        let done = done(&asked.conn);
        self.settle(doing, limit, asked, answer).map(|()| done)
    }

    /// Which transactions the server has executed.
    pub(crate) async fn gtid_executed(&mut self) -> Result<GtidSet, MoveError> {
        let rows = self
            .rows("read the executed set", "select @@global.gtid_executed")
            .await?;
        let set = rows
            .first()
            .and_then(|row| text(row, 0))
            .unwrap_or_default();
        GtidSet::parse(&set).map_err(|error| MoveError::Binlog {
            pod: self.server.end.pod,
            text: error.to_string(),
        })
    }

    /// Waits until the server has executed a whole set; bounded, and never for ever.
    pub(crate) async fn wait_executed(
        &mut self,
        set: &GtidSet,
        limit: Duration,
    ) -> Result<(), MoveError> {
        let limit = limit.max(WAIT_MIN);
        let sql = format!(
            "select wait_for_executed_gtid_set('{set}', {:.3})",
            limit.as_secs_f64()
        );
        let doing = "wait for executed transactions";
        let rows = self.rows_within(doing, &sql, limit + WAIT_MARGIN).await?;
        match rows.first().and_then(|row| number(row, 0)) {
            Some(0) => Ok(()),
            _ => Err(MoveError::Timeout {
                pod: self.server.end.pod,
                doing,
                limit,
            }),
        }
    }

    /// Ends the connection at the server too: a statement that is still sending rows stops.
    pub(crate) async fn abandon(&mut self) {
        if let Some(conn) = self.conn.take() {
            drop(conn);
            // Whether it works is of no interest: nobody reads on, so that the server stops by itself after a while.
            let work = connect::kill(&self.server, self.id);
            let _ = timeout(connect::CONNECT_LIMIT, work).await;
        }
    }

    /// Ends the session politely: dropping it would do, and the server would log an aborted connection.
    pub(crate) async fn close(mut self) {
        if let Some(conn) = self.conn.take() {
            let until = Instant::now() + connect::CONNECT_LIMIT;
            let _ = timeout_at(until, conn.disconnect()).await;
        }
    }
}

fn done(conn: &Conn) -> Done {
    Done {
        affected: conn.affected_rows(),
        warnings: conn.get_warnings(),
        info: conn.info().into_owned(),
    }
}

/// Cuts a file into the packets that it is sent in.
fn parts(mut data: bytes::Bytes) -> Vec<bytes::Bytes> {
    /// The driver sends each part as one packet; small ones cost a header and a call each.
    const PART: usize = 256 * 1024;
    let mut parts = Vec::with_capacity(data.len() / PART + 1);
    while data.len() > PART {
        parts.push(data.split_to(PART));
    }
    parts.push(data);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of a mover run in tasks of their own.
    #[test]
    fn calls_may_be_made_in_any_task() {
        fn task(_: impl Future + Send) {}
        fn calls(session: &mut Session, job: &Job) {
            task(session.rows("", ""));
            task(session.each_row("", "", &mut |_| true));
            task(session.exec("", ""));
            task(session.load("", "", bytes::Bytes::new()));
            task(session.begin_owned(job, ""));
            task(session.wait_executed(&GtidSet::default(), WAIT_MIN));
            task(Session::open(job, &job.source));
        }
        let _ = calls;
    }

    #[test]
    fn a_file_is_sent_whole_whatever_its_size() {
        for size in [0, 1, 256 * 1024, 256 * 1024 + 1, 1024 * 1024] {
            let parts = parts(bytes::Bytes::from(vec![7; size]));
            assert_eq!(parts.iter().map(bytes::Bytes::len).sum::<usize>(), size);
        }
    }
}
