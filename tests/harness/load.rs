//! Many buyers at once, for the tests that break something meanwhile.
//!
//! Each buyer takes one key after the other and sends its checkout until the answer is final: a connection that
//! breaks, 409 `in-flight`, 502, 503 and 504 are tried again with the same key, as a careful client does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{Product, Shop};

/// A buyer's pause after an answer that is not final.
const PAUSE: Duration = Duration::from_millis(60);

/// What the buyers saw.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// Order by key: what was acknowledged.
    pub orders: BTreeMap<String, String>,
    /// How often each other answer came (0: no answer).
    pub others: BTreeMap<u16, u32>,
    /// The longest time of one attempt.
    pub slowest: Duration,
    /// Answers that no buyer should see.
    pub wrong: Vec<String>,
    /// Keys given up without a final answer: each may or may not have become an order.
    pub given_up: usize,
    /// Keys whose payment nobody could ask for in time, since something was down: the order is there and holds no units.
    pub declined: usize,
}

impl Seen {
    /// Attempts that did not end in an order.
    pub fn failures(&self) -> u32 {
        self.others.values().sum()
    }

    /// Notes an answer; true if it is final.
    fn note(&mut self, key: &str, answer: Result<crate::Answer>, took: Duration) -> bool {
        self.slowest = self.slowest.max(took);
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) => {
                *self.others.entry(0).or_default() += 1;
                return false;
            }
        };
        match answer.status {
            201 => match answer.json::<crate::shop::Order>() {
                Ok(order) => drop(self.orders.insert(key.to_owned(), order.id)),
                Err(e) => self.wrong.push(format!("{key}: {e:#}")),
            },
            409 if answer.text().contains("in-flight") => {
                *self.others.entry(409).or_default() += 1;
                return false;
            }
            402 => {
                *self.others.entry(402).or_default() += 1;
                self.declined += 1;
            }
            502..=504 => {
                *self.others.entry(answer.status).or_default() += 1;
                return false;
            }
            status => self
                .wrong
                .push(format!("{key}: {status} {}", answer.text())),
        }
        true
    }
}

/// Buyers that buy one unit again and again.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    buyers: JoinSet<()>,
}

impl Load {
    /// Starts them.
    pub fn start(shop: &Shop, product: &Product, buyers: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut set = JoinSet::new();
        for buyer in 0..buyers {
            let (shop, product) = (shop.clone(), product.clone());
            let (stop, seen) = (Arc::clone(&stop), Arc::clone(&seen));
            set.spawn(async move {
                for turn in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = format!("load-{}-{buyer}-{turn}", product.id);
                    one_order(&shop, &product, &key, &seen, &stop).await;
                }
            });
        }
        Self {
            stop,
            seen,
            buyers: set,
        }
    }

    /// What they saw so far.
    pub fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    /// Waits for `more` orders more than there are now.
    pub async fn sells(&self, more: usize, deadline: Duration) -> Result<()> {
        let before = self.seen().orders.len();
        crate::wait_until(&format!("{more} more orders"), deadline, async || {
            let seen = self.seen();
            let now = seen.orders.len();
            ensure!(
                now >= before + more,
                "{} of {more}, others {:?}",
                now - before,
                seen.others
            );
            Ok(())
        })
        .await
    }

    /// Lets each buyer end the order it is at, and says what all saw.
    pub async fn stop(mut self) -> Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(buyer) = self.buyers.join_next().await {
            buyer.context("a buyer")?;
        }
        let seen = self.seen();
        ensure!(
            seen.wrong.is_empty(),
            "answers that no buyer should see: {:#?}",
            seen.wrong
        );
        Ok(seen)
    }
}

/// How long a buyer stays at one key after the load was told to stop: an outage that the test ends takes less.
const FINISH_MAX: Duration = Duration::from_secs(20);

async fn one_order(
    shop: &Shop,
    product: &Product,
    key: &str,
    all: &Mutex<Seen>,
    stop: &AtomicBool,
) {
    let mut stopped: Option<Instant> = None;
    loop {
        let started = Instant::now();
        let answer = shop.checkout(key, &[(product, 1)], "approve").await;
        if all.lock().note(key, answer, started.elapsed()) {
            return;
        }
        if stop.load(Ordering::Relaxed) {
            let since = *stopped.get_or_insert_with(Instant::now);
            if since.elapsed() > FINISH_MAX {
                all.lock().given_up += 1;
                return;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Nothing acknowledged is missing, nothing is there twice, and the stock agrees with the orders.
pub async fn reconcile(shop: &Shop, product: &Product, seen: &Seen) -> Result<()> {
    let stored = shop.order_ids().await?;
    let mut once = stored.clone();
    once.sort_unstable();
    once.dedup();
    ensure!(once.len() == stored.len(), "an order is listed twice");
    for (key, id) in &seen.orders {
        ensure!(
            once.binary_search(id).is_ok(),
            "order {id} of key {key} was acknowledged and is gone"
        );
    }
    let mut ids: Vec<&String> = seen.orders.values().collect();
    ids.sort_unstable();
    ids.dedup();
    ensure!(ids.len() == seen.orders.len(), "two keys got one order");
    let sold = product.available - shop.available(product).await?;
    let holding = stored.len().saturating_sub(seen.declined);
    let orders = i64::try_from(holding).context("count the orders")?;
    ensure!(
        sold == orders,
        "{sold} units gone, {orders} orders of one unit each stored"
    );
    let unknown = holding.saturating_sub(seen.orders.len());
    ensure!(
        unknown <= seen.given_up,
        "{unknown} orders that no buyer knows of"
    );
    Ok(())
}
