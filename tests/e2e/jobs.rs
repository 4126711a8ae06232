//! What a pod does by itself, and for whom.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shared::home::HomeState;
use tests::suite::Test;
use tests::{Fleet, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![shares: inv1_jobs_run_only_where_the_home_serves]
}

/// The sweeper looks every five seconds.
const SWEPT_MAX: Duration = Duration::from_secs(12);

/// A payment that is due is left alone while the shop's home is `ready`, `frozen`, `moved` or of no state of this pod's
/// at all, and settled once the home serves.
async fn inv1_jobs_run_only_where_the_home_serves(fleet: &Fleet) -> Result<()> {
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
    let due = format!(
        "update payment set due_at = utc_timestamp(3) - interval 1 second where shop_id = {}",
        shop.id
    );
    let state = format!("select status from payment where shop_id = {}", shop.id);
    for home in [HomeState::Ready, HomeState::Frozen, HomeState::Moved] {
        primary.set_home(shop.id, home, shop.epoch, None).await?;
        primary.run(&due).await?;
        tokio::time::sleep(SWEPT_MAX / 2).await;
        let now = primary.text(&state).await?;
        ensure!(
            now == "pending",
            "a job ran for a shop whose home is {home:?}: {now}"
        );
    }
    primary
        .set_home(shop.id, HomeState::Serving, shop.epoch, None)
        .await?;
    primary.run(&due).await?;
    wait_until("the sweeper settles the payment", SWEPT_MAX, async || {
        let now = primary.text(&state).await?;
        ensure!(now == "approved", "it is {now}");
        Ok(())
    })
    .await?;
    let ids = shop.order_ids().await?;
    let order = shop.order(ids.first().context("the order")?).await?;
    assert_eq!((ids.len(), order.status.as_str()), (1, "paid"));
    Ok(())
}
