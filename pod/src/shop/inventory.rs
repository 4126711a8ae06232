//! Stock: how many units may still be sold. Taking and giving back is `reserve` and `transition`; this is the
//! merchant's word, which is absolute.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::fields::{self, PathId};
use super::limits::Limits;
use super::products;
use crate::{
    App, Call, Consistency, Error, IdempotencyKey, Json, Merchant, Reader, Reply, Shop, Tx,
};

/// The body, both ways.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inventory {
    available: i64,
}

/// `GET /api/v1/products/{id}/inventory`
pub(crate) async fn show(
    State(app): State<App>,
    shop: Shop,
    _: Merchant,
    PathId(id): PathId,
) -> Result<Answer<Inventory>, Error> {
    let available = app
        .read(&shop, Consistency::Strong, move |reader| {
            Box::pin(load(reader, id))
        })
        .await?
        .ok_or_else(Error::not_found)?;
    Ok(Answer(Inventory { available }))
}

/// `PUT /api/v1/products/{id}/inventory`
pub(crate) async fn put(
    State(app): State<App>,
    shop: Shop,
    _: Merchant,
    PathId(id): PathId,
    limits: Limits,
    key: IdempotencyKey,
    body: Json<Inventory>,
) -> Result<Reply, Error> {
    let available = fields::available(body.value.available, limits.available)?;
    let call = Call::new("inventory.put", &key, body.fingerprint);
    app.write(&shop, call, move |tx| {
        Box::pin(async move {
            set(tx, id, available).await?;
            products::publish(tx, "inventory.updated", id).await?;
            Reply::json(StatusCode::OK, &Inventory { available })
        })
    })
    .await
}

/// Sets the units of a product; 404 if the shop has no such product.
pub(crate) async fn set(tx: &mut Tx, id: Uuid, available: i64) -> Result<(), Error> {
    let query = sqlx::query(
        "update inventory set available = ?, updated_at = utc_timestamp(3)
         where shop_id = ? and product_id = ?",
    )
    .bind(available)
    .bind(tx.shop().get())
    .bind(id);
    match tx.execute(query).await? {
        0 => Err(Error::not_found()),
        _ => Ok(()),
    }
}

async fn load(reader: &mut Reader, id: Uuid) -> Result<Option<i64>, Error> {
    let query =
        sqlx::query_as("select available from inventory where shop_id = ? and product_id = ?")
            .bind(reader.shop().get())
            .bind(id);
    let row: Option<(i64,)> = reader.fetch_optional(query).await?;
    Ok(row.map(|(available,)| available))
}
