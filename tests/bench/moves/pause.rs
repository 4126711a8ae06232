//! The pause that writers see, and what neighbours feel: a shop with writers at a fixed rate moves back and forth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::{Call, Fleet, Product, Shop};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::{Record, move_shop};
use crate::Options;
use crate::report::{self, median, percentile, us};

/// Writes to different rows do not wait for each other.
const PRODUCTS: usize = 64;
/// Writes a second at the moving shop.
const RATE: u32 = 200;
/// Requests a second at each neighbour: enough for a p99.
const NEIGHBOUR_RATE: u32 = 50;
/// What a neighbour is measured for without any move.
const QUIET: Duration = Duration::from_secs(20);
/// Between two moves.
const REST: Duration = Duration::from_millis(500);

/// One write: when it was due, when it was answered, and whether the pod had too much to do for it, which has nothing to do
/// with moves. Any other answer ends the bench.
#[derive(Debug, Clone, Copy)]
struct Write {
    due: Instant,
    answered: Instant,
    overloaded: bool,
}

/// Writers at a fixed rate, whether answers come or not.
struct Writers {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<Vec<Write>>>,
}

impl Writers {
    fn start(shop: &Shop, products: &[Product], rate: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(writers(
            shop.clone(),
            Arc::from(products),
            rate,
            Arc::clone(&stop),
        ));
        Self { stop, task }
    }

    async fn end(self) -> Result<Vec<Write>> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.context("the writers")?
    }
}

async fn writers(
    shop: Shop,
    products: Arc<[Product]>,
    rate: u32,
    stop: Arc<AtomicBool>,
) -> Result<Vec<Write>> {
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut running, mut writes, mut turn) = (JoinSet::new(), Vec::new(), 0_usize);
    while !stop.load(Ordering::Relaxed) {
        let due = ticks.tick().await.into_std();
        let (shop, products) = (shop.clone(), Arc::clone(&products));
        running.spawn(async move {
            let product = &products[turn % products.len()];
            let call = Call::new(
                http::Method::PUT,
                format!("/api/v1/products/{}/inventory", product.id),
            );
            let body = json!({"available": 1000 + turn});
            let answer = shop.send(call.token(&shop.token).json(&body)).await?;
            let overloaded = answer.status == 503 && answer.text().contains("problem:overloaded");
            ensure!(
                answer.status == 200 || overloaded,
                "a write was answered with {}: {}",
                answer.status,
                answer.text()
            );
            Ok(Write {
                due,
                answered: Instant::now(),
                overloaded,
            })
        });
        turn += 1;
        while let Some(done) = running.try_join_next() {
            writes.push(done.context("a writer")??);
        }
    }
    while let Some(done) = running.join_next().await {
        writes.push(done.context("a writer")??);
    }
    Ok(writes)
}

fn done(writes: &[Write]) -> impl Iterator<Item = &Write> {
    writes.iter().filter(|write| !write.overloaded)
}

/// What writers saw: sorted latencies from the moment a write was due, and the longest time without any answer.
fn seen(writes: &[Write]) -> Vec<Duration> {
    let mut latencies: Vec<Duration> = done(writes).map(|w| w.answered - w.due).collect();
    latencies.sort_unstable();
    latencies
}

fn longest_gap(writes: &[Write]) -> Duration {
    let mut at: Vec<Instant> = done(writes).map(|w| w.answered).collect();
    at.sort_unstable();
    let gaps = at.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.max().unwrap_or_default()
}

