//! What becomes of an order: states that are explicit, stock that comes back once, a list that misses none.

use anyhow::{Context, Result};
use futures::future::join_all;
use serde_json::Value;
use tests::shop::Order;
use tests::suite::Test;
use tests::{Fleet, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        inv3_stock_comes_back_once,
        an_order_takes_only_the_steps_of_its_state,
        orders_are_listed_newest_first_and_paged,
    ]
}

/// A cancel raced ten times, and a refund after it, give the units back once.
async fn inv3_stock_comes_back_once(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "3.00", 10).await?;
    for (step, done) in [("cancel", "cancelled"), ("refund", "refunded")] {
        let before = shop.available(&mug).await?;
        let order = shop.buy(step, &[(&mug, 4)]).await?;
        if step == "refund" {
            shop.order_step(&order.id, "fulfil").await?.wants(200)?;
        }
        assert_eq!(shop.available(&mug).await?, before - 4);
        let answers = join_all((0..10).map(|_| shop.order_step(&order.id, step))).await;
        let mut done_times = 0;
        for answer in answers {
            let answer = answer?;
            match answer.status {
                200 => done_times += 1,
                _ => drop(answer.wants_problem(409, "order-state")?),
            }
        }
        assert_eq!(done_times, 1, "{step} happened once");
        assert_eq!(shop.available(&mug).await?, before, "after {step}");
        assert_eq!(shop.order(&order.id).await?.status, done);
        shop.order_step(&order.id, "refund")
            .await?
            .wants_problem(409, "order-state")?;
        assert_eq!(shop.available(&mug).await?, before, "after a second {step}");
    }
    Ok(())
}

/// Each step from each state: done, or 409 `order-state` that says the state; an unknown order is 404.
async fn an_order_takes_only_the_steps_of_its_state(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(2).await?;
    let mug = shop.product("Mug", "3.00", 100).await?;
    let made = async |name: &str, steps: &[&str]| -> Result<Order> {
        let order = shop.buy(name, &[(&mug, 1)]).await?;
        for step in steps {
            shop.order_step(&order.id, step).await?.wants(200)?;
        }
        Ok(order)
    };
    for (steps, state, refused) in [
        (&[][..], "paid", &[][..]),
        (&["fulfil"][..], "fulfilled", &["fulfil", "cancel"][..]),
        (
            &["cancel"][..],
            "cancelled",
            &["fulfil", "cancel", "refund"][..],
        ),
        (
            &["refund"][..],
            "refunded",
            &["fulfil", "cancel", "refund"][..],
        ),
        (
            &["fulfil", "refund"][..],
            "refunded",
            &["fulfil", "cancel", "refund"][..],
        ),
    ] {
        let order = made(&format!("to {}", steps.join(" ")), steps).await?;
        assert_eq!(shop.order(&order.id).await?.status, state);
        for step in refused {
            let problem = shop
                .order_step(&order.id, step)
                .await?
                .wants_problem(409, "order-state")?;
            assert!(
                problem["detail"]
                    .as_str()
                    .unwrap_or_default()
                    .contains(state),
                "{problem}"
            );
        }
        assert_eq!(
            shop.order(&order.id).await?.status,
            state,
            "a refused step changes nothing"
        );
    }
    let unknown = uuid::Uuid::now_v7().to_string();
    shop.order_step(&unknown, "cancel")
        .await?
        .wants_problem(404, "not-found")?;
    Ok(())
}

/// The list has the newest order first and every order once, whatever the page; the client's own newest order is in
/// the list it asks for next.
async fn orders_are_listed_newest_first_and_paged(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "3.00", 100).await?;
    let mut bought = Vec::new();
    for n in 0..7 {
        bought.push(shop.buy(&format!("order-{n}"), &[(&mug, 1)]).await?.id);
        assert_eq!(
            shop.order_ids().await?.first(),
            bought.last(),
            "reads its own write"
        );
    }
    bought.reverse();
    let (mut listed, mut path) = (Vec::new(), "/api/v1/orders?limit=3".to_owned());
    loop {
        let page: Value = shop.merchant_get(&path).await?.wants(200)?.json()?;
        let orders = page["orders"].as_array().context("orders")?;
        assert!(orders.len() <= 3);
        listed.extend(
            orders
                .iter()
                .filter_map(|o| o["id"].as_str().map(str::to_owned)),
        );
        let Some(cursor) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/orders?limit=3&cursor={cursor}");
    }
    assert_eq!(listed, bought);
    for bad in ["limit=0", "limit=101", "limit=x", "cursor=x", "page=2"] {
        let answer = shop.merchant_get(&format!("/api/v1/orders?{bad}")).await?;
        answer.wants_problem(400, "invalid").with_context(|| bad)?;
    }
    Ok(())
}
