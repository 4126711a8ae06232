//! Buying: one order per key, stock that never goes below zero and comes back once, states that are explicit.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tests::shop::{Order, checkout_body};
use tests::suite::Test;
use tests::{Answer, Call, Fleet, Shop, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        a_checkout_sells,
        inv3_a_replayed_checkout_gets_the_same_answer,
        inv3_a_key_raced_by_fifty_makes_one_order,
        inv3_twenty_buyers_of_five_units_make_five_orders,
        a_declined_payment_gives_the_stock_back,
        a_payment_that_times_out_is_settled_later_and_charged_once,
    ]
}

const CHECKOUTS: &str = "/api/v1/checkouts";

/// A buyer gets an order with its total; the stock goes down; the order is there for its token and for the merchant.
async fn a_checkout_sells(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "12.50", 5).await?;
    let cup = shop.product("Cup", "0.10", 100).await?;
    let order = shop.buy("sells", &[(&mug, 2), (&cup, 3)]).await?;
    assert_eq!(
        (order.status.as_str(), order.currency.as_str()),
        ("paid", "USD")
    );
    assert_eq!(order.total.parse::<Decimal>()?, "25.30".parse::<Decimal>()?);
    let lines: Vec<_> = order
        .lines
        .iter()
        .map(|l| (l.product_id.as_str(), l.quantity))
        .collect();
    assert_eq!(lines, [(mug.id.as_str(), 2), (cup.id.as_str(), 3)]);
    assert_eq!(
        (shop.available(&mug).await?, shop.available(&cup).await?),
        (3, 97)
    );

    let token = order
        .access_token
        .as_deref()
        .context("a buyer gets an access token")?;
    let path = format!("/api/v1/orders/{}", order.id);
    let seen: Order = shop
        .send(Call::get(path.as_str()).token(token))
        .await?
        .wants(200)?
        .json()?;
    assert_eq!(
        (&seen.id, &seen.total, &seen.lines),
        (&order.id, &order.total, &order.lines)
    );
    assert_eq!(shop.order(&order.id).await?.status, "paid");
    shop.get(&path)
        .await?
        .wants_problem(401, "unauthorized")
        .context("without a token")?;
    let other = shop.buy("other", &[(&cup, 1)]).await?;
    let other_path = format!("/api/v1/orders/{}", other.id);
    let by_wrong_token = shop.send(Call::get(other_path).token(token)).await?;
    assert!(
        [401, 403, 404].contains(&by_wrong_token.status),
        "{}",
        by_wrong_token.text()
    );
    Ok(())
}

fn replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

/// The same key and body get the same status and body, sold or declined; what was refused for lack of stock had no
/// effect, is not kept, and may be tried again with its key; another body under the key is 422; no key
/// is 400; the key of one shop means nothing in another.
async fn inv3_a_replayed_checkout_gets_the_same_answer(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "3.00", 2).await?;
    for (key, quantity, outcome, status) in [("ok", 1, "approve", 201), ("no", 1, "decline", 402)] {
        let first = shop
            .checkout(key, &[(&mug, quantity)], outcome)
            .await?
            .wants(status)?;
        assert!(!replayed(&first));
        for _ in 0..2 {
            let again = shop
                .checkout(key, &[(&mug, quantity)], outcome)
                .await?
                .wants(status)?;
            assert!(replayed(&again), "{key}");
            assert_eq!(without_request(&again)?, without_request(&first)?, "{key}");
        }
    }
    assert_eq!(shop.available(&mug).await?, 1, "one unit was sold, once");
    let cup = shop.product("Cup", "1.00", 0).await?;
    shop.checkout("few", &[(&cup, 1)], "approve")
        .await?
        .wants_problem(409, "insufficient-stock")?;
    let stocked = json!({"available": 1});
    let put = Call::new(
        http::Method::PUT,
        format!("/api/v1/products/{}/inventory", cup.id),
    );
    shop.send(put.token(&shop.token).json(&stocked))
        .await?
        .wants(200)?;
    shop.checkout("few", &[(&cup, 1)], "approve")
        .await?
        .wants(201)?;
    shop.checkout("ok", &[(&mug, 2)], "approve")
        .await?
        .wants_problem(422, "key-reused")?;
    let without_key = Call::post(CHECKOUTS).json(&checkout_body(&[(&mug, 1)], "approve"));
    let problem = shop
        .send(without_key)
        .await?
        .wants_problem(400, "invalid")?;
    assert!(
        problem
            .to_string()
            .to_lowercase()
            .contains("idempotency-key"),
        "{problem}"
    );

    let other = fleet.shop(1).await?;
    let cup = other.product("Cup", "3.00", 2).await?;
    assert!(!replayed(
        &other
            .checkout("ok", &[(&cup, 1)], "approve")
            .await?
            .wants(201)?
    ));
    Ok(())
}

/// A problem names the request it answers, which is another one each time.
fn without_request(answer: &Answer) -> Result<Value> {
    let mut body: Value = answer.json()?;
    if let Some(problem) = body.as_object_mut() {
        problem.remove("request");
    }
    Ok(body)
}

