//! The pause that writers see, and what neighbours feel: a shop with writers at a fixed rate moves back and forth.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tests::{Call, Fleet, Product, Shop};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::{Record, move_shop, retire};
use crate::Options;
use crate::report::{self, median, percentile, us};

/// Writes to different rows do not wait for each other.
const PRODUCTS: usize = 64;
/// Writes a second that are tried, lowest first, until one is too much for the pods without any move. A half of the last
/// that was not is used: a pod at its limit is slow whatever moves.
const RATES: [u32; 9] = [10, 20, 30, 45, 70, 100, 150, 225, 400];
const OF_WHAT_IS_TAKEN: u32 = 2;
/// How long a rate is tried.
const TRIED_FOR: Duration = Duration::from_secs(6);
/// A rate is taken if no write is refused, and hardly one needs longer than this.
const TAKEN_WITHIN: Duration = Duration::from_millis(500);
/// Each neighbour has this part of the shop's writes.
const NEIGHBOUR_PART: u32 = 4;
/// What is measured without any move.
const QUIET: Duration = Duration::from_secs(30);
/// Between two moves.
const REST: Duration = Duration::from_millis(500);

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Done,
    /// The pod had too much to do for it, which has nothing to do with moves.
    Overloaded,
    /// Any other answer, or none (0).
    Failed(u16),
}

/// One write: when it was due, and when it was answered.
#[derive(Debug, Clone, Copy)]
struct Write {
    due: Instant,
    answered: Instant,
    how: How,
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
            let answer = shop.send(call.token(&shop.token).json(&body)).await;
            let how = match &answer {
                Ok(answer) if answer.status == 200 => How::Done,
                Ok(answer)
                    if answer.status == 503 && answer.text().contains("problem:overloaded") =>
                {
                    How::Overloaded
                }
                Ok(answer) => How::Failed(answer.status),
                Err(_) => How::Failed(0),
            };
            Write {
                due,
                answered: Instant::now(),
                how,
            }
        });
        turn += 1;
        while let Some(done) = running.try_join_next() {
            writes.push(done.context("a writer")?);
        }
    }
    while let Some(done) = running.join_next().await {
        writes.push(done.context("a writer")?);
    }
    Ok(writes)
}

/// How many failed, by answer, and how many the pod had too much to do for.
fn told(writes: &[Write]) -> String {
    let mut failed = BTreeMap::<u16, usize>::new();
    let mut overloaded = 0;
    for write in writes {
        match write.how {
            How::Done => {}
            How::Overloaded => overloaded += 1,
            How::Failed(status) => *failed.entry(status).or_default() += 1,
        }
    }
    let all: usize = failed.values().sum();
    let by = failed
        .iter()
        .map(|(status, count)| format!(" ({count} with {status})"));
    format!(
        "{} writes, {all} failed{}, {overloaded} refused because the pod was overloaded",
        writes.len(),
        by.collect::<String>()
    )
}

