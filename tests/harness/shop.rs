//! A shop under test: its products, checkouts and orders.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{Epoch, PodId, ShopId};

use crate::{Answer, Call, Edge};

/// A shop, seen from outside: everything goes through the edge.
#[derive(Debug, Clone)]
pub struct Shop {
    /// Its id.
    pub id: ShopId,
    /// Its handle.
    pub handle: String,
    /// Its first host.
    pub host: String,
    /// The pod that owned it when it was made.
    pub pod: PodId,
    /// Under which epoch.
    pub epoch: Epoch,
    /// A merchant token.
    pub token: String,
    /// The door.
    pub edge: Edge,
}

/// A product as the shop tells it.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its price, decimal.
    pub price: String,
    /// Of which currency.
    pub currency: String,
    /// Units in stock.
    pub available: i64,
}

/// An order as the shop tells it; more fields are welcome.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
pub struct Order {
    /// Its id.
    pub id: String,
    /// Its state.
    pub status: String,
    /// What it costs, decimal.
    pub total: String,
    /// Of which currency.
    pub currency: String,
    /// What was bought.
    pub lines: Vec<Line>,
    /// Opens this one order; only the checkout's answer has it.
    #[serde(default)]
    pub access_token: Option<String>,
}

/// A line of an order.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
pub struct Line {
    /// Which product.
    pub product_id: String,
    /// How many.
    pub quantity: i64,
}

/// The body of a checkout.
pub fn checkout_body(lines: &[(&Product, u32)], outcome: &str) -> Value {
    let lines: Vec<Value> = lines
        .iter()
        .map(|(product, quantity)| json!({"product_id": product.id, "quantity": quantity}))
        .collect();
    json!({
        "email": "buyer@example.com",
        "lines": lines,
        "payment": {"method": "bogus", "outcome": outcome},
    })
}

impl Shop {
    /// Any request to this shop.
    pub async fn send(&self, call: Call) -> Result<Answer> {
        self.edge.send(&self.host, &call).await
    }

    /// A GET as anyone.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(Call::get(path)).await
    }

    /// A GET with the merchant's token.
    pub async fn merchant_get(&self, path: &str) -> Result<Answer> {
        self.send(Call::get(path).token(&self.token)).await
    }

    /// A POST with the merchant's token.
    pub async fn merchant_post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(Call::post(path).token(&self.token).json(body))
            .await
    }

    /// A new product in US dollars.
    pub async fn product(&self, title: &str, price: &str, available: i64) -> Result<Product> {
        let body = json!({
            "title": title, "price": price, "currency": "USD", "available": available,
        });
        let answer = self.merchant_post("/api/v1/products", &body).await?;
        answer.wants(201).context("make a product")?.json()
    }

    /// The stock, read strongly.
    pub async fn available(&self, product: &Product) -> Result<i64> {
        let path = format!("/api/v1/products/{}/inventory", product.id);
        let answer: Value = self.look(&path).await?.wants(200)?.json()?;
        answer["available"]
            .as_i64()
            .with_context(|| format!("inventory {answer}"))
    }

    /// A checkout, whatever it answers. A key may be in words: its blanks are sent as dashes.
    pub async fn checkout(
        &self,
        key: &str,
        lines: &[(&Product, u32)],
        outcome: &str,
    ) -> Result<Answer> {
        let body = checkout_body(lines, outcome);
        let key = key.replace(' ', "-");
        self.send(Call::post("/api/v1/checkouts").key(key).json(&body))
            .await
    }

    /// A checkout that must become an order.
    pub async fn buy(&self, key: &str, lines: &[(&Product, u32)]) -> Result<Order> {
        self.checkout(key, lines, "approve")
            .await?
            .wants(201)
            .context("buy")?
            .json()
    }

    /// An order, read with the merchant's token.
    pub async fn order(&self, id: &str) -> Result<Order> {
        self.look(&format!("/api/v1/orders/{id}"))
            .await?
            .wants(200)?
            .json()
    }

    /// Ids of all orders, newest first.
    pub async fn order_ids(&self) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        let mut path = "/api/v1/orders?limit=100".to_owned();
        loop {
            let page: Value = self.look(&path).await?.wants(200)?.json()?;
            let orders = page["orders"]
                .as_array()
                .with_context(|| format!("page {page}"))?;
            ids.extend(
                orders
                    .iter()
                    .filter_map(|o| o["id"].as_str().map(str::to_owned)),
            );
            match page["next"].as_str() {
                Some(cursor) => path = format!("/api/v1/orders?limit=100&cursor={cursor}"),
                None => return Ok(ids),
            }
        }
    }

    /// A merchant's look that is tried again after a 503, as a careful client does: after an outage one process of a pod
    /// finds its primary some hundred milliseconds later than the other.
    pub async fn look(&self, path: &str) -> Result<Answer> {
        let until = std::time::Instant::now() + crate::fleet::RECOVER_MAX;
        loop {
            let answer = self.merchant_get(path).await?;
            if answer.status != 503 || std::time::Instant::now() > until {
                return Ok(answer);
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    /// `fulfil`, `cancel` or `refund`.
    pub async fn order_step(&self, id: &str, step: &str) -> Result<Answer> {
        self.merchant_post(&format!("/api/v1/orders/{id}/{step}"), &json!({}))
            .await
    }
}