/// The same key from fifty connections at once: one order, one charge, and every buyer is told that order (or, past
/// the two seconds that a duplicate waits, to come back).
async fn inv3_a_key_raced_by_fifty_makes_one_order(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "3.00", 100).await?;
    let lines = [(&mug, 1)];
    let answers = join_all((0..50).map(|_| shop.checkout("raced", &lines, "approve"))).await;
    let mut ids = Vec::new();
    for answer in answers {
        let answer = answer?;
        if answer.status == 409 {
            assert!(answer.header("retry-after").is_some());
            answer.wants_problem(409, "in-flight")?;
        } else {
            ids.push(answer.wants(201)?.json::<Order>()?.id);
        }
    }
    ids.push(
        shop.checkout("raced", &lines, "approve")
            .await?
            .wants(201)?
            .json::<Order>()?
            .id,
    );
    assert!(ids.len() >= 2, "somebody got the order at once");
    ids.dedup();
    assert_eq!(ids.len(), 1, "one order for all");
    assert_eq!(shop.order_ids().await?, ids);
    assert_eq!(shop.available(&mug).await?, 99);
    assert_eq!(charges(fleet, &shop).await?, (1, 1), "one charge");
    Ok(())
}

/// How many keys the gateway of a shop in pod 1 knows, and how often it was asked to charge one.
async fn charges(fleet: &Fleet, shop: &Shop) -> Result<(i64, i64)> {
    let primary = fleet.primary(1).await?;
    let asked = format!(
        "select cast(coalesce(sum(charges), 0) as signed) from bogus_charge where shop_id = {}",
        shop.id
    );
    let keys = primary.rows("bogus_charge", shop.id).await?;
    Ok((keys, primary.number(&asked).await?))
}

/// Twenty buyers, five units: five orders, fifteen are told which line has too few, and nothing is left or below zero.
async fn inv3_twenty_buyers_of_five_units_make_five_orders(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(2).await?;
    let (mug, plenty) = (
        shop.product("Mug", "3.00", 5).await?,
        shop.product("Cup", "1.00", 50).await?,
    );
    let lines = [(&plenty, 1), (&mug, 1)];
    let keys: Vec<String> = (0..20).map(|n| format!("buyer-{n}")).collect();
    let answers = join_all(keys.iter().map(|key| shop.checkout(key, &lines, "approve"))).await;
    let mut sold = 0;
    for answer in answers {
        let answer = answer?;
        if answer.status == 201 {
            sold += 1;
        } else {
            let problem = answer.wants_problem(409, "insufficient-stock")?;
            assert_eq!(problem["field"], "lines[1].quantity", "{problem}");
        }
    }
    assert_eq!(sold, 5);
    assert_eq!(shop.order_ids().await?.len(), 5);
    assert_eq!(
        (shop.available(&mug).await?, shop.available(&plenty).await?),
        (0, 45)
    );
    Ok(())
}

/// A declined payment is 402, leaves a `payment_failed` order for the merchant, and all of the stock.
async fn a_declined_payment_gives_the_stock_back(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "3.00", 4).await?;
    shop.checkout("poor", &[(&mug, 3)], "decline")
        .await?
        .wants_problem(402, "payment-declined")?;
    assert_eq!(shop.available(&mug).await?, 4);
    let ids = shop.order_ids().await?;
    let order = shop
        .order(ids.first().context("the order is kept")?)
        .await?;
    assert_eq!(order.status, "payment_failed");
    shop.order_step(&order.id, "cancel")
        .await?
        .wants_problem(409, "order-state")?;
    assert_eq!(
        shop.available(&mug).await?,
        4,
        "not given back a second time"
    );
    Ok(())
}

/// A provider that does not answer in time: 504, and the order is settled without the buyer by what the provider says
/// in the end; the same key then gets that order, and the money moved once.
async fn a_payment_that_times_out_is_settled_later_and_charged_once(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "3.00", 4).await?;
    let first = shop.checkout("slow", &[(&mug, 1)], "timeout").await?;
    first.wants_problem(504, "timeout")?;
    let settled = wait_until(
        "the order is settled",
        Duration::from_secs(40),
        async || {
            let ids = shop.order_ids().await?;
            ensure!(ids.len() == 1, "orders: {ids:?}");
            let order = shop.order(&ids[0]).await?;
            ensure!(order.status != "pending", "the order is still pending");
            Ok(order)
        },
    )
    .await?;
    assert_eq!(
        (settled.status.as_str(), shop.available(&mug).await?),
        ("paid", 3)
    );
    let again = shop
        .checkout("slow", &[(&mug, 1)], "timeout")
        .await?
        .wants(201)?;
    assert_eq!(again.json::<Order>()?.id, settled.id);
    assert_eq!(charges(fleet, &shop).await?, (1, 1), "charged once");
    assert_eq!(shop.order_ids().await?.len(), 1);
    Ok(())
}
