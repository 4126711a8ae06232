//! The write transaction: the one function that opens one.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use shared::backoff::Backoff;
use shared::error::chain;
use shared::home::Access;
use shared::wire::Fence;
use sqlx::mysql::MySqlRow;
use tokio::time::{Instant, sleep, timeout_at};

use crate::actor::Actor;
use crate::cache::Key;
use crate::db::commit::{Committed, Settled, keep_place, settle};
use crate::db::fault::{Fault, Lost};
use crate::db::fence::{Seen, begin_write};
use crate::db::guard::Guard;
use crate::db::pool::Place;
use crate::db::{Db, Tx};
use crate::{Error, meter};

/// A write as it is run, and run again.
pub(crate) type Run<T> =
    dyn for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<T, Error>> + Send + Sync;

/// Between reruns: the one that won needs some milliseconds to commit.
const RERUN: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(100));

/// How often a dead idle connection may be met: once each pool's idle ones are dropped, the next is fresh.
const STALE_MAX: u32 = 3;

/// How a write ended.
#[derive(Debug)]
pub(crate) struct Written<T> {
    /// What the closure gave, committed; or why nothing is (but for [`Error::Unknown`]).
    pub result: Result<T, Error>,
    /// The server's executed set after the commit.
    pub executed: Option<String>,
    /// What to drop from the cache: of all attempts, since an attempt whose end is unknown may have been the one.
    pub changed: Vec<Key>,
}

enum Attempt<T> {
    Done(T, Option<String>),
    /// Nothing was committed; the closure may be run again.
    Again(&'static str, Fault),
    /// The commit's outcome is unknown: the session, and its place in the pool.
    Unknown(u64, Place),
    Failed(Error),
}

impl Db {
    /// Runs a write. Not to be dropped on the way (its callers spawn it): a dropped one closes its connection, which is
    /// safe, but then nobody settles an unknown commit.
    pub(crate) async fn write<T>(&self, actor: &Actor, run: Arc<Run<T>>) -> Written<T> {
        let started = Instant::now();
        let mut changed = Vec::new();
        let mut attempts = 0;
        let (result, executed) = loop {
            let fault = match self.attempt(actor, &*run, &mut changed).await {
                Attempt::Done(value, executed) => break (Ok(value), executed),
                Attempt::Failed(error) => break (Err(error), None),
                Attempt::Unknown(session, place) => {
                    tracing::warn!(session, shop = %actor.shop(), "a commit's answer never came; settling it");
                    let settled = settle(&self.write, session).await;
                    if settled == Settled::Stands {
                        tokio::spawn(keep_place(self.write.clone(), session, place));
                    }
                    if settled != Settled::Gone {
                        break (
                            Err(Error::Unknown("its session could not be ended in time")),
                            None,
                        );
                    }
                    meter::rerun("unknown-commit");
                    None
                }
                Attempt::Again(reason, fault) => {
                    meter::rerun(reason);
                    tracing::debug!(reason, fault = chain(&fault), "a write runs again");
                    Some(fault)
                }
            };
            attempts += 1;
            if attempts > self.limits.reruns || started.elapsed() > self.limits.write {
                let error = fault.map_or(Error::Unknown("too many reruns"), Error::from);
                break (Err(error), None);
            }
            let delay = RERUN.delay(attempts, &mut rand::rng());
            sleep(delay).await;
        };
        Written {
            result,
            executed,
            changed,
        }
    }

