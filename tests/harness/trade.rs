//! The trade of one shop, for tests that move it meanwhile: buyers with idempotency keys, a merchant who sends and pays
//! back, a clerk who counts one product's stock up, and readers of everything. What they ask and are told becomes a
//! [`History`].
//!
//! A client that gets no final answer asks again with the same key, as a careful client does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::history::{Account, End, History, Stored, Told};
use crate::shop::Order;
use crate::{Product, Shop, wait_until};

// What each kind of client does, again and again.
mod clients;
use clients::Client;

/// More than is ever sold.
const STOCK: i64 = 1_000_000;

/// How long a client stays at one request after the trade was told to stop: longer than any outage that a test ends.
const FINISH_MAX: Duration = Duration::from_secs(40);

/// How many of each kind trade.
#[derive(Debug, Clone, Copy)]
pub struct Crew {
    /// Buyers; each sends, pays back, reads and lists what it bought.
    pub buyers: usize,
    /// Whether a clerk counts.
    pub clerk: bool,
    /// Readers of the clerk's stock, which change nothing.
    pub readers: usize,
    /// The pause after each answer.
    pub pause: Duration,
}

/// Two buyers, a clerk and a reader: a hundred requests a second, of which a debug build on two cores answers three shops'
/// and moves one beside them.
pub const CREW: Crew = Crew {
    buyers: 2,
    clerk: true,
    readers: 1,
    pause: Duration::from_millis(30),
};

/// What the clients of a shop share.
#[derive(Debug)]
struct Stall {
    shop: Shop,
    sold: Product,
    counted: Product,
    pause: Duration,
    stop: AtomicBool,
    history: History,
}

/// A shop that trades. Dropping it stops the clients.
#[derive(Debug)]
pub struct Trade {
    stall: Arc<Stall>,
    clients: JoinSet<()>,
}

impl Trade {
    /// Makes the products and starts the clients.
    pub async fn start(shop: &Shop, crew: Crew) -> Result<Self> {
        let stall = Arc::new(Stall {
            shop: shop.clone(),
            sold: shop.product("Sold", "3.00", STOCK).await?,
            counted: shop.product("Counted", "1.00", 0).await?,
            pause: crew.pause,
            stop: AtomicBool::new(false),
            history: History::default(),
        });
        let mut clients = JoinSet::new();
        let mut number = 0;
        let mut client = || {
            number += 1;
            Client::new(Arc::clone(&stall), number)
        };
        if crew.clerk {
            clients.spawn(client().count());
        }
        for _ in 0..crew.buyers {
            clients.spawn(client().buy());
        }
        for _ in 0..crew.readers {
            clients.spawn(client().read());
        }
        Ok(Self { stall, clients })
    }

    /// Waits for so many acts more.
    pub async fn goes_on(&self, more: usize, deadline: Duration) -> Result<()> {
        let history = &self.stall.history;
        let before = history.acts();
        let what = format!("{} does {more} things more", self.stall.shop.handle);
        wait_until(&what, deadline, async || {
            let done = history.acts() - before;
            ensure!(
                done >= more,
                "{done} of {more}; {}",
                history.account().figures()
            );
            Ok(())
        })
        .await
    }

    /// Acknowledged orders so far.
    pub fn bought(&self) -> usize {
        self.stall.history.bought()
    }

    /// How often a client was told this so far.
    pub fn told(&self, what: Told) -> u32 {
        let account = self.stall.history.account();
        account.told.get(&what).copied().unwrap_or_default()
    }

    /// Lets each client end what it is at; what all of them saw, and the shop in the end.
    pub async fn stop(mut self) -> Result<Closed> {
        self.stall.stop.store(true, Ordering::Relaxed);
        while let Some(client) = self.clients.join_next().await {
            client.context("a client")?;
        }
        let stall = &self.stall;
        let end = End {
            orders: all_orders(&stall.shop, &stall.sold).await?,
            stock: (STOCK, stall.shop.available(&stall.sold).await?),
            clerk: stall.shop.available(&stall.counted).await?,
        };
        Ok(Closed {
            handle: stall.shop.handle.clone(),
            account: stall.history.account(),
            end,
        })
    }
}

/// A trade that is over.
#[derive(Debug)]
pub struct Closed {
    handle: String,
    /// What was asked and told.
    pub account: Account,
    /// The shop afterwards.
    pub end: End,
}

impl Closed {
    /// Nothing that cannot have been, and no answer beyond what is allowed.
    pub fn must_be_sound(&self, kills: bool) -> Result<()> {
        let mut faults = self.account.faults(&self.end);
        faults.extend(self.account.wrong_answers(kills));
        ensure!(
            faults.is_empty(),
            "{}: {} faults:\n{}\n{}",
            self.handle,
            faults.len(),
            faults
                .iter()
                .take(20)
                .cloned()
                .collect::<Vec<_>>()
                .join("\n"),
            self.account.figures()
        );
        // After kills too: a trade is stopped where everything is up again, and then each request ends.
        ensure!(
            self.account.given_up.is_empty(),
            "{}: given up: {:?}",
            self.handle,
            self.account.given_up
        );
        Ok(())
    }

    /// One line for a person.
    pub fn figures(&self) -> String {
        format!("{}: {}", self.handle, self.account.figures())
    }
}

/// Every order of a shop, with its units of one product.
async fn all_orders(shop: &Shop, product: &Product) -> Result<Vec<Stored>> {
    let mut orders = Vec::new();
    let mut path = "/api/v1/orders?limit=100".to_owned();
    loop {
        let page: Value = shop.look(&path).await?.wants(200)?.json()?;
        let listed: Vec<Order> = serde_json::from_value(page["orders"].clone())
            .with_context(|| format!("page {page}"))?;
        for order in listed {
            let of_product = order
                .lines
                .iter()
                .filter(|line| line.product_id == product.id);
            let units: i64 = of_product.map(|line| line.quantity).sum();
            // Others are another trade's of the same shop.
            if units > 0 {
                orders.push(Stored {
                    id: order.id,
                    status: order.status,
                    units,
                });
            }
        }
        match page["next"].as_str() {
            Some(cursor) => path = format!("/api/v1/orders?limit=100&cursor={cursor}"),
            None => return Ok(orders),
        }
    }
}

/// Whether a client goes on with one request: for ever while the shop trades, and some time after.
struct Patience(Option<Instant>);

impl Patience {
    fn ends(&mut self, stop: &AtomicBool) -> bool {
        if !stop.load(Ordering::Relaxed) {
            return false;
        }
        self.0.get_or_insert_with(Instant::now).elapsed() > FINISH_MAX
    }
}
