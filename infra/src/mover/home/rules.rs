//! What each change makes of a home, without I/O.

use shared::home::{HomeState, Mark};
use shared::{Epoch, PlacementState, PodId};

// Where something is to be deleted.
mod left;
use left::{forget, take_gone, take_leftover, take_to_clear};

/// A row of `shop_home`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HomeRow {
    pub(crate) epoch: Epoch,
    pub(crate) state: HomeState,
    pub(crate) move_id: Option<String>,
    pub(crate) owner: u64,
    pub(crate) ready_gtid: Option<String>,
    pub(crate) mark: Option<Mark>,
}

impl HomeRow {
    /// In a sentence.
    pub(crate) fn told(&self) -> String {
        format!(
            "{} at epoch {}, move {}, owner {}",
            self.state.as_str(),
            self.epoch.get(),
            self.move_id.as_deref().unwrap_or("none"),
            self.owner
        )
    }
}

/// A change of a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The source's gets this owner number, whatever its state is; with a state, a fence that stands is lifted to that.
    TakeOverSource(Option<PlacementState>),
    /// The target's gets this owner number, whatever its state is, where it is this move's or nobody's.
    TakeOverTarget,
    /// The target's belongs to this move and takes its rows.
    Incoming,
    /// The source's: no writes.
    Fence,
    /// The source's: no reads either.
    Handing,
    /// The target's: serves at its epoch, or is frozen or offline there as the placement says. The text is the set of
    /// transactions executed there.
    Ready(String, PlacementState),
    /// The target's: what the placement says, since the catalog's step is done.
    Serving(PlacementState),
    /// The source's: handed over, with the mark.
    Moved,
    /// The source's after an abort: a fence that stands is lifted to what the placement says, and it is no move's any more.
    Restore(PlacementState),
    /// Either's: no move's any more.
    Release,
    /// The source's, which was gone at the hand-over: this operation's, and handed over, whatever it says.
    TakeGone,
    /// That of a pod where rows are to be cleared that no move made: this operation's, which must be `moved`, or becomes so
    /// where there is none.
    TakeToClear,
    /// The target's after an abort: this operation's, and `incoming` unless it is `moved`, so that its rows can be deleted.
    TakeLeftover,
    /// The target's after an abort: a mark to the owner, and no move's any more. The owner number that stays refuses
    /// whoever of that move wakes up late.
    Forget,
}

/// Why a change is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another mover's.
    NotOwner(String),
    /// It is in no state for this.
    State(String),
}

/// Who changes it.
#[derive(Debug, Clone)]
pub(super) struct Who {
    pub(super) id: String,
    pub(super) owner: u64,
    pub(super) source_epoch: Epoch,
    pub(super) target_epoch: Epoch,
    pub(super) source: PodId,
    pub(super) target: PodId,
}

/// The home's word for what an operator allows.
const fn word(state: PlacementState) -> HomeState {
    match state {
        PlacementState::Serving => HomeState::Serving,
        PlacementState::Frozen => HomeState::Frozen,
        PlacementState::Offline => HomeState::Offline,
    }
}

/// The home's word for the target just before the catalog's step. A shop that is frozen or offline is not opened for that
/// moment either.
const fn ready(state: PlacementState) -> HomeState {
    match state {
        PlacementState::Serving => HomeState::Ready,
        PlacementState::Frozen => HomeState::Frozen,
        PlacementState::Offline => HomeState::Offline,
    }
}

/// What the target's home may be, at the reserved epoch, before the catalog's step.
const fn filled(state: HomeState) -> bool {
    match state {
        HomeState::Incoming | HomeState::Ready | HomeState::Frozen | HomeState::Offline => true,
        HomeState::Serving | HomeState::Fenced | HomeState::Handing | HomeState::Moved => false,
    }
}

/// The row after a change; `None` where there is none and shall be none.
pub(super) fn after(
    change: &Change,
    who: &Who,
    found: Option<&HomeRow>,
) -> Result<Option<HomeRow>, Refusal> {
    match change {
        Change::TakeOverSource(lift) => take_over_source(who, found, *lift).map(Some),
        Change::TakeOverTarget => take_over_target(who, found),
        Change::Incoming => incoming(who, found).map(Some),
        Change::Fence => at_source(who, found, HomeState::Fenced, |state| {
            matches!(
                state,
                HomeState::Serving | HomeState::Frozen | HomeState::Offline | HomeState::Fenced
            )
        }),
        Change::Handing => at_source(who, found, HomeState::Handing, |state| {
            matches!(state, HomeState::Fenced | HomeState::Handing)
        }),
        Change::Ready(executed, placement) => {
            let row = at_target(who, found, ready(*placement), filled)?;
            Ok(Some(HomeRow {
                ready_gtid: Some(executed.clone()),
                ..row
            }))
        }
        Change::Serving(placement) => {
            let row = at_target(who, found, word(*placement), |state| {
                state == HomeState::Serving || (filled(state) && state != HomeState::Incoming)
            })?;
            Ok(Some(HomeRow { mark: None, ..row }))
        }
        Change::Moved => moved(who, found).map(Some),
        Change::Restore(placement) => {
            let row = take_over_source(who, found, Some(*placement))?;
            Ok(Some(HomeRow {
                move_id: None,
                ..row
            }))
        }
        Change::Release => match found {
            Some(row) if row.move_id.is_none() && row.owner == who.owner => Ok(Some(row.clone())),
            Some(_) | None => Ok(Some(HomeRow {
                move_id: None,
                ..owned(who, found)?.clone()
            })),
        },
        Change::TakeGone => take_gone(who, found).map(Some),
        Change::TakeToClear => take_to_clear(who, found).map(Some),
        Change::TakeLeftover => take_leftover(who, found),
        Change::Forget => forget(who, found).map(Some),
    }
}

