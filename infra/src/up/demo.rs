//! Two demo shops with products, made as an operator and a merchant would: over the control server's and the edge's HTTP.
//! Cut off anywhere, it is made whole the next time.

use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::header::{AUTHORIZATION, HOST};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::greeting;
use crate::api::{ShopNew, TokenNew};
use crate::client::Control;
use crate::home_dir::write_durably;
use crate::observe::{self, World};
use crate::output::note;

/// A shop and what it sells: title, price in USD, pieces. Whoever lets a loop buy while a shop moves buys what there is most of.
struct Demo {
    handle: &'static str,
    products: [(&'static str, &'static str, u32); 3],
}

pub(super) const HANDLES: [&str; 2] = ["snow", "ember"];

const DEMOS: [Demo; 2] = [
    Demo {
        handle: HANDLES[0],
        products: [
            ("Woollen hat", "24.00", 100_000),
            ("Snow globe", "18.50", 25),
            ("Sledge", "89.00", 5),
        ],
    },
    Demo {
        handle: HANDLES[1],
        products: [
            ("Storm lantern", "39.00", 30),
            ("Box of matches", "1.20", 100_000),
            ("Fire bowl", "129.00", 4),
        ],
    },
];

/// An edge hears of a new shop within a second.
const ROUTED_WITHIN: Duration = Duration::from_secs(15);

/// A call waits at most for a replica's acknowledgement.
const CALL_WITHIN: Duration = Duration::from_secs(10);

const TRY_EVERY: Duration = Duration::from_millis(100);

/// Makes the shops, once: what people do with them later stays.
pub(super) async fn make(world: &World) -> anyhow::Result<()> {
    let done = world.home.demo_file();
    if done.exists() || world.fleet.edge.count == 0 || world.fleet.pods.is_empty() {
        return Ok(());
    }
    let control = observe::control(&world.home)?.context("the fleet has no control server")?;
    let edge = Merchant::new(world)?;
    for (index, demo) in DEMOS.iter().enumerate() {
        note(&format!(
            "making the demo shop {:?} with {} products",
            demo.handle,
            demo.products.len()
        ));
        let pod = &world.fleet.pods[index % world.fleet.pods.len()];
        let token = shop(&control, demo.handle, &pod.name).await?;
        edge.fill(demo, &token)
            .await
            .with_context(|| format!("fill the shop {:?}", demo.handle))?;
    }
    Ok(write_durably(&done, b"", 0o600)?)
}

/// The shop, and a token to fill it.
async fn shop(control: &Control, handle: &str, pod: &str) -> anyhow::Result<String> {
    match control.shop(handle).await {
        Ok(_) => {}
        Err(fault) if fault.is_not_found() => {
            let new = ShopNew {
                handle: handle.into(),
                currency: Some("USD".into()),
                pod: Some(pod.into()),
                ..ShopNew::default()
            };
            let created = control.shop_create(&new, Uuid::new_v4()).await;
            created.with_context(|| format!("create the shop {handle:?}"))?;
        }
        Err(fault) => return Err(fault.into()),
    }
    let made = control
        .token_make(
            handle,
            &TokenNew {
                label: Some("demo products".into()),
            },
        )
        .await?;
    let token = made.token;
    Ok(token)
}

/// A merchant in front of the edge.
struct Merchant {
    http: Client,
    edge: String,
    base_domain: String,
}

impl Merchant {
    fn new(world: &World) -> anyhow::Result<Self> {
        Ok(Self {
            http: Client::builder().no_proxy().timeout(CALL_WITHIN).build()?,
            edge: greeting::local_edge(world)?,
            base_domain: world.fleet.base_domain.to_string(),
        })
    }

    async fn fill(&self, demo: &Demo, token: &str) -> anyhow::Result<()> {
        for (index, (title, price, available)) in demo.products.iter().enumerate() {
            let product = json!({ "title": title, "price": price, "currency": "USD", "available": available });
            // The same key again is the same product.
            let key = format!("demo-{}-{index}", demo.handle);
            self.post(demo.handle, "/api/v1/products", token, &key, &product)
                .await?;
        }
        Ok(())
    }

    /// Tried again while the edge does not know the shop yet, or its pod is just becoming ready. The key makes that safe.
    async fn post(
        &self,
        handle: &str,
        path: &str,
        token: &str,
        key: &str,
        body: &Value,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let request = self
                .http
                .request(Method::POST, format!("{}{path}", self.edge))
                .header(HOST, format!("{handle}.{}", self.base_domain))
                .header(AUTHORIZATION, format!("Bearer {token}"))
                .header("idempotency-key", key)
                .json(body);
            let answer = request
                .send()
                .await
                .with_context(|| format!("ask the edge at {}", self.edge))?;
            let status = answer.status();
            if status.is_success() {
                return Ok(());
            }
            let passing =
                [StatusCode::NOT_FOUND, StatusCode::SERVICE_UNAVAILABLE].contains(&status);
            if !passing || began.elapsed() > ROUTED_WITHIN {
                bail!(
                    "{path} answers {status}: {}",
                    answer.text().await.unwrap_or_default().trim()
                );
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
    }
}
