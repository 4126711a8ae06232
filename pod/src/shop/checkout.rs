//! A checkout: the buyer's cart becomes an order, and the order is paid for.
//!
//! 1. `reserve`, one transaction: take the units, write the order as `pending` with its payment's key.
//! 2. `payment::collect`, outside of any transaction: the provider takes the money, once for that key.
//! 3. `settle`, one transaction: `paid`, or `payment_failed` with the units back; the answer is stored.
//!
//! A crash after any of them leaves a state that the same request, sent again, takes up; if nobody sends it again, the
//! sweeper does, and the answer it stores is what a late repeat is told.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use uuid::Uuid;

use super::fields::{self, invalid};
use super::limits::Limits;
use super::payment::{self, At, Charge};
use super::{reserve, settle};
use crate::{App, Call, Error, First, Json, Reply, RequiredKey, Shop};

/// The name of the endpoint under which keys and answers are kept, whichever way a checkout came.
pub(crate) const ENDPOINT: &str = "checkouts";

/// The body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckoutBody {
    pub(crate) email: String,
    pub(crate) lines: Vec<LineBody>,
    pub(crate) payment: PaymentBody,
}

/// A line of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LineBody {
    pub(crate) product_id: String,
    pub(crate) quantity: i64,
}

/// How the buyer wants to pay.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaymentBody {
    pub(crate) method: String,
    pub(crate) outcome: String,
}

/// A cart that has been checked, with the ids that the order will have: the transaction may run several times, and
/// writes the same rows each time.
#[derive(Debug)]
pub(crate) struct Cart {
    pub(crate) email: String,
    /// In the buyer's order.
    pub(crate) lines: Vec<Line>,
    pub(crate) method: &'static str,
    pub(crate) instruction: String,
    pub(crate) order: Uuid,
    pub(crate) customer: Uuid,
    pub(crate) payment: Uuid,
    pub(crate) access_key: [u8; 32],
}

/// A line of a cart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub(crate) product: Uuid,
    pub(crate) quantity: i32,
}

impl CheckoutBody {
    /// Checks everything that can be checked without the database.
    pub(crate) fn check(self, limits: Limits) -> Result<Cart, Error> {
        let Self {
            email,
            lines,
            payment: PaymentBody { method, outcome },
        } = self;
        let email = fields::email(&email)?;
        let lines_max = limits.lines;
        if !(1..=lines_max as usize).contains(&lines.len()) {
            let rule = format!("An order has 1 to {lines_max} lines.");
            return Err(invalid("lines", rule));
        }
        let provider = payment::provider(&method)?;
        provider.check(&outcome)?;
        Ok(Cart {
            email,
            lines: check_lines(&lines, limits.quantity)?,
            method: provider.method(),
            instruction: outcome,
            order: Uuid::now_v7(),
            customer: Uuid::now_v7(),
            payment: Uuid::now_v7(),
            access_key: rand::random(),
        })
    }
}

fn check_lines(bodies: &[LineBody], quantity_max: u32) -> Result<Vec<Line>, Error> {
    let mut lines: Vec<Line> = Vec::with_capacity(bodies.len());
    for (index, body) in bodies.iter().enumerate() {
        let id_field = format!("lines[{index}].product_id");
        let product = fields::id(&body.product_id)
            .ok_or_else(|| invalid(&*id_field, "A product id is a UUID."))?;
        let quantity = fields::quantity(
            &format!("lines[{index}].quantity"),
            body.quantity,
            quantity_max,
        )?;
        // Adding the quantities up would leave an error about one of them without a line to name.
        if let Some(first) = lines.iter().position(|line| line.product == product) {
            let detail = format!("lines[{first}] has this product already; give one quantity.");
            return Err(invalid(id_field, detail));
        }
        lines.push(Line { product, quantity });
    }
    Ok(lines)
}

/// `POST /api/v1/checkouts`
pub(crate) async fn create(
    State(app): State<App>,
    shop: Shop,
    limits: Limits,
    RequiredKey(key): RequiredKey,
    body: Json<CheckoutBody>,
) -> Result<Reply, Error> {
    let call = Call::new(ENDPOINT, &key, body.fingerprint);
    let cart = body.value.check(limits)?;
    check_out(&app, &shop, limits, call, cart).await
}

