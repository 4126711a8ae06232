//! Holds a move back while its pods have enough to do: replicas that lag, a primary with many statements at once, a disk
//! that is nearly full.
//!
//! Each pod is looked at by a task of its own, some times a second. How far a replica is behind is measured by sets of
//! transactions: what the primary had executed a moment ago the replica must have by now. That needs no clock of the
//! servers and no row of the pods. A replica that does not answer counts for nothing here: nobody reads from it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shared::gtid::GtidSet;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::error::MoveError;
use super::job::{End, Job};
use super::progress::Progress;
use super::session::{Session, text};

/// How often a pod is looked at: a lag of a second is seen in time, and four small questions a second are nothing.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a server that did not answer is left alone.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often one that waits looks whether it may go on.
const PASS_EVERY: Duration = Duration::from_millis(50);
/// Sets kept to measure by: two minutes; a replica further behind is just far behind.
const SAMPLES: usize = 480;

/// What stands in the way at each pod that is watched.
type Looks = Vec<Option<String>>;

/// Watches pods of a move while it is kept.
#[derive(Debug)]
pub(crate) struct Throttle {
    job: Job,
    looks: Arc<Mutex<Looks>>,
    _tasks: JoinSet<()>,
}

impl Throttle {
    /// Begins to watch both pods.
    pub(crate) fn start(job: &Job) -> Self {
        Self::of(job, [&job.source, &job.target], Disk::Counts)
    }

    /// For what only reads or deletes at one pod: the other does not matter, and on a full disk deleting makes room.
    pub(crate) fn deleting(job: &Job, end: &End) -> Self {
        Self::of(job, [end], Disk::IsNothing)
    }

    fn of<const N: usize>(job: &Job, ends: [&End; N], disk: Disk) -> Self {
        let looks = Arc::new(Mutex::new(vec![None; N]));
        let mut tasks = JoinSet::new();
        for (number, end) in ends.into_iter().enumerate() {
            let (job, end, looks) = (job.clone(), end.clone(), Arc::clone(&looks));
            tasks.spawn(async move {
                let say = |found: Option<String>| {
                    if let Some(look) = looks.lock().get_mut(number) {
                        *look = found;
                    }
                };
                watch(&job, &end, disk, say).await;
            });
        }
        Self {
            job: job.clone(),
            looks,
            _tasks: tasks,
        }
    }

    /// What stands in the way now.
    pub(crate) fn reason(&self) -> Option<String> {
        self.looks.lock().iter().find_map(Clone::clone)
    }

    /// Comes back when nothing stands in the way; past the bound with an error that says what did.
    pub(crate) async fn pass(&self) -> Result<(), MoveError> {
        let began = Instant::now();
        let told = &self.job.progress.held_back_by;
        while let Some(reason) = self.reason() {
            *told.lock() = Some(reason.clone());
            let bound = self.job.limits.throttle_bound;
            if began.elapsed() > bound {
                return Err(MoveError::Waits(format!(
                    "held back for {} s because {reason}; mend that, or raise the limit in [moves]",
                    bound.as_secs()
                )));
            }
            let slept = Instant::now();
            tokio::select! {
                () = self.job.stop.cancelled() => return Err(MoveError::Stopped),
                () = sleep(PASS_EVERY) => {}
            }
            let slept = u64::try_from(slept.elapsed().as_millis()).unwrap_or(u64::MAX);
            Progress::add(&self.job.progress.throttled_ms, slept);
        }
        *told.lock() = None;
        Ok(())
    }
}

/// A server that is asked again and again.
struct Asked {
    session: Option<Session>,
    rest_until: Instant,
}

impl Asked {
    fn new() -> Self {
        Self {
            session: None,
            rest_until: Instant::now(),
        }
    }
}

/// Whether a nearly full disk stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    Counts,
    IsNothing,
}

async fn watch(job: &Job, end: &End, room: Disk, say: impl Fn(Option<String>)) {
    let mut primary = Asked::new();
    let mut replicas: Vec<Asked> = end.replicas.iter().map(|_| Asked::new()).collect();
    let mut samples = Samples::default();
    // Without a folder no disk is looked at.
    let mut disk = (room == Disk::IsNothing).then_some(None);
    while !job.stop.is_cancelled() {
        let looked = look(job, end, &mut primary, &mut disk).await;
        // A primary that does not answer stops the move by itself; what it said last says nothing now.
        let mut reason = None;
        if let Some((executed, found)) = looked {
            reason = found;
            samples.add(Instant::now(), executed);
        }
        for (replica, address) in replicas.iter_mut().zip(&end.replicas) {
            let Some(set) = executed(job, end, address, replica).await else {
                continue;
            };
            let lag = samples.lag(Instant::now(), &set);
            if lag > job.limits.replica_lag_max {
                reason = Some(format!(
                    "the replica {address} of pod {} is {} ms behind",
                    end.pod,
                    lag.as_millis()
                ));
            }
        }
        say(reason);
        tokio::select! {
            () = job.stop.cancelled() => {}
            () = sleep(LOOK_EVERY) => {}
        }
    }
}

