//! No shop sees or changes another one: at every endpoint, in the cache, in events.

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;
use shared::home::HomeState;
use tests::shop::{Order, checkout_body};
use tests::suite::Test;
use tests::{Call, Fleet, Product, Server, Shop, tests};
use tokio::process::Command;

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        inv11_no_endpoint_shows_or_changes_another_shops_rows,
        inv11_the_cache_keeps_shops_and_epochs_apart,
        inv11_events_of_a_shop_carry_its_id_and_stay_in_its_pod,
    ]
}

/// Who may call an endpoint, as the pod's own table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Anyone,
    Merchant,
    /// The merchant, or the holder of the order's access token.
    Order,
}

/// An endpoint of the table, as `METHOD path who`.
#[derive(Debug, Clone)]
struct Endpoint {
    method: Method,
    path: String,
    who: Who,
}

/// The routes of the binary under test, printed from the table that its router is made of.
async fn endpoints() -> Result<Vec<Endpoint>> {
    let output = Command::new(tests::process::binary("pod")?)
        .arg("--print-routes")
        .output()
        .await;
    let output = output.context("run pod --print-routes")?;
    let text = String::from_utf8(output.stdout).context("routes are text")?;
    let mut endpoints = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(method), Some(path), Some(who)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let who = match who {
            "anyone" => Who::Anyone,
            "merchant" => Who::Merchant,
            "order" => Who::Order,
            other => anyhow::bail!("{line}: who is {other}?"),
        };
        let method = method.parse().with_context(|| line.to_owned())?;
        endpoints.push(Endpoint {
            method,
            path: path.to_owned(),
            who,
        });
    }
    ensure!(
        endpoints.len() >= 12,
        "the issue names more endpoints than:\n{text}"
    );
    Ok(endpoints)
}

/// What the victim has that another shop must not reach.
struct Victim {
    shop: Shop,
    product: Product,
    order: Order,
}

impl Victim {
    async fn of(fleet: &Fleet, pod: u32) -> Result<Self> {
        let shop = fleet.shop(pod).await?;
        let product = shop
            .product(&format!("Secret of {}", shop.handle), "77.77", 10)
            .await?;
        let order = shop.buy("victim", &[(&product, 1)]).await?;
        Ok(Self {
            shop,
            product,
            order,
        })
    }

    /// The call with the victim's ids in the path and in the body. A new endpoint whose parameter is not known here
    /// fails the test until it is.
    fn call(&self, endpoint: &Endpoint) -> Result<Call> {
        let Endpoint { method, path, .. } = endpoint;
        let thing = if path.contains("/orders/") {
            &self.order.id
        } else {
            &self.product.id
        };
        let filled = path
            .replace("{id}", thing)
            .replace("{product}", thing)
            .replace("{order}", thing);
        ensure!(
            !filled.contains('{'),
            "{path}: an unknown parameter; teach the test what it names"
        );
        let call = Call::new(method.clone(), filled).key(uuid::Uuid::now_v7());
        Ok(match (method.as_str(), path.as_str()) {
            ("GET", _) => call,
            (_, "/api/v1/checkouts") => call.json(&checkout_body(&[(&self.product, 1)], "approve")),
            (_, "/api/v1/products") => call.json(
                &json!({"title": "Intruder", "price": "1.00", "currency": "USD", "available": 1}),
            ),
            (_, path) if path.ends_with("/inventory") => call.json(&json!({"available": 1})),
            ("PATCH", _) => call.json(&json!({"title": "Intruder"})),
            (_, path) if path.starts_with("/api/") => call.json(&json!({})),
            _ => call.body(
                "application/x-www-form-urlencoded",
                format!(
                    "product_id={}&quantity=1&email=a%40example.com&outcome=approve&key=isolation",
                    thing
                ),
            ),
        })
    }

    /// Everything of the victim that could have been changed.
    async fn state(&self, primary: &Server) -> Result<String> {
        let id = self.shop.id;
        let mut state = Vec::new();
        for table in [
            "product",
            "inventory",
            "shop_order",
            "order_item",
            "payment",
            "shipment",
            "customer",
            "outbox",
        ] {
            state.push(format!("{table}: {}", primary.rows(table, id).await?));
        }
        let product = format!("select concat(title, price) from product where shop_id = {id}");
        let stock = format!("select available from inventory where shop_id = {id}");
        let orders = format!("select group_concat(status) from shop_order where shop_id = {id}");
        for sql in [product, stock, orders] {
            state.push(primary.text(&sql).await?);
        }
        Ok(state.join("; "))
    }
}

