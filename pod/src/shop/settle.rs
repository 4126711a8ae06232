//! The second transaction of a checkout: what the provider said becomes the order's state, and the answer is stored.

use axum::http::StatusCode;
use serde::Serialize;
use shared::error::{Kind, PROBLEM_JSON, Problem};
use uuid::Uuid;

use super::orders;
use super::payment::Verdict;
use super::state::{Event, Status};
use super::transition::{self, Locked};
use crate::{App, Call, Error, Reply, Shop, Tx};

/// Settles an order by what the provider said, and gives the answer of its checkout. Whoever comes first decides; for
/// everybody after that, this changes nothing and gives the stored answer.
pub(crate) async fn settle(
    app: &App,
    shop: &Shop,
    call: Call,
    order: Uuid,
    verdict: Verdict,
) -> Result<Reply, Error> {
    app.finish(shop, call, move |tx| {
        Box::pin(async move {
            let locked = transition::lock(tx, order).await?;
            let status = decide(tx, &locked, verdict).await?;
            answer(tx, order, status).await
        })
    })
    .await
}

async fn decide(tx: &mut Tx, order: &Locked, verdict: Verdict) -> Result<Status, Error> {
    let (event, word) = match verdict {
        Verdict::Approved => (Event::Approve, "approved"),
        Verdict::Declined => (Event::Decline, "declined"),
    };
    // First the payment, so that a step which gives money back finds it as it is now.
    let query = sqlx::query(
        "update payment set status = ?, due_at = null, updated_at = utc_timestamp(3)
         where shop_id = ? and order_id = ? and status = 'pending'",
    )
    .bind(word)
    .bind(tx.shop().get())
    .bind(order.id);
    tx.execute(query).await?;
    let step = transition::apply(tx, order, event).await?;
    Ok(step.map_or(order.status, |step| step.to))
}

/// 402 as a problem, with the order that it is about.
#[derive(Debug, Serialize)]
struct DeclinedProblem {
    #[serde(flatten)]
    problem: Problem,
    order: Uuid,
}

async fn answer(tx: &mut Tx, order: Uuid, status: Status) -> Result<Reply, Error> {
    match status {
        Status::PaymentFailed => {
            let mut problem = Problem::new(Kind::PaymentDeclined);
            problem.detail = Some(format!(
                "The payment of order {order} was declined; nothing was charged, and its units are back in stock."
            ));
            let body = serde_json::to_vec(&DeclinedProblem { problem, order })
                .map_err(|e| Error::bug(format!("a problem is not JSON: {e}")))?;
            Ok(Reply::new(StatusCode::PAYMENT_REQUIRED, PROBLEM_JSON, body))
        }
        Status::Pending
        | Status::Paid
        | Status::Fulfilled
        | Status::Cancelled
        | Status::Refunded => {
            let order = orders::in_transaction(tx, order).await?;
            Reply::json(StatusCode::CREATED, &order.with_access_token())
        }
    }
}
