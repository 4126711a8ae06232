//! What each kind of client does, again and again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result};
use http::Method;
use rand::RngExt as _;
use serde_json::{Value, json};

use super::{Patience, Stall};
use crate::history::{Act, Again, Step, Told};
use crate::shop::{Order, checkout_body};
use crate::{Answer, Call};

/// Of a buyer's latest orders, so many may still get their steps: older ones are as they are.
const IN_HAND_MAX: usize = 20;

/// The first page of a list.
const PAGE: &str = "/api/v1/orders?limit=20";

/// One client.
pub(super) struct Client {
    stall: Arc<Stall>,
    number: usize,
    turn: u32,
    /// What a pod gave it to show with its next request.
    session: Option<String>,
    in_hand: Vec<(String, String, i64)>,
}

/// A final answer of a request.
enum Final {
    Good(Answer),
    /// A deliberate no: 402 or 409, with its kind.
    No(Answer),
    /// The trade ended without one.
    GivenUp,
}

impl Client {
    pub(super) fn new(stall: Arc<Stall>, number: usize) -> Self {
        Self {
            stall,
            number,
            turn: 0,
            session: None,
            in_hand: Vec::new(),
        }
    }

    fn stopped(&self) -> bool {
        self.stall.stop.load(Ordering::Relaxed)
    }

    /// A key that nobody else uses, in another trade of the shop either.
    fn key(&mut self, what: &str) -> String {
        self.turn += 1;
        format!(
            "{what}-{}-{}-{}",
            self.number, self.turn, self.stall.sold.id
        )
    }

    /// Sets the counted stock to one more each time.
    pub(super) async fn count(mut self) {
        let path = format!("/api/v1/products/{}/inventory", self.stall.counted.id);
        let mut to = 0;
        while !self.stopped() {
            to += 1;
            let put = Call::new(Method::PUT, path.as_str())
                .token(&self.stall.shop.token)
                .key(self.key("set"))
                .json(&json!({"available": to}));
            let began = self.stall.history.now();
            match self.ask(&put, &format!("set {to}")).await {
                Final::Good(_) => self.did(began, Act::Set { to }),
                Final::No(answer) => self.strange("a stock write", &answer),
                Final::GivenUp => return,
            }
            if to % 4 == 0 {
                self.see_stock().await;
            }
        }
    }

    /// Reads the counted stock.
    pub(super) async fn read(mut self) {
        while !self.stopped() {
            self.see_stock().await;
            let visit = Call::get("/api/v1/products");
            if let Final::No(answer) = self.ask(&visit, "a visit").await {
                self.strange("a visit", &answer);
            }
        }
    }

    /// Buys, and does one more thing with what it has bought.
    pub(super) async fn buy(mut self) {
        while !self.stopped() {
            let dice: u32 = rand::rng().random_range(0..100);
            let units = i64::from(1 + dice % 3);
            let key = self.key("buy");
            self.check_out(&key, units, dice >= 10).await;
            match dice {
                10..25 => self.step(Step::Fulfil).await,
                25..40 => self.step(Step::Refund).await,
                40..55 => self.look().await,
                55..70 => self.list().await,
                70..76 => self.repeat().await,
                _ => {}
            }
        }
    }

    async fn check_out(&mut self, key: &str, units: i64, approve: bool) {
        let outcome = if approve { "approve" } else { "decline" };
        let quantity = u32::try_from(units).unwrap_or(1);
        let body = checkout_body(&[(&self.stall.sold, quantity)], outcome);
        let call = Call::post("/api/v1/checkouts").key(key).json(&body);
        let began = self.stall.history.now();
        match self.ask(&call, &format!("checkout {key}")).await {
            Final::Good(answer) => match answer.json::<Order>() {
                Ok(order) => {
                    let act = Act::Bought {
                        key: key.to_owned(),
                        order: order.id.clone(),
                        units,
                    };
                    self.did(began, act);
                    let known = self.in_hand.iter().any(|(_, id, _)| *id == order.id);
                    if !known {
                        self.in_hand.push((key.to_owned(), order.id, units));
                    }
                    if self.in_hand.len() > IN_HAND_MAX {
                        self.in_hand.remove(0);
                    }
                }
                Err(e) => self.stall.history.strange(format!("{key}: {e:#}")),
            },
            // Also where it could not be asked for in time, since something was down.
            Final::No(answer) if answer.status == 402 => {
                let key = key.to_owned();
                self.did(began, Act::Declined { key, approve });
            }
            Final::No(answer) => self.strange(key, &answer),
            Final::GivenUp => {}
        }
    }

    /// The same key again, as a client that is not sure: the same order.
    async fn repeat(&mut self) {
        if let Some((key, _, units)) = self.some_order() {
            self.check_out(&key, units, true).await;
        }
    }