/// The three steps. A refusal in the first (no such product, too few units) has no effect and keeps no answer: the same
/// key may be tried again. From there on the key has one order and one answer.
pub(crate) async fn check_out(
    app: &App,
    shop: &Shop,
    limits: Limits,
    call: Call,
    cart: Cart,
) -> Result<Reply, Error> {
    let cart = Arc::new(cart);
    let request_key: Arc<str> = call.key().into();
    let first = app
        .begin(shop, call.clone(), move |tx| {
            let (cart, request_key) = (Arc::clone(&cart), Arc::clone(&request_key));
            Box::pin(async move {
                let charge = reserve::reserve(tx, &cart, &request_key, limits.settle_after).await?;
                serde_json::to_vec(&charge)
                    .map_err(|e| Error::bug(format!("a charge is not JSON: {e}")))
            })
        })
        .await?;
    let (note, resumed) = match first {
        First::Done(reply) => return Ok(reply),
        First::Begun { note, resumed } => (note, resumed),
    };
    let charge: Charge = serde_json::from_slice(&note)
        .map_err(|e| Error::bug(format!("the note of a checkout is no charge: {e}")))?;
    let verdict = match payment::collect(At { app, shop }, limits, &charge, resumed).await {
        Ok(verdict) => verdict,
        Err(error) => {
            // Where even this cannot be written, the hold on the key runs out by itself.
            drop(app.leave(shop, call).await);
            return Err(error);
        }
    };
    settle::settle(app, shop, call, charge.order, verdict).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0191f000-0000-7000-8000-000000000001";
    const B: &str = "0191f000-0000-7000-8000-000000000002";

    fn body(email: &str, lines: &str, payment: &str) -> Result<Cart, Option<String>> {
        let json = format!(r#"{{"email": "{email}", "lines": {lines}, "payment": {payment}}}"#);
        let body: CheckoutBody = serde_json::from_str(&json).map_err(|_| None)?;
        body.check(Limits::default()).map_err(|error| {
            let Error::Problem { field, .. } = error else {
                panic!("{error}");
            };
            field
        })
    }

    fn line(id: &str, quantity: &str) -> String {
        format!(r#"{{"product_id": "{id}", "quantity": {quantity}}}"#)
    }

    const PAY: &str = r#"{"method": "bogus", "outcome": "approve"}"#;

    #[test]
    fn a_cart_keeps_the_order_of_its_lines() {
        let lines = format!("[{}, {}]", line(B, "2"), line(A, "1"));
        let cart = body("Ann@Shop.example", &lines, PAY).unwrap();
        assert_eq!(cart.email, "ann@shop.example");
        let got: Vec<_> = cart
            .lines
            .iter()
            .map(|l| (l.product.to_string(), l.quantity))
            .collect();
        assert_eq!(got, [(B.to_owned(), 2), (A.to_owned(), 1)]);
    }

    /// Every kind of bad input names its field, or is no body at all.
    #[test]
    fn bad_carts_name_their_field() {
        let one = format!("[{}]", line(A, "1"));
        let twice = format!("[{}, {}]", line(A, "1"), line(A, "1"));
        let many = format!("[{}]", vec![line(A, "1"); 101].join(","));
        let rows = [
            ("nobody", &*one, PAY, Some("email")),
            ("a@b.c", "[]", PAY, Some("lines")),
            ("a@b.c", &*many, PAY, Some("lines")),
            ("a@b.c", &*twice, PAY, Some("lines[1].product_id")),
            (
                "a@b.c",
                r#"[{"product_id": "1", "quantity": 1}]"#,
                PAY,
                Some("lines[0].product_id"),
            ),
            (
                "a@b.c",
                &*one,
                r#"{"method": "cash", "outcome": "approve"}"#,
                Some("payment.method"),
            ),
            (
                "a@b.c",
                &*one,
                r#"{"method": "bogus", "outcome": "x"}"#,
                Some("payment.outcome"),
            ),
            ("a@b.c", &*one, r#"{"method": "bogus"}"#, None),
            (
                "a@b.c",
                &*one,
                r#"{"method": "bogus", "outcome": "approve", "x": 1}"#,
                None,
            ),
        ];
        for (email, lines, payment, field) in rows {
            let got = body(email, lines, payment).unwrap_err();
            assert_eq!(got.as_deref(), field, "{email} {payment}");
        }
        for (quantity, field) in [
            ("0", true),
            ("-1", true),
            ("10001", true),
            ("1.5", false),
            ("\"1\"", false),
            ("1e99", false),
        ] {
            let lines = format!("[{}, {}]", line(B, "1"), line(A, quantity));
            let got = body("a@b.c", &lines, PAY).unwrap_err();
            assert_eq!(
                got.as_deref(),
                field.then_some("lines[1].quantity"),
                "{quantity}"
            );
        }
    }
}
