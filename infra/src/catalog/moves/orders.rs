//! What an operator may order of a move, and what is said to an order that does not fit.

use shared::ShopId;
use shared::moves::{MoveEvent, MoveState, Order, ResumePoint};

use super::drive::apply;
use super::switch::owned_by_target;
use super::{MoveRef, MoveRow, append, by_id, find, open_of, write};
use crate::catalog::{Catalog, CatalogError, Change};
use crate::output::{count, the_pod};

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
        /// Also if it was changed after the fence so many times: the operator has looked at those.
        despite_strays: u64,
    },
    /// The source is gone for good: the move ends without it. Whether that is so others have looked.
    SourceGone,
}

impl MoveOrder {
    const fn word(self) -> Order {
        match self {
            Self::Pause => Order::Pause,
            Self::Resume => Order::Resume,
            Self::Abort => Order::Abort,
            Self::Finish { .. } => Order::Finish,
            Self::SourceGone => Order::SourceGone,
        }
    }
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
        if !carry_out(&mut change, &row, order).await? {
            return Ok(row);
        }
        let row = by_id(change.conn(), row.id).await?;
        change.commit().await?;
        Ok(row)
    }

    /// The move, if an order would change something about it; refused as the order itself would be. Nothing is changed.
    pub(crate) async fn check_order(
        &self,
        reference: &MoveRef,
        order: MoveOrder,
    ) -> Result<Option<MoveRow>, CatalogError> {
        // Dropped, the change is undone.
        let mut change = self.change("control").await?;
        let row = find(change.conn(), reference, self).await?;
        let changes = carry_out(&mut change, &row, order).await?;
        Ok(changes.then_some(row))
    }
}

/// Says whether it changed anything.
async fn carry_out(
    change: &mut Change<'_>,
    row: &MoveRow,
    order: MoveOrder,
) -> Result<bool, CatalogError> {
    let decision = decide(row, order)?;
    if order == MoveOrder::SourceGone
        && decision != Decision::Done
        && !owned_by_target(change, row).await?
    {
        return Err(too_early(row));
    }
    let mut detail = row.detail.clone();
    match order {
        MoveOrder::Finish { despite_strays } => {
            detail.strays_let_go = detail.strays_let_go.max(despite_strays);
        }
        MoveOrder::SourceGone => detail.source_gone = true,
        // Whatever did not work about the rows that it found is not tried again. One that was refused in `preparing` did
        // not use them: what refused it is nothing that other rows would cure.
        MoveOrder::Resume => {
            detail.recopy |= row.state == MoveState::Failed && detail.source_from.is_some();
            // An operator has looked at it: what missed before counts no more. (Of one that was handed over it is the record.)
            if !is_past_switch(row) {
                detail.fenced_before = detail.was_fenced();
                detail.record.fence_tries = 0;
            }
        }
        MoveOrder::Pause | MoveOrder::Abort => {}
    }
    let by = &change.actor;
    match decision {
        Decision::Done => return Ok(false),
        Decision::Event(event) => {
            let note = match order {
                MoveOrder::SourceGone => {
                    format!("to be finished without its source: ordered by {by}")
                }
                MoveOrder::Pause
                | MoveOrder::Resume
                | MoveOrder::Abort
                | MoveOrder::Finish { .. } => format!("ordered by {by}"),
            };
            // What went wrong is told until it is tried again.
            let error = match order {
                MoveOrder::Resume | MoveOrder::SourceGone => None,
                MoveOrder::Pause | MoveOrder::Abort | MoveOrder::Finish { .. } => {
                    row.error.as_deref()
                }
            };
            apply(change, row, event, detail, error, Some(&note)).await?;
        }
        Decision::Word(what) => {
            let note = format!("to be finished {what}: ordered by {by}");
            write(change, row.id, row.state, &detail, row.error.as_deref()).await?;
            append(change, row.id, row.state, row.owner, Some(&note)).await?;
        }
    }
    Ok(true)
}

/// What an order means for a move.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It is so already.
    Done,
    /// This happens to it.
    Event(MoveEvent),
    /// An operator's word, which its driver goes by.
    Word(String),
}

/// Pure; what only the placement tells is left to the step.
fn decide(row: &MoveRow, order: MoveOrder) -> Result<Decision, CatalogError> {
    let state = row.state;
    let next = state.ordered(order.word(), row.detail.resume);
    let Some(next) = next else {
        return unfit(row, order);
    };
    match order {
        MoveOrder::Finish { despite_strays } => return finish(row, despite_strays),
        MoveOrder::SourceGone if next == state => {
            return Ok(if row.detail.source_gone {
                Decision::Done
            } else {
                Decision::Word("without its source".to_owned())
            });
        }
        MoveOrder::Pause | MoveOrder::Resume | MoveOrder::Abort | MoveOrder::SourceGone => {}
    }
    if next == state {
        return Ok(Decision::Done);
    }
    Ok(Decision::Event(match order {
        MoveOrder::Pause => MoveEvent::Pause,
        MoveOrder::Resume => {
            let point = row.detail.resume.filter(|_| state == MoveState::Paused);
            MoveEvent::Resume(point.unwrap_or(ResumePoint::Preparing))
        }
        MoveOrder::Abort => MoveEvent::Abort,
        MoveOrder::Finish { .. } | MoveOrder::SourceGone => MoveEvent::Finish,
    }))
}

