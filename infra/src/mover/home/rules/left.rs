//! Homes at pods that do not own the shop, where something is to be deleted: a source that was gone, an aborted move's target,
//! a pod with rows that no move made.

use shared::home::{HomeState, Mark};

use super::{HomeRow, Refusal, Who, filled, may_take, owned};

/// A pod that comes back may say anything up to the source's epoch: what it said when it was lost, or what it said when
/// its backup was made.
pub(super) fn take_gone(who: &Who, found: Option<&HomeRow>) -> Result<HomeRow, Refusal> {
    if let Some(row) = found {
        may_take(who, row)?;
        if row.epoch > who.source_epoch {
            return Err(Refusal::State(format!(
                "the home is {}, above epoch {}; run `podctl doctor`",
                row.told(),
                who.source_epoch.get()
            )));
        }
    }
    Ok(HomeRow {
        epoch: found.map_or(who.source_epoch, |row| row.epoch),
        state: HomeState::Moved,
        move_id: Some(who.id.clone()),
        owner: who.owner,
        ready_gtid: found.and_then(|row| row.ready_gtid.clone()),
        mark: Some(Mark {
            pod: who.target,
            epoch: who.target_epoch,
        }),
    })
}

pub(super) fn take_leftover(
    who: &Who,
    found: Option<&HomeRow>,
) -> Result<Option<HomeRow>, Refusal> {
    let Some(row) = found else { return Ok(None) };
    may_take(who, row)?;
    // A home that never was this move's has nothing of it.
    let filled = row.epoch == who.target_epoch && filled(row.state);
    Ok(Some(HomeRow {
        state: if filled {
            HomeState::Incoming
        } else {
            row.state
        },
        move_id: Some(who.id.clone()),
        owner: who.owner,
        ..row.clone()
    }))
}

pub(super) fn forget(who: &Who, found: Option<&HomeRow>) -> Result<HomeRow, Refusal> {
    let back = Mark {
        pod: who.source,
        epoch: who.source_epoch,
    };
    let Some(row) = found else {
        return Ok(HomeRow {
            epoch: who.target_epoch,
            state: HomeState::Moved,
            move_id: None,
            owner: who.owner,
            ready_gtid: None,
            mark: Some(back),
        });
    };
    let done = row.move_id.is_none() && row.owner == who.owner;
    if !done {
        owned(who, found)?;
    }
    if !matches!(row.state, HomeState::Incoming | HomeState::Moved) {
        return Err(Refusal::State(format!(
            "the home is {}; run `podctl doctor`",
            row.told()
        )));
    }
    Ok(HomeRow {
        state: HomeState::Moved,
        move_id: None,
        mark: Some(back),
        ..row.clone()
    })
}

/// Nobody serves by a home that is `moved`, nor where there is none. Whatever else it says, the rows may be somebody's. One that
/// is made here says what that of an aborted move says: where the shop is.
pub(super) fn take_to_clear(who: &Who, found: Option<&HomeRow>) -> Result<HomeRow, Refusal> {
    let Some(row) = found else {
        return Ok(HomeRow {
            epoch: who.source_epoch,
            state: HomeState::Moved,
            move_id: Some(who.id.clone()),
            owner: who.owner,
            ready_gtid: None,
            mark: Some(Mark {
                pod: who.target,
                epoch: who.target_epoch,
            }),
        });
    };
    may_take(who, row)?;
    if row.state != HomeState::Moved {
        return Err(Refusal::State(format!(
            "the home is {}, and rows are cleared only where it is moved or missing; run `podctl doctor`",
            row.told()
        )));
    }
    Ok(HomeRow {
        move_id: Some(who.id.clone()),
        owner: who.owner,
        ..row.clone()
    })
}
