//! Holds a move back while its pods have enough to do: replicas that lag, a primary with many statements at once, a disk
//! that is nearly full. Where shops sell meanwhile, it works in small pieces with a rest after each.
//!
//! Each server is looked at by a task of its own, some times a second: one that hangs holds up nobody's look. How far a
//! replica is behind is measured by sets of transactions: what the primary had executed a moment ago the replica must have
//! by now. That needs no clock of the servers and no row of the pods. A replica that does not answer counts for nothing
//! here: nobody reads from it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shared::gtid::GtidSet;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::error::MoveError;
use super::job::{End, Job};
use super::progress::{HeldBack, Progress};
use super::session::{Session, text};
use crate::api::Address;

// Room on disks.
mod disk;
// How far replicas are behind.
mod lag;
// Rests beside shops that sell.
mod pace;
pub(crate) use disk::{Free, data_folder};
use lag::Samples;
use pace::{Others, Pace};

/// How often a pod is looked at: a lag of a second is seen in time, and four small questions a second are nothing.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A server that needs longer for so small a question has not answered: what it said last is old by then.
const LOOK_WITHIN: Duration = Duration::from_secs(2);
/// How long a server that did not answer is left alone.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often one that waits looks whether it may go on.
const PASS_EVERY: Duration = Duration::from_millis(50);
/// What is told of rests where shops write: the one reason that is nobody's to mend.
pub(crate) const SHOPS_SELL: &str = "shops sell (`moves.nice_ratio` of fleet.toml)";

/// What stands in the way at each server that is watched.
type Looks = Arc<Mutex<Vec<Option<String>>>>;

/// Watches pods of a move while it is kept.
#[derive(Debug)]
pub(crate) struct Throttle {
    job: Job,
    looks: Looks,
    pace: Pace,
    /// Whether somebody waits already, whose time counts: streams that wait at once wait for the same.
    counts: AtomicBool,
    _tasks: JoinSet<()>,
}

impl Throttle {
    /// Begins to watch both pods.
    pub(crate) fn start(job: &Job) -> Self {
        Self::of(job, &[&job.source, &job.target], Disk::Counts)
    }

    /// For what only reads or deletes at one pod: the other does not matter, and on a full disk deleting makes room.
    pub(crate) fn deleting(job: &Job, end: &End) -> Self {
        Self::of(job, &[end], Disk::IsNothing)
    }

    fn of(job: &Job, ends: &[&End], disk: Disk) -> Self {
        let looks = Looks::default();
        let pace = Pace::new(job.limits.nice_ratio, job.limits.chunk_time);
        let mut tasks = JoinSet::new();
        for end in ends {
            let samples = Arc::new(Mutex::new(Samples::default()));
            let primary = Asked::new(job, end, &end.primary);
            tasks.spawn(watch_primary(
                primary,
                disk,
                Arc::clone(&samples),
                Slot::new(&looks),
                pace.pod(),
            ));
            for address in &end.replicas {
                let replica = Asked::new(job, end, address);
                tasks.spawn(watch_replica(
                    replica,
                    Arc::clone(&samples),
                    Slot::new(&looks),
                ));
            }
        }
        Self {
            job: job.clone(),
            looks,
            pace,
            counts: AtomicBool::new(false),
            _tasks: tasks,
        }
    }

    /// Whether anything stands in the way now.
    pub(crate) fn holds(&self) -> bool {
        self.reason().is_some()
    }

    /// What stands in the way now.
    fn reason(&self) -> Option<String> {
        self.looks.lock().iter().flatten().next().cloned()
    }

    /// Comes back when nothing stands in the way, however long that takes: to begin anew would give the pods more to do, that
    /// have too much. Whoever drives the move tells an operator ([`HeldBack::told`]).
    pub(crate) async fn pass(&self) -> Result<(), MoveError> {
        // Of two servers that take turns in the way neither might be told, if each began the time anew.
        let since = Instant::now();
        let mut held = None;
        while let Some(by) = self.reason() {
            held.get_or_insert_with(|| Held(&self.job.progress));
            self.wait(PASS_EVERY, HeldBack { by, since }).await?;
        }
        Ok(())
    }