    async fn attempt<T>(&self, actor: &Actor, run: &Run<T>, changed: &mut Vec<Key>) -> Attempt<T> {
        let guard = match self.open(actor).await {
            Ok(guard) => guard,
            Err(error) => return Attempt::Failed(error),
        };
        let deadline = guard.deadline;
        let mut tx = Tx::new(guard, actor.shop(), actor.epoch(), actor.id());
        let outcome = timeout_at(deadline, async {
            let value = run(&mut tx).await?;
            tx.flush().await?;
            Ok(value)
        })
        .await;
        changed.append(&mut tx.changed);
        let mut guard = tx.guard;
        // What the server said counts, whatever the closure made of it.
        match (guard.take_poison(), &outcome) {
            (None, _) => {}
            // The closure decided upon the conflict: the lock it wanted is a duplicate's.
            (Some(Fault::Conflict { .. }), Ok(Err(Error::Problem { .. }))) => {}
            (Some(fault), _) => return end_badly(guard, fault),
        }
        let value = match outcome {
            Ok(Ok(value)) => value,
            Ok(Err(error)) => {
                tokio::spawn(guard.rollback());
                return Attempt::Failed(error);
            }
            // Between two statements, so the connection is whole; but the time is over.
            Err(_) => return Attempt::Failed(Error::Slow("the write")),
        };
        let sent = Instant::now();
        let committed = guard.commit().await;
        meter::commit(sent.elapsed());
        match committed {
            Committed::Yes(executed) => Attempt::Done(value, executed),
            Committed::No(fault @ Fault::Conflict { .. }) => Attempt::Again("conflict", fault),
            Committed::No(fault) => Attempt::Failed(fault.into()),
            Committed::Unknown(session, place) => Attempt::Unknown(session, place),
            Committed::EndedBefore => {
                tracing::error!(shop = %actor.shop(), "a write transaction was ended by one of its statements");
                Attempt::Failed(Error::bug(
                    "a statement ended its transaction before the commit",
                ))
            }
        }
    }

    /// Whether the home lets a write of this actor in just now. Nothing is written.
    pub(crate) async fn lets_in(&self, actor: &Actor) -> Result<(), Error> {
        let guard = self.open(actor).await?;
        guard.rollback().await;
        Ok(())
    }

    /// Acquires, begins, and asks the home.
    async fn open(&self, actor: &Actor) -> Result<Guard, Error> {
        let mut stale = 0;
        loop {
            let conn = self.write.acquire(Some(actor.shop())).await?;
            let reused = conn.reused();
            let started = Instant::now();
            let deadline = started + self.limits.transaction;
            let wait_timeout_s = self.limits.transaction.as_secs().max(1);
            let begun =
                Guard::begin(conn, begin_write(actor.shop(), wait_timeout_s), deadline).await;
            let (guard, row) = match begun {
                Ok(begun) => begun,
                Err(Fault::Gone {
                    when: Lost::Before, ..
                }) if reused && stale < STALE_MAX => {
                    stale += 1;
                    self.write.drop_idle();
                    continue;
                }
                Err(fault) => {
                    let outcome = if matches!(fault, Fault::Locked) {
                        "fenced"
                    } else {
                        "failed"
                    };
                    meter::fence_wait(started.elapsed(), outcome);
                    return Err(fault.into());
                }
            };
            meter::fence_wait(started.elapsed(), "answered");
            if let Err(error) = self.judge(&row, actor, started).await {
                tokio::spawn(guard.rollback());
                return Err(error);
            }
            return Ok(guard);
        }
    }

    async fn judge(&self, row: &MySqlRow, actor: &Actor, at: Instant) -> Result<(), Error> {
        let seen = Seen::read(row)?;
        self.check_primary(&seen)?;
        self.homes.learn(actor.shop(), &seen, at).await;
        seen.allows(self.pod, actor, Access::Write)
    }

    /// Whether the server that answered is the pod's primary: open, and of the highest term that was ever seen.
    pub(crate) fn check_primary(&self, seen: &Seen) -> Result<(), Error> {
        use std::sync::atomic::Ordering::AcqRel;
        let highest = self.term.fetch_max(seen.term, AcqRel).max(seen.term);
        if seen.closed || seen.term < highest {
            return Err(Error::Fence(Fence::Unready));
        }
        Ok(())
    }
}

fn end_badly<T>(guard: Guard, fault: Fault) -> Attempt<T> {
    if fault.connection_lives() {
        tokio::spawn(guard.rollback());
    }
    match fault {
        Fault::Conflict { .. } => Attempt::Again("conflict", fault),
        // Lost before its commit was sent, hence rolled back.
        Fault::Gone { .. } => Attempt::Again("connection-lost", fault),
        Fault::Busy
        | Fault::Silent(_)
        | Fault::Slow(_)
        | Fault::Locked
        | Fault::NotPrimary { .. }
        | Fault::Statement { .. } => Attempt::Failed(fault.into()),
    }
}