/// What the primary has executed, and what of it stands in the way.
async fn look(
    job: &Job,
    end: &End,
    asked: &mut Asked,
    disk: &mut Option<Option<PathBuf>>,
) -> Option<(GtidSet, Option<String>)> {
    let set = executed(job, end, &end.primary, asked).await?;
    let session = asked.session.as_mut()?;
    let sql = "show global status like 'Threads_running'";
    let rows = session.rows("look at the load", sql).await.ok()?;
    let running = rows.first().and_then(|row| text(row, 1))?.parse().ok();
    let running: u64 = running.unwrap_or(0);
    if disk.is_none() {
        *disk = Some(data_folder(session).await);
    }
    let folder = disk.as_ref().and_then(Option::as_ref);
    let free = folder.and_then(|folder| Free::of(folder));
    let limits = &job.limits;
    let reason = if running > limits.threads_running_max {
        Some(format!(
            "the primary of pod {} runs {running} statements at once",
            end.pod
        ))
    } else {
        free.filter(|free| free.percent() < u64::from(limits.disk_free_min_percent))
            .map(|free| {
                format!(
                    "the disk of pod {}'s primary has {} % left",
                    end.pod,
                    free.percent()
                )
            })
    };
    Some((set, reason))
}

async fn executed(
    job: &Job,
    end: &End,
    address: &crate::api::Address,
    asked: &mut Asked,
) -> Option<GtidSet> {
    if asked.session.is_none() {
        if Instant::now() < asked.rest_until {
            return None;
        }
        asked.session = Session::open_at(end, address, &job.stop).await.ok();
    }
    let answer = match &mut asked.session {
        Some(session) => session.gtid_executed().await.ok(),
        None => None,
    };
    if answer.is_none() {
        asked.session = None;
        asked.rest_until = Instant::now() + LOOK_AGAIN;
    }
    answer
}

/// What the primary had executed, and when.
#[derive(Debug, Default)]
struct Samples(VecDeque<(Instant, GtidSet)>);

impl Samples {
    fn add(&mut self, at: Instant, set: GtidSet) {
        // An idle primary says the same again and again: the first time counts.
        if self.0.back().is_some_and(|(_, last)| *last == set) {
            return;
        }
        if self.0.len() >= SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back((at, set));
    }

    /// How long ago the oldest set was executed that the replica has not whole.
    fn lag(&self, now: Instant, replica: &GtidSet) -> Duration {
        let first = self.0.partition_point(|(_, set)| replica.contains(set));
        let sample = self.0.get(first);
        sample.map_or(Duration::ZERO, |(at, _)| now.duration_since(*at))
    }
}

/// The room of a disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Free {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl Free {
    /// Of the disk with this folder.
    pub(crate) fn of(folder: &std::path::Path) -> Option<Self> {
        let stat = rustix::fs::statvfs(folder).ok()?;
        Some(Self {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }

    fn percent(self) -> u64 {
        (u128::from(self.free) * 100 / u128::from(self.total.max(1)))
            .try_into()
            .unwrap_or(100)
    }
}

/// The data folder of a server, if the server is on this machine: only there its disk can be seen.
pub(crate) async fn data_folder(session: &mut Session) -> Option<PathBuf> {
    let sql = "select @@global.datadir, @@global.server_uuid";
    let rows = session.rows("ask for the data folder", sql).await.ok()?;
    let row = rows.first()?;
    let (folder, uuid) = (PathBuf::from(text(row, 0)?), text(row, 1)?);
    let named = std::fs::read_to_string(folder.join("auto.cnf")).ok()?;
    named.contains(&uuid).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> GtidSet {
        GtidSet::parse(&format!("bdbea337-ec7c-11f1-86a3-02fc00000001:{text}")).unwrap()
    }

    #[test]
    fn a_replica_is_as_far_behind_as_the_oldest_set_that_it_lacks() {
        let mut samples = Samples::default();
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        for n in 1..=4 {
            samples.add(at(n), set(&format!("1-{n}")));
        }
        let lag = |has: &str| samples.lag(at(5), &set(has)).as_secs();
        assert_eq!((lag("1-4"), lag("1-3"), lag("1-2")), (0, 1, 2));
    }

    /// An idle primary says the same again and again; that makes nobody fall behind.
    #[test]
    fn the_same_set_counts_from_the_first_time() {
        let mut samples = Samples::default();
        let start = Instant::now();
        for second in 0..10 {
            samples.add(start + Duration::from_secs(second), set("1-7"));
        }
        assert_eq!(samples.0.len(), 1);
        let now = start + Duration::from_secs(10);
        assert_eq!(samples.lag(now, &set("1-7")), Duration::ZERO);
        assert_eq!(samples.lag(now, &set("1-6")), Duration::from_secs(10));
    }
}
