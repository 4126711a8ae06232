//! The point of no return: one compare-and-swap makes the target the owner of the shop.

use shared::moves::MoveState;

use super::{MoveRow, append, expect};
use crate::catalog::placements::{self, Event, append_event};
use crate::catalog::{Catalog, CatalogError, Change, signed};

impl Catalog {
    /// The placement goes from (source, its epoch) to (target, the reserved epoch) and keeps its state: a frozen shop
    /// stays frozen. Refused unless owner, state `cutover` and placement are as told. The same again, when it is done,
    /// changes nothing.
    pub(crate) async fn switch_move(&self, seen: &MoveRow) -> Result<MoveRow, CatalogError> {
        // The history names who ordered it.
        let mut change = self.change(&seen.actor).await?;
        let found = expect(&mut change, seen).await?;
        if found.state != MoveState::Cutover {
            return Err(CatalogError::Conflict(format!(
                "move {} is {}, and the owner changes only in cutover",
                found.id, found.state
            )));
        }
        if owned_by_target(&mut change, &found).await? {
            return Ok(found);
        }
        let placed = placements::find(change.conn(), found.shop).await?;
        let next = change.next_version().await?;
        let at_ms = change.at_ms;
        let swapped = sqlx::query(
            "update placement set pod = $1, epoch = $2, version = $3, changed_ms = $4 \
             where shop = $5 and pod = $6 and epoch = $7 and epoch < $2",
        )
        .bind(i64::from(found.target.get()))
        .bind(signed(found.epoch.get()))
        .bind(next)
        .bind(at_ms)
        .bind(signed(found.shop.get()))
        .bind(i64::from(found.source.get()))
        .bind(signed(found.source_epoch.get()))
        .execute(change.conn())
        .await?
        .rows_affected();
        if swapped == 0 {
            return Err(CatalogError::Stale(format!(
                "the placement of shop {}",
                found.shop
            )));
        }
        let reason = match &found.detail.reason {
            Some(reason) => format!("move {}: {reason}", found.id),
            None => format!("move {}", found.id),
        };
        let event = Event {
            shop: found.shop,
            old: Some((found.source, found.source_epoch)),
            new: Some((found.target, found.epoch)),
            state: placed.state.as_str(),
            reason: Some(&reason),
            version: next,
        };
        append_event(&mut change, event).await?;
        let note = format!(
            "pod {} owns the shop at epoch {}",
            found.target_name,
            found.epoch.get()
        );
        append(&mut change, found.id, found.state, found.owner, Some(&note)).await?;
        change.commit().await?;
        Ok(found)
    }
}

/// Whether the move's own step was done: its target owns the shop at its epoch.
pub(super) async fn owned_by_target(
    change: &mut Change<'_>,
    row: &MoveRow,
) -> Result<bool, CatalogError> {
    match placements::find(change.conn(), row.shop).await {
        Ok(placed) => Ok((placed.pod, placed.epoch) == (row.target, row.epoch)),
        Err(CatalogError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
