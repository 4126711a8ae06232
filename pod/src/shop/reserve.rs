//! The first transaction of a checkout: takes the units and writes the order as `pending`.

use std::collections::BTreeMap;
use std::time::Duration;

use rust_decimal::Decimal;
use serde::Serialize;
use shared::error::Kind;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::checkout::{Cart, Line};
use super::money::{self, Currency};
use super::payment::{self, Charge};
use super::products::PRODUCT;
use super::state::Status;
use crate::{Error, Event, Tx};

/// What of a product goes into an order.
#[derive(Debug, sqlx::FromRow)]
struct Priced {
    product_id: Uuid,
    title: String,
    price: Decimal,
    currency: String,
}

/// Takes the units and writes the rows; gives what is to be charged. Any refusal is an error, which rolls all of it back.
pub(crate) async fn reserve(
    tx: &mut Tx,
    cart: &Cart,
    request_key: &str,
    settle_after: Duration,
) -> Result<Charge, Error> {
    let products = prices(tx, &cart.lines).await?;
    let items = items(&cart.lines, &products)?;
    let (total, currency) = total(&items)?;
    take_units(tx, &items).await?;
    let customer = customer(tx, cart).await?;
    insert_order(tx, cart, customer, total, currency).await?;
    insert_items(tx, cart.order, &items).await?;
    let charge = Charge {
        order: cart.order,
        key: payment::key(tx.shop(), cart.order),
        method: cart.method.to_owned(),
        instruction: cart.instruction.clone(),
        amount: total,
        currency: currency.as_str().to_owned(),
    };
    insert_payment(tx, cart.payment, &charge, request_key, settle_after).await?;
    tx.outbox(Event::new(
        "order.created",
        cart.order.to_string(),
        &Created {
            total: money::text(total, currency),
            currency: currency.as_str(),
        },
    )?);
    Ok(charge)
}

/// The event's payload.
#[derive(Debug, Serialize)]
struct Created<'a> {
    total: String,
    currency: &'a str,
}

async fn prices(tx: &mut Tx, lines: &[Line]) -> Result<BTreeMap<Uuid, Priced>, Error> {
    let marks = vec!["?"; lines.len()].join(", ");
    let sql = format!(
        "select product_id, title, price, currency from product
         where shop_id = ? and product_id in ({marks})"
    );
    // Nothing but question marks was put into the text.
    let mut query = sqlx::query_as(AssertSqlSafe(sql)).bind(tx.shop().get());
    for line in lines {
        query = query.bind(line.product);
    }
    let rows: Vec<Priced> = tx.fetch_all(query).await?;
    Ok(rows.into_iter().map(|row| (row.product_id, row)).collect())
}

/// A line with its product.
#[derive(Debug)]
struct Item<'a> {
    index: usize,
    line: Line,
    product: &'a Priced,
}

/// Another shop's product is no product: 404.
fn items<'a>(lines: &[Line], products: &'a BTreeMap<Uuid, Priced>) -> Result<Vec<Item<'a>>, Error> {
    lines
        .iter()
        .enumerate()
        .map(|(index, line)| match products.get(&line.product) {
            Some(product) => Ok(Item {
                index,
                line: *line,
                product,
            }),
            None => Err(Error::field(
                Kind::NotFound,
                format!("lines[{index}].product_id"),
                format!("This shop has no product {}.", line.product),
            )),
        })
        .collect()
}