/// The refusal of an order that the state does not take.
fn unfit(row: &MoveRow, order: MoveOrder) -> Result<Decision, CatalogError> {
    let what = match order {
        MoveOrder::Pause => "cannot be paused",
        MoveOrder::Resume => "is not stopped",
        MoveOrder::Abort => "cannot be aborted",
        MoveOrder::Finish { .. } => "is not observing",
        MoveOrder::SourceGone if row.state == MoveState::Done && row.detail.source_gone => {
            return Ok(Decision::Done);
        }
        MoveOrder::SourceGone => match row.state {
            MoveState::Preparing
            | MoveState::Copying
            | MoveState::CatchingUp
            | MoveState::Verifying
            | MoveState::Fenced
            | MoveState::Failed => return Err(too_early(row)),
            MoveState::Paused if !is_past_switch(row) => return Err(too_early(row)),
            MoveState::Cutover
            | MoveState::Observing
            | MoveState::Retiring
            | MoveState::Done
            | MoveState::Paused
            | MoveState::Aborting
            | MoveState::Aborted => "cannot be finished without its source",
        },
    };
    Err(refusal(row, what))
}

/// Before the catalog's step the source owns the shop, and what it alone has is the shop.
fn too_early(row: &MoveRow) -> CatalogError {
    CatalogError::Conflict(format!(
        "move {} of shop {} is {}, and {} still owns the shop: what is lost there is lost. Bring that pod back, from its \
         replicas or a backup, then undo the move (`podctl move abort {0}`) or let it go on; the copy at {} is not the shop",
        row.id,
        row.handle,
        row.state,
        the_pod(&row.source_name),
        the_pod(&row.target_name)
    ))
}

/// A move that was paused while it deleted the source's copy looks like any paused one.
fn is_past_switch(row: &MoveRow) -> bool {
    row.state == MoveState::Paused && row.detail.resume == Some(ResumePoint::Retiring)
}

/// In a state that takes the order.
fn finish(row: &MoveRow, despite_strays: u64) -> Result<Decision, CatalogError> {
    let (strays, let_go) = (row.detail.strays_told(), row.detail.strays_let_go);
    // A word is of what was looked at: of more it says nothing, and of what is still to come nobody can say anything.
    if strays > let_go.max(despite_strays) || strays < despite_strays {
        let so_many = count(strays, "stray change");
        let way = match strays {
            0 => format!("`podctl move finish {}`", row.id),
            _ => format!(
                "look at them, then `podctl move finish {} --despite-strays {strays}`",
                row.id
            ),
        };
        return Err(CatalogError::Conflict(format!(
            "shop {} has {so_many} at {} by now (`podctl move show {}` lists them), and its copy there is not deleted; \
             {way}",
            row.handle,
            the_pod(&row.source_name),
            row.id
        )));
    }
    Ok(if row.state == MoveState::Observing {
        Decision::Event(MoveEvent::Finish)
    } else if despite_strays > let_go {
        Decision::Word(format!("despite {}", count(despite_strays, "stray")))
    } else {
        Decision::Done
    })
}

fn refusal(row: &MoveRow, what: &str) -> CatalogError {
    if row.clears() {
        return clearing(row);
    }
    CatalogError::Conflict(format!(
        "move {} of shop {} {what}: it is {}; {}",
        row.id,
        row.handle,
        row.state,
        ways(row)
    ))
}

/// It was over as a move before it began, so that it takes none of a move's orders.
fn clearing(row: &MoveRow) -> CatalogError {
    let (id, shop, pod) = (row.id, &row.handle, the_pod(&row.target_name));
    let what = if row.leftover_ms.is_some() {
        format!(
            "it goes on by itself until they are gone, and cannot be stopped or taken back: follow it with `podctl move watch \
             {id}`"
        )
    } else {
        format!(
            "it is done. Where there are rows again, give it anew: `podctl shop clear {shop} --at {}`",
            row.target_name
        )
    };
    CatalogError::Conflict(format!(
        "{id} is no move, but the order to clear rows of shop {shop} at {pod}; {what}"
    ))
}

/// The word that an order needs which ends the copy at the source, where there are strays.
fn despite_strays(row: &MoveRow) -> String {
    match row.detail.strays_told() {
        0 => String::new(),
        strays => format!(" --despite-strays {strays}"),
    }
}

/// What can be done with a move in its state.
pub(super) fn ways(row: &MoveRow) -> String {
    let (id, source) = (row.id, the_pod(&row.source_name));
    match row.state {
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying => format!(
            "follow it with `podctl move watch {id}`, stop it with `podctl move pause {id}`, or undo it with \
             `podctl move abort {id}`"
        ),
        MoveState::Fenced => format!(
            "that lasts moments; try again in some seconds, or follow it with `podctl move watch {id}`"
        ),
        MoveState::Cutover => format!(
            "that lasts moments; try again in some seconds, or follow it with `podctl move watch {id}`. If {source} is \
             gone for good: `podctl move finish {id} --source-gone`"
        ),
        MoveState::Observing => {
            let despite = despite_strays(row);
            format!(
                "move the shop back with `podctl shop move {} --to {}{despite}`, or end the time of observation with \
                 `podctl move finish {id}{despite}`",
                row.handle, row.source_name
            )
        }
        MoveState::Retiring => format!(
            "the copy at {source} is being deleted; wait for its end (`podctl move watch {id}`), or stop it with \
             `podctl move pause {id}`. If {source} is gone for good: `podctl move finish {id} --source-gone`"
        ),
        MoveState::Paused if is_past_switch(row) => {
            format!(
                "let it go on with `podctl move resume {id}`; the shop is at {}",
                the_pod(&row.target_name)
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
            "it is over, and the shop stayed at {source}; begin another one with `podctl shop move {} --to {}`",
            row.handle, row.target_name
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
