//! Part 2: a pod. Checkouts beside the same statements on bare connections, with the fence and without; warm product
//! reads beside a bare hyper handler.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use rand::RngExt;
use shared::keys::PodKeys;
use shared::wire::Route;
use sqlx::Executor;
use tests::shop::checkout_body;
use tests::{Fleet, Product, Server, Shop, status};
use uuid::Uuid;

use crate::bare;
use crate::generator::{Pace, Requests, load};
use crate::raw::Raw;
use crate::report::{self, median, percentile, us};
use crate::{Options, process, same};

/// As many as one shop may hold of a pod's 16 connections for writes (its share is half), so that both sides have the same.
const BUYERS: usize = 8;
/// Checkouts of different products do not wait for each other's stock.
const PRODUCTS: usize = 64;
const STOCK: i64 = 1_000_000;

/// What the pod is asked with.
struct Under {
    fleet: Fleet,
    shop: Shop,
    products: Vec<Product>,
    server: Server,
    keys: PodKeys,
    at: std::net::SocketAddr,
    pid: u32,
}

/// Brings up a fleet, measures, stops it.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let fleet = Fleet::start().await?;
    let shop = fleet.shop(1).await?;
    let mut products = Vec::new();
    for _ in 0..PRODUCTS {
        products.push(shop.product("Mug", "12.00", STOCK).await?);
    }
    let status = fleet.status().await?;
    let process = status
        .pod(1)?
        .processes
        .first()
        .context("the pod has no process")?;
    let under = Under {
        server: fleet.primary(1).await?,
        keys: fleet.pod_keys(shop.pod)?,
        at: status::address(&process.http)?,
        pid: process.pid.context("the pod's process has no pid")?,
        fleet,
        shop,
        products,
    };
    checkouts(options, &under).await?;
    reads(options, &under).await?;
    under.fleet.stop().await
}

impl Under {
    /// Requests with a fresh signature each, as the edge sends them.
    fn signed(
        &self,
        method: &'static str,
        make: impl Fn() -> (String, String) + Send + Sync + 'static,
    ) -> Requests {
        let (keys, shop, pod, epoch) = (
            self.keys.clone(),
            self.shop.id,
            self.shop.pod,
            self.shop.epoch,
        );
        Arc::new(move || {
            let (path, body) = make();
            let route = Route {
                shop,
                pod,
                epoch,
                request: Uuid::now_v7(),
            };
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let now = u64::try_from(now.as_millis()).unwrap_or_default();
            let mut text = format!("{method} {path} HTTP/1.1\r\nhost: bench.example\r\n");
            for (name, value) in route.headers(&keys, now, method, &path) {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            if method == "POST" {
                let key = Uuid::now_v7();
                text.push_str(&format!(
                    "idempotency-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
                    body.len()
                ));
            }
            text.push_str("\r\n");
            text.push_str(&body);
            text.into_bytes()
        })
    }

    fn checkouts(&self) -> Requests {
        let products = self.products.clone();
        self.signed("POST", move || {
            let mut rng = rand::rng();
            let product = &products[rng.random_range(0..products.len())];
            let mut body = checkout_body(&[(product, 1)], "approve");
            body["email"] = format!("buyer-{}@example.com", rng.random_range(0..BUYERS)).into();
            ("/api/v1/checkouts".into(), body.to_string())
        })
    }

    fn reads(&self) -> Requests {
        let products = self.products.clone();
        self.signed("GET", move || {
            let product = &products[rand::rng().random_range(0..products.len())];
            (format!("/api/v1/products/{}", product.id), String::new())
        })
    }
}

/// Rates and latencies of one candidate over the rounds.
#[derive(Debug, Default)]
struct Rounds {
    rate: Vec<f64>,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
    cpu_us: Vec<f64>,
}

impl Rounds {
    fn take(&mut self, latencies: &[Duration], rate: f64) {
        self.rate.push(rate);
        self.p50_ms.push(us(percentile(latencies, 0.5)) / 1e3);
        self.p99_ms.push(us(percentile(latencies, 0.99)) / 1e3);
    }