    async fn step(&mut self, step: Step) {
        let Some((_, order, _)) = self.some_order() else {
            return;
        };
        let call = Call::post(format!("/api/v1/orders/{order}/{}", step.word()))
            .token(&self.stall.shop.token)
            .key(self.key(step.word()))
            .json(&json!({}));
        let began = self.stall.history.now();
        match self.ask(&call, &format!("{} {order}", step.word())).await {
            Final::Good(_) => self.did(began, Act::Stepped { order, step }),
            // It was sent or paid back before.
            Final::No(answer) if answer.text().contains("order-state") => {}
            Final::No(answer) => self.strange(step.word(), &answer),
            Final::GivenUp => {}
        }
    }

    async fn look(&mut self) {
        let Some((_, order, _)) = self.some_order() else {
            return;
        };
        let call = Call::get(format!("/api/v1/orders/{order}")).token(&self.stall.shop.token);
        let began = self.stall.history.now();
        if let Some(seen) = self.get::<Order>(&call, "an order").await {
            let status = seen.status;
            self.did(began, Act::SawOrder { order, status });
        }
    }

    async fn list(&mut self) {
        let call = Call::get(PAGE).token(&self.stall.shop.token);
        let began = self.stall.history.now();
        let Some(page) = self.get::<Value>(&call, "a list").await else {
            return;
        };
        let orders = page["orders"].as_array().cloned().unwrap_or_default();
        let ids = orders.iter().filter_map(|o| o["id"].as_str());
        let act = Act::Listed {
            orders: ids.map(str::to_owned).collect(),
            more: page["next"].is_string(),
        };
        self.did(began, act);
    }

    async fn see_stock(&mut self) {
        let path = format!("/api/v1/products/{}/inventory", self.stall.counted.id);
        let call = Call::get(path).token(&self.stall.shop.token);
        let began = self.stall.history.now();
        if let Some(seen) = self.get::<Value>(&call, "a stock").await {
            match seen["available"].as_i64() {
                Some(value) => self.did(began, Act::SawStock { value }),
                None => self.stall.history.strange(format!("a stock: {seen}")),
            }
        }
    }

    fn some_order(&self) -> Option<(String, String, i64)> {
        let count = self.in_hand.len();
        let index = (count > 0).then(|| rand::rng().random_range(0..count))?;
        self.in_hand.get(index).cloned()
    }

    fn did(&self, began: std::time::Duration, act: Act) {
        self.stall.history.did(self.number, began, act);
    }

    fn strange(&self, what: &str, answer: &Answer) {
        let text = format!("{what}: {} {}", answer.status, answer.text());
        self.stall.history.strange(text);
    }

    async fn get<T: serde::de::DeserializeOwned>(&mut self, call: &Call, what: &str) -> Option<T> {
        match self.ask(call, what).await {
            Final::Good(answer) => match answer.json() {
                Ok(it) => Some(it),
                Err(e) => {
                    self.stall.history.strange(format!("{what}: {e:#}"));
                    None
                }
            },
            Final::No(answer) => {
                self.strange(what, &answer);
                None
            }
            Final::GivenUp => None,
        }
    }

    /// Sends it until there is a final answer.
    async fn ask(&mut self, call: &Call, what: &str) -> Final {
        let mut patience = Patience(None);
        loop {
            let call = match &self.session {
                Some(token) => call.clone().header("podhost-token", token),
                None => call.clone(),
            };
            let sent = Instant::now();
            let answer = self.stall.shop.send(call).await.context("send");
            let final_answer = self.judge(answer, sent, what);
            tokio::time::sleep(self.stall.pause).await;
            match final_answer {
                Some(it) => return it,
                None if patience.ends(&self.stall.stop) => {
                    self.stall.history.gave_up(what.to_owned());
                    return Final::GivenUp;
                }
                None => {}
            }
        }
    }

    /// Notes an answer; `None` where it is not final.
    fn judge(&mut self, answer: Result<Answer>, sent: Instant, what: &str) -> Option<Final> {
        let history = &self.stall.history;
        let Ok(answer) = answer else {
            history.told(Told::Cut, sent.elapsed());
            return None;
        };
        let again = match answer.header("retry-after") {
            Some(_) => Again::Later,
            None => Again::Unsaid,
        };
        history.told(Told::Status(answer.status, again), sent.elapsed());
        if let Some(token) = answer.header("podhost-token") {
            self.session = Some(token.to_owned());
        }
        match answer.status {
            200..=299 => Some(Final::Good(answer)),
            409 if answer.text().contains("in-flight") => None,
            402 | 409 => Some(Final::No(answer)),
            502 | 503 => None,
            // The provider keeps its books at the shop's own pod. Of itself a pod says 503 when it is slow, and an edge
            // waits longer than a pod may take.
            504 if answer.text().contains("payment provider") => None,
            _ => {
                history.strange(format!("{what}: {} {}", answer.status, answer.text()));
                None
            }
        }
    }
}
