//! Pins: an operator keeps a shop where it is, or bound for one pod.

use shared::moves::MoveState;

use super::open_of;
use crate::api::{Pin, PodName, ShopName};
use crate::catalog::shops::{self, ShopRef};
use crate::catalog::{Catalog, CatalogError, instant, pods, signed};
use crate::output::the_pod;

impl Catalog {
    /// Pins a shop to a pod (by id or name), or to where it is. The same again changes nothing; another pod replaces it.
    pub async fn pin_shop(
        &self,
        actor: &str,
        reference: &ShopRef,
        pod: Option<&str>,
        reason: Option<&str>,
    ) -> Result<Pin, CatalogError> {
        let mut change = self.change(actor).await?;
        let shop = shops::find(change.conn(), reference, &self.domains).await?;
        let pod = match pod {
            None => shop.pod.clone(),
            Some(text) => match pods::find(change.conn(), text).await {
                Ok(pod) => PodName {
                    id: pod.id,
                    name: pod.name,
                },
                Err(CatalogError::NotFound { .. }) => {
                    let text = format!("there is no pod {text:?}; `podctl pod list` shows them");
                    return Err(CatalogError::invalid("pod", text));
                }
                Err(error) => return Err(error),
            },
        };
        if let Some(open) = open_of(change.conn(), shop.id).await?
            && on_its_way(open.state)
            && open.target != pod.id
        {
            return Err(CatalogError::Conflict(format!(
                "shop {} is on its way to {} (move {} is {}); abort that first with `podctl move abort {2}`, or pin \
                 it to that pod",
                shop.handle,
                the_pod(&open.target_name),
                open.id,
                open.state
            )));
        }
        let at_ms = change.at_ms;
        sqlx::query(
            "insert into shop_pin (shop, pod, reason, actor, created_ms) values ($1, $2, $3, $4, $5) \
             on conflict (shop) do update set pod = excluded.pod, reason = excluded.reason, actor = excluded.actor, \
             created_ms = excluded.created_ms",
        )
        .bind(signed(shop.id.get()))
        .bind(i64::from(pod.id.get()))
        .bind(reason)
        .bind(actor)
        .bind(at_ms)
        .execute(change.conn())
        .await?;
        let because = reason.map(|r| format!(": {r}")).unwrap_or_default();
        let text = format!("pinned to {}{because}", the_pod(&pod.name));
        change
            .note("shop-pin", shop.handle.as_str(), None, &text)
            .await?;
        change.commit().await?;
        Ok(Pin {
            shop: ShopName {
                id: shop.id,
                handle: shop.handle,
            },
            pod,
            reason: reason.map(str::to_owned),
            actor: actor.to_owned(),
            created_at: instant(at_ms)?,
        })
    }

    /// Takes a pin away.
    pub async fn unpin_shop(&self, actor: &str, reference: &ShopRef) -> Result<(), CatalogError> {
        let mut change = self.change(actor).await?;
        let shop = shops::find(change.conn(), reference, &self.domains).await?;
        let gone = sqlx::query("delete from shop_pin where shop = $1")
            .bind(signed(shop.id.get()))
            .execute(change.conn())
            .await?
            .rows_affected();
        if gone == 0 {
            return Err(CatalogError::not_found("pin of the shop", &shop.handle));
        }
        change
            .note("shop-pin", shop.handle.as_str(), None, "pin taken away")
            .await?;
        change.commit().await
    }
}

/// Whether the shop is still to arrive: afterwards the pin is about where it is.
const fn on_its_way(state: MoveState) -> bool {
    match state {
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Paused
        | MoveState::Failed => true,
        MoveState::Observing
        | MoveState::Retiring
        | MoveState::Done
        | MoveState::Aborting
        | MoveState::Aborted => false,
    }
}