pub(super) async fn run(options: &Options, fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let neighbours = [fleet.shop(1).await?, fleet.shop(2).await?];
    let stock = async |shop: &Shop| -> Result<Vec<Product>> {
        let mut products = Vec::new();
        for _ in 0..PRODUCTS {
            products.push(shop.product("Mug", "12.00", 1000).await?);
        }
        Ok(products)
    };
    let products = stock(&shop).await?;
    let mut theirs = Vec::new();
    for neighbour in &neighbours {
        theirs.push(stock(neighbour).await?);
    }
    let beside = || -> Vec<Writers> {
        let each = neighbours.iter().zip(&theirs);
        each.map(|(shop, products)| Writers::start(shop, products, NEIGHBOUR_RATE))
            .collect()
    };
    let quiet = beside();
    let calm = Writers::start(&shop, &products, RATE);
    tokio::time::sleep(QUIET).await;
    let before = all(quiet).await?;
    let calm = calm.end().await?;

    let noisy = beside();
    let (mut gaps, mut slowest, mut records) = (Vec::new(), Vec::new(), Vec::new());
    let (mut all_writes, mut overloaded) = (0, 0);
    for turn in 0..options.moves {
        let writers = Writers::start(&shop, &products, RATE);
        let to = if turn % 2 == 0 { 2 } else { 1 };
        let shown = move_shop(fleet, &shop.handle, to).await?;
        tokio::time::sleep(REST).await;
        let writes = writers.end().await?;
        all_writes += writes.len();
        overloaded += writes.len() - done(&writes).count();
        gaps.push(longest_gap(&writes));
        slowest.push(seen(&writes).last().copied().unwrap_or_default());
        records.push(shown.record);
        retired(fleet, &shop.handle).await?;
    }
    let during = all(noisy).await?;
    gaps.sort_unstable();
    slowest.sort_unstable();
    print(&calm, &gaps, &slowest, &records);
    let told = calm.len() - done(&calm).count();
    report::say(&format!(
        "writes refused because the pod was overloaded: {overloaded} of {all_writes} with moves, {told} of {} without",
        calm.len()
    ));
    neighbour(&before, &during);
    Ok(())
}

/// Waits for the end of a move, so that the next may begin.
async fn retired(fleet: &Fleet, handle: &str) -> Result<()> {
    tests::wait_until("the move ends", Duration::from_secs(60), async || {
        let shown: super::Shown = fleet.podctl.json(&["move", "show", handle]).await?;
        ensure!(shown.state == "done", "it is {}", shown.state);
        Ok(())
    })
    .await
}

async fn all(writers: Vec<Writers>) -> Result<Vec<Duration>> {
    let mut writes = Vec::new();
    for each in writers {
        writes.extend(each.end().await?);
    }
    Ok(seen(&writes))
}

fn ms(duration: Duration) -> String {
    format!("{:.0}", us(duration) / 1e3)
}

fn print(calm: &[Write], gaps: &[Duration], slowest: &[Duration], records: &[Record]) {
    let row = |name: &str, sorted: &[Duration]| {
        vec![
            name.to_owned(),
            ms(percentile(sorted, 0.5)),
            ms(percentile(sorted, 0.99)),
            ms(sorted.last().copied().unwrap_or_default()),
        ]
    };
    let recorded = |of: fn(&Record) -> Option<f64>| {
        let mut all: Vec<Duration> = records
            .iter()
            .filter_map(of)
            .map(|ms| Duration::from_secs_f64(ms.max(0.0) / 1e3))
            .collect();
        all.sort_unstable();
        all
    };
    let title = format!(
        "{} moves of a shop with {RATE} writes a second, in ms (no write failed for a move)",
        gaps.len()
    );
    let calm = seen(calm);
    report::table(
        &title,
        &["what", "p50", "p99", "max"],
        &[
            row(
                "fence to the owner's first write, as the move records it",
                &recorded(|r| r.fence_ms),
            ),
            row(
                "of it, waiting for the writes in flight",
                &recorded(|r| r.fence_ms),
            ),
            row("longest time without an answered write, of each move", gaps),
            row("slowest write of each move", slowest),
            row("a write without any move", &calm),
        ],
    );
    #[expect(clippy::cast_precision_loss, reason = "some hundred keys")]
    let tails: Vec<f64> = records
        .iter()
        .filter_map(|r| r.tail_keys)
        .map(|keys| keys as f64)
        .collect();
    report::say(&format!(
        "keys applied under the fence, median: {:.0}",
        median(&tails)
    ));
}

fn neighbour(before: &[Duration], during: &[Duration]) {
    let row = |name: &str, sorted: &[Duration]| {
        let (p50, p99) = (percentile(sorted, 0.5), percentile(sorted, 0.99));
        let of = percentile(before, 0.99);
        vec![
            name.to_owned(),
            ms(p50),
            ms(p99),
            format!("{:.2}", p99.as_secs_f64() / of.as_secs_f64().max(1e-9)),
        ]
    };
    report::table(
        "Writes of neighbours at both pods, in ms",
        &["when", "p50", "p99", "p99 ratio"],
        &[
            row("nothing moves", before),
            row("during the moves", during),
        ],
    );
}
