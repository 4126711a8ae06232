//! The outbox's statements.

use shared::{Epoch, ShopId};
use sqlx::{MySql, QueryBuilder};
use uuid::Uuid;

use crate::outbox::Event;
use crate::outbox::sink::Relayed;
use crate::{Error, Reader, Tx};

/// Shops that one look finds; the next look goes on after them.
pub(crate) const SHOPS_MAX: u32 = 200;

/// Writes events.
pub(crate) fn insert(shop: ShopId, epoch: Epoch, events: &[Event]) -> QueryBuilder<MySql> {
    let mut insert =
        QueryBuilder::new("insert into outbox (shop_id, event_id, epoch, kind, subject, payload) ");
    insert.push_values(events, |mut row, event| {
        row.push_bind(shop.get())
            .push_bind(Uuid::now_v7().as_bytes().to_vec())
            .push_bind(epoch.get())
            .push_bind(event.kind)
            .push_bind(event.subject.clone())
            .push_bind(event.payload.clone());
    });
    insert
}

/// Serving shops after one that have events waiting. The index holds what waits and nothing else; the home is asked here
/// too, so that shops that have moved away with events waiting do not fill the page.
pub(crate) fn waiting_shops(after: u64) -> String {
    format!(
        "select distinct o.shop_id from outbox o join shop_home s on s.shop_id = o.shop_id and s.state = 'serving' \
         where o.waiting = 1 and o.shop_id > {after} order by o.shop_id limit {SHOPS_MAX}"
    )
}

/// The shops with old events.
pub(crate) fn old_shops(kept_s: u64) -> String {
    format!(
        "select s.shop_id from shop_home s where s.state = 'serving' and exists (select 1 from outbox o \
         where o.shop_id = s.shop_id and o.relayed_at < now(3) - interval {kept_s} second) limit {SHOPS_MAX}"
    )
}

#[derive(Debug, sqlx::FromRow)]
struct Row {
    position: u64,
    event_id: Vec<u8>,
    epoch: u64,
    kind: String,
    subject: String,
    payload: String,
    created_ms: u64,
}

/// The events of a shop that wait, in order.
pub(crate) async fn waiting(read: &mut Reader, batch: u32) -> Result<Vec<Relayed>, Error> {
    let rows: Vec<Row> = read
        .fetch_all(
            sqlx::query_as(
                "select position, event_id, epoch, kind, subject, payload, \
                 cast(unix_timestamp(created_at) * 1000 as unsigned) as created_ms \
                 from outbox where shop_id = ? and waiting = 1 order by position limit ?",
            )
            .bind(read.shop().get())
            .bind(batch),
        )
        .await?;
    let shop = read.shop();
    rows.into_iter()
        .map(|row| {
            let Row {
                position,
                event_id,
                epoch,
                kind,
                subject,
                payload,
                created_ms,
            } = row;
            let id = Uuid::from_slice(&event_id)
                .map_err(|e| Error::bug(format!("an event's id: {e}")))?;
            Ok(Relayed {
                shop,
                position,
                id,
                epoch,
                kind,
                subject,
                payload,
                created_ms,
            })
        })
        .collect()
}

/// Marks events as relayed. The list is filled up with its last position to one of few lengths: each length is a
/// statement of its own, prepared and kept on each connection.
pub(crate) async fn mark(tx: &mut Tx, positions: &[u64]) -> Result<u64, Error> {
    let Some(last) = positions.last() else {
        return Ok(0);
    };
    let filled = positions.len().next_power_of_two();
    let mut update: QueryBuilder<MySql> = QueryBuilder::new(
        "update outbox set waiting = null, relayed_at = now(3) where waiting = 1 and shop_id = ",
    );
    update.push_bind(tx.shop().get()).push(" and position in (");
    let mut list = update.separated(", ");
    for index in 0..filled {
        list.push_bind(*positions.get(index).unwrap_or(last));
    }
    update.push(")");
    tx.execute(update.build()).await
}

/// Deletes old events.
pub(crate) async fn clean(tx: &mut Tx, kept_s: u64, batch: u32) -> Result<u64, Error> {
    tx.execute(
        sqlx::query("delete from outbox where shop_id = ? and relayed_at < now(3) - interval ? second order by relayed_at limit ?")
            .bind(tx.shop().get())
            .bind(kept_s)
            .bind(batch),
    )
    .await
}
