//! The point of no return: one compare-and-swap makes the target the owner of the shop.

use shared::PodId;
use shared::moves::MoveState;

use super::drive::merged;
use super::{DRIVER, MoveDetail, MoveRow, append, by_id, expect, write};
use crate::catalog::placements::{self, Event, append_event};
use crate::catalog::{Catalog, CatalogError, Change, signed};
use crate::output::the_pod;

impl Catalog {
    /// The placement goes from (source, its epoch) to (target, the reserved epoch) and keeps its state: a frozen shop
    /// stays frozen. Refused unless owner, state `cutover`, placement and the terms of both pods' primaries are as told. The
    /// same again, when it is done, changes nothing.
    pub(crate) async fn switch_move(
        &self,
        seen: &MoveRow,
        detail: &MoveDetail,
        terms: &[(PodId, u64)],
    ) -> Result<MoveRow, CatalogError> {
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
        if let Some(why) = &found.detail.must_fail {
            return Err(CatalogError::Conflict(format!(
                "move {} is to fail: {why}",
                found.id
            )));
        }
        for &(pod, term) in terms {
            same_term(&mut change, pod, term).await?;
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
        // (The move's own events say who did it.)
        DRIVER.clone_into(&mut change.actor);
        let note = format!(
            "{} owns the shop at epoch {}",
            the_pod(&found.target_name),
            found.epoch.get()
        );
        let detail = merged(detail, &found.detail);
        write(&mut change, found.id, found.state, &detail, None).await?;
        append(&mut change, found.id, found.state, found.owner, Some(&note)).await?;
        let row = by_id(change.conn(), found.id).await?;
        change.commit().await?;
        Ok(row)
    }
}

/// A failover begins with a new term here: from then on what the mover saw at the former primary does not count.
async fn same_term(change: &mut Change<'_>, pod: PodId, term: u64) -> Result<(), CatalogError> {
    let found: Option<i64> = sqlx::query_scalar("select term from pod where id = $1")
        .bind(i64::from(pod.get()))
        .fetch_optional(change.conn())
        .await?;
    if found == Some(signed(term)) {
        Ok(())
    } else {
        Err(CatalogError::Conflict(format!(
            "the primary of pod {pod} is changing, and the owner of the shop with it waits"
        )))
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
