//! A task that reads a binlog on and on, comes back where it was when the connection dies, and tells where it stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mysql_async::{DriverError, Error};
use parking_lot::Mutex;
use shared::PodId;
use shared::gtid::{Gtid, GtidSet};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{Reader, Seen, Watch};
use crate::mover::error::{MoveError, Verdict};
use crate::mover::job::End;
use crate::mover::table::Key;

/// A connection that dies is made anew for so long before it is an error: a server that restarts is back by then, and a
/// pause of writes has its own, shorter bound.
const RECONNECT_MAX: Duration = Duration::from_secs(10);
/// Between two tries.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// How often one that only waits looks again; the end of the task wakes it at once.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// After so many events other tasks have their turn, also where all events are in memory already.
const TURN_EVENTS: usize = 256;

/// What is done with what a reader sees.
pub(crate) trait Sink: Send + 'static {
    /// A row of the shop changed in the present transaction.
    fn row(&mut self, table: usize, key: Key) -> Result<(), MoveError>;
    /// The present transaction bears the move's mark.
    fn mark(&mut self);
    /// Something in it cannot be followed exactly.
    fn odd(&mut self, text: String);
    /// The present transaction ended.
    fn end(&mut self, gtid: &Gtid, at_ms: u64) -> Result<(), MoveError>;
    /// The present transaction will be read again from its beginning.
    fn again(&mut self);
}

/// A task that follows a server; it ends with the value.
#[derive(Debug)]
pub(crate) struct Follow {
    state: Arc<State>,
    changed: watch::Receiver<()>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct State {
    pod: PodId,
    seen: Mutex<GtidSet>,
    fault: Mutex<Option<MoveError>>,
    ended: AtomicBool,
}

impl Follow {
    /// Begins to read after `from`. What is wrong at once is an error here; what goes wrong later, at the next call.
    pub(crate) async fn start(
        end: End,
        watch: Watch,
        from: GtidSet,
        stop: &CancellationToken,
        sink: impl Sink,
    ) -> Result<Self, MoveError> {
        let reader = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(MoveError::Stopped),
            reader = Reader::open(&end, watch.clone(), &from) => reader?,
        };
        let state = Arc::new(State {
            pod: end.pod,
            seen: Mutex::new(from),
            fault: Mutex::new(None),
            ended: AtomicBool::new(false),
        });
        let (tell, changed) = watch::channel(());
        let stop = stop.child_token();
        let task = Task {
            end,
            watch,
            state: Arc::clone(&state),
            sink,
            tell,
            events: 0,
        };
        tokio::spawn(task.run(reader, stop.clone()));
        Ok(Self {
            state,
            changed,
            stop,
        })
    }

    /// The error that ended the task, told once; later calls only say that it ended.
    pub(crate) fn check(&self) -> Result<(), MoveError> {
        if !self.state.ended.load(Ordering::Acquire) {
            return Ok(());
        }
        let fault = self.state.fault.lock().take();
        Err(fault.unwrap_or_else(|| self.ended()))
    }

    fn ended(&self) -> MoveError {
        MoveError::Lost {
            pod: self.state.pod,
            doing: "read the binlog",
            source: Error::Driver(DriverError::ConnectionClosed),
        }
    }

    /// Waits until `done` of what has been read, or the limit is over (`false`).
    pub(crate) async fn wait(
        &self,
        limit: Duration,
        done: impl Fn(&GtidSet) -> bool,
    ) -> Result<bool, MoveError> {
        let until = Instant::now() + limit;
        let mut changed = self.changed.clone();
        loop {
            changed.mark_unchanged();
            self.check()?;
            if done(&self.state.seen.lock()) {
                return Ok(true);
            }
            match timeout_at(until, changed.changed()).await {
                Ok(Ok(())) => {}
                // The task is gone; one that panicked left nothing.
                Ok(Err(_)) => {
                    self.check()?;
                    return Err(self.ended());
                }
                Err(_) => return Ok(false),
            }
        }
    }

    /// Waits until it ends, and says why. Never, as long as all is well.
    pub(crate) async fn watch(&self) -> MoveError {
        loop {
            if let Err(fault) = self.wait(LOOK_AGAIN, |_| false).await {
                return fault;
            }
        }
    }

    /// Waits until all of a set has been read. The limit is for standing still: a run that begins anew reads a pod's
    /// binlog of hours, and must not begin anew for that.
    pub(crate) async fn wait_for(&self, set: &GtidSet, limit: Duration) -> Result<(), MoveError> {
        loop {
            let before = self.state.seen.lock().clone();
            if self.wait(limit, |seen| seen.contains(set)).await? {
                return Ok(());
            }
            if *self.state.seen.lock() == before {
                return Err(self.stands_still(limit));
            }
        }
    }

