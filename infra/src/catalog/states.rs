//! Freezing a shop, taking it offline, and back: an operation, since the pod's home and the placement change one after
//! the other.
//!
//! A shop has one such order at a time, held by a claim. A newer order takes the claim over and the older one ends
//! there: what counts is the state wanted last, and every step can be done again.

use serde::{Deserialize, Serialize};
use shared::{Epoch, PlacementState, PodId, ShopId};
use uuid::Uuid;

use super::create::write_claim;
use super::operations::{Begin, OperationRow};
use super::shops::{self, ShopRef};
use super::{Catalog, CatalogError, Change, moves, operations, placements, signed};
use crate::api::{OperationState, Shop};

pub(crate) const KIND: &str = "shop-state";
/// The kind of the claim that keeps two operations on one shop apart.
const CLAIM: &str = "shop";

/// What such an operation needs to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Detail {
    shop: ShopId,
    pod: PodId,
    epoch: Epoch,
    to: PlacementState,
    reason: Option<String>,
}

/// An order under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateOrder {
    /// The operation's id.
    pub operation: String,
    /// Who wants it.
    pub actor: String,
    /// The tenant.
    pub shop: ShopId,
    /// Its owner when the order was given.
    pub pod: PodId,
    /// Under which number.
    pub epoch: Epoch,
    /// The state wanted.
    pub to: PlacementState,
    /// For the history.
    pub reason: Option<String>,
}

impl Catalog {
    /// Begins an order, ending an older one for the same shop.
    pub async fn begin_state(
        &self,
        actor: &str,
        reference: &ShopRef,
        to: PlacementState,
        reason: Option<&str>,
    ) -> Result<StateOrder, CatalogError> {
        let mut change = self.change(actor).await?;
        let shop = shops::find(change.conn(), reference, &self.domains).await?;
        moves::refuse_state_order(&mut change, shop.id).await?;
        let order = StateOrder {
            operation: Uuid::now_v7().to_string(),
            actor: actor.to_owned(),
            shop: shop.id,
            pod: shop.pod.id,
            epoch: shop.epoch,
            to,
            reason: reason.map(str::to_owned),
        };
        take_claim(&mut change, &order).await?;
        let detail = Detail {
            shop: order.shop,
            pod: order.pod,
            epoch: order.epoch,
            to,
            reason: order.reason.clone(),
        };
        let detail = serde_json::to_string(&detail)
            .map_err(|e| CatalogError::Corrupt(format!("an operation's detail: {e}")))?;
        let begin = Begin {
            id: &order.operation,
            kind: KIND,
            subject: shop.handle.as_str(),
            state: OperationState::Running,
            step: Some(to.as_str()),
            detail: &detail,
            shop: Some(order.shop),
            // A pod here would reserve room.
            pod: None,
        };
        change.begin_operation(begin).await?;
        change.commit().await?;
        Ok(order)
    }

    /// The catalog's step: the placement takes the state, if the shop is still where it was and the order still counts.
    pub async fn place_state(&self, order: &StateOrder) -> Result<(), CatalogError> {
        let mut change = self.change(&order.actor).await?;
        let state = OperationState::Running;
        change
            .advance(&order.operation, state, "placement", None)
            .await?;
        place(&mut change, order).await?;
        change.commit().await
    }

    /// Whether the order still counts: a newer one may have replaced it while it waited for its turn.
    pub async fn confirm_state(&self, order: &StateOrder) -> Result<(), CatalogError> {
        let mut conn = self.read.acquire().await?;
        let row = operations::find(&mut conn, &order.operation).await?;
        if row.state()? == OperationState::Running {
            Ok(())
        } else {
            Err(CatalogError::Stale(format!(
                "operation {}",
                order.operation
            )))
        }
    }

    /// Both sides have the state: the order is done and the shop is free for the next.
    pub async fn finish_state(&self, order: &StateOrder) -> Result<Shop, CatalogError> {
        let mut change = self.change(&order.actor).await?;
        change
            .advance(&order.operation, OperationState::Done, "done", None)
            .await?;
        place(&mut change, order).await?;
        release(&mut change, order).await?;
        let reference = ShopRef::Id(order.shop);
        let shop = shops::find(change.conn(), &reference, &self.domains).await?;
        change.commit().await?;
        Ok(shop)
    }

    /// The order cannot be done.
    pub async fn fail_state(&self, order: &StateOrder, error: &str) -> Result<(), CatalogError> {
        let mut change = self.change(&order.actor).await?;
        change
            .advance(
                &order.operation,
                OperationState::Failed,
                "failed",
                Some(error),
            )
            .await?;
        release(&mut change, order).await?;
        change.commit().await
    }

    /// The order waits for something and will be tried again.
    pub async fn delay_state(&self, order: &StateOrder, error: &str) -> Result<(), CatalogError> {
        let mut change = self.change(&order.actor).await?;
        let state = OperationState::Running;
        change
            .advance(&order.operation, state, "waiting", Some(error))
            .await?;
        change.commit().await
    }

    /// Orders under way, oldest first.
    pub async fn open_states(&self) -> Result<Vec<StateOrder>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows = operations::running(&mut conn, KIND).await?;
        rows.into_iter().map(order_of).collect()
    }
}

fn order_of(row: OperationRow) -> Result<StateOrder, CatalogError> {
    let Detail {
        shop,
        pod,
        epoch,
        to,
        reason,
    } = serde_json::from_str(&row.detail)
        .map_err(|_| CatalogError::Corrupt(format!("the operation {}", row.id)))?;
    Ok(StateOrder {
        operation: row.id,
        actor: row.actor,
        shop,
        pod,
        epoch,
        to,
        reason,
    })
}

async fn take_claim(change: &mut Change<'_>, order: &StateOrder) -> Result<(), CatalogError> {
    let name = order.shop.to_string();
    let held: Option<Option<String>> =
        sqlx::query_scalar("select operation from claim where kind = $1 and name = $2")
            .bind(CLAIM)
            .bind(&name)
            .fetch_optional(change.conn())
            .await?;
    if let Some(holder) = held {
        let holder = holder.unwrap_or_default();
        let row = operations::find(change.conn(), &holder).await?;
        if row.kind != KIND {
            return Err(CatalogError::Conflict(format!(
                "shop {name} is being worked on by operation {holder} ({}); wait until it has ended",
                row.kind
            )));
        }
        let text = format!("superseded by operation {}", order.operation);
        change
            .advance(&holder, OperationState::Failed, "superseded", Some(&text))
            .await?;
        sqlx::query("delete from claim where kind = $1 and name = $2")
            .bind(CLAIM)
            .bind(&name)
            .execute(change.conn())
            .await?;
    }
    write_claim(change, CLAIM, &name, order.shop, Some(&order.operation)).await
}

async fn place(change: &mut Change<'_>, order: &StateOrder) -> Result<(), CatalogError> {
    let placed = placements::find(change.conn(), order.shop).await?;
    if (placed.pod, placed.epoch) != (order.pod, order.epoch) {
        return Err(CatalogError::Stale(format!(
            "the placement of shop {}",
            order.shop
        )));
    }
    if placed.state == order.to {
        return Ok(());
    }
    placements::swap_state(change, &placed, order.to, order.reason.as_deref())
        .await
        .map(drop)
}

async fn release(change: &mut Change<'_>, order: &StateOrder) -> Result<(), CatalogError> {
    sqlx::query("delete from claim where kind = $1 and shop = $2 and operation = $3")
        .bind(CLAIM)
        .bind(signed(order.shop.get()))
        .bind(&order.operation)
        .execute(change.conn())
        .await?;
    Ok(())
}
