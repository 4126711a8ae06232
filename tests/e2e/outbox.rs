//! Domain events: none lost, in commit order per shop, by one relay at a time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use sqlx::{AssertSqlSafe, Executor as _};
use tests::fleet::RECOVER_MAX;
use tests::load::Load;
use tests::outbox::{Event, events_of};
use tests::suite::Test;
use tests::{Fleet, Shop, metrics, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![
        shares: inv3_events_come_in_the_order_of_their_commits, inv3_an_event_that_commits_late_is_not_passed_over,
            one_process_of_a_pod_relays_at_a_time;
        alone: inv3_events_survive_killed_relays_and_a_stopped_redis;
    ]
}

/// Event ids in order of first arrival.
fn first_arrivals(events: &[Event]) -> Vec<&str> {
    let mut seen = Vec::new();
    for event in events {
        if !seen.contains(&event.id.as_str()) {
            seen.push(&event.id);
        }
    }
    seen
}

/// What the database holds for a shop: event ids in order of commit. One order's events come from transactions that
/// follow each other, so their positions are in order of commit.
async fn stored(fleet: &Fleet, shop: &Shop) -> Result<Vec<String>> {
    let primary = fleet.primary(shop.pod.to_string().parse()?).await?;
    let sql = format!(
        "select bin_to_uuid(event_id) from outbox where shop_id = {} order by position",
        shop.id
    );
    primary.texts(&sql).await
}

/// Steps of orders one after the other: the stream has exactly the stored events, in that order. Then many buyers at
/// once: each order's events keep their order, whatever the others do.
async fn inv3_events_come_in_the_order_of_their_commits(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(2).await?;
    let mug = shop.product("Mug", "1.00", 100).await?;
    for step in ["fulfil", "cancel", "refund"] {
        let order = shop.buy(step, &[(&mug, 1)]).await?;
        shop.order_step(&order.id, step).await?.wants(200)?;
    }
    let wanted = stored(fleet, &shop).await?;
    ensure!(
        wanted.len() >= 7,
        "a product, three orders and their steps make events: {wanted:?}"
    );
    let events = events_of(fleet, &shop, wanted.len()).await?;
    assert_eq!(first_arrivals(&events), wanted);

    let keys: Vec<String> = (0..12).map(|n| format!("many-{n}")).collect();
    let lines = [(&mug, 1)];
    for order in join_all(keys.iter().map(|key| shop.buy(key, &lines))).await {
        order?;
    }
    let wanted = stored(fleet, &shop).await?;
    let events = events_of(fleet, &shop, wanted.len()).await?;
    let mut ids = first_arrivals(&events);
    assert_eq!(
        ids.len(),
        wanted.len(),
        "every event once or more, none invented"
    );
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), wanted.len());
    for id in shop.order_ids().await? {
        let of_order: Vec<&Event> = events.iter().filter(|e| e.fields.contains(&id)).collect();
        let kinds: Vec<&str> = of_order.iter().map(|e| e.kind.as_str()).collect();
        let placed = kinds
            .iter()
            .position(|k| k.contains("placed") || k.contains("created"));
        let paid = kinds.iter().position(|k| k.contains("paid"));
        ensure!(placed.is_some() && paid > placed, "order {id}: {kinds:?}");
    }
    Ok(())
}

/// A transaction takes its event's position before another one's and commits after that one was relayed: its event
/// comes all the same.
async fn inv3_an_event_that_commits_late_is_not_passed_over(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mut late = fleet.primary(1).await?.connect().await?;
    late.execute("begin").await?;
    let insert = format!(
        "insert into outbox (shop_id, event_id, epoch, kind, subject, payload) \
         values ({}, uuid_to_bin(uuid()), 1, 'late', 'late', '{{}}')",
        shop.id
    );
    late.execute(AssertSqlSafe(insert)).await?;
    shop.product("Mug", "1.00", 1).await?;
    let early = events_of(fleet, &shop, 1).await?;
    ensure!(early.iter().all(|e| e.kind != "late"), "{early:?}");
    late.execute("commit").await?;
    let all = events_of(fleet, &shop, 2).await?;
    ensure!(all.iter().any(|e| e.kind == "late"), "{all:?}");
    Ok(())
}

