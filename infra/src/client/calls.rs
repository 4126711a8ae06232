//! The calls, one function each.

use reqwest::Method;
use shared::{PodId, ShopId};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::{Call, Control, Error, Path, decode};
use crate::api::{
    History, Operation, OperationChange, OperationList, OperationNew, PlacementAt, Pod, PodList,
    PodPut, PodStatusChange, SHOP_PAGE_MAX, Shop, ShopNew, ShopPage, StateChange, Status,
    TokenList, TokenMade, TokenNew, Topology,
};

/// Shops. `reference` is an id, a handle or a host.
impl Control {
    /// A page of shops after an id.
    pub async fn shop_page(&self, after: Option<ShopId>, limit: u32) -> Result<ShopPage, Error> {
        let path = Path::of(&["shops"])
            .query("after", after.map(|id| id.to_string()))
            .query("limit", Some(limit.to_string()));
        self.get(&path).await
    }

    /// All shops, page by page.
    pub async fn shops(&self) -> Result<Vec<Shop>, Error> {
        let mut shops = Vec::new();
        let mut after = None;
        loop {
            let page = self.shop_page(after, SHOP_PAGE_MAX).await?;
            shops.extend(page.shops);
            // A page that does not go forward would be asked for without end.
            if page.next.is_none() || page.next <= after {
                return Ok(shops);
            }
            after = page.next;
        }
    }

    /// One shop.
    pub async fn shop(&self, reference: &str) -> Result<Shop, Error> {
        self.get(&Path::of(&["shops", reference])).await
    }

    /// Makes a shop. `key` names this one wish: the same again gives the same shop, so it is tried again like a `GET`.
    pub async fn shop_create(&self, new: &ShopNew, key: Uuid) -> Result<Shop, Error> {
        let body = serde_json::to_vec(new).map_err(Error::Encode)?;
        let call = Call {
            body: Some(body.into()),
            key: Some(key),
            ..Call::new(Method::POST)
        };
        decode(&self.patiently(&call, &Path::of(&["shops"])).await?)
    }

    /// Freezes it, takes it offline, or gives it back.
    pub async fn shop_state(&self, reference: &str, change: &StateChange) -> Result<Shop, Error> {
        self.send(
            Method::PUT,
            &Path::of(&["shops", reference, "state"]),
            change,
        )
        .await
    }

    /// All changes of its placement.
    pub async fn shop_history(&self, reference: &str) -> Result<History, Error> {
        self.get(&Path::of(&["shops", reference, "history"])).await
    }

    /// Who owned it at an instant; without one, now.
    pub async fn shop_placement(
        &self,
        reference: &str,
        at: Option<OffsetDateTime>,
    ) -> Result<PlacementAt, Error> {
        let at = at.and_then(|at| at.format(&Rfc3339).ok());
        self.get(&Path::of(&["shops", reference, "placement"]).query("at", at))
            .await
    }

    /// Adds a name that reaches it.
    pub async fn host_add(&self, reference: &str, host: &str) -> Result<Shop, Error> {
        let path = Path::of(&["shops", reference, "hosts", host]);
        self.send(Method::PUT, &path, &serde_json::json!({})).await
    }

    /// Takes a name away.
    pub async fn host_remove(&self, reference: &str, host: &str) -> Result<(), Error> {
        self.order(
            Method::DELETE,
            &Path::of(&["shops", reference, "hosts", host]),
        )
        .await
    }

    /// Makes a merchant token.
    pub async fn token_make(&self, reference: &str, new: &TokenNew) -> Result<TokenMade, Error> {
        self.send(
            Method::POST,
            &Path::of(&["shops", reference, "tokens"]),
            new,
        )
        .await
    }

    /// Its merchant tokens, without their texts.
    pub async fn tokens(&self, reference: &str) -> Result<TokenList, Error> {
        self.get(&Path::of(&["shops", reference, "tokens"])).await
    }

    /// Ends a merchant token.
    pub async fn token_revoke(&self, reference: &str, id: &str) -> Result<(), Error> {
        self.order(
            Method::DELETE,
            &Path::of(&["shops", reference, "tokens", id]),
        )
        .await
    }
}

/// Pods. `reference` is an id or a name.
impl Control {
    /// All pods.
    pub async fn pods(&self) -> Result<Vec<Pod>, Error> {
        let list: PodList = self.get(&Path::of(&["pods"])).await?;
        Ok(list.pods)
    }

    /// One pod.
    pub async fn pod(&self, reference: &str) -> Result<Pod, Error> {
        self.get(&Path::of(&["pods", reference])).await
    }

    /// Makes a pod, or brings it to what is wanted; the same again changes nothing.
    pub async fn pod_put(&self, id: PodId, put: &PodPut) -> Result<Pod, Error> {
        self.send(Method::PUT, &Path::of(&["pods", &id.to_string()]), put)
            .await
    }

    /// Changes whether it takes shops.
    pub async fn pod_status(
        &self,
        reference: &str,
        change: &PodStatusChange,
    ) -> Result<Pod, Error> {
        self.send(
            Method::POST,
            &Path::of(&["pods", reference, "status"]),
            change,
        )
        .await
    }

    /// Its servers and their term.
    pub async fn topology(&self, reference: &str) -> Result<Topology, Error> {
        self.get(&Path::of(&["pods", reference, "topology"])).await
    }
}

/// Operations and the server itself.
impl Control {
    /// Unfinished operations, then the newest.
    pub async fn operations(&self) -> Result<Vec<Operation>, Error> {
        let list: OperationList = self.get(&Path::of(&["operations"])).await?;
        Ok(list.operations)
    }

    /// Records an operation; the same id again is the same operation.
    pub async fn operation_begin(&self, new: &OperationNew) -> Result<Operation, Error> {
        self.send(Method::POST, &Path::of(&["operations"]), new)
            .await
    }

    /// Records how far it is.
    pub async fn operation_change(
        &self,
        id: &str,
        change: &OperationChange,
    ) -> Result<Operation, Error> {
        self.send(Method::PATCH, &Path::of(&["operations", id]), change)
            .await
    }

    /// The server about itself.
    pub async fn status(&self) -> Result<Status, Error> {
        self.get(&Path::of(&["status"])).await
    }
}
