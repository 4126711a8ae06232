//! Drives an order to freeze a shop, take it offline or let it serve.
//!
//! Writes must be off before anybody is told that they are: so the home comes first, and the catalog after it. Only
//! `offline` goes the other way, since edges refuse such a shop by themselves: the sooner they know, the better.

use shared::{PlacementState, ShopId};

use super::failure::{Answer, Failure};
use super::homes::Homes;
use crate::api::Shop;
use crate::catalog::{Catalog, CatalogError, ShopRef, StateOrder};
use crate::turns::Turns;

/// Gives the order and drives it.
pub(super) async fn order<H: Homes>(
    catalog: &Catalog,
    homes: &H,
    turns: &Turns<ShopId>,
    actor: &str,
    reference: &ShopRef,
    to: PlacementState,
    reason: Option<&str>,
) -> Answer<Shop> {
    let shop = catalog.shop(reference).await?.id;
    let order = catalog
        .begin_state(actor, &ShopRef::Id(shop), to, reason)
        .await?;
    let _turn = turns.take(shop).await;
    drive(catalog, homes, &order).await
}

/// Goes on with an order; every step can be done again. The caller holds the shop's turn.
pub(super) async fn drive<H: Homes>(
    catalog: &Catalog,
    homes: &H,
    order: &StateOrder,
) -> Answer<Shop> {
    let StateOrder {
        operation,
        shop,
        pod,
        epoch,
        to,
        ..
    } = order;
    match to {
        PlacementState::Offline => catalog.place_state(order).await.map_err(superseded)?,
        PlacementState::Serving | PlacementState::Frozen => {
            catalog.confirm_state(order).await.map_err(superseded)?;
        }
    }
    if let Err(error) = homes.set_state(*pod, *shop, *epoch, *to).await {
        let text = error.brief();
        let passes = error.passes();
        let noted = if passes {
            catalog.delay_state(order, &text).await
        } else {
            catalog.fail_state(order, &text).await
        };
        noted.map_err(superseded)?;
        let failure = Failure::from(error);
        return Err(if passes {
            failure.and(&format!(
                "operation {operation} goes on by itself when the pod answers; another state replaces it"
            ))
        } else {
            failure
        });
    }
    let shop = catalog.finish_state(order).await.map_err(superseded)?;
    tracing::info!(shop = shop.id.get(), handle = %shop.handle, state = to.as_str(), "shop state set");
    Ok(shop)
}

fn superseded(error: CatalogError) -> Failure {
    match error {
        CatalogError::Stale(_) => {
            Failure::from(error).and("a newer order may have replaced this one")
        }
        CatalogError::NotFound { .. }
        | CatalogError::Invalid { .. }
        | CatalogError::Taken { .. }
        | CatalogError::Conflict(_)
        | CatalogError::Unreconciled
        | CatalogError::Gone { .. }
        | CatalogError::Corrupt(_)
        | CatalogError::Storage(_) => Failure::from(error),
    }
}
