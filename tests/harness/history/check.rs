//! The check of a history. Each rule is a function of the records; what it finds is in words, with the records at fault.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Act, Again, Record, Stage, Told};

/// Everything that happened at one shop, closed.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// What was done, in the order of its ends.
    pub records: Vec<Record>,
    /// How often each answer came.
    pub told: BTreeMap<Told, u32>,
    /// The longest attempt.
    pub slowest: Duration,
    /// The longest time without a good answer to anybody.
    pub longest_gap: Duration,
    /// Answers that nobody should get.
    pub strange: Vec<String>,
    /// What was given up without a final answer.
    pub given_up: Vec<String>,
}

/// Something that cannot have been.
pub type Fault = String;

/// An order as the shop has it in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its id.
    pub id: String,
    /// Its state.
    pub status: String,
    /// Units of the one product that buyers buy.
    pub units: i64,
}

/// The shop in the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// All orders.
    pub orders: Vec<Stored>,
    /// The stock of the product that buyers buy, at first and now.
    pub stock: (i64, i64),
    /// The clerk's stock.
    pub clerk: i64,
}

impl Account {
    /// Everything that is wrong. Without a fault the shop has told nobody anything but what it did, once.
    pub fn faults(&self, end: &End) -> Vec<Fault> {
        let mut faults = self.strange.clone();
        self.check_keys(&mut faults);
        self.check_orders(end, &mut faults);
        check_stock(end, &mut faults);
        self.check_stages(end, &mut faults);
        self.check_clerk(end, &mut faults);
        self.check_lists(&mut faults);
        faults
    }

    /// Answers beyond 2xx and deliberate 4xx: `cuts_allowed` where something was killed, and then beside them only 503 with
    /// `Retry-After`, a payment provider that was silent, whose books are at the pod (504 with `Retry-After`; of anybody
    /// else the trade notes it as strange), broken connections, what the edge says of a connection to a pod that broke (502
    /// with `Retry-After`), and that a first attempt is still running (409 with `Retry-After`, which a client that lost its
    /// connection can meet).
    pub fn wrong_answers(&self, cuts_allowed: bool) -> Vec<Fault> {
        let fine = |told: &Told| match told {
            Told::Status(200..=299, _) | Told::Status(402 | 409, Again::Unsaid) => true,
            Told::Status(409 | 502..=504, Again::Later) | Told::Cut => cuts_allowed,
            Told::Status(..) => false,
        };
        let wrong = self.told.iter().filter(|(told, _)| !fine(told));
        let mut faults: Vec<Fault> = wrong
            .map(|(told, times)| format!("{times} times {told:?}"))
            .collect();
        let undue = |record: &&Record| matches!(record.act, Act::Declined { approve: true, .. });
        let undue = self.records.iter().filter(undue).count();
        if undue > 0 && !cuts_allowed {
            faults.push(format!(
                "{undue} payments were declined that were to be approved"
            ));
        }
        faults
    }

    /// One line of figures.
    pub fn figures(&self) -> String {
        let acts = |wanted: fn(&Act) -> bool| {
            let of_kind = self.records.iter().filter(|record| wanted(&record.act));
            of_kind.count()
        };
        format!(
            "{} orders, {} declined, {} steps, {} stock writes, {} reads; answers {:?}; slowest {:?}, longest gap {:?}",
            self.orders().len(),
            acts(|act| matches!(act, Act::Declined { .. })),
            acts(|act| matches!(act, Act::Stepped { .. })),
            acts(|act| matches!(act, Act::Set { .. })),
            acts(|act| matches!(
                act,
                Act::SawOrder { .. } | Act::SawStock { .. } | Act::Listed { .. }
            )),
            self.told,
            self.slowest,
            self.longest_gap
        )
    }

    /// Acknowledged orders with their units.
    fn orders(&self) -> BTreeMap<&str, i64> {
        let bought = self.records.iter().filter_map(|record| match &record.act {
            Act::Bought { order, units, .. } => Some((order.as_str(), *units)),
            Act::Declined { .. }
            | Act::Stepped { .. }
            | Act::SawOrder { .. }
            | Act::Set { .. }
            | Act::SawStock { .. }
            | Act::Listed { .. } => None,
        });
        bought.collect()
    }

    /// A key has one outcome, and an order one key.
    fn check_keys(&self, faults: &mut Vec<Fault>) {
        let mut order_of: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        let mut key_of: BTreeMap<&str, &str> = BTreeMap::new();
        for record in &self.records {
            let (key, order) = match &record.act {
                Act::Bought { key, order, .. } => (key.as_str(), Some(order.as_str())),
                Act::Declined { key, .. } => (key.as_str(), None),
                Act::Stepped { .. }
                | Act::SawOrder { .. }
                | Act::Set { .. }
                | Act::SawStock { .. }
                | Act::Listed { .. } => continue,
            };
            let before = *order_of.entry(key).or_insert(order);
            if before != order {
                faults.push(format!("key {key} got {before:?} and then {order:?}"));
            }
            if let Some(order) = order {
                let other = *key_of.entry(order).or_insert(key);
                if other != key {
                    faults.push(format!("order {order} was given to {other} and to {key}"));
                }
            }
        }
    }

