//! Payments that nobody waits for: what a crash left `pending`, and money that is to go back.
//!
//! The provider is asked by key first. A payment that it has never heard of is cancelled there, not made: the buyer is
//! gone, and a cancelled key can never be charged by a request that comes late.

use std::time::Duration;

use rust_decimal::Decimal;
use shared::error::{Classify, Kind, chain};
use uuid::Uuid;

use super::checkout::ENDPOINT;
use super::limits::Limits;
use super::payment::{self, Answer, At, Charge, Verdict, in_time};
use super::settle;
use crate::host::Job;
use crate::{App, Call, Consistency, Error, Reader, Shop};

/// The job.
pub(crate) fn job(limits: Limits) -> Job {
    Job {
        name: "payments",
        every: limits.sweep_every,
        // Serving shops only: frozen ones, and copies of shops that moved away, would fill the page for ever.
        due: "select distinct p.shop_id from payment p
                join shop_home h on h.shop_id = p.shop_id and h.state = 'serving'
              where p.due_at <= utc_timestamp(3) limit 100"
            .into(),
        run: Box::new(move |app, shop| Box::pin(async move { sweep(&app, &shop, limits).await })),
    }
}

/// A payment with something to do.
#[derive(Debug, sqlx::FromRow)]
struct Due {
    payment_id: Uuid,
    order_id: Uuid,
    status: String,
    method: String,
    instruction: String,
    provider_key: String,
    request_key: String,
    amount: Decimal,
    currency: String,
}

async fn sweep(app: &App, shop: &Shop, limits: Limits) -> Result<(), Error> {
    let (batch, again) = (limits.sweep_batch, limits.sweep_again);
    let due = app
        .read(shop, Consistency::Strong, move |reader| {
            Box::pin(load(reader, batch))
        })
        .await?;
    for payment in due {
        let (id, order) = (payment.payment_id, payment.order_id);
        match take_up(At { app, shop }, limits, payment).await {
            Ok(true) => {
                tracing::info!(shop = shop.id().get(), %order, "payment of a left order settled")
            }
            Ok(false) => postpone(app, shop, id, again).await?,
            // The shop is changing hands, or the primary is: whoever has it next goes on.
            Err(error) if error.kind() == Kind::Misdirected => return Err(error),
            Err(error) => {
                tracing::warn!(
                    shop = shop.id().get(), %order, error = chain(&error),
                    "payment of a left order not settled; tried again later"
                );
                postpone(app, shop, id, again).await?;
            }
        }
    }
    Ok(())
}

/// Does what is to be done; `false` when the provider is still at it, or says nothing.
async fn take_up(at: At<'_>, limits: Limits, payment: Due) -> Result<bool, Error> {
    let Due {
        payment_id,
        order_id,
        status,
        method,
        instruction,
        provider_key,
        request_key,
        amount,
        currency,
    } = payment;
    let provider = payment::provider(&method)?;
    match status.as_str() {
        "pending" => {
            let charge = Charge {
                order: order_id,
                key: provider_key,
                method,
                instruction,
                amount,
                currency,
            };
            let answer = match in_time(limits.find, provider.find(at, &charge.key)).await? {
                Some(None) => in_time(limits.charge, provider.cancel(at, &charge)).await?,
                Some(known) => known,
                None => None,
            };
            match answer {
                Some(Answer::Final(verdict)) => conclude(at, request_key, order_id, verdict).await,
                Some(Answer::Thinking) | None => Ok(false),
            }
        }
        "refunding" => {
            let given = in_time(limits.charge, provider.refund(at, &provider_key)).await?;
            if given.is_some() {
                refunded(at, payment_id).await?;
            }
            Ok(given.is_some())
        }
        other => Err(Error::bug(format!(
            "payment {payment_id} is due and {other}"
        ))),
    }
}

async fn conclude(at: At<'_>, key: String, order: Uuid, verdict: Verdict) -> Result<bool, Error> {
    let call = Call::resume(ENDPOINT, key);
    settle::settle(at.app, at.shop, call, order, verdict).await?;
    Ok(true)
}

async fn refunded(at: At<'_>, payment: Uuid) -> Result<(), Error> {
    at.app
        .transact(at.shop, move |tx| {
            Box::pin(async move {
                let query = sqlx::query(
                    "update payment set status = 'refunded', due_at = null,
                       updated_at = utc_timestamp(3)
                     where shop_id = ? and payment_id = ? and status = 'refunding'",
                )
                .bind(tx.shop().get())
                .bind(payment);
                tx.execute(query).await.map(|_| ())
            })
        })
        .await
}

async fn postpone(app: &App, shop: &Shop, payment: Uuid, again: Duration) -> Result<(), Error> {
    app.transact(shop, move |tx| {
        Box::pin(async move {
            let query = sqlx::query(
                "update payment set due_at = utc_timestamp(3) + interval ? second
                 where shop_id = ? and payment_id = ? and due_at is not null",
            )
            .bind(again.as_secs())
            .bind(tx.shop().get())
            .bind(payment);
            tx.execute(query).await.map(|_| ())
        })
    })
    .await
}

async fn load(reader: &mut Reader, batch: u32) -> Result<Vec<Due>, Error> {
    let query = sqlx::query_as(
        "select payment_id, order_id, status, method, instruction, provider_key, request_key,
           amount, currency
         from payment where shop_id = ? and due_at <= utc_timestamp(3)
         order by due_at limit ?",
    )
    .bind(reader.shop().get())
    .bind(batch);
    reader.fetch_all(query).await
}
