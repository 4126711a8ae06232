//! Homes of shops: made with the shop's profile, taken away when a creation is undone, set to a state by an operator.

use shared::home::HomeState;
use shared::{Epoch, Handle, PlacementState, ShopId};
use tokio::time::timeout_at;

use super::{PodStoreError, Session};

/// The home's word for what an operator allows.
const fn home_state(state: PlacementState) -> HomeState {
    match state {
        PlacementState::Serving => HomeState::Serving,
        PlacementState::Frozen => HomeState::Frozen,
        PlacementState::Offline => HomeState::Offline,
    }
}

impl Session {
    /// Makes the home and the profile of a new shop, in one transaction. The same again changes nothing.
    pub async fn create_home(
        &mut self,
        shop: ShopId,
        handle: &Handle,
        currency: &str,
    ) -> Result<(), PodStoreError> {
        self.begin().await?;
        let insert = sqlx::query(
            "insert into shop_home (shop_id, epoch, state) values (?, ?, ?) \
             on duplicate key update shop_id = values(shop_id)",
        )
        .bind(shop.get())
        .bind(Epoch::FIRST.get())
        .bind(HomeState::Serving.as_str());
        self.run(insert).await?;
        let profile = sqlx::query(
            "insert into shop_profile (shop_id, handle, currency) values (?, ?, ?) \
             on duplicate key update handle = values(handle), currency = values(currency)",
        )
        .bind(shop.get())
        .bind(handle.as_str())
        .bind(currency);
        self.run(profile).await?;
        // An older home of that number would be somebody else's: ids are never given out twice.
        let (epoch, state) = self.locked_home(shop).await?;
        if epoch != Epoch::FIRST.get() || state != HomeState::Serving.as_str() {
            return Err(PodStoreError::Home(format!(
                "pod {} has a home of shop {shop} already ({state} at epoch {epoch}); run `podctl doctor`",
                self.pod
            )));
        }
        self.commit().await
    }

    /// Takes away what [`Self::create_home`] made; nothing can have used it, since no edge was told of the shop.
    pub async fn remove_home(&mut self, shop: ShopId) -> Result<(), PodStoreError> {
        self.begin().await?;
        let home = sqlx::query("delete from shop_home where shop_id = ? and epoch = ?")
            .bind(shop.get())
            .bind(Epoch::FIRST.get());
        self.run(home).await?;
        let profile = sqlx::query("delete from shop_profile where shop_id = ?").bind(shop.get());
        self.run(profile).await?;
        self.commit().await
    }

    /// Sets what an operator allows. The update waits for every write of the shop in flight, and later ones see it. It
    /// is sent whatever the home says now, so that an older order still queued there cannot have the last word.
    pub async fn set_home_state(
        &mut self,
        shop: ShopId,
        epoch: Epoch,
        to: PlacementState,
    ) -> Result<(), PodStoreError> {
        self.begin().await?;
        let (found, state) = self.locked_home(shop).await?;
        let by_operator = PlacementState::ALL
            .iter()
            .any(|s| home_state(*s).as_str() == state);
        if found != epoch.get() || !by_operator {
            return Err(PodStoreError::Home(format!(
                "the home of shop {shop} at pod {} is {state} at epoch {found}, not the operator's at epoch {}; \
                 wait for its move to end, or run `podctl doctor`",
                self.pod,
                epoch.get()
            )));
        }
        let update = sqlx::query("update shop_home set state = ? where shop_id = ? and epoch = ?")
            .bind(home_state(to).as_str())
            .bind(shop.get())
            .bind(epoch.get());
        self.run(update).await?;
        self.commit().await
    }

    async fn locked_home(&mut self, shop: ShopId) -> Result<(u64, String), PodStoreError> {
        let query =
            sqlx::query_as("select epoch, state from shop_home where shop_id = ? for update")
                .bind(shop.get());
        let answer = timeout_at(self.deadline, query.fetch_optional(&mut self.conn)).await;
        self.settle(answer)?.ok_or_else(|| {
            PodStoreError::Home(format!(
                "pod {} has no home for shop {shop}; run `podctl doctor`",
                self.pod
            ))
        })
    }

    /// Reads the home for a change of the shop's rows, and keeps it from changing until commit.
    pub(super) async fn share_home(
        &mut self,
        shop: ShopId,
        epoch: Epoch,
    ) -> Result<(), PodStoreError> {
        let query =
            sqlx::query_as("select epoch, state from shop_home where shop_id = ? for share")
                .bind(shop.get());
        let answer = timeout_at(self.deadline, query.fetch_optional(&mut self.conn)).await;
        let home: Option<(u64, String)> = self.settle(answer)?;
        let word = home.as_ref().map_or("missing", |(_, state)| state.as_str());
        let allowed = match HomeState::parse(word) {
            Some(
                HomeState::Serving | HomeState::Ready | HomeState::Frozen | HomeState::Offline,
            ) => home
                .as_ref()
                .is_some_and(|(found, _)| *found == epoch.get()),
            Some(
                HomeState::Incoming | HomeState::Fenced | HomeState::Handing | HomeState::Moved,
            )
            | None => false,
        };
        if allowed {
            Ok(())
        } else {
            Err(PodStoreError::Home(format!(
                "the home of shop {shop} at pod {} is {word}: it is changing hands; try again",
                self.pod
            )))
        }
    }
}
