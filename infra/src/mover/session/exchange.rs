//! One question and its answer: within a deadline, and not beyond it.
//!
//! A server runs a statement to its end though nobody waits for it any more. What is given up here, by a deadline, by the end
//! of the run or by a caller that went away, is ended at the server too: else each new try would leave one more of the same
//! at a primary that sells.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::{Conn, Error, Result as Said};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::connect::{self, Server};
use super::{Session, fault};
use crate::mover::error::MoveError;

/// A statement that was about to end does so in that time, and its connection with it: nothing needs to be ended.
const LAST_MOMENT: Duration = Duration::from_millis(200);
/// To end a connection takes another one. A server that refuses it at first (it has too many) may take it a little later; at
/// one that refuses for that long, the server's own bound on statements is what is left.
const END_WITHIN: Duration = Duration::from_secs(20);
/// Between two tries.
const END_AGAIN: Duration = Duration::from_secs(1);
/// Connections that are made to end others, at once: the streams of some moves that all end together come one after the
/// other.
static ENDING: Semaphore = Semaphore::const_new(4);

/// A connection that is asked something just now.
pub(super) struct Exchange {
    pub(super) conn: Conn,
    orphan: Orphan,
}

/// How an exchange ended.
pub(super) enum Answer<T> {
    Value(T),
    Error(Error),
    Late,
    Stopped,
}

impl Exchange {
    /// Whatever comes of it, the server goes on to the end: nobody knows where in a commit it is.
    pub(super) fn is_commit(&mut self) {
        self.orphan.ends = false;
    }

    /// There was an answer.
    fn answered(self) -> Conn {
        let Self { conn, mut orphan } = self;
        orphan.ends = false;
        conn
    }
}

/// What an exchange without an answer leaves at the server, which this ends when it is dropped.
struct Orphan {
    server: Arc<Server>,
    id: u32,
    ends: bool,
}

impl Drop for Orphan {
    fn drop(&mut self) {
        // Without a runtime this process ends.
        if let (true, Ok(runtime)) = (self.ends, Handle::try_current()) {
            runtime.spawn(end(Arc::clone(&self.server), self.id));
        }
    }
}

/// Ends a connection at its server, if it is still there.
async fn end(server: Arc<Server>, id: u32) {
    sleep(LAST_MOMENT).await;
    let work = async {
        let _permit = ENDING.acquire().await;
        while let Err(error) = connect::kill(&server, id).await {
            let pod = server.end.pod;
            tracing::debug!(%pod, session = id, "not ended yet: {error}");
            sleep(END_AGAIN).await;
        }
    };
    if timeout(END_WITHIN, work).await.is_err() {
        let pod = server.end.pod;
        tracing::warn!(%pod, session = id, "what a mover gave up may still run at the server");
    }
}

impl Session {
    /// Takes the connection out for one exchange: whatever ends that without an answer leaves the session without one.
    pub(super) fn take(&mut self, doing: &'static str) -> Result<Exchange, MoveError> {
        let conn = self.conn.take();
        let conn = conn.ok_or_else(|| fault::lost(self.server.end.pod, doing))?;
        let orphan = Orphan {
            server: Arc::clone(&self.server),
            id: self.id,
            ends: true,
        };
        Ok(Exchange { conn, orphan })
    }

    /// Waits for an exchange, no longer than the deadline and the run.
    pub(super) async fn bounded<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Said<T>>,
    ) -> Answer<T> {
        let until = Instant::now() + limit;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Answer::Stopped,
            answer = timeout_at(until, work) => match answer {
                Ok(Ok(value)) => Answer::Value(value),
                Ok(Err(error)) => Answer::Error(error),
                Err(_) => Answer::Late,
            },
        }
    }

    /// Puts the connection back if the server answered.
    pub(super) fn settle<T>(
        &mut self,
        doing: &'static str,
        limit: Duration,
        exchange: Exchange,
        answer: Answer<T>,
    ) -> Result<T, MoveError> {
        let pod = self.server.end.pod;
        match answer {
            Answer::Value(value) => {
                self.conn = Some(exchange.answered());
                self.spoken = Instant::now();
                Ok(value)
            }
            Answer::Error(error) => {
                // Of a connection that broke the server knows, or it is gone; what does not come may be at work still.
                if fault::is_silence(&error) {
                    drop(exchange);
                } else {
                    let conn = exchange.answered();
                    self.conn = fault::is_answer(&error).then_some(conn);
                }
                Err(fault::of(pod, doing, error))
            }
            Answer::Late => Err(MoveError::Timeout { pod, doing, limit }),
            Answer::Stopped => Err(MoveError::Stopped),
        }
    }
}
