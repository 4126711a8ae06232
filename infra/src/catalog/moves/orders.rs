//! What an operator may order of a move, and what is said to an order that does not fit.

use shared::ShopId;
use shared::moves::{MoveEvent, MoveState, ResumePoint};

use super::drive::apply;
use super::{MoveRef, MoveRow, append, by_id, find, open_of, write};
use crate::catalog::{Catalog, CatalogError, Change};

/// An order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MoveOrder {
    /// Stop where nobody's writes are touched.
    Pause,
    /// Go on from where it was paused; a failed one from the beginning.
    Resume,
    /// Undo it.
    Abort,
    /// End the time of observation: the source's copy goes.
    Finish {
        /// Also if it was changed after the fence.
        despite_strays: bool,
    },
}

impl Catalog {
    /// Gives an order. One that is done already changes nothing; one that does not fit the state is refused with what does.
    pub(crate) async fn order_move(
        &self,
        actor: &str,
        reference: &MoveRef,
        order: MoveOrder,
    ) -> Result<MoveRow, CatalogError> {
        let mut change = self.change(actor).await?;
        let row = find(change.conn(), reference, self).await?;
        let event = match decide(&row, order)? {
            Decision::Done => return Ok(row),
            Decision::Event(event) => event,
            Decision::DespiteStrays => {
                despite_strays(&mut change, &row).await?;
                let row = by_id(change.conn(), row.id).await?;
                change.commit().await?;
                return Ok(row);
            }
        };
        let mut detail = row.detail.clone();
        if let MoveOrder::Finish {
            despite_strays: true,
        } = order
        {
            detail.despite_strays = true;
        }
        // What went wrong is told until it is tried again.
        let error = if matches!(event, MoveEvent::Resume(_)) {
            None
        } else {
            row.error.as_deref()
        };
        let note = format!("ordered by {actor}");
        apply(&mut change, &row, event, detail, error, Some(&note)).await?;
        let row = by_id(change.conn(), row.id).await?;
        change.commit().await?;
        Ok(row)
    }
}

/// What an order means for a move.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It is so already.
    Done,
    /// This happens to it.
    Event(MoveEvent),
    /// The deletion that strays stopped goes on.
    DespiteStrays,
}

/// Pure; what only the placement tells is left to the step.
fn decide(row: &MoveRow, order: MoveOrder) -> Result<Decision, CatalogError> {
    let state = row.state;
    match order {
        MoveOrder::Pause if state == MoveState::Paused => Ok(Decision::Done),
        MoveOrder::Pause if state.resume_point().is_some() => Ok(Decision::Event(MoveEvent::Pause)),
        MoveOrder::Pause => Err(refusal(row, "cannot be paused")),
        MoveOrder::Resume => match state {
            MoveState::Paused => {
                let point = row.detail.resume.unwrap_or(ResumePoint::Preparing);
                Ok(Decision::Event(MoveEvent::Resume(point)))
            }
            MoveState::Failed => Ok(Decision::Event(MoveEvent::Resume(ResumePoint::Preparing))),
            MoveState::Preparing
            | MoveState::Copying
            | MoveState::CatchingUp
            | MoveState::Verifying
            | MoveState::Fenced
            | MoveState::Cutover
            | MoveState::Observing
            | MoveState::Retiring
            | MoveState::Done
            | MoveState::Aborting
            | MoveState::Aborted => Err(refusal(row, "is not stopped")),
        },
        MoveOrder::Abort if state == MoveState::Aborting => Ok(Decision::Done),
        MoveOrder::Abort if is_past_switch(row) || state.after(MoveEvent::Abort).is_none() => {
            Err(refusal(row, "cannot be aborted"))
        }
        MoveOrder::Abort => Ok(Decision::Event(MoveEvent::Abort)),
        MoveOrder::Finish { despite_strays } => finish(row, despite_strays),
    }
}

/// A move that was paused while it deleted the source's copy looks like any paused one.
fn is_past_switch(row: &MoveRow) -> bool {
    row.state == MoveState::Paused && row.detail.resume == Some(ResumePoint::Retiring)
}

