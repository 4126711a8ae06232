//! The fence and the hand-over inside it: what a buyer may notice, so every connection is made before it.
//!
//! The catalog's state comes first, so that a control server which starts takes up a shop that waits. All of it is
//! bounded. What goes wrong before the catalog's step ends the run; the next one lifts the fence.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use shared::gtid::GtidSet;
use shared::moves::MoveEvent;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::door::Waited;
use super::follow::{Hands, NO_HANDS};
use super::recover::HOME_CACHED;
use super::{Door, Driver};
use crate::mover::apply::Until;
use crate::mover::error::MoveError;
use crate::mover::home::{self, Change};
use crate::mover::run::other_primary;
use crate::mover::session::Session;
use crate::mover::step::{Step, step};

/// The longest pause between two tries: the cause may be mended from outside.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How often the target is brought up to date while the next try is waited for.
const KEEP_UP_EVERY: Duration = Duration::from_millis(200);
/// How long the target's binlog may take to be read up to now: a mover that took the move up reads all of the copy again,
/// some gigabytes.
pub(super) const SEEN_WITHIN: Duration = Duration::from_secs(120);
/// How long a turn among the fences lasts, in bounds of a pause: one for the hand-over, and one for the next run, which lifts
/// the fence.
const TURN_PAUSES: u32 = 2;

/// Fences of one move that missed, and when the next may close.
#[derive(Debug, Default)]
pub(in crate::mover) struct Fences {
    pub(super) missed: u32,
    not_before: Option<Instant>,
    /// What an operator reads until then.
    waits: Option<String>,
    /// From before the fence until the target serves or the fence is lifted, in whichever run that is, unless the turn ends
    /// before by itself.
    turn: Option<FenceTurn>,
}

/// A turn among the fences that stand at once (`fences_max`); dropped, it is the next one's.
///
/// It is for pauses that the mover makes, which are bounded. A fence that stands for longer waits for a server that does
/// not answer, for as long as that lasts, and holds up no other move: its turn ends with the time that it was given. To
/// lift a fence or to go forward from it none is needed.
#[derive(Debug)]
struct FenceTurn {
    /// Holds the permit; aborted when the turn is dropped.
    _holder: JoinSet<()>,
}

impl FenceTurn {
    fn begin(permit: OwnedSemaphorePermit, pause_bound: Duration) -> Self {
        let mut holder = JoinSet::new();
        holder.spawn(async move {
            sleep(pause_bound.saturating_mul(TURN_PAUSES)).await;
            drop(permit);
        });
        Self { _holder: holder }
    }
}

impl Fences {
    /// It stands no more.
    pub(in crate::mover) fn open(&mut self) {
        self.turn = None;
    }

    /// One more was lifted, and why. When the next is tried is told as an instant: what changes by itself would be news again
    /// and again.
    pub(super) fn missed(&mut self, first: Duration, why: &str) {
        let pause = first
            .saturating_mul(1 << self.missed.min(10))
            .min(RETRY_MAX.max(first));
        self.missed += 1;
        self.not_before = Some(Instant::now() + pause);
        self.waits = Some(format!(
            "fences that did not hold: {}; the last one: {why}; the next is tried at {}",
            self.missed,
            utc(OffsetDateTime::now_utc() + pause)
        ));
    }
}

/// To the second: an operator compares it with a clock.
fn utc(at: OffsetDateTime) -> String {
    let at = at.replace_nanosecond(0).unwrap_or(at);
    at.format(&Rfc3339).unwrap_or_else(|_| at.to_string())
}

/// The connections of a hand-over.
struct Lines {
    /// The source's home.
    door: Door,
    /// The target's.
    target: Session,
    /// What the hand-over does: told where it takes too long.
    doing: Doing,
}

/// A part of the hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Look,
    Fence,
    Follow,
    Compare,
    Note,
    Handing,
    Ready,
    Tail,
    Confirm,
    Switch,
}

impl Doing {
    const fn words(self) -> &'static str {
        match self {
            Self::Look => "the catalog's answer where the shop is",
            Self::Fence => "the lock of the shop's home at the source",
            Self::Follow => "the last changes to be made at the target",
            Self::Compare => "the comparison of the keys that had changed",
            Self::Note => "the catalog to note that both sides are equal",
            Self::Handing => "the source's home to become `handing`",
            Self::Ready => "the target's home to become `ready`",
            Self::Tail => "the target's binlog to be read",
            Self::Confirm => "a last look at the source's home",
            Self::Switch => "the catalog to change the owner",
        }
    }
}

