//! A home, from outside: a change of it waits for the shop's writes in flight and for the transactions of an earlier mover,
//! and a second connection sees whose they are. What holds the home for longer than a write may take is ended: its process
//! is frozen or gone, and it was never acknowledged.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::mover::error::MoveError;
use crate::mover::home::{self, Change, HomeRow};
use crate::mover::job::{End, Job};
use crate::mover::session::{Session, number};

/// How often it is looked who still holds the home, once the first is over its time.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Two connections to one primary, opened before anything waits for them.
#[derive(Debug)]
pub(in crate::mover) struct Door {
    session: Session,
    watch: Session,
}

/// What a change waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::mover) struct Waited {
    /// How long.
    pub(in crate::mover) time: Duration,
    /// Writes that held the home when it began; only a fence counts them.
    pub(in crate::mover) in_flight: u64,
    /// Sessions that were ended.
    pub(in crate::mover) ended: u64,
}

impl Door {
    pub(in crate::mover) async fn open(job: &Job, end: &End) -> Result<Self, MoveError> {
        let (session, watch) = tokio::try_join!(Session::open(job, end), Session::open(job, end))?;
        Ok(Self { session, watch })
    }

    /// The connection that changes the home, for what comes after.
    pub(in crate::mover) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Both connections are there, however long they were silent.
    pub(in crate::mover) async fn awake(&mut self) -> Result<(), MoveError> {
        tokio::try_join!(self.session.awake(), self.watch.awake()).map(drop)
    }

    /// Changes the home, within the fence's bound.
    pub(in crate::mover) async fn change(
        &mut self,
        job: &Job,
        change: &Change,
    ) -> Result<(Option<HomeRow>, Waited), MoveError> {
        let Self { session, watch } = self;
        let bound = job.limits.fence_bound;
        let own = session.connection_id();
        let begun = Instant::now();
        let mut waited = Waited::default();
        let counts = *change == Change::Fence;
        let work = timeout(bound, home::change(session, job, change));
        let row = tokio::select! {
            biased;
            row = work => row,
            // Ends never.
            () = look(watch, job, own, counts, &mut waited) => return Err(MoveError::Stopped),
        };
        waited.time = begun.elapsed();
        match row {
            Ok(row) => Ok((row?, waited)),
            Err(_) => Err(MoveError::Waits(format!(
                "pod {}: the home stayed locked for {} ms ({} writes in flight, {} sessions ended)",
                watch.end().pod,
                bound.as_millis(),
                waited.in_flight,
                waited.ended
            ))),
        }
    }

    pub(in crate::mover) async fn close(self) {
        let Self { session, watch } = self;
        tokio::join!(session.close(), watch.close());
    }
}

/// Counts the writes in flight where that is wanted (the question goes through all locks of the server), then ends those
/// that take too long. What fails here fails silently: the change itself has its bound.
async fn look(watch: &mut Session, job: &Job, own: u32, counts: bool, waited: &mut Waited) {
    let began = Instant::now();
    if counts {
        let count = format!(
            "select count(*) from performance_schema.data_locks where object_schema = database() \
             and object_name = 'shop_home' and index_name = 'PRIMARY' and lock_type = 'RECORD' \
             and lock_status = 'GRANTED' and lock_mode like 'S%' and lock_data = '{}'",
            job.shop
        );
        if let Ok(Some(holders)) = watch.number("count the writes in flight", &count).await {
            waited.in_flight = holders;
        }
    }
    tokio::time::sleep_until(began + job.limits.fence_kill_after).await;
    let blockers = format!(
        "select distinct holder.processlist_id from performance_schema.data_lock_waits w \
         join performance_schema.threads waiter on waiter.thread_id = w.requesting_thread_id \
         join performance_schema.threads holder on holder.thread_id = w.blocking_thread_id \
         where waiter.processlist_id = {own} and holder.processlist_id <> {own}"
    );
    loop {
        match watch.rows("look who holds the home", &blockers).await {
            Ok(rows) => {
                for id in rows.iter().filter_map(|row| number(row, 0)) {
                    tracing::warn!(
                        shop = job.shop.get(),
                        session = id,
                        "a transaction that holds the home is ended"
                    );
                    if watch
                        .exec("end a session", &format!("kill {id}"))
                        .await
                        .is_ok()
                    {
                        waited.ended += 1;
                    }
                }
            }
            Err(error) => tracing::warn!("{}", error.brief()),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