    /// The same, for work that may take its time: it also rests for what was done before, where shops sell.
    pub(crate) async fn pass_gently(&self) -> Result<(), MoveError> {
        let mut held = None;
        loop {
            self.pass().await?;
            let rest = self.pace.rest();
            if rest.is_zero() {
                return Ok(());
            }
            held.get_or_insert_with(|| Held(&self.job.progress));
            let rests = HeldBack {
                by: SHOPS_SELL.to_owned(),
                since: Instant::now(),
            };
            self.wait(rest.min(PASS_EVERY), rests).await?;
        }
    }

    /// Lets time go by, and says why.
    async fn wait(&self, time: Duration, held: HeldBack) -> Result<(), MoveError> {
        *self.job.progress.held_back.lock() = Some(held);
        let _waits = Waits::begin(&self.counts, &self.job.progress);
        tokio::select! {
            () = self.job.stop.cancelled() => Err(MoveError::Stopped),
            () = sleep(time) => Ok(()),
        }
    }

    /// A piece of work took so long.
    pub(crate) fn worked(&self, took: Duration) {
        self.pace.worked(took);
    }

    /// How long the next piece shall take.
    pub(crate) fn piece(&self) -> Duration {
        self.pace.piece()
    }
}

/// A reason that is told until its wait is over, also where it was given up: a later run goes on with the same counters. Who
/// need not wait takes away nobody's reason.
struct Held<'a>(&'a Progress);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.held_back.lock() = None;
    }
}

/// A wait whose time is noted when it is over, also where it was given up.
struct Waits<'a> {
    counts: &'a AtomicBool,
    progress: &'a Progress,
    began: Instant,
}

impl<'a> Waits<'a> {
    /// None where somebody else's wait is noted just now.
    fn begin(counts: &'a AtomicBool, progress: &'a Progress) -> Option<Self> {
        let first = !counts.swap(true, Ordering::Relaxed);
        first.then(|| Self {
            counts,
            progress,
            began: Instant::now(),
        })
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let waited = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Progress::add(&self.progress.throttled_ms, waited);
        self.counts.store(false, Ordering::Relaxed);
    }
}

/// Where one server's reason stands.
struct Slot {
    looks: Looks,
    at: usize,
}

impl Slot {
    fn new(looks: &Looks) -> Self {
        let mut all = looks.lock();
        all.push(None);
        Self {
            looks: Arc::clone(looks),
            at: all.len() - 1,
        }
    }

    fn say(&self, found: Option<String>) {
        if let Some(look) = self.looks.lock().get_mut(self.at) {
            *look = found;
        }
    }
}

/// A server that is asked again and again.
struct Asked {
    job: Job,
    end: End,
    address: Address,
    session: Option<Session>,
    rest_until: Instant,
}

impl Asked {
    fn new(job: &Job, end: &End, address: &Address) -> Self {
        Self {
            job: job.clone(),
            end: end.clone(),
            address: address.clone(),
            session: None,
            rest_until: Instant::now(),
        }
    }

    /// One look, or nothing from a server that does not answer in time; it is left alone for a while then.
    async fn look(&mut self, what: What) -> Option<Seen> {
        if self.session.is_none() && Instant::now() < self.rest_until {
            return None;
        }
        let kept = self.session.take();
        let looking = async {
            let mut session = match kept {
                Some(session) => session,
                None => Session::open_at(&self.end, &self.address, &self.job.stop).await?,
            };
            let seen = what.ask(&mut session).await?;
            Ok::<_, MoveError>((session, seen))
        };
        match timeout(LOOK_WITHIN, looking).await {
            Ok(Ok((session, seen))) => {
                self.session = Some(session);
                Some(seen)
            }
            Ok(Err(_)) | Err(_) => {
                self.rest_until = Instant::now() + LOOK_AGAIN;
                None
            }
        }
    }

