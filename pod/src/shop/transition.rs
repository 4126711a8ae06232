//! A step of an order inside a transaction: locks the order, asks `state` whether it may, does what goes with it.

use serde::Serialize;
use uuid::Uuid;

use super::products::PRODUCT;
use super::state::{Event as What, Status, Step, step};
use crate::{Error, Event, Tx};

/// An order, locked until the transaction ends.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) id: Uuid,
    pub(crate) status: Status,
}

/// Locks an order; 404 if the shop has none of that id.
pub(crate) async fn lock(tx: &mut Tx, id: Uuid) -> Result<Locked, Error> {
    let query = sqlx::query_as(
        "select status from shop_order where shop_id = ? and order_id = ? for update",
    )
    .bind(tx.shop().get())
    .bind(id);
    let row: Option<(String,)> = tx.fetch_optional(query).await?;
    let (word,) = row.ok_or_else(Error::not_found)?;
    let status = Status::parse(&word)
        .ok_or_else(|| Error::bug(format!("order {id} has the status {word:?}")))?;
    Ok(Locked { id, status })
}

/// The payload of an order's event.
#[derive(Debug, Serialize)]
struct Stepped {
    status: &'static str,
    before: &'static str,
}

/// Does one step of a locked order. `None`: there is no such step from its state, and nothing was done.
pub(crate) async fn apply(tx: &mut Tx, order: &Locked, what: What) -> Result<Option<Step>, Error> {
    let Some(step) = step(order.status, what) else {
        return Ok(None);
    };
    let query = sqlx::query(
        "update shop_order set status = ?, updated_at = utc_timestamp(3)
         where shop_id = ? and order_id = ? and status = ?",
    )
    .bind(step.to.as_str())
    .bind(tx.shop().get())
    .bind(order.id)
    .bind(order.status.as_str());
    if tx.execute(query).await? != 1 {
        return Err(Error::bug(format!(
            "order {} changed under its lock",
            order.id
        )));
    }
    if step.restock {
        restock(tx, order.id).await?;
    }
    if step.money_back {
        ask_for_money_back(tx, order.id).await?;
    }
    if step.to != order.status {
        let payload = Stepped {
            status: step.to.as_str(),
            before: order.status.as_str(),
        };
        let event = Event::new(event_kind(step.to), order.id.to_string(), &payload)?;
        tx.outbox(event);
    }
    Ok(Some(step))
}

const fn event_kind(to: Status) -> &'static str {
    match to {
        Status::Pending => "order.pending",
        Status::Paid => "order.paid",
        Status::PaymentFailed => "order.payment_failed",
        Status::Fulfilled => "order.fulfilled",
        Status::Cancelled => "order.cancelled",
        Status::Refunded => "order.refunded",
    }
}

/// Puts an order's units back, product by product in the same order in which checkouts take them.
async fn restock(tx: &mut Tx, order: Uuid) -> Result<(), Error> {
    let query = sqlx::query_as(
        "select product_id, quantity from order_item
         where shop_id = ? and order_id = ? order by product_id",
    )
    .bind(tx.shop().get())
    .bind(order);
    let items: Vec<(Uuid, i32)> = tx.fetch_all(query).await?;
    for (product, quantity) in items {
        let query = sqlx::query(
            "update inventory set available = available + ?, updated_at = utc_timestamp(3)
             where shop_id = ? and product_id = ?",
        )
        .bind(quantity)
        .bind(tx.shop().get())
        .bind(product);
        if tx.execute(query).await? != 1 {
            return Err(Error::bug(format!(
                "product {product} of order {order} has no stock row"
            )));
        }
        tx.changed(&PRODUCT, &product.to_string());
    }
    Ok(())
}

/// The decision that the money goes back. The sweeper carries it to the provider, from now on.
async fn ask_for_money_back(tx: &mut Tx, order: Uuid) -> Result<(), Error> {
    let query = sqlx::query(
        "update payment set status = 'refunding', due_at = utc_timestamp(3),
           updated_at = utc_timestamp(3)
         where shop_id = ? and order_id = ? and status in ('approved', 'declined')",
    )
    .bind(tx.shop().get())
    .bind(order);
    tx.execute(query).await.map(|_| ())
}