fn owned<'a>(who: &Who, found: Option<&'a HomeRow>) -> Result<&'a HomeRow, Refusal> {
    match found {
        Some(row) if row.owner == who.owner && row.move_id.as_deref() == Some(&who.id) => Ok(row),
        Some(row) => Err(Refusal::NotOwner(row.told())),
        None => Err(Refusal::NotOwner("no home".to_owned())),
    }
}

/// Whether this mover may take the row: it is the newest that ever came.
fn may_take(who: &Who, row: &HomeRow) -> Result<(), Refusal> {
    let own = row.move_id.as_deref() == Some(&who.id);
    if row.owner < who.owner || (row.owner == who.owner && (own || row.move_id.is_none())) {
        Ok(())
    } else {
        Err(Refusal::NotOwner(row.told()))
    }
}

fn take_over_source(
    who: &Who,
    found: Option<&HomeRow>,
    lift: Option<PlacementState>,
) -> Result<HomeRow, Refusal> {
    let Some(row) = found else {
        return Err(Refusal::State(
            "the shop has no home there; run `podctl doctor`".to_owned(),
        ));
    };
    may_take(who, row)?;
    let state = match (row.state, lift) {
        // Only what a mover set is lifted: an order to freeze that is under way has the last word.
        (HomeState::Fenced | HomeState::Handing, Some(placement)) => word(placement),
        (HomeState::Moved | HomeState::Incoming | HomeState::Ready, Some(_)) => {
            return Err(Refusal::State(format!(
                "the home is {}, so this move goes only forward; run `podctl doctor`",
                row.told()
            )));
        }
        (state, _) => state,
    };
    if lift.is_some() && row.epoch != who.source_epoch {
        return Err(Refusal::State(format!(
            "the home is {}, not at epoch {}; run `podctl doctor`",
            row.told(),
            who.source_epoch.get()
        )));
    }
    Ok(HomeRow {
        state,
        move_id: Some(who.id.clone()),
        owner: who.owner,
        ..row.clone()
    })
}

fn take_over_target(who: &Who, found: Option<&HomeRow>) -> Result<Option<HomeRow>, Refusal> {
    let Some(row) = found else { return Ok(None) };
    may_take(who, row)?;
    Ok(Some(HomeRow {
        move_id: Some(who.id.clone()),
        owner: who.owner,
        ..row.clone()
    }))
}

fn incoming(who: &Who, found: Option<&HomeRow>) -> Result<HomeRow, Refusal> {
    if let Some(row) = found {
        may_take(who, row)?;
        // The epoch was reserved for this move alone.
        let ours = row.epoch == who.target_epoch && filled(row.state);
        if !ours && row.state != HomeState::Moved {
            return Err(Refusal::State(format!(
                "the shop has a home there already ({}); run `podctl doctor`",
                row.told()
            )));
        }
    }
    Ok(HomeRow {
        epoch: who.target_epoch,
        state: HomeState::Incoming,
        move_id: Some(who.id.clone()),
        owner: who.owner,
        ready_gtid: None,
        // Kept until the hand-over, so that an edge from before two moves still finds the way.
        mark: found.and_then(|row| row.mark),
    })
}

fn at_source(
    who: &Who,
    found: Option<&HomeRow>,
    to: HomeState,
    from: impl Fn(HomeState) -> bool,
) -> Result<Option<HomeRow>, Refusal> {
    let row = owned(who, found)?;
    if row.epoch != who.source_epoch || !from(row.state) {
        return Err(Refusal::State(format!(
            "the home is {}, which cannot become {} at epoch {}",
            row.told(),
            to.as_str(),
            who.source_epoch.get()
        )));
    }
    Ok(Some(HomeRow {
        state: to,
        ..row.clone()
    }))
}

fn at_target(
    who: &Who,
    found: Option<&HomeRow>,
    to: HomeState,
    from: impl Fn(HomeState) -> bool,
) -> Result<HomeRow, Refusal> {
    let row = owned(who, found)?;
    if row.epoch != who.target_epoch || !from(row.state) {
        return Err(Refusal::State(format!(
            "the home is {}, which cannot become {} at epoch {}",
            row.told(),
            to.as_str(),
            who.target_epoch.get()
        )));
    }
    Ok(HomeRow {
        state: to,
        ..row.clone()
    })
}

/// After the catalog's step the source never serves again: whatever its home says, it is handed over.
fn moved(who: &Who, found: Option<&HomeRow>) -> Result<HomeRow, Refusal> {
    let row = owned(who, found)?;
    if row.epoch != who.source_epoch {
        return Err(Refusal::State(format!(
            "the home is {}, not at epoch {}; run `podctl doctor`",
            row.told(),
            who.source_epoch.get()
        )));
    }
    Ok(HomeRow {
        state: HomeState::Moved,
        mark: Some(Mark {
            pod: who.target,
            epoch: who.target_epoch,
        }),
        ..row.clone()
    })
}

#[cfg(test)]
mod tests;
