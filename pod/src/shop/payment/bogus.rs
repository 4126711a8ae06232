//! The built-in gateway: it approves, declines or times out, as the buyer tells it to. It stands for a system outside,
//! whose books happen to be rows of the shop, so that they survive a crash and follow a move.

use std::time::Duration;

use futures::future::BoxFuture;
use rust_decimal::Decimal;

use super::{Answer, At, Charge, PaymentProvider, Verdict};
use crate::shop::fields::invalid;
use crate::{Consistency, Error, Reader, Tx};

/// How long the outcome `timeout` thinks before it approves: longer than a buyer waits for an answer.
const THINKS: Duration = Duration::from_secs(4);
const _: () = assert!(THINKS.as_millis() > crate::shop::limits::CHARGE.as_millis());

/// The gateway.
#[derive(Debug)]
pub(super) struct Bogus;

/// What the buyer asks the gateway to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Approve,
    Decline,
    Timeout,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Approve, Self::Decline, Self::Timeout];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Decline => "decline",
            Self::Timeout => "timeout",
        }
    }

    fn parse(text: &str) -> Result<Self, Error> {
        let known = Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == text);
        known.ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            invalid("payment.outcome", format!("The bogus gateway can {words}."))
        })
    }

    /// What goes into the books, and how long until it may be known.
    const fn entry(self) -> (Word, Duration) {
        match self {
            Self::Approve => (Word::Approved, Duration::ZERO),
            Self::Decline => (Word::Declined, Duration::ZERO),
            Self::Timeout => (Word::Approved, THINKS),
        }
    }
}

/// A word in the column `verdict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Approved,
    Declined,
    Cancelled,
}

impl Word {
    const ALL: [Self; 3] = [Self::Approved, Self::Declined, Self::Cancelled];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Declined => "declined",
            Self::Cancelled => "cancelled",
        }
    }

    const fn verdict(self) -> Verdict {
        match self {
            Self::Approved => Verdict::Approved,
            Self::Declined | Self::Cancelled => Verdict::Declined,
        }
    }
}

impl PaymentProvider for Bogus {
    fn method(&self) -> &'static str {
        "bogus"
    }

    fn check(&self, instruction: &str) -> Result<(), Error> {
        Outcome::parse(instruction).map(|_| ())
    }

    fn charge<'a>(
        &'a self,
        at: At<'a>,
        charge: &'a Charge,
    ) -> BoxFuture<'a, Result<Answer, Error>> {
        Box::pin(async move {
            let (word, thinks) = Outcome::parse(&charge.instruction)?.entry();
            let answer = book(at, charge, word, thinks, 1).await?;
            if answer == Answer::Thinking {
                // It is a gateway that does not answer, not one that says "later".
                tokio::time::sleep(THINKS).await;
            }
            Ok(answer)
        })
    }

    fn find<'a>(
        &'a self,
        at: At<'a>,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Answer>, Error>> {
        let key = key.to_owned();
        Box::pin(at.app.read(at.shop, Consistency::Strong, move |reader| {
            let key = key.clone();
            Box::pin(async move { look_up(reader, &key).await })
        }))
    }

    fn cancel<'a>(
        &'a self,
        at: At<'a>,
        charge: &'a Charge,
    ) -> BoxFuture<'a, Result<Answer, Error>> {
        Box::pin(book(at, charge, Word::Cancelled, Duration::ZERO, 0))
    }

    fn refund<'a>(&'a self, at: At<'a>, key: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        let key = key.to_owned();
        Box::pin(at.app.transact(at.shop, move |tx| {
            let key = key.clone();
            Box::pin(async move { give_back(tx, &key).await })
        }))
    }
}

/// An entry of the books.
#[derive(Debug, sqlx::FromRow)]
struct Entry {
    verdict: String,
    amount: Decimal,
    currency: String,
    thinking: bool,
}

impl Entry {
    fn answer(&self) -> Result<Answer, Error> {
        if self.thinking {
            return Ok(Answer::Thinking);
        }
        Word::ALL
            .into_iter()
            .find(|word| word.as_str() == self.verdict)
            .map(|word| Answer::Final(word.verdict()))
            .ok_or_else(|| Error::bug(format!("{:?} is no verdict of bogus_charge", self.verdict)))
    }
}

const SELECT: &str = "select verdict, amount, currency, answers_at > utc_timestamp(3) as thinking
     from bogus_charge where shop_id = ? and charge_key = ?";

/// Makes an entry unless the key has one; the first one stands. `charges` is how many charges this asks for.
async fn book(
    at: At<'_>,
    charge: &Charge,
    word: Word,
    thinks: Duration,
    charges: i32,
) -> Result<Answer, Error> {
    let charge = charge.clone();
    at.app
        .transact(at.shop, move |tx| {
            let charge = charge.clone();
            Box::pin(async move { enter(tx, &charge, word, thinks, charges).await })
        })
        .await
}

async fn enter(
    tx: &mut Tx,
    charge: &Charge,
    word: Word,
    thinks: Duration,
    charges: i32,
) -> Result<Answer, Error> {
    let insert = sqlx::query(
        "insert into bogus_charge
           (shop_id, charge_key, amount, currency, verdict, charges, answers_at)
         values (?, ?, ?, ?, ?, ?, utc_timestamp(3) + interval ? second)
         on duplicate key update charges = charges + ?",
    )
    .bind(tx.shop().get())
    .bind(&charge.key)
    .bind(charge.amount)
    .bind(&charge.currency)
    .bind(word.as_str())
    .bind(charges)
    .bind(thinks.as_secs())
    .bind(charges);
    tx.execute(insert).await?;
    let query = sqlx::query_as(SELECT)
        .bind(tx.shop().get())
        .bind(&charge.key);
    let entry: Entry = tx.fetch_one(query).await?;
    if entry.amount != charge.amount || entry.currency != charge.currency {
        return Err(Error::bug(format!(
            "charge {} was booked with another amount",
            charge.key
        )));
    }
    entry.answer()
}

async fn look_up(reader: &mut Reader, key: &str) -> Result<Option<Answer>, Error> {
    let query = sqlx::query_as(SELECT).bind(reader.shop().get()).bind(key);
    let entry: Option<Entry> = reader.fetch_optional(query).await?;
    entry.map(|entry| entry.answer()).transpose()
}

async fn give_back(tx: &mut Tx, key: &str) -> Result<(), Error> {
    let update = sqlx::query(
        "update bogus_charge set refunded_at = coalesce(refunded_at, utc_timestamp(3))
         where shop_id = ? and charge_key = ? and verdict = ?",
    )
    .bind(tx.shop().get())
    .bind(key)
    .bind(Word::Approved.as_str());
    match tx.execute(update).await? {
        0 => Err(Error::bug(format!(
            "there is no approved charge {key} to give back"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_checked_by_name() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::parse(outcome.as_str()).unwrap(), outcome);
        }
        for bad in ["", "Approve", "approved", "refuse"] {
            assert!(Outcome::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_entry_answers_by_its_verdict_once_it_may() {
        let entry = |verdict: &str, thinking| Entry {
            verdict: verdict.into(),
            amount: Decimal::ONE,
            currency: "USD".into(),
            thinking,
        };
        assert_eq!(entry("approved", true).answer().unwrap(), Answer::Thinking);
        assert_eq!(
            entry("approved", false).answer().unwrap(),
            Answer::Final(Verdict::Approved)
        );
        for no in ["declined", "cancelled"] {
            assert_eq!(
                entry(no, false).answer().unwrap(),
                Answer::Final(Verdict::Declined)
            );
        }
        assert!(entry("?", false).answer().is_err());
    }
}