    /// Waits until something that is not in the set has been read.
    pub(crate) async fn wait_beyond(
        &self,
        set: &GtidSet,
        limit: Duration,
    ) -> Result<(), MoveError> {
        if self.wait(limit, |seen| !set.contains(seen)).await? {
            Ok(())
        } else {
            Err(self.stands_still(limit))
        }
    }

    /// Everything that has been read, to its last transaction's end.
    pub(crate) fn seen(&self) -> GtidSet {
        self.state.seen.lock().clone()
    }

    fn stands_still(&self, limit: Duration) -> MoveError {
        MoveError::Timeout {
            pod: self.state.pod,
            doing: "read the binlog up to a set of transactions",
            limit,
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Why reading ended.
enum Ended {
    /// The server, or what it sent: another connection may help.
    Connection(MoveError),
    /// Who takes what was read.
    Sink(MoveError),
}

struct Task<S> {
    end: End,
    watch: Watch,
    state: Arc<State>,
    sink: S,
    tell: watch::Sender<()>,
    events: usize,
}

impl<S: Sink> Task<S> {
    async fn run(mut self, reader: Reader, stop: CancellationToken) {
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => MoveError::Stopped,
            fault = self.follow(reader) => fault,
        };
        *self.state.fault.lock() = Some(ended);
        self.state.ended.store(true, Ordering::Release);
        self.tell.send_replace(());
    }

    async fn follow(&mut self, mut reader: Reader) -> MoveError {
        let mut troubled: Option<Instant> = None;
        loop {
            let before = self.events;
            let fault = match self.read(&mut reader).await {
                Ended::Connection(fault) if fault.verdict() == Verdict::Again => fault,
                Ended::Connection(fault) | Ended::Sink(fault) => return fault,
            };
            if self.events != before {
                troubled = None;
            }
            let began = *troubled.get_or_insert_with(Instant::now);
            tracing::info!(
                pod = %self.end.pod,
                error = %shared::error::chain(&fault),
                "the connection for the binlog is made anew"
            );
            self.sink.again();
            match self.reopen(began).await {
                // One that dies at once, again and again, is no connection.
                Ok(_) if began.elapsed() > RECONNECT_MAX => return fault,
                Ok(again) => reader = again.instead_of(reader),
                Err(fault) => return fault,
            }
        }
    }

    async fn reopen(&mut self, began: Instant) -> Result<Reader, MoveError> {
        loop {
            sleep(RECONNECT_PAUSE).await;
            let from = self.state.seen.lock().clone();
            match Reader::open(&self.end, self.watch.clone(), &from).await {
                Err(fault)
                    if fault.verdict() == Verdict::Again && began.elapsed() < RECONNECT_MAX => {}
                opened => return opened,
            }
        }
    }

    /// Reads until something goes wrong.
    async fn read(&mut self, reader: &mut Reader) -> Ended {
        let mut seen = Vec::new();
        loop {
            if let Err(fault) = reader.read(&mut seen).await {
                return Ended::Connection(fault);
            }
            #[cfg(feature = "failpoints")]
            crate::mover::failpoint::while_blind(self.watch.shop.get(), self.end.pod.get()).await;
            for one in seen.drain(..) {
                if let Err(fault) = self.take(one) {
                    return Ended::Sink(fault);
                }
            }
            self.events += 1;
            if self.events.is_multiple_of(TURN_EVENTS) {
                tokio::task::yield_now().await;
            }
        }
    }

    fn take(&mut self, seen: Seen) -> Result<(), MoveError> {
        match seen {
            Seen::Row(table, key) => self.sink.row(table, key),
            Seen::Mark => {
                self.sink.mark();
                Ok(())
            }
            Seen::Odd(text) => {
                self.sink.odd(text);
                Ok(())
            }
            Seen::End(gtid, at_ms) => {
                self.sink.end(&gtid, at_ms)?;
                self.state.seen.lock().add(&gtid);
                self.tell.send_replace(());
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that panics says nothing.
    #[tokio::test]
    async fn who_waits_for_a_task_that_is_gone_is_told() {
        let (tell, changed) = watch::channel(());
        let follow = Follow {
            state: Arc::new(State {
                pod: PodId::new(1).unwrap(),
                seen: Mutex::default(),
                fault: Mutex::new(None),
                ended: AtomicBool::new(false),
            }),
            changed,
            stop: CancellationToken::new(),
        };
        drop(tell);
        let limit = Duration::from_millis(50);
        let waited = follow.wait(limit, |_| false).await;
        assert!(matches!(waited, Err(MoveError::Lost { .. })), "{waited:?}");
        let watched = timeout_at(Instant::now() + limit, follow.watch()).await;
        assert!(matches!(watched, Ok(MoveError::Lost { .. })), "{watched:?}");
    }
}
