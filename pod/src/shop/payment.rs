//! Payment providers: systems outside that move money, asked outside of any transaction.
//!
//! Every call names a key that was made from shop and order and was committed before. A provider does a thing once for
//! a key, however often it is asked; and whoever comes back to a payment asks it first what became of the key. To add
//! a provider: a file under `payment/`, a line in [`PROVIDERS`].

mod bogus;

use std::time::Duration;

use futures::future::BoxFuture;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use shared::error::Kind;
use uuid::Uuid;

use super::fields::invalid;
use super::limits::Limits;
use crate::{App, Error, Shop};

/// Those that this build knows.
static PROVIDERS: &[&dyn PaymentProvider] = &[&bogus::Bogus];

/// What a provider says of a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It has the money.
    Approved,
    /// It has not, and never will under this key.
    Declined,
}

/// What a provider answers when asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// For good.
    Final(Verdict),
    /// It is still at it: ask again later.
    Thinking,
}

/// What is to be charged: noted in the transaction that writes the order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Charge {
    /// The order that it pays for.
    pub(crate) order: Uuid,
    /// By which the provider knows it.
    pub(crate) key: String,
    /// Which provider.
    pub(crate) method: String,
    /// What the buyer told the provider (a card token; for the bogus gateway the outcome).
    pub(crate) instruction: String,
    /// How much.
    pub(crate) amount: Decimal,
    /// Of what.
    pub(crate) currency: String,
}

/// A system that moves money. Its methods may be called again with the same key at any time.
pub(crate) trait PaymentProvider: Send + Sync {
    /// The word in `payment.method`.
    fn method(&self) -> &'static str;

    /// Whether an instruction can be one, before anything is written.
    fn check(&self, instruction: &str) -> Result<(), Error>;

    /// Takes the money, once for a key.
    fn charge<'a>(&'a self, at: At<'a>, charge: &'a Charge)
    -> BoxFuture<'a, Result<Answer, Error>>;

    /// What became of a key; `None` if it was never charged.
    fn find<'a>(&'a self, at: At<'a>, key: &'a str)
    -> BoxFuture<'a, Result<Option<Answer>, Error>>;

    /// Makes sure that a key which was never charged never will be; a charge that was made stays as it is.
    fn cancel<'a>(&'a self, at: At<'a>, charge: &'a Charge)
    -> BoxFuture<'a, Result<Answer, Error>>;

    /// Gives the money of an approved charge back, once.
    fn refund<'a>(&'a self, at: At<'a>, key: &'a str) -> BoxFuture<'a, Result<(), Error>>;
}

/// For which shop a provider is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    /// The state that handlers get.
    pub(crate) app: &'a App,
    /// The shop.
    pub(crate) shop: &'a Shop,
}

/// The provider of a method; 400 if there is none.
pub(crate) fn provider(method: &str) -> Result<&'static dyn PaymentProvider, Error> {
    PROVIDERS
        .iter()
        .copied()
        .find(|provider| provider.method() == method)
        .ok_or_else(|| {
            let known: Vec<_> = PROVIDERS.iter().map(|p| p.method()).collect();
            invalid(
                "payment.method",
                format!("Known methods: {}.", known.join(", ")),
            )
        })
}

/// The key of an order at its provider: unique in the whole fleet, the same whoever makes it.
pub(crate) fn key(shop: shared::ShopId, order: Uuid) -> String {
    format!("shop-{shop}-order-{order}")
}

/// Has a charge made, or finds out what became of it: a charge that somebody may have asked for before is asked after
/// first. A provider that does not answer in time is asked what it did; if it does not know either, this is a 504, and
/// the order stays `pending` for the next one who comes (the same request again, or the sweeper).
pub(crate) async fn collect(
    at: At<'_>,
    limits: Limits,
    charge: &Charge,
    resumed: bool,
) -> Result<Verdict, Error> {
    let provider = provider(&charge.method)?;
    let find = || in_time(limits.find, provider.find(at, &charge.key));
    let mut answer = None;
    if resumed {
        answer = find().await?.flatten();
    }
    if answer.is_none() {
        answer = in_time(limits.charge, provider.charge(at, charge)).await?;
    }
    if answer.is_none() {
        answer = find().await?.flatten();
    }
    match answer {
        Some(Answer::Final(verdict)) => Ok(verdict),
        Some(Answer::Thinking) | None => Err(Error::because(
            Kind::Timeout,
            "The payment provider has not answered yet; send the same request again with the same Idempotency-Key.",
        )),
    }
}

/// `None` when the provider did not answer in time.
pub(crate) async fn in_time<T>(
    limit: Duration,
    call: BoxFuture<'_, Result<T, Error>>,
) -> Result<Option<T>, Error> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map(Some),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_known_by_name_and_once() {
        assert_eq!(
            provider("bogus").map(PaymentProvider::method).ok(),
            Some("bogus")
        );
        assert!(provider("cash").is_err());
        let mut methods: Vec<_> = PROVIDERS.iter().map(|p| p.method()).collect();
        methods.dedup();
        assert_eq!(methods.len(), PROVIDERS.len());
    }

    #[test]
    fn a_key_fits_its_column() {
        let longest = shared::ShopId::new(u64::MAX).unwrap();
        assert!(key(longest, Uuid::max()).len() <= 80);
    }
}