    /// Each acknowledged order is there once with its units, and no order that nobody was told of, but what was given up.
    fn check_orders(&self, end: &End, faults: &mut Vec<Fault>) {
        let mut stored: BTreeMap<&str, &Stored> = BTreeMap::new();
        for order in &end.orders {
            if stored.insert(&order.id, order).is_some() {
                faults.push(format!("order {} is listed twice", order.id));
            }
        }
        let acknowledged = self.orders();
        for (order, units) in &acknowledged {
            match stored.get(order) {
                None => faults.push(format!("order {order} was acknowledged and is gone")),
                Some(now) if now.units != *units => {
                    faults.push(format!(
                        "order {order} of {units} units now has {}",
                        now.units
                    ));
                }
                Some(_) => {}
            }
        }
        let sold = |order: &&Stored| Stage::of(&order.status).is_some();
        let unknown: Vec<&str> = end
            .orders
            .iter()
            .filter(sold)
            .map(|order| order.id.as_str())
            .filter(|id| !acknowledged.contains_key(id))
            .collect();
        let given_up = self
            .given_up
            .iter()
            .filter(|what| what.starts_with("checkout "));
        let given_up = given_up.count();
        if unknown.len() > given_up {
            faults.push(format!(
                "{} orders that nobody was told of ({given_up} checkouts were given up): {unknown:?}",
                unknown.len()
            ));
        }
    }

    /// An order never goes back: a strong read shows every step acknowledged before it began.
    fn check_stages(&self, end: &End, faults: &mut Vec<Fault>) {
        let mut stages: BTreeMap<&str, Vec<(Duration, Stage)>> = BTreeMap::new();
        for record in &self.records {
            let (order, stage) = match &record.act {
                Act::Bought { order, .. } => (order, Stage::Paid),
                Act::Stepped { order, step } => (order, Stage::from(*step)),
                Act::SawOrder { order, status } => match Stage::of(status) {
                    Some(stage) => (order, stage),
                    None => {
                        faults.push(format!("order {order} was seen as {status}"));
                        continue;
                    }
                },
                Act::Declined { .. }
                | Act::Set { .. }
                | Act::SawStock { .. }
                | Act::Listed { .. } => {
                    continue;
                }
            };
            stages.entry(order).or_default().push((record.ended, stage));
        }
        for record in &self.records {
            if let Act::SawOrder { order, status } = &record.act
                && let Some(seen) = Stage::of(status)
            {
                let known = stages.get(order.as_str()).into_iter().flatten();
                let before = known.filter(|(at, _)| *at < record.began).map(|(_, s)| *s);
                if let Some(before) = before.max().filter(|before| *before > seen) {
                    faults.push(format!(
                        "order {order} was {before:?} and then read as {seen:?}"
                    ));
                }
            }
        }
        for order in &end.orders {
            let known = stages.get(order.id.as_str()).into_iter().flatten();
            let last = known.map(|(_, stage)| *stage).max();
            if let Some(last) = last.filter(|last| Stage::of(&order.status) < Some(*last)) {
                faults.push(format!(
                    "order {} was {last:?} and is {}",
                    order.id, order.status
                ));
            }
        }
    }

    /// The clerk's stock as a register with one writer.
    fn check_clerk(&self, end: &End, faults: &mut Vec<Fault>) {
        let sets: Vec<(&Record, i64)> = self
            .records
            .iter()
            .filter_map(|record| match record.act {
                Act::Set { to } => Some((record, to)),
                Act::Bought { .. }
                | Act::Declined { .. }
                | Act::Stepped { .. }
                | Act::SawOrder { .. }
                | Act::SawStock { .. }
                | Act::Listed { .. } => None,
            })
            .collect();
        let last = sets.iter().map(|(_, to)| *to).max().unwrap_or_default();
        let open = i64::from(self.given_up.iter().any(|what| what.starts_with("set ")));
        if !(last..=last + open).contains(&end.clerk) {
            faults.push(format!("the stock was set to {last} and is {}", end.clerk));
        }
        for record in &self.records {
            let Act::SawStock { value } = record.act else {
                continue;
            };
            // The clerk's acts follow each other.
            let acknowledged = sets.partition_point(|(set, _)| set.ended < record.began);
            let asked = sets.partition_point(|(set, _)| set.began < record.ended);
            let last = |count: usize| sets[..count].last().map_or(0, |(_, to)| *to);
            // The last one may have been asked for and given up.
            let (low, high) = (last(acknowledged), last(asked) + open);
            if value < low {
                faults.push(format!(
                    "the stock was set to {low} and then read as {value}"
                ));
            } else if value > high {
                faults.push(format!(
                    "the stock was read as {value} before it was set beyond {high}"
                ));
            }
        }
    }

    /// A session's list never goes back, and has what its own client bought before.
    fn check_lists(&self, faults: &mut Vec<Fault>) {
        let mut known: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
        for record in &self.records {
            let known = known.entry(record.client).or_default();
            match &record.act {
                Act::Bought { order, .. } => drop(known.insert(order)),
                Act::Listed { orders, more } => {
                    // Ids are UUIDv7: text order is order of creation. What is older than the page is on a later one.
                    let oldest = orders.last().filter(|_| *more);
                    let listed: BTreeSet<&str> = orders.iter().map(String::as_str).collect();
                    let from = oldest.map_or("", String::as_str);
                    let missing = known.range(from..).filter(|id| !listed.contains(**id));
                    for id in missing {
                        faults.push(format!(
                            "client {} knew order {id}, and its list has it no more",
                            record.client
                        ));
                    }
                    known.extend(listed);
                }
                Act::Declined { .. }
                | Act::Stepped { .. }
                | Act::SawOrder { .. }
                | Act::Set { .. }
                | Act::SawStock { .. } => {}
            }
        }
    }
}

/// Units that are gone are in orders that hold them.
fn check_stock(end: &End, faults: &mut Vec<Fault>) {
    let holds = |order: &&Stored| matches!(order.status.as_str(), "pending" | "paid" | "fulfilled");
    let held: i64 = end
        .orders
        .iter()
        .filter(holds)
        .map(|order| order.units)
        .sum();
    let (first, now) = end.stock;
    if first - now != held {
        faults.push(format!(
            "of {first} units {now} are left, and orders hold {held}"
        ));
    }
}

#[cfg(test)]
mod tests;
