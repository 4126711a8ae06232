//! What a pod does by itself, and for whom.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use shared::home::HomeState;
use tests::suite::Test;
use tests::{Fleet, Server, Shop, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![shares: inv1_jobs_run_only_where_the_home_serves]
}

/// The sweeper looks every five seconds.
const SWEPT_MAX: Duration = Duration::from_secs(12);

/// Longer than the sweeper takes to look again.
const LEFT_ALONE_FOR: Duration = Duration::from_secs(6);

/// A shop of pod 2 with a payment that is due.
struct Due {
    shop: Shop,
    primary: Server,
}

impl Due {
    async fn new(fleet: &Fleet) -> Result<Self> {
        let shop = fleet.shop(2).await?;
        let mug = shop.product("Mug", "1.00", 5).await?;
        let primary = fleet.primary(2).await?;
        shop.checkout("due", &[(&mug, 1)], "timeout")
            .await?
            .wants_problem(504, "timeout")?;
        // Before the provider has made up its mind a job would change nothing, and its silence would show nothing.
        let thinking = format!(
            "select count(*) from bogus_charge where shop_id = {} and answers_at > utc_timestamp(3)",
            shop.id
        );
        wait_until("the provider has its answer", SWEPT_MAX, async || {
            ensure!(primary.number(&thinking).await? == 0, "it still thinks");
            Ok(())
        })
        .await?;
        Ok(Self { shop, primary })
    }

    async fn is_due_at(&self, home: HomeState) -> Result<()> {
        let Shop { id, epoch, .. } = self.shop;
        self.primary.set_home(id, home, epoch, None).await?;
        let due = format!(
            "update payment set due_at = utc_timestamp(3) - interval 1 second where shop_id = {id}"
        );
        self.primary.run(&due).await
    }

    async fn status(&self) -> Result<String> {
        let status = format!(
            "select status from payment where shop_id = {}",
            self.shop.id
        );
        self.primary.text(&status).await
    }

    async fn left_alone_then_settled(&self, home: HomeState) -> Result<()> {
        self.is_due_at(home).await?;
        tokio::time::sleep(LEFT_ALONE_FOR).await;
        let now = self.status().await?;
        ensure!(now == "pending", "a job ran: it is {now}");
        self.is_due_at(HomeState::Serving).await?;
        wait_until("the sweeper settles the payment", SWEPT_MAX, async || {
            let now = self.status().await?;
            ensure!(now == "approved", "it is {now}");
            Ok(())
        })
        .await?;
        let ids = self.shop.order_ids().await?;
        let order = self.shop.order(ids.first().context("the order")?).await?;
        assert_eq!((ids.len(), order.status.as_str()), (1, "paid"));
        Ok(())
    }
}

/// A payment that is due is left alone while the shop's home is `ready`, `frozen` or `moved`, and settled once the home
/// serves.
async fn inv1_jobs_run_only_where_the_home_serves(fleet: &Fleet) -> Result<()> {
    let homes = [HomeState::Ready, HomeState::Frozen, HomeState::Moved];
    try_join_all(homes.map(async |home| {
        let due = Due::new(fleet).await?;
        let done = due.left_alone_then_settled(home).await;
        done.with_context(|| format!("a shop whose home is {home:?}"))
    }))
    .await
    .map(drop)
}
