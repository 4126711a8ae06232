//! Drives the making of a shop: names in the catalog, home at the pod, placement in the catalog. Driven by the request,
//! by the same request again, and after a crash by [`super::resume`], always through the same steps.

use shared::ShopId;
use shared::error::Kind;
use uuid::Uuid;

use super::failure::{Answer, Failure};
use super::homes::Homes;
use crate::api::Shop;
use crate::catalog::{Begun, Catalog, CatalogError, Creation, NewShop, ShopRef};
use crate::pod_store::PodStoreError;
use crate::turns::Turns;

/// How long a resumed creation waits for its pod: longer than a primary takes to come back, short for a name to be held.
const PATIENCE_MS: i64 = 60_000;

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
            match as_it_stands(catalog, &creation).await? {
                Some(creation) => drive(catalog, homes, &creation).await,
                None => ended(catalog, &creation).await,
            }
        }
    }
}

/// A creation that is still open, as it stands now: while its turn was waited for, somebody else may have driven it to
/// its end or begun to undo it, and a home made after that would be nobody's.
pub(super) async fn as_it_stands(
    catalog: &Catalog,
    read_before: &Creation,
) -> Result<Option<Creation>, CatalogError> {
    let mut open = catalog.open_creations().await?.into_iter();
    let now = open.find(|creation| creation.operation == read_before.operation);
    Ok(now.map(|creation| Creation {
        fresh: read_before.fresh,
        ..creation
    }))
}

/// The answer to a creation that somebody else has driven to its end.
async fn ended(catalog: &Catalog, creation: &Creation) -> Answer<Shop> {
    match catalog.shop(&ShopRef::Id(creation.shop)).await {
        Err(CatalogError::NotFound { .. }) => Err(undone(creation)),
        shop => Ok(shop?),
    }
}

fn undone(creation: &Creation) -> Failure {
    let text = format!("operation {} was undone", creation.operation);
    Failure::new(Kind::Conflict, text)
}

/// Goes on with a creation from where it stands. The caller holds the shop's turn.
pub(super) async fn drive<H: Homes>(
    catalog: &Catalog,
    homes: &H,
    creation: &Creation,
) -> Answer<Shop> {
    if creation.undo {
        undo_home(catalog, homes, creation).await?;
        return Err(undone(creation));
    }
    match write_home(homes, creation).await {
        Ok(()) => place(catalog, creation).await,
        Err(error) => Err(give_up(catalog, homes, creation, error).await),
    }
}

/// As [`drive`], but a pod that cannot be reached for a while undoes nothing: after a restart of everything the control
/// server is up before the primaries are open.
pub(super) async fn resume<H: Homes>(
    catalog: &Catalog,
    homes: &H,
    creation: &Creation,
    now_ms: i64,
) -> Answer<Shop> {
    if creation.undo {
        return drive(catalog, homes, creation).await;
    }
    match write_home(homes, creation).await {
        Ok(()) => place(catalog, creation).await,
        Err(error) if error.passes() && now_ms < creation.begun_ms + PATIENCE_MS => {
            Err(Failure::from(error))
        }
        Err(error) => Err(give_up(catalog, homes, creation, error).await),
    }
}

async fn write_home<H: Homes>(homes: &H, creation: &Creation) -> Result<(), PodStoreError> {
    let NewShop {
        handle, currency, ..
    } = &creation.new;
    homes
        .create(creation.pod, creation.shop, handle, currency)
        .await
}

async fn place(catalog: &Catalog, creation: &Creation) -> Answer<Shop> {
    match catalog.finish_creation(creation).await {
        Ok(shop) => {
            let pod = creation.pod.get();
            tracing::info!(shop = shop.id.get(), handle = %shop.handle, pod, "shop made");
            Ok(shop)
        }
        // Somebody else drove it to its end meanwhile: it is there, or undone.
        Err(CatalogError::Stale(_)) => ended(catalog, creation).await,
        // The names stay claimed and the home stands: the next try ends it.
        Err(error) => Err(Failure::from(error).and(&format!(
            "operation {} goes on by itself; repeat the request to see",
            creation.operation
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
    // Nobody tried before, and this try got no further than to be refused: there is nothing at the pod.
    let nothing_there = creation.fresh && !error.unknown();
    let undone = catalog.undo_creation(creation, &error.brief()).await;
    let failure = Failure::from(error);
    let undo = match undone {
        Ok(undo) => undo,
        Err(CatalogError::Stale(_)) => return failure,
        Err(undo) => {
            tracing::warn!("not undone yet: {}", shared::error::chain(&undo));
            return failure.and("the names stay taken until the next try");
        }
    };
    let ended = if nothing_there {
        catalog.creation_undone(&undo).await.map_err(Failure::from)
    } else {
        undo_home(catalog, homes, &undo).await
    };
    match ended {
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

#[cfg(test)]
mod tests;