fn finish(row: &MoveRow, despite_strays: bool) -> Result<Decision, CatalogError> {
    let strays = row.detail.strays.len();
    let allowed = despite_strays || row.detail.despite_strays || strays == 0;
    match row.state {
        MoveState::Observing if allowed => Ok(Decision::Event(MoveEvent::Finish)),
        MoveState::Retiring if allowed => Ok(if despite_strays && !row.detail.despite_strays {
            Decision::DespiteStrays
        } else {
            Decision::Done
        }),
        MoveState::Observing | MoveState::Retiring => Err(CatalogError::Conflict(format!(
            "{strays} changes of shop {} were made at pod {} after its fence (`podctl move show {}` lists them), and \
             its copy there is not deleted; look at them, then `podctl move finish {2} --despite-strays`",
            row.handle, row.source_name, row.id
        ))),
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Aborting
        | MoveState::Aborted
        | MoveState::Failed => Err(refusal(row, "is not observing")),
    }
}

async fn despite_strays(change: &mut Change<'_>, row: &MoveRow) -> Result<(), CatalogError> {
    let mut detail = row.detail.clone();
    detail.despite_strays = true;
    write(change, row.id, row.state, &detail, row.error.as_deref()).await?;
    let note = format!("to be finished despite strays: ordered by {}", change.actor);
    append(change, row.id, row.state, row.owner, Some(&note)).await
}

fn refusal(row: &MoveRow, what: &str) -> CatalogError {
    CatalogError::Conflict(format!(
        "move {} of shop {} {what}: it is {}; {}",
        row.id,
        row.handle,
        row.state,
        ways(row)
    ))
}

/// What can be done with a move in its state.
pub(super) fn ways(row: &MoveRow) -> String {
    let id = row.id;
    match row.state {
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying => format!(
            "follow it with `podctl move watch {id}`, stop it with `podctl move pause {id}`, or undo it with \
             `podctl move abort {id}`"
        ),
        MoveState::Fenced | MoveState::Cutover => format!(
            "that lasts moments; try again in some seconds, or follow it with `podctl move watch {id}`"
        ),
        MoveState::Observing => format!(
            "move the shop back with `podctl shop move {} --to {}`, or end the time of observation with \
             `podctl move finish {id}`",
            row.handle, row.source_name
        ),
        MoveState::Retiring => format!(
            "the copy at pod {} is being deleted; wait for its end (`podctl move watch {id}`), or stop it with \
             `podctl move pause {id}`",
            row.source_name
        ),
        MoveState::Paused if is_past_switch(row) => {
            format!(
                "let it go on with `podctl move resume {id}`; the shop is at pod {}",
                row.target_name
            )
        }
        MoveState::Paused => format!(
            "let it go on with `podctl move resume {id}`, or undo it with `podctl move abort {id}`"
        ),
        MoveState::Failed => format!(
            "see why with `podctl move show {id}`, then begin it anew with `podctl move resume {id}`, or undo it with \
             `podctl move abort {id}`"
        ),
        MoveState::Aborting => {
            format!("it is being undone and ends by itself (`podctl move watch {id}`)")
        }
        MoveState::Aborted => format!(
            "it is over, and the shop stayed at pod {}; begin another one with `podctl shop move {} --to {}`",
            row.source_name, row.handle, row.target_name
        ),
        MoveState::Done => format!(
            "it is over; another move brings the shop elsewhere (`podctl shop move {} --to <pod>`)",
            row.handle
        ),
    }
}

/// Refuses an order to freeze a shop, take it offline or give it back in the moments in which its home changes hands.
pub(in crate::catalog) async fn refuse_state_order(
    change: &mut Change<'_>,
    shop: ShopId,
) -> Result<(), CatalogError> {
    let Some(open) = open_of(change.conn(), shop).await? else {
        return Ok(());
    };
    match open.state {
        MoveState::Fenced | MoveState::Cutover | MoveState::Aborting => {
            Err(CatalogError::Conflict(format!(
                "shop {} is changing hands just now (move {} is {}); that lasts moments: try again in some seconds",
                open.handle, open.id, open.state
            )))
        }
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Aborted
        | MoveState::Failed => Ok(()),
    }
}
