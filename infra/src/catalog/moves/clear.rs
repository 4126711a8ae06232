//! Rows of a shop that no move made, at a pod that does not own it: an operator's order takes them away.
//!
//! It is kept as a move there that was over before it began, and has left everything that is there. So it has an id and events
//! by which it can be followed, an owner number above all former ones, which the home there keeps, and a lease; it is resumed
//! until it is done; and a move of the shop to that pod waits for it.

use shared::PodId;
use shared::moves::{MoveId, MoveState};

use super::begin::{last_owner, migrating, moving, reserve};
use super::leftovers::{self, leftover_at};
use super::row::{Entry, RawMove, select_move};
use super::{MoveDetail, MoveKind, MoveRow, append, by_id, open_of};
use crate::api::{Pod, Shop};
use crate::catalog::shops::ShopRef;
use crate::catalog::{Catalog, CatalogError, Change, Position, pods, signed};
use crate::output::the_pod;

/// Rows to be cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearOrder {
    /// Whose.
    pub shop: ShopRef,
    /// The pod where they are, by id or name.
    pub at: String,
    /// For whoever asks why they are gone.
    pub reason: Option<String>,
}

/// What the catalog has nothing against.
#[derive(Debug, Clone)]
pub(crate) struct ToClear {
    pub(crate) shop: Shop,
    pub(crate) pod: Pod,
    /// The last such order there. Where it is not done yet it is this one.
    pub(crate) last: Option<MoveRow>,
}

impl ToClear {
    /// The order that is not done yet.
    pub(crate) fn under_way(&self) -> Option<&MoveRow> {
        self.last.as_ref().filter(|row| row.leftover_ms.is_some())
    }
}

impl Catalog {
    /// Says what an order would clear, or why it is refused. Nothing is changed.
    pub(crate) async fn check_clear(&self, order: &ClearOrder) -> Result<ToClear, CatalogError> {
        // Dropped, the change is undone.
        let mut change = self.change("control").await?;
        self.plan_clear(&mut change, order).await
    }

    /// Records the order; the same again, before it is done, is the same one. What the pod has against it others have asked.
    pub(crate) async fn begin_clear(
        &self,
        actor: &str,
        order: &ClearOrder,
    ) -> Result<MoveRow, CatalogError> {
        let mut change = self.change(actor).await?;
        let plan = self.plan_clear(&mut change, order).await?;
        if let Some(row) = plan.under_way() {
            return Ok(row.clone());
        }
        let ToClear { shop, pod, .. } = plan;
        let detail = MoveDetail {
            reason: order.reason.clone(),
            since_ms: Some(change.at_ms),
            ..MoveDetail::default()
        };
        let (id, state) = (MoveId::random(), MoveState::Aborted);
        let owner = last_owner(&mut change, shop.id).await?;
        let entry = Entry {
            id,
            shop: &shop,
            target: pod.id,
            epoch: reserve(&mut change, &shop).await?,
            kind: MoveKind::Clear,
            state,
            owner,
            detail: &detail,
        };
        entry.insert(&mut change).await?;
        let row = by_id(change.conn(), id).await?;
        leftovers::add(&mut change, &row, pod.id).await?;
        let reason = order.reason.as_ref().map(|r| format!(": {r}"));
        let note = format!(
            "the rows of shop {} at {} are to be cleared{}",
            shop.handle,
            the_pod(&pod.name),
            reason.unwrap_or_default()
        );
        append(&mut change, id, state, owner, Some(&note)).await?;
        let row = by_id(change.conn(), id).await?;
        change.commit().await?;
        Ok(row)
    }

    async fn plan_clear(
        &self,
        change: &mut Change<'_>,
        order: &ClearOrder,
    ) -> Result<ToClear, CatalogError> {
        if !Position::read(change.conn()).await?.reconciled {
            return Err(CatalogError::Unreconciled);
        }
        let shop = self.shop_to_move(change, &order.shop).await?;
        let pod = match pods::find(change.conn(), &order.at).await {
            Ok(pod) => pod,
            Err(CatalogError::NotFound { .. }) => {
                let text = format!(
                    "there is no pod {:?}; `podctl pod list` shows them",
                    order.at
                );
                return Err(CatalogError::invalid("at", text));
            }
            Err(error) => return Err(error),
        };
        let last = last_clear(change, &shop, pod.id).await?;
        let plan = ToClear { shop, pod, last };
        if plan.under_way().is_some() {
            return Ok(plan);
        }
        let (shop, pod) = (&plan.shop, &plan.pod);
        if pod.id == shop.pod.id {
            return Err(CatalogError::Conflict(format!(
                "{} owns shop {}: what is there is the shop, and is not cleared",
                the_pod(&pod.name),
                shop.handle
            )));
        }
        if let Some(open) = open_of(change.conn(), shop.id).await? {
            return Err(moving(&open));
        }
        let mut against = Vec::new();
        against.extend(leftover_at(change, shop, pod).await?);
        against.extend(migrating(change, [pod.id; 2]).await?);
        if against.is_empty() {
            Ok(plan)
        } else {
            Err(CatalogError::Conflict(against.join("; ")))
        }
    }
}

/// The last order to clear the shop's rows at a pod.
async fn last_clear(
    change: &mut Change<'_>,
    shop: &Shop,
    pod: PodId,
) -> Result<Option<MoveRow>, CatalogError> {
    let row: Option<RawMove> = sqlx::query_as(select_move!(
        "where m.shop = $1 and m.target_pod = $2 and m.kind = 'clear' \
         order by m.created_ms desc, m.id desc limit 1"
    ))
    .bind(signed(shop.id.get()))
    .bind(i64::from(pod.get()))
    .fetch_optional(change.conn())
    .await?;
    row.map(RawMove::into_row).transpose()
}