    fn row(&self, name: &str, of: f64) -> Vec<String> {
        let rate = median(&self.rate);
        vec![
            name.to_owned(),
            format!("{rate:.0}"),
            format!("{:.2}", rate / of),
            format!("{:.1}", median(&self.p50_ms)),
            format!("{:.1}", median(&self.p99_ms)),
        ]
    }
}

async fn checkouts(options: &Options, under: &Under) -> Result<()> {
    let fenced = Raw::of(&under.shop, &under.products, true);
    let bare = Raw::of(&under.shop, &under.products, false);
    // Every buyer is known before anything is counted or compared.
    raw_load(under, &fenced, Duration::from_millis(500)).await?;
    let one = async || {
        under
            .shop
            .buy(&Uuid::now_v7().to_string(), &[(&under.products[0], 1)])
            .await
            .map(|_| ())
    };
    one().await?;
    let by_hand = async || fenced.checkout(&mut under.server.connect().await?, 0).await;
    if let Some(note) = same::differs(&under.server, &under.shop, one, by_hand).await? {
        report::say(&note);
    }
    let (mut pod, mut with, mut without) =
        (Rounds::default(), Rounds::default(), Rounds::default());
    for _ in 0..options.rounds {
        let seen = load(
            under.at,
            BUYERS,
            options.each,
            Pace::Closed,
            under.checkouts(),
        )
        .await?;
        pod.take(&seen.latencies, seen.per_second());
        for (raw, rounds) in [(&fenced, &mut with), (&bare, &mut without)] {
            let (latencies, rate) = raw_load(under, raw, options.each).await?;
            rounds.take(&latencies, rate);
        }
    }
    let of = median(&with.rate);
    let title = format!(
        "Checkouts, {BUYERS} at once, median of {} rounds",
        options.rounds
    );
    let head = ["way", "a second", "ratio", "p50 ms", "p99 ms"];
    let rows = [
        with.row("the same statements on bare connections", of),
        without.row("the same without the fence", of),
        pod.row("through the pod", of),
    ];
    report::table(&title, &head, &rows);
    Ok(())
}

/// Raw checkouts on as many connections as there are buyers.
async fn raw_load(under: &Under, raw: &Raw, lasts: Duration) -> Result<(Vec<Duration>, f64)> {
    let begun = Instant::now();
    let buyer = async |number: usize| -> Result<Vec<Duration>> {
        let mut connection = under.server.connect().await?;
        // As the pod's connections are.
        connection
            .execute("set session transaction isolation level read committed")
            .await?;
        let mut latencies = Vec::new();
        while begun.elapsed() < lasts {
            let since = Instant::now();
            raw.checkout(&mut connection, number).await?;
            latencies.push(since.elapsed());
        }
        Ok(latencies)
    };
    let mut latencies: Vec<Duration> = try_join_all((0..BUYERS).map(buyer)).await?.concat();
    latencies.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "a count of some seconds")]
    let rate = latencies.len() as f64 / begun.elapsed().as_secs_f64();
    Ok((latencies, rate))
}

async fn reads(options: &Options, under: &Under) -> Result<()> {
    let body = under
        .shop
        .get(&format!("/api/v1/products/{}", under.products[0].id))
        .await?;
    let body = body.wants(200)?.text();
    let handler = bare::start(&body)?;
    let (mut pod, mut bare) = (Rounds::default(), Rounds::default());
    let warm = Duration::from_millis(500);
    for _ in 0..options.rounds {
        for (at, pid, rounds) in [
            (under.at, under.pid, &mut pod),
            (handler.at, handler.process.pid(), &mut bare),
        ] {
            load(at, options.connections, warm, Pace::Closed, under.reads()).await?;
            let before = process::cpu(pid);
            let seen = load(
                at,
                options.connections,
                options.each,
                Pace::Closed,
                under.reads(),
            )
            .await?;
            let spent = process::cpu(pid) - before;
            #[expect(clippy::cast_precision_loss, reason = "a count of some seconds")]
            rounds.cpu_us.push(us(spent) / seen.answers as f64);
            rounds.take(&seen.latencies, seen.per_second());
        }
    }
    let of = median(&bare.rate);
    let row = |name: &str, rounds: &Rounds| {
        let mut row = rounds.row(name, of);
        row.push(format!("{:.1}", median(&rounds.cpu_us)));
        row
    };
    let title = format!(
        "Warm product reads, {} connections, median of {} rounds",
        options.connections, options.rounds
    );
    let head = [
        "way",
        "a second",
        "ratio",
        "p50 ms",
        "p99 ms",
        "CPU us a request",
    ];
    report::table(
        &title,
        &head,
        &[
            row("a bare hyper handler", &bare),
            row("through the pod", &pod),
        ],
    );
    Ok(())
}