/// Events that came up in both processes are relayed by one of them.
async fn one_process_of_a_pod_relays_at_a_time(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(2).await?;
    let status = fleet.status().await?;
    let relayed = async || -> Result<Vec<f64>> {
        let mut counts = Vec::new();
        for process in &status.pod(2)?.processes {
            counts.push(metrics::total(&process.admin, "podhost_outbox_relayed_total").await?);
        }
        Ok(counts)
    };
    let before = relayed().await?;
    for n in 0..20 {
        shop.product(&format!("Mug {n}"), "1.00", 1).await?;
    }
    events_of(fleet, &shop, 20).await?;
    let after = relayed().await?;
    let at_work = before.iter().zip(&after).filter(|(b, a)| a > b).count();
    ensure!(at_work == 1, "before {before:?}, after {after:?}");
    Ok(())
}

/// While Redis is down buyers buy, and no event is marked as taken.
async fn sells_without_redis(fleet: &Fleet, shop: &Shop, load: &Load) -> Result<()> {
    let (status, primary) = (fleet.status().await?, fleet.primary(1).await?);
    fleet.hold_down("redis-1").await?;
    wait_until("Redis is gone", RECOVER_MAX, async || {
        let answer = status.pod(1)?.redis.connect().await;
        ensure!(answer.is_err(), "it answers");
        Ok(())
    })
    .await?;
    // What it took before is marked by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let down_at = primary.text("select utc_timestamp(3)").await?;
    load.sells(20, RECOVER_MAX)
        .await
        .context("sells without Redis")?;
    let marked = format!(
        "select count(*) from outbox where shop_id = {} and relayed_at > '{down_at}'",
        shop.id
    );
    assert_eq!(primary.number(&marked).await?, 0, "marked and not taken");
    fleet.let_up("redis-1").await
}

/// Both processes of the pod, one of which relays, are killed in turn while buyers buy, and Redis is stopped and
/// started: buyers notice nothing of Redis, and in the end every stored event has arrived, first arrivals in order.
async fn inv3_events_survive_killed_relays_and_a_stopped_redis(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 100_000).await?;
    let load = Load::start(&shop, &mug, 3);
    load.sells(10, RECOVER_MAX).await?;
    for unit in ["pod-1-1", "pod-1-2"] {
        fleet.unit(unit)?.kill().await?;
        load.sells(10, RECOVER_MAX)
            .await
            .with_context(|| unit.to_owned())?;
    }
    fleet.processes_ready(1).await?;
    // A checkout whose process was killed between its two steps is taken up by its key five seconds later.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let before = load.seen().others;
    sells_without_redis(fleet, &shop, &load).await?;
    let primary = fleet.primary(1).await?;
    let status = fleet.status().await?;
    wait_until("Redis answers", RECOVER_MAX, async || {
        status.pod(1)?.redis.connect().await.map(drop)
    })
    .await?;
    let back_at = primary.text("select utc_timestamp(3)").await?;
    load.sells(10, RECOVER_MAX).await?;
    let seen = load.stop().await?;
    ensure!(
        seen.others == before,
        "buyers noticed that Redis was down: {before:?}, then {:?}",
        seen.others
    );
    let waiting = format!(
        "select count(*) from outbox where shop_id = {} and waiting is not null",
        shop.id
    );
    wait_until("every event is relayed", RECOVER_MAX, async || {
        let left = primary.number(&waiting).await?;
        ensure!(left == 0, "{left} events wait");
        Ok(())
    })
    .await?;
    // What was relayed to the Redis that is gone is gone with it; everything after that is in the new one.
    let since = format!(
        "select bin_to_uuid(event_id) from outbox where shop_id = {} and relayed_at > '{back_at}'",
        shop.id
    );
    let relayed = primary.texts(&since).await?;
    ensure!(!relayed.is_empty(), "no event since Redis is back");
    let events = events_of(fleet, &shop, 1).await?;
    let arrived = first_arrivals(&events);
    let missing: Vec<&String> = relayed
        .iter()
        .filter(|id| !arrived.contains(&id.as_str()))
        .collect();
    ensure!(
        missing.is_empty(),
        "marked as relayed and never arrived: {missing:?}"
    );
    Ok(())
}
