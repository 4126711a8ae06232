//! The steps of operations that happen at pods, as the drivers of those operations need them.

use std::future::Future;

use shared::{Epoch, Handle, PlacementState, PodId, ShopId};

use crate::pod_store::{PodStore, PodStoreError};

/// Homes of shops at pods. Every step can be done again.
pub(super) trait Homes: Sync {
    /// Makes the home and the profile of a new shop.
    fn create(
        &self,
        pod: PodId,
        shop: ShopId,
        handle: &Handle,
        currency: &str,
    ) -> impl Future<Output = Result<(), PodStoreError>> + Send;

    /// Takes away what [`Self::create`] made.
    fn remove(
        &self,
        pod: PodId,
        shop: ShopId,
    ) -> impl Future<Output = Result<(), PodStoreError>> + Send;

    /// Sets what an operator allows.
    fn set_state(
        &self,
        pod: PodId,
        shop: ShopId,
        epoch: Epoch,
        to: PlacementState,
    ) -> impl Future<Output = Result<(), PodStoreError>> + Send;
}

impl Homes for PodStore {
    async fn create(
        &self,
        pod: PodId,
        shop: ShopId,
        handle: &Handle,
        currency: &str,
    ) -> Result<(), PodStoreError> {
        let mut session = self.session(pod).await?;
        session.create_home(shop, handle, currency).await?;
        session.close().await;
        Ok(())
    }

    async fn remove(&self, pod: PodId, shop: ShopId) -> Result<(), PodStoreError> {
        let mut session = self.session(pod).await?;
        session.remove_home(shop).await?;
        session.close().await;
        Ok(())
    }

    async fn set_state(
        &self,
        pod: PodId,
        shop: ShopId,
        epoch: Epoch,
        to: PlacementState,
    ) -> Result<(), PodStoreError> {
        let mut session = self.session(pod).await?;
        session.set_home_state(shop, epoch, to).await?;
        session.close().await;
        Ok(())
    }
}
