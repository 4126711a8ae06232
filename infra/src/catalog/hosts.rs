//! Registered domains of shops: each is one shop's in the whole fleet.

use shared::{Host, ShopId};

use super::create::{refuse_claimed, write_claim};
use super::shops::{self, ShopRef};
use super::{Catalog, CatalogError, Change, signed};
use crate::api::Shop;

/// More names than this for one shop are a mistake, and each is in the memory of every edge.
pub const HOSTS_PER_SHOP_MAX: usize = 100;

impl Catalog {
    /// Gives a shop a domain. The same again changes nothing.
    pub async fn add_host(
        &self,
        actor: &str,
        reference: &ShopRef,
        host: &Host,
    ) -> Result<Shop, CatalogError> {
        let mut change = self.change(actor).await?;
        let shop = shops::find(change.conn(), reference, &self.domains).await?;
        if shop.hosts.iter().any(|h| h == host.as_str()) {
            return Ok(shop);
        }
        refuse_claimed(&mut change, "host", "host", host.as_str()).await?;
        // The first of the list is `<handle>.<base_domain>`.
        if shop.hosts.len() > HOSTS_PER_SHOP_MAX {
            return Err(CatalogError::Conflict(format!(
                "shop {} has {HOSTS_PER_SHOP_MAX} hosts, the most a shop may have; remove one first",
                shop.handle
            )));
        }
        write_claim(&mut change, "host", host.as_str(), shop.id, None).await?;
        let at_ms = change.at_ms;
        sqlx::query("insert into shop_host (host, shop, created_ms) values ($1, $2, $3)")
            .bind(host.as_str())
            .bind(signed(shop.id.get()))
            .bind(at_ms)
            .execute(change.conn())
            .await?;
        self.renumber(change, shop.id, &shop, &format!("added {host}"))
            .await
    }

    /// Takes a domain from a shop; the name is free at once.
    pub async fn remove_host(
        &self,
        actor: &str,
        reference: &ShopRef,
        host: &Host,
    ) -> Result<Shop, CatalogError> {
        let mut change = self.change(actor).await?;
        let shop = shops::find(change.conn(), reference, &self.domains).await?;
        let removed = sqlx::query("delete from shop_host where host = $1 and shop = $2")
            .bind(host.as_str())
            .bind(signed(shop.id.get()))
            .execute(change.conn())
            .await?
            .rows_affected();
        if removed == 0 {
            return Err(CatalogError::not_found("such host of that shop:", host));
        }
        sqlx::query("delete from claim where kind = 'host' and name = $1 and shop = $2")
            .bind(host.as_str())
            .bind(signed(shop.id.get()))
            .execute(change.conn())
            .await?;
        self.renumber(change, shop.id, &shop, &format!("removed {host}"))
            .await
    }

    /// Edges see the names of a shop with its placement.
    async fn renumber(
        &self,
        mut change: Change<'_>,
        id: ShopId,
        shop: &Shop,
        text: &str,
    ) -> Result<Shop, CatalogError> {
        let version = change.next_version().await?;
        let at_ms = change.at_ms;
        sqlx::query("update placement set version = $1, changed_ms = $2 where shop = $3")
            .bind(version)
            .bind(at_ms)
            .bind(signed(id.get()))
            .execute(change.conn())
            .await?;
        change
            .note("shop-host", shop.handle.as_str(), None, text)
            .await?;
        let shop = shops::find(change.conn(), &ShopRef::Id(id), &self.domains).await?;
        change.commit().await?;
        Ok(shop)
    }
}
