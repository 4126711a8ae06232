//! Both replicas of a pod are gone: no commit can be acknowledged, so no order is sold, and what waits stays bounded.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tests::fleet::RECOVER_MAX;
use tests::load::{Load, reconcile};
use tests::suite::Test;
use tests::{Fleet, Shop, tests, wait_until};
use tokio::task::JoinSet;

pub(crate) fn list() -> Vec<Test> {
    tests![alone: inv9_commits_that_nobody_acknowledges_hold_a_bounded_number_of_sessions]
}

const REPLICAS: [&str; 2] = ["mysql-1-2", "mysql-1-3"];

/// Some buyers.
const BUYERS: usize = 6;

/// Many more merchants' programs than the pools have places.
const MAKERS: usize = 40;

/// Six transaction deadlines: leaked sessions would be sixteen more at each of them, in each of two processes.
const WITHOUT_REPLICAS: Duration = Duration::from_secs(12);

/// Two processes with sixteen writers and sixteen readers each, and what looks after the server: operator, monitors,
/// control server, settlers.
const SESSIONS_MAX: i64 = 2 * (16 + 16) + 40;

/// Commits that hang: one in each place that a shop may have of both processes' pools of writers, which is half of them, and
/// those of each process's own jobs and lease.
const HANGING_MAX: i64 = 2 * (8 + 4);

/// Under a load whose commits all hang, the primary's sessions stay bounded and strong reads are answered; with the
/// replicas back the shop sells, and nothing acknowledged is missing or doubled.
async fn inv9_commits_that_nobody_acknowledges_hold_a_bounded_number_of_sessions(
    fleet: &Fleet,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 100_000).await?;
    let primary = fleet.primary(1).await?;
    let load = Load::start(&shop, &mug, BUYERS);
    load.sells(20, RECOVER_MAX).await?;
    for replica in REPLICAS {
        fleet.kill_and_hold_down(replica).await?;
    }
    let makers = make_for_ever(&shop);
    let sold = load.seen().orders.len();
    let gone = Instant::now();
    let (mut most, mut hanging, mut read) = (0, 0, 0);
    while gone.elapsed() < WITHOUT_REPLICAS {
        let sessions = primary
            .number(
                "select cast(variable_value as signed) from performance_schema.global_status \
                 where variable_name = 'Threads_connected'",
            )
            .await?;
        most = most.max(sessions);
        let waiting = primary
            .number(
                "select count(*) from performance_schema.processlist \
                 where user = 'podhost_app' \
                 and (state like '%semi-sync%' or state like '%handler commit%')",
            )
            .await?;
        hanging = hanging.max(waiting);
        read += usize::from(shop.available(&mug).await.is_ok());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    drop(makers);
    ensure!(most <= SESSIONS_MAX, "{most} sessions at the primary");
    ensure!(
        (1..=HANGING_MAX).contains(&hanging),
        "{hanging} commits hang"
    );
    ensure!(read > 0, "no strong read was answered");
    let meanwhile = load.seen().orders.len() - sold;
    ensure!(
        meanwhile <= BUYERS,
        "{meanwhile} orders without a replica: more than were under way"
    );
    for replica in REPLICAS {
        fleet.let_up(replica).await?;
    }
    load.sells(20, RECOVER_MAX)
        .await
        .context("with the replicas back")?;
    let seen = load.stop().await?;
    wait_until("the account agrees", RECOVER_MAX, async || {
        reconcile(&shop, &mug, &seen).await
    })
    .await
}

/// A merchant's programs that make product after product. Unlike buyers of one product they never wait for each other's rows,
/// so that each of their commits hangs by itself. They end with the value.
fn make_for_ever(shop: &Shop) -> JoinSet<()> {
    let mut makers = JoinSet::new();
    for _ in 0..MAKERS {
        let shop = shop.clone();
        makers.spawn(async move {
            loop {
                if shop.product("Mug", "1.00", 1).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        });
    }
    makers
}
