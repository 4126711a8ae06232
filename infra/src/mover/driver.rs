//! Drives one move: looks at the state that the catalog names, does what belongs to it, and asks for the next.
//!
//! A driver lives for one run, with one owner number. Whatever it does not finish is taken up by the next run from what
//! the catalog and the two homes say; what it knows beside those is lost with it, and is found out again.

use std::sync::Arc;

use shared::moves::{MoveEvent, MoveState};
use shared::{Epoch, PlacementState, PodId};
use tokio::time::Instant;

use super::error::MoveError;
use super::home::{Change, HomeRow};
use super::job::{End, Job};
use super::run::{Caps, Gate, Mover, Turn};
use super::step::{Step, step};
use crate::catalog::{MoveDetail, MoveRow, ShopRef};

// Where the pods' primaries are: the job of a run.
mod ends;
// Preparing.
mod prepare;
// Copying, catching up, verifying.
mod follow;
// What an earlier run met, until the move goes on.
mod trouble;
// What a run leaves to the next one.
mod kept;
// A home: who holds it up.
mod door;
// The fence, and the hand-over inside it.
mod fence;
// A fence found standing: lifted, or the hand-over ended.
mod recover;
// Observing and retiring.
mod after;
// Paused, failed, aborting.
mod undo;

pub(super) use door::Door;
pub(super) use ends::{end_of, job_of};
pub(super) use fence::Fences;
use follow::{Hands, Tables};
pub(super) use kept::Kept;
pub(super) use recover::{HOME_CACHED, Reason, Why};

/// Where the catalog says that the shop is.
#[derive(Debug, Clone, Copy)]
struct Placed {
    pod: PodId,
    epoch: Epoch,
    state: PlacementState,
}

/// One run of a move.
pub(super) struct Driver {
    mover: Arc<Mover>,
    row: MoveRow,
    job: Job,
    gate: Gate,
    /// Why the fence that stands is to be lifted, until the catalog has it.
    reason: Option<Reason>,
    /// Whether this run's owner number is in the homes.
    source_taken: bool,
    target_taken: bool,
    /// When this run made the target's home `incoming`.
    incoming_since: Option<Instant>,
    /// A turn among those that copy.
    turn: Option<Turn>,
    /// One among those whose source is watched when they have copied, until the move is over.
    watch: Option<Turn>,
    /// The shop's tables, as this run found them when it prepared the move.
    tables: Option<Tables>,
    /// What works on the rows.
    hands: Option<Hands>,
    /// Whether everything is there that a run needs before it touches a row.
    at_work: bool,
}

impl Driver {
    /// A run of a move that was just taken up.
    pub(super) async fn new(
        mover: &Arc<Mover>,
        row: MoveRow,
        gate: Gate,
        reason: Option<Reason>,
        kept: Option<Kept>,
    ) -> Result<Self, MoveError> {
        let job = job_of(mover, &row).await?;
        let kept = kept.filter(|kept| kept.fits(&row, &job));
        let mut driver = Self {
            mover: Arc::clone(mover),
            row,
            job,
            gate,
            reason,
            source_taken: false,
            target_taken: false,
            incoming_since: None,
            turn: None,
            watch: None,
            tables: None,
            hands: None,
            at_work: false,
        };
        if let Some(kept) = kept {
            driver.take_up(kept);
        }
        Ok(driver)
    }

    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    /// Drives until the move is over.
    pub(super) async fn drive(&mut self, fences: &mut Fences) -> Result<(), MoveError> {
        loop {
            self.keep_watch();
            match self.row.state {
                MoveState::Preparing => Box::pin(self.prepare()).await?,
                MoveState::Copying => Box::pin(self.copy()).await?,
                MoveState::CatchingUp | MoveState::Verifying => {
                    Box::pin(self.follow(fences)).await?;
                }
                MoveState::Fenced | MoveState::Cutover => Box::pin(self.recover(fences)).await?,
                MoveState::Observing => Box::pin(self.observe()).await?,
                MoveState::Retiring => Box::pin(self.retire()).await?,
                MoveState::Paused | MoveState::Failed => Box::pin(self.rest()).await?,
                MoveState::Aborting => Box::pin(self.undo()).await?,
                MoveState::Done | MoveState::Aborted => return Ok(()),
            }
        }
    }

    /// Brings an event into the catalog.
    async fn step(
        &mut self,
        event: MoveEvent,
        detail: &MoveDetail,
        error: Option<&str>,
    ) -> Result<(), MoveError> {
        let gate = Arc::clone(&self.gate);
        // Held, so that the keeper takes the new state for no order.
        let mut known = gate.lock().await;
        let (catalog, row) = (&self.mover.catalog, &self.row);
        let row = step!(Step::of(event) => {
            Ok(catalog.step_move(row, event, detail, error).await?)
        })
        .await?;
        tracing::info!(id = %row.id, shop = row.shop.get(), from = %self.row.state, to = %row.state, "move");
        *known = row.state;
        self.row = row;
        Ok(())
    }

