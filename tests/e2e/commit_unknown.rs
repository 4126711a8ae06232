//! The connection to the primary breaks on a COMMIT, so that the pod cannot know: in every case one order, one charge,
//! and the stock that goes with it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use shared::PodId;
use tests::chaos::{Chaos, Silence, Wire};
use tests::own_pod::OwnPod;
use tests::shop::{Order, checkout_body};
use tests::suite::Test;
use tests::tap::{Moment, Tap};
use tests::{Answer, Call, Fleet, Product, Shop, metrics, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        inv3_a_connection_cut_on_commit_makes_exactly_one_order,
        inv3_a_write_cut_on_commit_is_done_once,
        inv9_a_primary_that_stops_answering_on_commit_is_bounded,
    ]
}

const SPRUNG_MAX: Duration = Duration::from_secs(5);
/// The deadline of a transaction, settling it, and running it again.
const SETTLED_MAX: Duration = Duration::from_secs(10);

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A pod process whose primary is behind a tap.
async fn tapped(fleet: &Fleet, pod: PodId) -> Result<(Tap, OwnPod)> {
    let port = OwnPod::primary_port(&OwnPod::config_of(fleet, pod)?)?;
    let tap = Tap::to(loopback(port)).await?;
    let through = tap.address().port();
    let own = OwnPod::start(fleet, pod, |config| OwnPod::primary_at(config, through)).await?;
    Ok((tap, own))
}

async fn checkout(own: &OwnPod, shop: &Shop, mug: &Product, key: &str) -> Result<Answer> {
    let call = Call::post("/api/v1/checkouts")
        .key(key.replace(' ', "-"))
        .json(&checkout_body(&[(mug, 1)], "approve"));
    let answer = own.door.send(shop.id, shop.epoch, &call);
    tokio::time::timeout(SETTLED_MAX, answer)
        .await
        .context("an unknown commit was not settled in time")?
}

/// A checkout has two transactions, each is cut before its COMMIT is sent, after it was sent, and after the server
/// answered it. Each time the buyer gets an order (at once, or with the same key again), and there is one.
async fn inv3_a_connection_cut_on_commit_makes_exactly_one_order(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 100).await?;
    let (tap, own) = tapped(fleet, shop.pod).await?;
    checkout(&own, &shop, &mug, "warm")
        .await?
        .wants(201)
        .context("through the tap")?;
    let unknown_before = metrics::total(&own.admin, "podhost_commit_unknown_total").await?;
    let mut orders = 1;
    for (step, word) in [("reserve", "into shop_order"), ("settle", "update payment")] {
        for moment in [
            Moment::BeforeCommit,
            Moment::CommitSent,
            Moment::CommitAnswered,
        ] {
            let case = format!("{step} {moment:?}");
            tap.set(word, moment);
            let first = checkout(&own, &shop, &mug, &case).await?;
            tap.sprung(SPRUNG_MAX).await.with_context(|| case.clone())?;
            ensure!(
                [201, 503, 504].contains(&first.status),
                "{case}: {}",
                first.text()
            );
            let again = checkout(&own, &shop, &mug, &case)
                .await?
                .wants(201)
                .context(case.clone())?;
            let order: Order = again.json()?;
            assert_eq!(order.status, "paid", "{case}");
            if first.status == 201 {
                assert_eq!(first.json::<Order>()?.id, order.id, "{case}");
            }
            orders += 1;
            assert_eq!(
                shop.order_ids().await?.len(),
                orders,
                "{case}: one order more"
            );
            assert_eq!(
                shop.available(&mug).await?,
                100 - i64::try_from(orders)?,
                "{case}: stock"
            );
        }
    }
    let primary = fleet.primary(1).await?;
    assert_eq!(
        primary.rows("bogus_charge", shop.id).await?,
        i64::try_from(orders)?,
        "one charge each"
    );
    let unknown =
        metrics::total(&own.admin, "podhost_commit_unknown_total").await? - unknown_before;
    ensure!(unknown >= 4.0, "unknown outcomes are counted: {unknown}");
    Ok(())
}

/// The same for a write of a single transaction without a key of its own: the request id stands in, so that the pod's
/// own second run finds what the first one did.
async fn inv3_a_write_cut_on_commit_is_done_once(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(2).await?;
    let (tap, own) = tapped(fleet, shop.pod).await?;
    let body = json!({"title": "Mug", "price": "1.00", "currency": "USD", "available": 3});
    let call = Call::post("/api/v1/products")
        .token(&shop.token)
        .json(&body);
    own.door
        .send(shop.id, shop.epoch, &call)
        .await?
        .wants(201)
        .context("through the tap")?;
    let primary = fleet.primary(2).await?;
    for moment in [
        Moment::BeforeCommit,
        Moment::CommitSent,
        Moment::CommitAnswered,
    ] {
        let before = primary.rows("product", shop.id).await?;
        tap.set("into product", moment);
        let answer = own.door.send(shop.id, shop.epoch, &call).await?;
        tap.sprung(SPRUNG_MAX).await?;
        let made = primary.rows("product", shop.id).await? - before;
        answer.wants(201).with_context(|| format!("{moment:?}"))?;
        assert_eq!(made, 1, "{moment:?}");
    }
    Ok(())
}

/// The primary goes silent, connection open: the answer comes within the stated time, nothing is held for ever, and
/// when the wire is back the process serves again without a restart.
async fn inv9_a_primary_that_stops_answering_on_commit_is_bounded(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 100).await?;
    let port = OwnPod::primary_port(&OwnPod::config_of(fleet, shop.pod)?)?;
    for silence in [Silence::Answers, Silence::Requests, Silence::Both] {
        let chaos = Chaos::to(loopback(port)).await?;
        let through = chaos.address().port();
        let own = OwnPod::start(fleet, shop.pod, |config| {
            OwnPod::primary_at(config, through)
        })
        .await?;
        let key = |n: u32| format!("{silence:?} {n}");
        checkout(&own, &shop, &mug, &key(0))
            .await?
            .wants(201)
            .context("through the proxy")?;
        chaos.set(Wire::Silent(silence));
        let calls = (1..6).map(|n| {
            let (own, shop, mug) = (&own, &shop, &mug);
            async move { checkout(own, shop, mug, &key(n)).await }
        });
        for answer in futures::future::join_all(calls).await {
            let answer = answer.with_context(|| format!("{silence:?}"))?;
            ensure!(
                [421, 503, 504].contains(&answer.status),
                "{silence:?}: {}",
                answer.text()
            );
        }
        chaos.set(Wire::Open);
        for n in 1..6 {
            tests::wait_until("the process serves again", SETTLED_MAX, async || {
                checkout(&own, &shop, &mug, &key(n)).await?.wants(201)
            })
            .await
            .with_context(|| format!("{silence:?}"))?;
        }
    }
    assert_eq!(shop.order_ids().await?.len(), 18);
    assert_eq!(shop.available(&mug).await?, 100 - 18);
    Ok(())
}
