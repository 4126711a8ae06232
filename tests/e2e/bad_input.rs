//! What bad input of buyers and merchants gets: a clear sentence with the field named, nothing half done.

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use shared::wire::LETS_IN;
use tests::shop::checkout_body;
use tests::suite::Test;
use tests::{Call, Fleet, Product, Shop, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        an_unknown_path_or_method_is_told_so,
        inv9_a_body_has_a_limit_and_a_form,
        a_checkout_names_the_field_at_fault,
        a_product_names_the_field_at_fault,
    ]
}

const CHECKOUTS: &str = "/api/v1/checkouts";
const PRODUCTS: &str = "/api/v1/products";

/// 404 for a path, 405 with `Allow` for a method, as a problem or a page; with a body that nobody reads, too. What edges ask of
/// pods is no path for clients.
async fn an_unknown_path_or_method_is_told_so(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    for path in [
        "/nothing",
        "/api/v1/nothing",
        "/api/v2/products",
        "/products/",
        "/api/v1/products/x/y/z",
        "/%00",
        "/..%2f..",
        "/-/healthz",
        LETS_IN,
    ] {
        let call = Call::get(path);
        shop.send(call.clone())
            .await?
            .wants_problem(404, "not-found")
            .with_context(|| path)?;
        shop.send(call.browser())
            .await?
            .wants(404)
            .with_context(|| path)?;
    }
    let asks = shop.send(Call::post(LETS_IN)).await?;
    asks.wants_problem(404, "not-found").context("a question")?;
    for (method, path) in [
        ("DELETE", PRODUCTS),
        ("PUT", CHECKOUTS),
        ("POST", "/api/v1/orders"),
        ("PATCH", "/"),
    ] {
        let call = Call::new(method.parse::<Method>()?, path).json(&json!({}));
        let answer = shop.send(call).await?;
        ensure!(
            answer.header("allow").is_some(),
            "{method} {path}: no Allow"
        );
        answer
            .wants_problem(405, "method-not-allowed")
            .with_context(|| format!("{method} {path}"))?;
    }
    // An id that is none is a thing that is not there.
    shop.get("/api/v1/products/not-a-uuid")
        .await?
        .wants_problem(404, "not-found")?;
    Ok(())
}

/// Too large is 413, with and without a stated length; another type is 415; broken JSON, another shape and unknown
/// fields are 400. Nothing is made by any of them.
async fn inv9_a_body_has_a_limit_and_a_form(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let send = |call: Call| shop.send(call.token(&shop.token).key("form"));
    let large = vec![b'a'; 20 << 20];
    let post = Call::post(PRODUCTS).body("application/json", large);
    // Whoever says no before the body's end reads on: a reset would take the answer away.
    for _ in 0..5 {
        send(post.clone()).await?.wants_problem(413, "too-large")?;
        shop.send(post.clone().token("nobody's"))
            .await?
            .wants_problem(401, "unauthorized")?;
    }
    fleet
        .edge
        .send("nobody.test", &post)
        .await?
        .wants_problem(404, "unknown-shop")?;
    let chunks = "10000\r\n".to_owned() + &"a".repeat(0x10000) + "\r\n";
    let head = format!(
        "POST {PRODUCTS} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        shop.host, shop.token
    );
    let chunked = head + &chunks.repeat(320) + "0\r\n\r\n";
    let answer = fleet.edge.raw(chunked.as_bytes()).await?;
    ensure!(answer.starts_with("HTTP/1.1 413"), "{answer}");

    let product =
        json!({"title": "Mug", "price": "1.00", "currency": "USD", "available": 1}).to_string();
    for kind in [
        "text/plain",
        "application/xml",
        "application/x-www-form-urlencoded",
    ] {
        let call = Call::post(PRODUCTS).body(kind, product.clone());
        send(call)
            .await?
            .wants_problem(415, "media-type")
            .with_context(|| kind)?;
    }
    for body in [
        "",
        "{",
        "[]",
        "null",
        "\"x\"",
        "{\"title\":}",
        "\u{0}",
        "{\"title\": \"\\ud800\"}",
    ] {
        let call = Call::post(PRODUCTS).body("application/json", body);
        send(call)
            .await?
            .wants_problem(400, "invalid")
            .with_context(|| format!("{body:?}"))?;
    }
    let deep = "[".repeat(50_000);
    send(Call::post(PRODUCTS).body("application/json", deep))
        .await?
        .wants_problem(400, "invalid")?;
    let list: Value = shop.get(PRODUCTS).await?.wants(200)?.json()?;
    assert_eq!(
        list["products"].as_array().map(Vec::len),
        Some(0),
        "something was made: {list}"
    );
    Ok(())
}

/// The good checkout with one thing changed.
fn with(good: &Value, pointer: &str, value: Value) -> Result<Value> {
    let mut body = good.clone();
    let (parent, name) = pointer.rsplit_once('/').context("a pointer")?;
    let parent = body
        .pointer_mut(parent)
        .context("a pointer into the body")?;
    match (parent, value) {
        (Value::Object(object), Value::Null) => drop(object.remove(name)),
        (Value::Object(object), value) => drop(object.insert(name.to_owned(), value)),
        (other, value) => *other = value,
    }
    Ok(body)
}

async fn refuses(shop: &Shop, body: &Value, field: &str) -> Result<()> {
    let call = Call::post(CHECKOUTS).key(uuid::Uuid::now_v7()).json(body);
    let problem = shop
        .send(call)
        .await?
        .wants_problem(400, "invalid")
        .with_context(|| body.to_string())?;
    let named = problem["field"].as_str().unwrap_or_default();
    ensure!(
        named == field,
        "{body}: field {named:?}, not {field:?}: {problem}"
    );
    ensure!(
        problem["detail"].is_string(),
        "{body}: no sentence: {problem}"
    );
    Ok(())
}