    /// Keeps what is known; the state stays.
    async fn note(&mut self, at: Step, detail: &MoveDetail) -> Result<(), MoveError> {
        let (catalog, row) = (&self.mover.catalog, &self.row);
        self.row = step!(at => {
            Ok(catalog.note_move(row, detail, None).await?)
        })
        .await?;
        Ok(())
    }

    /// Says what the move waits for; nothing, once it does not wait any more.
    async fn waits(&mut self, text: Option<String>) -> Result<(), MoveError> {
        if self.row.detail.waits == text && self.row.error.is_none() {
            return Ok(());
        }
        let detail = MoveDetail {
            waits: text,
            ..self.row.detail.clone()
        };
        self.row = self
            .mover
            .catalog
            .note_move(&self.row, &detail, None)
            .await?;
        Ok(())
    }

    async fn placed(&self) -> Result<Placed, MoveError> {
        let shop = self.mover.catalog.shop(&ShopRef::Id(self.job.shop)).await?;
        Ok(Placed {
            pod: shop.pod.id,
            epoch: shop.epoch,
            state: shop.state,
        })
    }

    /// Whether the catalog's step is done.
    fn switched(&self, placed: &Placed) -> bool {
        (placed.pod, placed.epoch) == (self.job.target.pod, self.job.target_epoch)
    }

    /// This run's owner number into the source's home, before anything else happens at that pod. It waits for what an
    /// earlier run has under way there. A fence that stands without a reason is lifted by the same update.
    async fn take_source(&mut self) -> Result<(), MoveError> {
        if self.source_taken {
            return Ok(());
        }
        let placed = self.placed().await?;
        let lift = (!self.switched(&placed)).then_some(placed.state);
        let change = Change::TakeOverSource(lift);
        self.at_source(Step::TakeOverSource, &change).await?;
        self.source_taken = true;
        Ok(())
    }

    /// The same at the target, where there may be no home yet.
    async fn take_target(&mut self) -> Result<Option<HomeRow>, MoveError> {
        let home = self
            .at_target(Step::TakeOverTarget, &Change::TakeOverTarget)
            .await?;
        self.target_taken = true;
        Ok(home)
    }

    /// A change of the source's home.
    async fn at_source(&self, at: Step, change: &Change) -> Result<Option<HomeRow>, MoveError> {
        self.at_home(&self.job.source, at, change).await
    }

    /// A change of the target's home.
    async fn at_target(&self, at: Step, change: &Change) -> Result<Option<HomeRow>, MoveError> {
        self.at_home(&self.job.target, at, change).await
    }

    /// A change of a home that ends what holds it up for too long: a write of the shop, or the transaction of a mover that
    /// was frozen inside of it, while the shop may be waiting for its next owner.
    async fn at_home(
        &self,
        end: &End,
        at: Step,
        change: &Change,
    ) -> Result<Option<HomeRow>, MoveError> {
        let job = &self.job;
        let mut door = Door::open(job, end).await?;
        let (row, _) = step!(at => door.change(job, change).await).await?;
        door.close().await;
        Ok(row)
    }

    /// Waits for a turn among those that copy.
    async fn take_turn(&mut self) -> Result<(), MoveError> {
        if self.turn.is_none() {
            let pods = [self.job.source.pod, self.job.target.pod];
            self.turn = Some(self.turn_of(|mover| &mover.caps, pods).await?);
        }
        Ok(())
    }

    /// Waits for one among those that are observed later: after the hand-over nothing waits any more.
    async fn take_watch(&mut self) -> Result<(), MoveError> {
        if self.watch.is_none() {
            let pods = [self.job.source.pod; 2];
            self.watch = Some(self.turn_of(|mover| &mover.watches, pods).await?);
        }
        Ok(())
    }

    /// A move that an earlier run brought past `preparing` has one, whether there is room or not.
    fn keep_watch(&mut self) {
        match self.row.state {
            MoveState::Copying
            | MoveState::CatchingUp
            | MoveState::Verifying
            | MoveState::Fenced
            | MoveState::Cutover
            | MoveState::Observing
            | MoveState::Retiring => {
                if self.watch.is_none() {
                    let pods = [self.job.source.pod; 2];
                    self.watch = Some(self.mover.watches.give(self.job.id, pods));
                }
            }
            MoveState::Preparing => {}
            MoveState::Paused
            | MoveState::Failed
            | MoveState::Aborting
            | MoveState::Done
            | MoveState::Aborted => self.watch = None,
        }
    }

    /// Waits for a turn, and says for what.
    async fn turn_of(
        &mut self,
        caps: impl Fn(&Mover) -> &Caps,
        pods: [PodId; 2],
    ) -> Result<Turn, MoveError> {
        let mover = Arc::clone(&self.mover);
        let (caps, id) = (caps(&mover), self.job.id);
        match caps.try_take(id, pods) {
            Ok(turn) => Ok(turn),
            Err(full) => {
                self.waits(Some(full)).await?;
                let turn = caps.take(id, pods).await;
                self.waits(None).await?;
                Ok(turn)
            }
        }
    }
}