/// Why a hand-over was given up.
fn too_long(bound: Duration, doing: Doing, waited: Waited) -> String {
    let bound = bound.as_millis();
    let text = format!("the hand-over took longer than {bound} ms, and was waiting for");
    match doing {
        Doing::Fence | Doing::Handing => format!("{text} {} ({waited})", doing.words()),
        Doing::Look
        | Doing::Follow
        | Doing::Compare
        | Doing::Note
        | Doing::Ready
        | Doing::Tail
        | Doing::Confirm
        | Doing::Switch => format!("{text} {}", doing.words()),
    }
}

impl Driver {
    /// Keeps up with the source until a fence may close: after a missed one, and while others stand.
    pub(super) async fn wait_for_fence(&mut self, fences: &mut Fences) -> Result<(), MoveError> {
        loop {
            self.converge().await?;
            match fences.not_before {
                Some(at) if at > Instant::now() => {
                    self.waits(fences.waits.clone()).await?;
                    let until = at.min(Instant::now() + KEEP_UP_EVERY);
                    tokio::time::sleep_until(until).await;
                }
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// Closes the fence and hands the shop over.
    pub(super) async fn hand_over(&mut self, fences: &mut Fences) -> Result<(), MoveError> {
        let (door, target) = tokio::try_join!(
            Door::of_fence(&self.job, &self.job.source),
            Session::open(&self.job, &self.job.target)
        )?;
        let mut lines = Lines {
            door,
            target,
            doing: Doing::Look,
        };
        if let Some(at) = self.incoming_since
            && self.row.detail.was_fenced()
        {
            // A hand-over that was lifted, be it before the move was resumed, may have left the home `ready`. A process that
            // remembers that one would take a replica for complete that lacks what came since.
            tokio::time::sleep_until(at + HOME_CACHED).await;
        }
        self.see_target(&mut lines.target).await?;
        self.converge().await?;
        self.fence_turn(fences).await?;
        // Their servers close what was silent for long, and the fence must not meet that.
        tokio::try_join!(lines.door.awake(), lines.target.awake())?;
        let mut detail = self.counted();
        detail.waits = None;
        detail.record.fence_tries += 1;
        self.step(MoveEvent::Verified, &detail, None).await?;
        let until = Instant::now() + self.job.limits.pause_bound;
        let done = timeout_at(until, Box::pin(self.inside(&mut lines))).await;
        match done {
            Ok(done) => done?,
            Err(_) => {
                let (bound, waited) = (self.job.limits.pause_bound, lines.door.waited());
                return Err(MoveError::Waits(too_long(bound, lines.doing, waited)));
            }
        }
        (fences.missed, fences.not_before) = (0, None);
        drop(lines);
        self.forward(fences).await
    }

    /// Reads the target's binlog up to now: what the copy wrote there is not to be read inside of the fence.
    async fn see_target(&self, target: &mut Session) -> Result<(), MoveError> {
        let Some(hands) = &self.hands else {
            return Err(NO_HANDS);
        };
        let executed = target.gtid_executed().await?;
        hands.tail.wait_for(&executed, SEEN_WITHIN).await
    }

    /// Waits for a turn among the fences; the target is kept up to date meanwhile.
    async fn fence_turn(&mut self, fences: &mut Fences) -> Result<(), MoveError> {
        let all = Arc::clone(&self.mover.fences);
        let permit = if let Ok(permit) = Arc::clone(&all).try_acquire_owned() {
            permit
        } else {
            let text = "other fences stand (`moves.fences_max` of fleet.toml)".to_owned();
            self.waits(Some(text)).await?;
            let mut queue = Queue::join(all);
            loop {
                if let Some(permit) = queue.round(self.converge()).await? {
                    break permit;
                }
            }
        };
        fences.turn = Some(FenceTurn::begin(permit, self.job.limits.pause_bound));
        Ok(())
    }

    /// From the fence to the catalog's step.
    async fn inside(&mut self, lines: &mut Lines) -> Result<(), MoveError> {
        // Orders that would change it are refused until the shop is handed over.
        let placement = self.placed().await?.state;
        let begun = Instant::now();
        let applied_before = self.job.progress.now().keys_applied;
        let job = &self.job;
        lines.doing = Doing::Fence;
        let door = &mut lines.door;
        let fence = step!(Step::Fence => door.change(job, &Change::Fence).await);
        let (_, waited) = fence.await?;
        // It holds every write that was acknowledged: none can come after it.
        let fenced = lines.door.session().gtid_executed().await?;
        self.finish_rows(&fenced, &mut lines.doing).await?;
        let applied = self.job.progress.now().keys_applied - applied_before;
        let mut detail = self.row.detail.clone();
        detail.fence_gtid = Some(fenced.to_string());
        note_fence(&mut detail.record, waited, applied);
        lines.doing = Doing::Note;
        self.step(MoveEvent::Followed, &detail, None).await?;
        let job = &self.job;
        lines.doing = Doing::Handing;
        let door = &mut lines.door;
        step!(Step::Handing => door.change(job, &Change::Handing).await).await?;
        lines.doing = Doing::Ready;
        let target = &mut lines.target;
        let ready = step!(Step::Ready => home::ready(target, job, placement).await).await?;
        // Whoever changed a row at the target behind the mover's back is seen up to the moment it may sell, and beyond: this
        // set has that moment.
        lines.doing = Doing::Tail;
        let sells = lines.target.gtid_executed().await?;
        if let Some(hands) = &mut self.hands {
            hands.tail.wait_for(&sells, job.limits.pause_bound).await?;
        }
        lines.doing = Doing::Confirm;
        self.confirm(lines).await?;
        lines.doing = Doing::Switch;
        self.switch(&ready, begun).await
    }

    /// The last changes, and the comparison of every key that changed since it was compared.
    async fn finish_rows(&mut self, fenced: &GtidSet, doing: &mut Doing) -> Result<(), MoveError> {
        let Some(Hands {
            applier: Some(applier),
            ..
        }) = &mut self.hands
        else {
            return Err(NO_HANDS);
        };
        *doing = Doing::Follow;
        step!(Step::Follow => {
            applier
                .apply_until(Until::Set(fenced.clone()))
                .await
                .map(drop)
        })
        .await?;
        *doing = Doing::Compare;
        step!(Step::CompareKeys => {
            applier.compare_touched().await.map(drop)
        })
        .await
    }

    /// The source is still the pod's primary, and its home still `handing` for this mover.
    async fn confirm(&self, lines: &mut Lines) -> Result<(), MoveError> {
        if let Some((pod, text)) = other_primary(&self.mover, &self.job).await {
            return Err(MoveError::PrimaryChanged { pod, text });
        }
        let (job, session) = (&self.job, lines.door.session());
        step!(Step::StillHanding => {
            home::still_handing(session, job).await
        })
        .await
    }

    /// The point of no return.
    async fn switch(&mut self, ready: &GtidSet, begun: Instant) -> Result<(), MoveError> {
        let mut detail = self.row.detail.clone();
        detail.ready_gtid = Some(ready.to_string());
        detail.record.fence_ms = u64::try_from(begun.elapsed().as_millis()).ok();
        let ends = [&self.job.source, &self.job.target];
        let terms = ends.map(|end| (end.pod, end.term));
        let (catalog, row) = (&self.mover.catalog, &self.row);
        self.row = step!(Step::Switch => {
            Ok(catalog.switch_move(row, &detail, &terms).await?)
        })
        .await?;
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.row.detail.record.fence_ms = Some(took);
        Ok(())
    }
}

/// A place among those who wait for a permit, in their order.
struct Queue {
    all: Arc<Semaphore>,
    waiting: BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>,
}

impl Queue {
    fn join(all: Arc<Semaphore>) -> Self {
        let waiting = Box::pin(Arc::clone(&all).acquire_owned());
        Self { all, waiting }
    }

    /// Waits for some time, then keeps up. A permit that is given while that takes long (the throttle may hold it up for
    /// minutes) is passed on and waited for anew: this one could not use it.
    async fn round(
        &mut self,
        keep_up: impl Future<Output = Result<(), MoveError>>,
    ) -> Result<Option<OwnedSemaphorePermit>, MoveError> {
        if let Ok(permit) = timeout(KEEP_UP_EVERY, &mut self.waiting).await {
            return permit.map(Some).map_err(no_turns);
        }
        let mut keep_up = std::pin::pin!(keep_up);
        let permit = tokio::select! {
            biased;
            kept = &mut keep_up => return kept.map(|()| None),
            permit = &mut self.waiting => permit.map_err(no_turns)?,
        };
        if let Ok(kept) = timeout(KEEP_UP_EVERY, &mut keep_up).await {
            return kept.map(|()| Some(permit));
        }
        drop(permit);
        *self = Self::join(Arc::clone(&self.all));
        keep_up.await.map(|()| None)
    }
}

/// Nothing closes that semaphore.
const fn no_turns(_: AcquireError) -> MoveError {
    MoveError::Unexpected("the turns of fences are gone")
}

fn note_fence(record: &mut crate::api::MoveRecord, waited: Waited, applied: u64) {
    record.writes_in_flight = waited.in_flight;
    record.tail_keys = Some(applied);
    record.drain_ms = u64::try_from(waited.time.as_millis()).ok();
    record.writes_ended = waited.ended;
}

#[cfg(test)]
mod tests;
