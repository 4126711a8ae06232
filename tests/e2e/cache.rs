//! What buyers see of a change, with the caches warm, late, and gone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor as _};
use tests::fleet::RECOVER_MAX;
use tests::suite::Test;
use tests::{Call, Fleet, Product, Shop, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![
        shares: a_change_is_in_every_answer_within_two_seconds,
            a_change_in_one_process_is_soon_in_the_other, inv11_a_strong_read_sees_every_acknowledged_write;
        alone: without_redis_the_pod_works;
    ]
}

/// The stated age of `available`, and one turn of the cached home.
const STALE_MAX: Duration = Duration::from_secs(3);

async fn change(shop: &Shop, product: &Product, body: &Value) -> Result<()> {
    let path = format!("/api/v1/products/{}", product.id);
    let call = Call::new(Method::PATCH, path).token(&shop.token).json(body);
    shop.send(call).await?.wants(200).map(drop)
}

async fn shown(shop: &Shop, product: &Product) -> Result<Product> {
    shop.get(&format!("/api/v1/products/{}", product.id))
        .await?
        .wants(200)?
        .json()
}

/// Title and price changed, and units sold: with entries warm in both processes and in Redis, all answers show it two
/// seconds later, in the product and in the list, and none goes back afterwards.
async fn a_change_is_in_every_answer_within_two_seconds(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(2).await?;
    let mug = shop.product("Old", "1.00", 5).await?;
    for _ in 0..8 {
        assert_eq!(shown(&shop, &mug).await?.title, "Old");
        shop.get("/api/v1/products").await?.wants(200)?;
    }
    for round in 0..3 {
        let title = format!("New {round}");
        change(&shop, &mug, &json!({"title": title, "price": "2.50"})).await?;
        shop.buy(&format!("cache-{round}"), &[(&mug, 1)]).await?;
        tokio::time::sleep(STALE_MAX).await;
        for _ in 0..8 {
            let now = shown(&shop, &mug).await?;
            assert_eq!(
                (now.title.as_str(), now.price.as_str()),
                (title.as_str(), "2.50")
            );
            assert_eq!(now.available, 4 - round);
            let list: Value = shop.get("/api/v1/products").await?.wants(200)?.json()?;
            assert_eq!(list["products"][0]["title"], title.as_str());
            assert_eq!(list["products"][0]["available"], 4 - round);
        }
    }
    Ok(())
}

/// How soon the other process has mostly heard of a change; without word of it an entry lives for a second.
const TOLD: Duration = Duration::from_millis(250);

/// What one process changes, the other drops without waiting for its entry's age. No promise holds it to that, so two of
/// ten rounds may be late.
async fn a_change_in_one_process_is_soon_in_the_other(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 5).await?;
    let path = format!("/api/v1/products/{}", mug.id);
    let status = fleet.status().await?;
    let mut doors = Vec::new();
    for process in &status.pod(1)?.processes {
        let at = tests::status::address(&process.http)?;
        doors.push(tests::PodDoor::new(
            at,
            shop.pod,
            fleet.pod_keys(shop.pod)?,
        )?);
    }
    let [one, other] = &doors[..] else {
        anyhow::bail!("two processes by default")
    };
    let show = Call::get(path.as_str());
    let mut late = 0;
    for round in 0..10 {
        let title = format!("Round {round}");
        other.send(shop.id, shop.epoch, &show).await?.wants(200)?;
        let body = json!({"title": title});
        let patch = Call::new(Method::PATCH, path.as_str()).token(&shop.token);
        one.send(shop.id, shop.epoch, &patch.json(&body))
            .await?
            .wants(200)?;
        tokio::time::sleep(TOLD).await;
        let seen: Product = other
            .send(shop.id, shop.epoch, &show)
            .await?
            .wants(200)?
            .json()?;
        late += usize::from(seen.title != title);
    }
    ensure!(late <= 2, "{late} of 10 changes were seen late");
    Ok(())
}

/// Strong reads through both processes right after each acknowledged write: never the value before, even while a lock
/// at each replica keeps the write from being applied there.
async fn inv11_a_strong_read_sees_every_acknowledged_write(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 0).await?;
    let path = format!("/api/v1/products/{}/inventory", mug.id);
    let replicas = fleet.replicas(1).await?;
    let stock = format!(
        "select available from inventory where shop_id = {} for share",
        shop.id
    );
    for n in 1..=30 {
        let mut behind = Vec::new();
        for replica in replicas.iter().filter(|_| n % 6 == 0) {
            let mut session = replica.connect().await?;
            session.execute("begin").await?;
            session.execute(AssertSqlSafe(stock.clone())).await?;
            behind.push(session);
        }
        let put = Call::new(Method::PUT, path.as_str())
            .token(&shop.token)
            .json(&json!({"available": n}));
        shop.send(put).await?.wants(200)?;
        for _ in 0..2 {
            assert_eq!(shop.available(&mug).await?, n);
        }
        drop(behind);
    }
    Ok(())
}

/// Redis is killed and stays down: products are shown and sold, no answer takes long, changes still appear; then it is
/// frozen instead, which is worse, and the same holds.
async fn without_redis_the_pod_works(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 100).await?;
    let works = async |how: &str| -> Result<()> {
        let started = Instant::now();
        for n in 0..5 {
            let title = format!("{how} {n}");
            change(&shop, &mug, &json!({"title": title}))
                .await
                .with_context(|| how.to_owned())?;
            shop.buy(&title, &[(&mug, 1)])
                .await
                .with_context(|| how.to_owned())?;
            shown(&shop, &mug).await.with_context(|| how.to_owned())?;
        }
        // Fifteen requests; a few of them may wait for Redis once, none for long.
        ensure!(
            started.elapsed() < Duration::from_secs(15),
            "{how}: took {:?}",
            started.elapsed()
        );
        wait_until("the change is shown", STALE_MAX, async || {
            ensure!(
                shown(&shop, &mug).await?.title == format!("{how} 4"),
                "an old title"
            );
            Ok(())
        })
        .await
    };
    fleet.kill_and_hold_down("redis-1").await?;
    works("killed").await?;
    fleet.let_up("redis-1").await?;
    wait_until("Redis is back", RECOVER_MAX, async || {
        let status = fleet.status().await?;
        status.pod(1)?.redis.connect().await.map(drop)
    })
    .await?;
    let frozen = fleet.unit("redis-1")?.freeze()?;
    works("frozen").await?;
    frozen.thaw();
    works("thawed").await
}