/// Wrong types, unknown fields, no lines, too many, negative and huge quantities, another shop's product, strange
/// addresses: each named, none sold.
async fn a_checkout_names_the_field_at_fault(fleet: &Fleet) -> Result<()> {
    let (shop, other) = (fleet.shop(1).await?, fleet.shop(1).await?);
    let mug: Product = shop.product("Mug", "1.00", 10).await?;
    let foreign = other.product("Foreign", "1.00", 10).await?;
    let good = checkout_body(&[(&mug, 1)], "approve");
    for (pointer, value, field) in [
        ("/email", json!(null), "email"),
        ("/email", json!(7), "email"),
        ("/email", json!("no address"), "email"),
        (
            "/email",
            json!(format!("{}@example.com", "a".repeat(300))),
            "email",
        ),
        ("/lines", json!(null), "lines"),
        ("/lines", json!([]), "lines"),
        ("/lines", json!("x"), "lines"),
        (
            "/lines",
            json!(vec![good["lines"][0].clone(); 1_000]),
            "lines",
        ),
        ("/lines/0/quantity", json!(0), "lines[0].quantity"),
        ("/lines/0/quantity", json!(-1), "lines[0].quantity"),
        ("/lines/0/quantity", json!(1.5), "lines[0].quantity"),
        ("/lines/0/quantity", json!("1"), "lines[0].quantity"),
        (
            "/lines/0/quantity",
            json!(1_000_000_000_000_i64),
            "lines[0].quantity",
        ),
        ("/lines/0/quantity", json!(null), "lines[0].quantity"),
        ("/lines/0/product_id", json!("x"), "lines[0].product_id"),
        ("/lines/0/product_id", json!(null), "lines[0].product_id"),
        ("/payment/method", json!("gold"), "payment.method"),
        ("/payment/outcome", json!("perhaps"), "payment.outcome"),
        ("/payment", json!(null), "payment"),
        ("/coupon", json!("X"), "coupon"),
        ("/lines/0/price", json!("0.01"), "lines[0].price"),
    ] {
        refuses(&shop, &with(&good, pointer, value)?, field).await?;
    }
    // A product of another shop, and one that never was: 404 alike.
    for id in [foreign.id.clone(), uuid::Uuid::now_v7().to_string()] {
        let body = with(&good, "/lines/0/product_id", json!(id))?;
        let answer = shop
            .send(Call::post(CHECKOUTS).key(&id).json(&body))
            .await?;
        let problem = answer.wants_problem(404, "not-found")?;
        assert_eq!(problem["field"], "lines[0].product_id", "{problem}");
    }
    for key in ["", " ", &"k".repeat(300), "a\tb"] {
        let answer = shop
            .send(Call::post(CHECKOUTS).key(key).json(&good))
            .await?;
        ensure!(
            answer.status == 400,
            "key {key:?}: {} {}",
            answer.status,
            answer.text()
        );
    }
    let left = (
        shop.available(&mug).await?,
        other.available(&foreign).await?,
    );
    assert_eq!(left, (10, 10));
    assert!(shop.order_ids().await?.is_empty());
    Ok(())
}

/// A currency that is not the shop's, prices that are none, titles without or with too much text, stock below zero or
/// beyond counting; in making and in changing a product.
async fn a_product_names_the_field_at_fault(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(2).await?;
    let mug = shop.product("Mug", "1.00", 10).await?;
    let good = json!({"title": "Mug", "price": "1.00", "currency": "USD", "available": 1});
    for (name, value) in [
        ("currency", json!("EUR")),
        ("currency", json!("dollars")),
        ("price", json!("-1.00")),
        ("price", json!("1.001")),
        ("price", json!(1.5)),
        ("price", json!("NaN")),
        ("price", json!("99999999999999999999999")),
        ("title", json!("")),
        ("title", json!("   ")),
        ("title", json!("x".repeat(5_000))),
        ("available", json!(-1)),
        ("available", json!(1.5)),
        ("available", json!(i64::MAX)),
        ("shop_id", json!(1)),
    ] {
        let body = with(&good, &format!("/{name}"), value.clone())?;
        let made = shop.merchant_post(PRODUCTS, &body).await?;
        let problem = made
            .wants_problem(400, "invalid")
            .with_context(|| format!("{name} = {value}"))?;
        assert_eq!(problem["field"], name, "{value}: {problem}");
        let patch = Call::new(Method::PATCH, format!("{PRODUCTS}/{}", mug.id)).token(&shop.token);
        let changed = shop.send(patch.json(&json!({ name: value }))).await?;
        let problem = changed
            .wants_problem(400, "invalid")
            .with_context(|| format!("PATCH {name}"))?;
        assert_eq!(problem["field"], name, "PATCH {value}: {problem}");
    }
    let put = Call::new(Method::PUT, format!("{PRODUCTS}/{}/inventory", mug.id)).token(&shop.token);
    for value in [json!(-1), json!("1"), json!(null)] {
        let answer = shop
            .send(put.clone().json(&json!({"available": value})))
            .await?;
        assert_eq!(answer.wants_problem(400, "invalid")?["field"], "available");
    }
    let unchanged: Product = shop
        .get(&format!("{PRODUCTS}/{}", mug.id))
        .await?
        .wants(200)?
        .json()?;
    assert_eq!(unchanged, mug);
    for bad in [
        "limit=0",
        "limit=101",
        "limit=-1",
        "limit=x",
        "cursor=x",
        "offset=1",
    ] {
        let answer = shop.get(&format!("{PRODUCTS}?{bad}")).await?;
        answer.wants_problem(400, "invalid").with_context(|| bad)?;
    }
    Ok(())
}
