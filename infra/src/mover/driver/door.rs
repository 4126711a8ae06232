//! A home, from outside: a change of it waits for the shop's writes in flight and for the transactions of an earlier mover,
//! and a second connection sees whose they are. What holds the home for longer than a write may take is ended: its process
//! is frozen or gone, and it was never acknowledged.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::mover::error::MoveError;
use crate::mover::home::{self, At, Change, HomeRow};
use crate::mover::job::{End, Job};
use crate::mover::session::{Session, number};
use crate::output::count;

/// How often it is looked who still holds the home, once the first is over its time.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A connection to a primary, and the one that watches it: a fence has it from the beginning, other changes open it when the
/// home is held for too long, which is seldom.
#[derive(Debug)]
pub(in crate::mover) struct Door {
    session: Session,
    watch: Option<Session>,
    /// What its last change waited for, also where that was broken off.
    waited: Waited,
}

/// What a change waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::mover) struct Waited {
    /// How long.
    pub(in crate::mover) time: Duration,
    /// Writes that held the home when it began; only a fence counts them.
    pub(in crate::mover) in_flight: Option<u64>,
    /// Sessions that were ended.
    pub(in crate::mover) ended: u64,
    /// How far it came.
    pub(in crate::mover) at: At,
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(writes) = self.in_flight {
            let plural = if writes == 1 { "" } else { "s" };
            write!(f, "{writes} write{plural} in flight, ")?;
        }
        write!(f, "{} ended", count(self.ended, "session"))
    }
}

impl Door {
    /// For a change whose home is seldom held by others.
    pub(in crate::mover) async fn open(job: &Job, end: &End) -> Result<Self, MoveError> {
        let session = Session::open(job, end).await?;
        Ok(Self {
            session,
            watch: None,
            waited: Waited::default(),
        })
    }

    /// For a fence.
    pub(in crate::mover) async fn of_fence(job: &Job, end: &End) -> Result<Self, MoveError> {
        let (session, watch) = tokio::try_join!(Session::open(job, end), Session::open(job, end))?;
        Ok(Self {
            session,
            watch: Some(watch),
            waited: Waited::default(),
        })
    }

    /// The connection that changes the home, for what comes after.
    pub(in crate::mover) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Both connections are there, however long they were silent.
    pub(in crate::mover) async fn awake(&mut self) -> Result<(), MoveError> {
        self.session.awake().await?;
        match &mut self.watch {
            Some(watch) => watch.awake().await,
            None => Ok(()),
        }
    }

    /// What its last change waited for, also where that was broken off.
    pub(in crate::mover) const fn waited(&self) -> Waited {
        self.waited
    }

    /// Changes the home, within the fence's bound.
    pub(in crate::mover) async fn change(
        &mut self,
        job: &Job,
        change: &Change,
    ) -> Result<(Option<HomeRow>, Waited), MoveError> {
        let Self {
            session,
            watch,
            waited,
        } = self;
        *waited = Waited::default();
        let Waited {
            in_flight,
            ended,
            at,
            ..
        } = waited;
        let bound = job.limits.fence_bound;
        let (end, own) = (session.end().clone(), session.connection_id());
        let begun = Instant::now();
        let work = timeout(bound, home::change_told(session, job, change, at));
        let row = tokio::select! {
            biased;
            row = work => row,
            never = look(watch, job, &end, own, (in_flight, ended)) => match never {},
        };
        waited.time = begun.elapsed();
        match row {
            Ok(row) => Ok((row?, *waited)),
            Err(_) => Err(MoveError::Waits(missed(&end, bound, *waited))),
        }
    }

    pub(in crate::mover) async fn close(self) {
        let Self { session, watch, .. } = self;
        session.close().await;
        if let Some(watch) = watch {
            watch.close().await;
        }
    }
}

/// Why a change of a home was given up.
fn missed(end: &End, bound: Duration, waited: Waited) -> String {
    let (pod, bound) = (end.pod, bound.as_millis());
    match waited.at {
        At::Lock => format!("pod {pod}: the home stayed locked for {bound} ms ({waited})"),
        At::Commit => format!(
            "pod {pod}: the change of the home did not commit within {bound} ms ({waited}); see that the pod's replicas run"
        ),
    }
}

/// Counts the writes in flight if it is a fence (the question goes through all locks of the server), then ends those that
/// take too long. What fails here fails silently: the change itself has its bound.
async fn look(
    watch: &mut Option<Session>,
    job: &Job,
    end: &End,
    own: u32,
    (counted, ended): (&mut Option<u64>, &mut u64),
) -> Infallible {
    let began = Instant::now();
    if let Some(watch) = watch {
        *counted = in_flight(watch, job).await;
    }
    tokio::time::sleep_until(began + job.limits.fence_kill_after).await;
    loop {
        let looked = match watch.as_mut().filter(|watch| !watch.is_lost()) {
            Some(watch) => end_holders(watch, job, own, ended).await,
            None => match Session::open(job, end).await {
                Ok(opened) => {
                    *watch = Some(opened);
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = looked {
            tracing::warn!("{}", error.brief());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Transactions of the shop that hold its home.
async fn in_flight(watch: &mut Session, job: &Job) -> Option<u64> {
    let count = format!(
        "select count(*) from performance_schema.data_locks where object_schema = database() \
         and object_name = 'shop_home' and index_name = 'PRIMARY' and lock_type = 'RECORD' \
         and lock_status = 'GRANTED' and lock_mode like 'S%' and lock_data = '{}'",
        job.shop
    );
    let counted = watch.number("count the writes in flight", &count).await;
    counted.ok().flatten()
}

/// Ends the sessions for whose locks a connection waits.
async fn end_holders(
    watch: &mut Session,
    job: &Job,
    own: u32,
    ended: &mut u64,
) -> Result<(), MoveError> {
    let holders = format!(
        "select distinct holder.processlist_id from performance_schema.data_lock_waits w \
         join performance_schema.threads waiter on waiter.thread_id = w.requesting_thread_id \
         join performance_schema.threads holder on holder.thread_id = w.blocking_thread_id \
         where waiter.processlist_id = {own} and holder.processlist_id <> {own}"
    );
    let rows = watch.rows("look who holds the home", &holders).await?;
    for id in rows.iter().filter_map(|row| number(row, 0)) {
        let shop = job.shop.get();
        tracing::warn!(
            shop,
            session = id,
            "a transaction that holds the home is ended"
        );
        // Counted first: the change that waits for it is often done before this is answered, and then nobody waits for the answer.
        *ended += 1;
        let kill = watch.exec("end a session", &format!("kill {id}")).await;
        if kill.is_err() {
            // It had ended by itself.
            *ended = ended.saturating_sub(1);
        }
    }
    Ok(())
}