/// What all of it costs. A shop sells in one currency, and so do all of its products.
fn total(items: &[Item<'_>]) -> Result<(Decimal, Currency), Error> {
    let code = items.first().map_or("", |item| &item.product.currency);
    let currency = Currency::parse(code)
        .ok_or_else(|| Error::bug(format!("a product is priced in {code:?}")))?;
    if let Some(other) = items.iter().find(|item| item.product.currency != code) {
        let id = other.product.product_id;
        return Err(Error::bug(format!("product {id} is not priced in {code}")));
    }
    let total = money::total(items.iter().map(|i| (i.product.price, i.line.quantity)));
    let total = total.ok_or_else(|| {
        Error::field(
            Kind::Invalid,
            "lines",
            "The total is more than an order can hold.",
        )
    })?;
    Ok((total, currency))
}

/// Takes the units of each line, in the order of product ids: two checkouts of the same products wait for each other
/// instead of deadlocking. The statement itself is the check, so nothing is read before it that could be old.
async fn take_units(tx: &mut Tx, items: &[Item<'_>]) -> Result<(), Error> {
    let mut by_product: Vec<&Item<'_>> = items.iter().collect();
    by_product.sort_unstable_by_key(|item| item.line.product);
    for item in by_product {
        let Line { product, quantity } = item.line;
        let query = sqlx::query(
            "update inventory set available = available - ?, updated_at = utc_timestamp(3)
             where shop_id = ? and product_id = ? and available >= ?",
        )
        .bind(quantity)
        .bind(tx.shop().get())
        .bind(product)
        .bind(quantity);
        if tx.execute(query).await? == 0 {
            return Err(Error::field(
                Kind::InsufficientStock,
                format!("lines[{}].quantity", item.index),
                format!(
                    "There are fewer than {quantity} left of {:?}.",
                    item.product.title
                ),
            ));
        }
        tx.changed(&PRODUCT, &product.to_string());
    }
    Ok(())
}

/// The customer of that address, made if there is none.
async fn customer(tx: &mut Tx, cart: &Cart) -> Result<Uuid, Error> {
    if let Some(known) = find_customer(tx, &cart.email).await? {
        return Ok(known);
    }
    // Another checkout may be making it just now: this waits for that one, and then leaves its row as it is.
    let insert = sqlx::query(
        "insert into customer (shop_id, customer_id, email) values (?, ?, ?)
         on duplicate key update email = customer.email",
    )
    .bind(tx.shop().get())
    .bind(cart.customer)
    .bind(&cart.email);
    tx.execute(insert).await?;
    find_customer(tx, &cart.email)
        .await?
        .ok_or_else(|| Error::bug("a customer is gone in the transaction that made it"))
}

async fn find_customer(tx: &mut Tx, email: &str) -> Result<Option<Uuid>, Error> {
    let query = sqlx::query_as("select customer_id from customer where shop_id = ? and email = ?")
        .bind(tx.shop().get())
        .bind(email);
    let row: Option<(Uuid,)> = tx.fetch_optional(query).await?;
    Ok(row.map(|(id,)| id))
}

async fn insert_order(
    tx: &mut Tx,
    cart: &Cart,
    customer: Uuid,
    total: Decimal,
    currency: Currency,
) -> Result<(), Error> {
    let lines = u16::try_from(cart.lines.len())
        .map_err(|_| Error::bug("a cart has more lines than was checked"))?;
    let query = sqlx::query(
        "insert into shop_order
           (shop_id, order_id, customer_id, status, total, currency, line_count, access_key)
         values (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(tx.shop().get())
    .bind(cart.order)
    .bind(customer)
    .bind(Status::Pending.as_str())
    .bind(total)
    .bind(currency.as_str())
    .bind(lines)
    .bind(cart.access_key.as_slice());
    tx.execute(query).await.map(|_| ())
}

async fn insert_items(tx: &mut Tx, order: Uuid, items: &[Item<'_>]) -> Result<(), Error> {
    let rows = vec!["(?, ?, ?, ?, ?, ?, ?)"; items.len()].join(", ");
    let sql = format!(
        "insert into order_item (shop_id, order_id, line, product_id, title, price, quantity)
         values {rows}"
    );
    // Nothing but question marks was put into the text.
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for item in items {
        let index = u16::try_from(item.index)
            .map_err(|_| Error::bug("a cart has more lines than was checked"))?;
        query = query
            .bind(tx.shop().get())
            .bind(order)
            .bind(index)
            .bind(item.line.product)
            .bind(&item.product.title)
            .bind(item.product.price)
            .bind(item.line.quantity);
    }
    tx.execute(query).await.map(|_| ())
}

async fn insert_payment(
    tx: &mut Tx,
    id: Uuid,
    charge: &Charge,
    request_key: &str,
    settle_after: Duration,
) -> Result<(), Error> {
    let query = sqlx::query(
        "insert into payment
           (shop_id, payment_id, order_id, method, instruction, provider_key, request_key,
            amount, currency, status, due_at)
         values (?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', utc_timestamp(3) + interval ? second)",
    )
    .bind(tx.shop().get())
    .bind(id)
    .bind(charge.order)
    .bind(&charge.method)
    .bind(&charge.instruction)
    .bind(&charge.key)
    .bind(request_key)
    .bind(charge.amount)
    .bind(&charge.currency)
    .bind(settle_after.as_secs());
    tx.execute(query).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priced(id: Uuid, price: &str, currency: &str) -> Priced {
        Priced {
            product_id: id,
            title: "x".into(),
            price: Decimal::from_str_exact(price).unwrap(),
            currency: currency.into(),
        }
    }

    fn field(error: &Error) -> Option<(Kind, &str)> {
        let Error::Problem { kind, field, .. } = error else {
            panic!("{error}");
        };
        Some((*kind, field.as_deref()?))
    }

    #[test]
    fn a_product_that_is_not_the_shops_names_its_line() {
        let [known, other] = [Uuid::now_v7(), Uuid::now_v7()];
        let products = BTreeMap::from([(known, priced(known, "1", "USD"))]);
        let line = |product| Line {
            product,
            quantity: 1,
        };
        let error = items(&[line(known), line(other)], &products).unwrap_err();
        assert_eq!(field(&error), Some((Kind::NotFound, "lines[1].product_id")));
    }

    #[test]
    fn a_total_is_exact_and_bounded() {
        let id = Uuid::now_v7();
        let of = |price: &str, quantity| {
            let product = priced(id, price, "USD");
            let line = Line {
                product: id,
                quantity,
            };
            let items = [Item {
                index: 0,
                line,
                product: &product,
            }];
            total(&items).map(|(total, _)| total.to_string())
        };
        assert_eq!(of("0.1000", 3).unwrap(), "0.3000");
        let error = of("999999999999999.99", 2).unwrap_err();
        assert_eq!(field(&error), Some((Kind::Invalid, "lines")));
    }
}
