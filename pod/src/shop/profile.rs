//! What the application knows of the shop itself: its name and the currency that it sells in.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared::error::Kind;

use super::money::Currency;
use crate::{App, Consistency, Entity, Error, Reader, Shop};

/// A shop keeps its currency for life and hardly ever changes its name.
static PROFILE: Entity = Entity::new("profile", Duration::from_secs(30));

/// The shop's row, as cached.
#[derive(Debug, Clone, Serialize, Deserialize, sqlx::FromRow)]
pub(crate) struct Profile {
    /// The short name.
    pub(crate) handle: String,
    currency: String,
}

impl Profile {
    /// The profile of this request's shop.
    pub(crate) async fn of(app: &App, shop: &Shop) -> Result<Arc<Self>, Error> {
        let cached = app
            .cached(shop, &PROFILE, "-", |reader| Box::pin(load(reader)))
            .await?;
        if let Some(profile) = cached {
            return Ok(profile);
        }
        // A shop that was made a moment ago may not have reached the replica.
        let fresh = app
            .read(shop, Consistency::Strong, |reader| Box::pin(load(reader)))
            .await?;
        fresh
            .map(Arc::new)
            .ok_or_else(|| Error::because(Kind::Unavailable, "The shop is not set up yet."))
    }

    /// The currency that the shop sells in.
    pub(crate) fn currency(&self) -> Result<Currency, Error> {
        Currency::parse(&self.currency).ok_or_else(|| {
            Error::bug(format!(
                "{:?} in shop_profile is no currency",
                self.currency
            ))
        })
    }
}

async fn load(reader: &mut Reader) -> Result<Option<Profile>, Error> {
    let shop = reader.shop().get();
    let row =
        sqlx::query_as("select handle, currency from shop_profile where shop_id = ?").bind(shop);
    reader.fetch_optional(row).await
}