fn done(writes: &[Write]) -> impl Iterator<Item = &Write> {
    writes.iter().filter(|write| write.how == How::Done)
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

/// The shop that moves, and its neighbours at both pods.
struct Traders {
    shop: Shop,
    products: Vec<Product>,
    neighbours: Vec<(Shop, Vec<Product>)>,
}

impl Traders {
    async fn new(fleet: &Fleet) -> Result<Self> {
        let stock = async |shop: &Shop| -> Result<Vec<Product>> {
            let mut products = Vec::new();
            for _ in 0..PRODUCTS {
                products.push(shop.product("Mug", "12.00", 1000).await?);
            }
            Ok(products)
        };
        let shop = fleet.shop(1).await?;
        let products = stock(&shop).await?;
        let mut neighbours = Vec::new();
        for pod in [1, 2] {
            let shop = fleet.shop(pod).await?;
            let products = stock(&shop).await?;
            neighbours.push((shop, products));
        }
        Ok(Self {
            shop,
            products,
            neighbours,
        })
    }

    fn mover(&self, rate: u32) -> Writers {
        Writers::start(&self.shop, &self.products, rate)
    }

    fn beside(&self, rate: u32) -> Vec<Writers> {
        let rate = (rate / NEIGHBOUR_PART).max(1);
        let each = self.neighbours.iter();
        each.map(|(shop, products)| Writers::start(shop, products, rate))
            .collect()
    }

    /// What is written in so long, without any move: at the shop, at its neighbours.
    async fn calm(&self, rate: u32, time: Duration) -> Result<(Vec<Write>, Vec<Write>)> {
        let (beside, mover) = (self.beside(rate), self.mover(rate));
        tokio::time::sleep(time).await;
        Ok((mover.end().await?, all(beside).await?))
    }

    /// Half of the highest rate that both pods take.
    async fn rate(&self) -> Result<u32> {
        let mut taken = None;
        for rate in RATES {
            let (mine, theirs) = self.calm(rate, TRIED_FOR).await?;
            let refused: usize = [&mine, &theirs]
                .map(|writes| writes.len() - done(writes).count())
                .iter()
                .sum();
            let slow = percentile(&seen(&mine), 0.99).max(percentile(&seen(&theirs), 0.99));
            let enough = refused > 0 || slow > TAKEN_WITHIN;
            report::say(&format!(
                "{rate} writes a second at the shop, {} at each neighbour, no move: {refused} refused, p99 {} ms: {}",
                (rate / NEIGHBOUR_PART).max(1),
                ms(slow),
                if enough { "too many" } else { "taken" }
            ));
            if enough {
                break;
            }
            taken = Some(rate);
        }
        let taken = taken.context("the pods do not take the lowest rate without any move")?;
        Ok((taken / OF_WHAT_IS_TAKEN).max(1))
    }
}

/// What the moves did to the shop's writers.
#[derive(Debug, Default)]
struct Moves {
    gaps: Vec<Duration>,
    slowest: Vec<Duration>,
    records: Vec<Record>,
    writes: Vec<Write>,
}

pub(super) async fn run(options: &Options, fleet: &Fleet) -> Result<()> {
    let traders = Traders::new(fleet).await?;
    let rate = traders.rate().await?;
    let (calm, before) = traders.calm(rate, QUIET).await?;
    let noisy = traders.beside(rate);
    let mut moves = Moves::default();
    for turn in 0..options.moves {
        let writers = traders.mover(rate);
        let to = if turn % 2 == 0 { 2 } else { 1 };
        let shown = move_shop(fleet, &traders.shop.handle, to).await?;
        tokio::time::sleep(REST).await;
        let writes = writers.end().await?;
        moves.gaps.push(longest_gap(&writes));
        moves
            .slowest
            .push(seen(&writes).last().copied().unwrap_or_default());
        moves.records.push(shown.record);
        moves.writes.extend(writes);
        retire(fleet, &traders.shop.handle).await?;
    }
    let during = all(noisy).await?;
    moves.gaps.sort_unstable();
    moves.slowest.sort_unstable();
    print(rate, &calm, &moves);
    for (name, writes) in [
        ("without any move", [&calm, &before]),
        ("with moves", [&moves.writes, &during]),
    ] {
        let [mine, theirs] = writes.map(|writes| told(writes));
        report::say(&format!(
            "{name}: the shop: {mine}; its neighbours: {theirs}"
        ));
    }
    neighbour(&seen(&before), &seen(&during));
    Ok(())
}

async fn all(writers: Vec<Writers>) -> Result<Vec<Write>> {
    let mut writes = Vec::new();
    for each in writers {
        writes.extend(each.end().await?);
    }
    Ok(writes)
}

fn ms(duration: Duration) -> String {
    format!("{:.0}", us(duration) / 1e3)
}

fn print(rate: u32, calm: &[Write], moves: &Moves) {
    let records = &moves.records;
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
        "{} moves of a shop with {rate} writes a second, in ms",
        moves.gaps.len()
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
                &recorded(|r| r.drain_ms),
            ),
            row(
                "longest time without an answered write, of each move",
                &moves.gaps,
            ),
            row("slowest write of each move", &moves.slowest),
            row("any write during a move", &seen(&moves.writes)),
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
