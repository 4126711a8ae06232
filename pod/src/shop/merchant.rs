//! What a merchant does with an order: send it, call it off, take it back.

use axum::extract::State;
use http::StatusCode;
use shared::error::Kind;
use uuid::Uuid;

use super::fields::PathId;
use super::orders;
use super::state::Event;
use super::transition;
use crate::{App, Call, Error, IdempotencyKey, Merchant, NoBody, Reply, Shop, Tx};

/// `POST /api/v1/orders/{id}/fulfil`
pub(crate) async fn fulfil(
    State(app): State<App>,
    shop: Shop,
    _: Merchant,
    PathId(id): PathId,
    key: IdempotencyKey,
    body: NoBody,
) -> Result<Reply, Error> {
    let call = Call::new("orders.fulfil", &key, body.fingerprint);
    act(&app, &shop, call, id, Event::Fulfil).await
}

/// `POST /api/v1/orders/{id}/cancel`
pub(crate) async fn cancel(
    State(app): State<App>,
    shop: Shop,
    _: Merchant,
    PathId(id): PathId,
    key: IdempotencyKey,
    body: NoBody,
) -> Result<Reply, Error> {
    let call = Call::new("orders.cancel", &key, body.fingerprint);
    act(&app, &shop, call, id, Event::Cancel).await
}

/// `POST /api/v1/orders/{id}/refund`
pub(crate) async fn refund(
    State(app): State<App>,
    shop: Shop,
    _: Merchant,
    PathId(id): PathId,
    key: IdempotencyKey,
    body: NoBody,
) -> Result<Reply, Error> {
    let call = Call::new("orders.refund", &key, body.fingerprint);
    act(&app, &shop, call, id, Event::Refund).await
}

async fn act(app: &App, shop: &Shop, call: Call, id: Uuid, event: Event) -> Result<Reply, Error> {
    let shipment = Uuid::now_v7();
    app.write(shop, call, move |tx| {
        Box::pin(async move {
            let order = transition::lock(tx, id).await?;
            if transition::apply(tx, &order, event).await?.is_none() {
                let (is, verb) = (order.status.as_str(), event.verb());
                let detail = format!("An order that is {is} cannot be {verb}.");
                return Err(Error::because(Kind::OrderState, detail));
            }
            if event == Event::Fulfil {
                ship(tx, shipment, id).await?;
            }
            Reply::json(StatusCode::OK, &orders::in_transaction(tx, id).await?)
        })
    })
    .await
}

async fn ship(tx: &mut Tx, id: Uuid, order: Uuid) -> Result<(), Error> {
    let query =
        sqlx::query("insert into shipment (shop_id, shipment_id, order_id) values (?, ?, ?)")
            .bind(tx.shop().get())
            .bind(id)
            .bind(order);
    tx.execute(query).await.map(|_| ())
}
