//! Drives the making of a shop: names in the catalog, home at the pod, placement in the catalog. Driven by the request,
//! by the same request again, and after a crash by [`super::resume`], always through the same steps.

use shared::error::Kind;
use uuid::Uuid;

use super::app::Turns;
use super::failure::{Answer, Failure};
use super::homes::Homes;
use crate::api::Shop;
use crate::catalog::{Begun, Catalog, CatalogError, Creation, NewShop, ShopRef};
use crate::pod_store::PodStoreError;
use shared::ShopId;

/// Makes a shop, or goes on with the same request's.
pub(super) async fn create<H: Homes>(
    catalog: &Catalog,
    homes: &H,
    turns: &Turns<ShopId>,
    actor: &str,
    new: &NewShop,
    key: Option<Uuid>,
) -> Answer<Shop> {
    match catalog.begin_creation(actor, new, key).await? {
        Begun::Done(shop) => Ok(*shop),
        Begun::Open(creation) if creation.undo => Err(Failure::new(
            Kind::Conflict,
            format!(
                "operation {} of this request is being undone",
                creation.operation
            ),
        )
        .and("repeat the request under a new idempotency key")),
        Begun::Open(creation) => {
            let _turn = turns.take(creation.shop).await;
            drive(catalog, homes, &creation).await
        }
    }
}

/// Goes on with a creation from where it stands. The caller holds the shop's turn.
pub(super) async fn drive<H: Homes>(
    catalog: &Catalog,
    homes: &H,
    creation: &Creation,
) -> Answer<Shop> {
    let Creation {
        operation,
        actor: _,
        shop,
        pod,
        new,
        undo,
    } = creation;
    if *undo {
        undo_home(catalog, homes, creation).await?;
        return Err(Failure::new(
            Kind::Conflict,
            format!("operation {operation} was undone"),
        ));
    }
    if let Err(error) = homes.create(*pod, *shop, &new.handle, &new.currency).await {
        return Err(give_up(catalog, homes, creation, error).await);
    }
    match catalog.finish_creation(creation).await {
        Ok(shop) => {
            tracing::info!(shop = shop.id.get(), handle = %shop.handle, pod = pod.get(), "shop made");
            Ok(shop)
        }
        // Somebody else drove it to its end meanwhile: there, or undone.
        Err(CatalogError::Stale(_)) => Ok(catalog.shop(&ShopRef::Id(*shop)).await?),
        // The names stay claimed and the home stands: the next try ends it.
        Err(error) => Err(Failure::from(error).and(&format!(
            "operation {operation} goes on by itself; repeat the request to see"
        ))),
    }
}

/// Undoes a creation whose home could not be made.
async fn give_up<H: Homes>(
    catalog: &Catalog,
    homes: &H,
    creation: &Creation,
    error: PodStoreError,
) -> Failure {
    let log = shared::error::chain(&error);
    let failure = Failure::from(error);
    tracing::warn!(
        shop = creation.shop.get(),
        operation = creation.operation,
        "shop not made: {log}"
    );
    let undo = match catalog.undo_creation(creation, &log).await {
        Ok(undo) => undo,
        Err(CatalogError::Stale(_)) => return failure,
        Err(undo) => {
            tracing::warn!("not undone yet: {}", shared::error::chain(&undo));
            return failure.and("the names stay taken until the next try");
        }
    };
    match undo_home(catalog, homes, &undo).await {
        Ok(()) => failure.and("nothing was made, the names are free"),
        Err(_) => failure.and("the shop was not made, its names are free"),
    }
}

/// Takes away what may stand at the pod, then ends the operation.
async fn undo_home<H: Homes>(catalog: &Catalog, homes: &H, creation: &Creation) -> Answer<()> {
    homes.remove(creation.pod, creation.shop).await?;
    match catalog.creation_undone(creation).await {
        Ok(()) | Err(CatalogError::Stale(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
