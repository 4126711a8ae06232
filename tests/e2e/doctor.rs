//! `podctl doctor` finds what is wrong, says what to do, and is silent when nothing is.

use anyhow::{Context, Result, ensure};
use shared::home::HomeState;
use tests::suite::Test;
use tests::{Fleet, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![alone: doctor_is_content_with_a_well_fleet_and_finds_each_planted_fault]
}

/// A healthy fleet: exit 0. Then one fault after the other, each found by name, each gone when mended: a home that says
/// something else than the catalog, a home that nobody placed, a server with an unsafe setting, a replica that is
/// down, a schema that is not the binary's.
async fn doctor_is_content_with_a_well_fleet_and_finds_each_planted_fault(
    fleet: &Fleet,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let primary = fleet.primary(1).await?;
    let replica = fleet
        .replicas(1)
        .await?
        .into_iter()
        .next()
        .context("a replica")?;
    let content = async |when: &str| {
        let well = tests::wait_until("doctor is content", tests::fleet::RECOVER_MAX, async || {
            fleet.podctl.ok(&["doctor"]).await
        });
        well.await.with_context(|| when.to_owned())
    };
    let finds = async |what: &str, named: &str| -> Result<()> {
        let said = fleet
            .podctl
            .refused(&["doctor"], 1)
            .await
            .with_context(|| what.to_owned())?;
        ensure!(
            said.contains(named),
            "{what}: {named} is not named:\n{said}"
        );
        Ok(())
    };
    content("at first").await?;

    primary
        .set_home(shop.id, HomeState::Frozen, shop.epoch, None)
        .await?;
    finds(
        "a home that is frozen and a placement that serves",
        &shop.handle,
    )
    .await?;
    primary
        .set_home(shop.id, HomeState::Serving, shop.epoch.next(), None)
        .await?;
    finds("a home of another epoch", &shop.handle).await?;
    primary
        .set_home(shop.id, HomeState::Serving, shop.epoch, None)
        .await?;
    content("the home is mended").await?;

    primary
        .run("insert into shop_home (shop_id, epoch, state) values (987654321, 1, 'serving')")
        .await?;
    finds("a home that nobody placed", "987654321").await?;
    primary
        .run("delete from shop_home where shop_id = 987654321")
        .await?;

    replica.run("set global sync_relay_log = 10000").await?;
    finds("an unsafe setting", "sync_relay_log").await?;
    replica.run("set global sync_relay_log = 1").await?;

    fleet.kill_and_hold_down("mysql-1-2").await?;
    finds("a replica that is down", &replica.port.to_string()).await?;
    fleet.let_up("mysql-1-2").await?;
    content("the replica is back").await?;

    primary
        .run("update schema_ledger set checksum = concat('x', substr(checksum, 2)) where version = 1").await?;
    finds("a changed migration", "checksum").await?;
    let checksum = migrations::POD[0].checksum();
    primary
        .run(&format!(
            "update schema_ledger set checksum = '{checksum}' where version = 1"
        ))
        .await?;
    content("at last").await.map(drop)
}
