//! What the clients of one shop asked and were told, and whether that can have been.
//!
//! Every answer goes in as it comes; the check afterwards is pure. What it knows of the world is what a client can know: an
//! order that was acknowledged is there, once; what a read shows lies between what was acknowledged before it began and what
//! was asked for before it ended.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

// Whether the records fit together and fit the shop as it is in the end.
mod check;
pub use check::{Account, End, Fault, Stored};

/// How one attempt ended, as its client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// A status, and whether it said when to come again.
    Status(u16, Again),
    /// No whole answer: the connection broke.
    Cut,
}

/// Whether an answer had `Retry-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Again {
    /// It had.
    Later,
    /// It had not.
    Unsaid,
}

/// A step of an order that its merchant takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// It was sent.
    Fulfil,
    /// The money went back.
    Refund,
}

impl Step {
    /// The last part of its path.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fulfil => "fulfil",
            Self::Refund => "refund",
        }
    }
}

/// How far an order is; later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// `paid`.
    Paid,
    /// `fulfilled`.
    Fulfilled,
    /// `refunded`: its units are back.
    Refunded,
}

impl Stage {
    /// Of an order whose checkout was acknowledged; no other state follows from what these clients do.
    pub fn of(status: &str) -> Option<Self> {
        match status {
            "paid" => Some(Self::Paid),
            "fulfilled" => Some(Self::Fulfilled),
            "refunded" => Some(Self::Refunded),
            _ => None,
        }
    }
}

impl From<Step> for Stage {
    fn from(step: Step) -> Self {
        match step {
            Step::Fulfil => Self::Fulfilled,
            Step::Refund => Self::Refunded,
        }
    }
}

/// What was done or seen, at its final answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A checkout became an order, or was found to have become one.
    Bought {
        /// Its idempotency key.
        key: String,
        /// The order.
        order: String,
        /// Units of the one product that buyers buy.
        units: i64,
    },
    /// A checkout was declined: the payment, or there is too little.
    Declined {
        /// Its idempotency key.
        key: String,
        /// It was to be approved, and nobody could ask the payment's provider in time.
        approve: bool,
    },
    /// An order's step was done.
    Stepped {
        /// The order.
        order: String,
        /// Which.
        step: Step,
    },
    /// An order, read strongly.
    SawOrder {
        /// The order.
        order: String,
        /// Its state.
        status: String,
    },
    /// The clerk's stock was set; one clerk sets it, to one more each time.
    Set {
        /// To what.
        to: i64,
    },
    /// The clerk's stock, read strongly.
    SawStock {
        /// What it was.
        value: i64,
    },
    /// The newest orders, newest first, as one client of a session lists them.
    Listed {
        /// Their ids.
        orders: Vec<String>,
        /// Older ones follow.
        more: bool,
    },
}

/// One act of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Which client; its acts follow each other.
    pub client: usize,
    /// When its first attempt was sent.
    pub began: Duration,
    /// When its final answer was there.
    pub ended: Duration,
    /// What it was.
    pub act: Act,
}

/// Everything that happened at one shop.
#[derive(Debug)]
pub struct History {
    since: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default, Clone)]
struct Inner {
    records: Vec<Record>,
    told: BTreeMap<Told, u32>,
    slowest: Duration,
    last: Duration,
    longest_gap: Duration,
    /// Answers that nobody should get, in words.
    strange: Vec<String>,
    given_up: Vec<String>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            inner: Mutex::default(),
        }
    }
}

impl History {
    /// The time on its clock.
    pub fn now(&self) -> Duration {
        self.since.elapsed()
    }

    /// An attempt ended.
    pub fn told(&self, told: Told, took: Duration) {
        let now = self.now();
        let mut inner = self.inner.lock();
        *inner.told.entry(told).or_default() += 1;
        inner.slowest = inner.slowest.max(took);
        if matches!(told, Told::Status(200..=299, _)) {
            inner.longest_gap = inner.longest_gap.max(now.saturating_sub(inner.last));
            inner.last = now;
        }
    }

    /// An answer that nobody should get.
    pub fn strange(&self, what: String) {
        self.inner.lock().strange.push(what);
    }

    /// A client gave up: what it asked for may or may not have been done.
    pub fn gave_up(&self, what: String) {
        self.inner.lock().given_up.push(what);
    }

    /// An act came to its end now.
    pub fn did(&self, client: usize, began: Duration, act: Act) {
        let ended = self.now();
        self.inner.lock().records.push(Record {
            client,
            began,
            ended,
            act,
        });
    }

    /// How many acts there are.
    pub fn acts(&self) -> usize {
        self.inner.lock().records.len()
    }

    /// How many acknowledged orders there are, repeats of a key included.
    pub fn bought(&self) -> usize {
        let is_order = |record: &&Record| matches!(record.act, Act::Bought { .. });
        self.inner.lock().records.iter().filter(is_order).count()
    }

    /// Everything so far, to be checked.
    pub fn account(&self) -> Account {
        let inner = self.inner.lock().clone();
        Account {
            records: inner.records,
            told: inner.told,
            slowest: inner.slowest,
            longest_gap: inner.longest_gap,
            strange: inner.strange,
            given_up: inner.given_up,
        }
    }
}