/// Every endpoint of the router's own table is called with a victim's ids: in another shop (of the same pod and of the
/// other one) with that shop's token, and in the victim's shop with the other's token and without any. No answer shows
/// the victim's data except what anyone may see in the victim's own shop, and nothing of the victim changes.
async fn inv11_no_endpoint_shows_or_changes_another_shops_rows(fleet: &Fleet) -> Result<()> {
    let victim = Victim::of(fleet, 1).await?;
    let primary = fleet.primary(1).await?;
    let before = victim.state(&primary).await?;
    let intruders = [fleet.shop(1).await?, fleet.shop(2).await?];
    for endpoint in endpoints().await? {
        let name = format!("{} {}", endpoint.method, endpoint.path);
        let call = victim.call(&endpoint)?;
        let by_id = endpoint.path.contains('{');
        for intruder in &intruders {
            // In the intruder's own shop with its own good token.
            let answer = intruder.send(call.clone().token(&intruder.token)).await?;
            let text = answer.text();
            ensure!(
                !text.contains("Secret of") && !text.contains("77.77"),
                "{name} shows: {text}"
            );
            if by_id {
                // 404, not 403: that the thing exists elsewhere is nobody's business.
                ensure!(
                    answer.status == 404,
                    "{name} in another shop: {} {text}",
                    answer.status
                );
            }
            // In the victim's shop with the intruder's token.
            if endpoint.who != Who::Anyone {
                let answer = victim
                    .shop
                    .send(call.clone().token(&intruder.token))
                    .await?;
                let status = answer.status;
                ensure!(
                    status == 401,
                    "{name} with another shop's token: {status} {}",
                    answer.text()
                );
            }
        }
        if endpoint.who != Who::Anyone {
            let answer = victim.shop.send(call.clone()).await?;
            ensure!(
                answer.status == 401,
                "{name} without a token: {}",
                answer.status
            );
        }
    }
    let after = victim.state(&primary).await?;
    // A checkout and a storefront form in the victim's own shop are anyone's right, but none was sent there.
    assert_eq!(after, before);
    Ok(())
}

/// Two shops ask for the same path and id right after each other, so that both find warm caches; a changed epoch finds
/// nothing old; every key in the pod's Redis begins with the shop and its epoch.
async fn inv11_the_cache_keeps_shops_and_epochs_apart(fleet: &Fleet) -> Result<()> {
    let (a, b) = (fleet.shop(1).await?, fleet.shop(1).await?);
    let mug = a.product("Of A", "1.00", 1).await?;
    b.product("Of B", "2.00", 2).await?;
    let path = format!("/api/v1/products/{}", mug.id);
    for _ in 0..6 {
        a.get(&path).await?.wants(200)?;
        b.get(&path).await?.wants_problem(404, "not-found")?;
        let lists = [
            a.get("/api/v1/products").await?.text(),
            b.get("/api/v1/products").await?.text(),
        ];
        ensure!(
            lists[0].contains("Of A") && !lists[0].contains("Of B"),
            "{}",
            lists[0]
        );
        ensure!(
            lists[1].contains("Of B") && !lists[1].contains("Of A"),
            "{}",
            lists[1]
        );
    }
    let status = fleet.status().await?;
    let mut redis = status.pod(1)?.redis.connect().await?;
    let keys: Vec<String> = redis::cmd("keys").arg("*").query_async(&mut redis).await?;
    let cached: Vec<&String> = keys.iter().filter(|k| k.contains(&mug.id)).collect();
    ensure!(
        !cached.is_empty(),
        "the product is not cached in Redis: {keys:?}"
    );
    for key in cached {
        // That a shop has no such product is cached too.
        let of_one = [&a, &b]
            .iter()
            .any(|shop| key.starts_with(&format!("1:{}:1:", shop.id)));
        ensure!(of_one, "{key} does not begin with pod, shop and epoch");
    }

    // The row changes behind the cache's back, as in a move to another pod and back: the next epoch sees it.
    let primary = fleet.primary(1).await?;
    primary
        .run(&format!(
            "update product set title = 'Changed' where shop_id = {}",
            a.id
        ))
        .await?;
    let next = a.epoch.next();
    primary
        .set_home(a.id, HomeState::Serving, next, None)
        .await?;
    let door = fleet.pod_door(a.pod).await?;
    let seen = tests::wait_until(
        "the next epoch sees the row",
        std::time::Duration::from_secs(3),
        async || {
            door.send(a.id, next, &Call::get(path.as_str()))
                .await?
                .wants(200)
        },
    )
    .await?;
    ensure!(
        seen.text().contains("Changed"),
        "an entry of the older epoch was served: {}",
        seen.text()
    );
    primary
        .set_home(a.id, HomeState::Serving, a.epoch, None)
        .await?;
    Ok(())
}

/// Events in the pod's stream carry the shop they belong to, and a shop's events are in its own pod's stream alone.
async fn inv11_events_of_a_shop_carry_its_id_and_stay_in_its_pod(fleet: &Fleet) -> Result<()> {
    let shops = [fleet.shop(1).await?, fleet.shop(2).await?];
    for shop in &shops {
        shop.product("Mug", "1.00", 1).await?;
    }
    for (shop, other) in [(&shops[0], &shops[1]), (&shops[1], &shops[0])] {
        let events = tests::outbox::events_of(fleet, shop, 1).await?;
        ensure!(events.iter().all(|e| e.shop == shop.id.get()), "{events:?}");
        let pod: u32 = other.pod.to_string().parse()?;
        let all = tests::outbox::all(fleet, pod).await?;
        ensure!(
            all.iter().all(|e| e.shop != shop.id.get()),
            "an event of {} in pod {pod}",
            shop.id
        );
    }
    Ok(())
}