    /// Until the next look; not past the run's end.
    async fn pause(&self) {
        tokio::select! {
            () = self.job.stop.cancelled() => {}
            () = sleep(LOOK_EVERY) => {}
        }
    }
}

/// What a server is asked.
#[derive(Debug, Clone, Copy)]
enum What {
    Executed,
    Load,
    Folder,
}

/// What it answered.
enum Seen {
    Executed(GtidSet),
    Load(GtidSet, u64),
    Folder(Option<PathBuf>),
}

impl What {
    async fn ask(self, session: &mut Session) -> Result<Seen, MoveError> {
        match self {
            Self::Executed => Ok(Seen::Executed(session.gtid_executed().await?)),
            Self::Folder => Ok(Seen::Folder(data_folder(session).await)),
            Self::Load => {
                let executed = session.gtid_executed().await?;
                let sql = "show global status like 'Threads_running'";
                let rows = session.rows("look at the load", sql).await?;
                let running = rows.first().and_then(|row| text(row, 1));
                let running = running.and_then(|n| n.parse().ok()).unwrap_or(0);
                Ok(Seen::Load(executed, running))
            }
        }
    }
}

/// Whether a nearly full disk stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    Counts,
    IsNothing,
}

/// A primary that does not answer stops the move by itself; what it said last says nothing then.
async fn watch_primary(
    mut primary: Asked,
    disk: Disk,
    samples: Arc<Mutex<Samples>>,
    slot: Slot,
    mut others: Others,
) {
    let pod = primary.end.pod;
    // Without a folder no disk is looked at.
    let mut folder = (disk == Disk::IsNothing).then_some(None);
    while !primary.job.stop.is_cancelled() {
        if folder.is_none()
            && let Some(Seen::Folder(found)) = primary.look(What::Folder).await
        {
            folder = Some(found);
        }
        let looked = primary.look(What::Load).await;
        let Some(Seen::Load(executed, running)) = looked else {
            slot.say(None);
            primary.pause().await;
            continue;
        };
        let ours = primary.end.commits.load(Ordering::Relaxed);
        others.seen(Instant::now(), executed.count(), ours);
        samples.lock().add(Instant::now(), executed);
        let limits = &primary.job.limits;
        let busy = (running > limits.threads_running_max)
            .then(|| format!("the primary of pod {pod} runs {running} statements at once"));
        let folder = folder.as_ref().and_then(Option::as_ref);
        let left = folder
            .and_then(|folder| Free::of(folder))
            .map(Free::percent);
        let full = left
            .filter(|left| *left < u64::from(limits.disk_free_min_percent))
            .map(|left| {
                let kept = limits.disk_free_min_percent;
                format!(
                    "the disk of pod {pod}'s primary has {left} % left, and {kept} % are kept free \
                     (`moves.disk_free_min_percent` of fleet.toml)"
                )
            });
        slot.say(busy.or(full));
        primary.pause().await;
    }
}

/// A replica that does not answer counts for nothing.
async fn watch_replica(mut replica: Asked, samples: Arc<Mutex<Samples>>, slot: Slot) {
    while !replica.job.stop.is_cancelled() {
        let lag = match replica.look(What::Executed).await {
            Some(Seen::Executed(set)) => samples.lock().lag(Instant::now(), &set),
            Some(Seen::Load(..) | Seen::Folder(_)) | None => Duration::ZERO,
        };
        let late = lag > replica.job.limits.replica_lag_max;
        slot.say(late.then(|| {
            format!(
                "the replica {} of pod {} is {} ms behind",
                replica.address,
                replica.end.pod,
                lag.as_millis()
            )
        }));
        replica.pause().await;
    }
}

#[cfg(test)]
mod tests;
