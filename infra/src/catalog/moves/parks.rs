//! What the fences cost a shop's requests, as the edges tell it.

use super::{DRIVER, by_id, counts, write};
use crate::api::ParkReport;
use crate::catalog::{Catalog, CatalogError, signed};

impl Catalog {
    /// Adds what an edge tells of a shop's requests to the move that they waited for, else to the shop's latest. They went on
    /// at the epoch that the move reserved, or at the source's where its fence was lifted: that one an earlier move had
    /// reserved, which may still be told of late arrivals.
    pub(crate) async fn note_park(&self, report: &ParkReport) -> Result<(), CatalogError> {
        let ParkReport {
            shop,
            epoch,
            parked,
            longest_ms,
            late,
        } = report;
        let mut change = self.change(DRIVER).await?;
        let id: Option<String> = sqlx::query_scalar(
            "select id from move where shop = $1 \
             order by case when epoch = $2 then 0 when source_epoch = $2 and $3 \
             and (detail ->> '$.record.fence_tries' > 0 or detail ->> '$.fenced_before') then 0 else 1 end, \
             created_ms desc, id desc limit 1",
        )
        .bind(signed(shop.get()))
        .bind(signed(epoch.get()))
        .bind(*parked > 0)
        .fetch_optional(change.conn())
        .await?;
        let id = id.ok_or_else(|| CatalogError::not_found("move of shop", shop))?;
        let id = id
            .parse()
            .map_err(|_| CatalogError::Corrupt(format!("the id of move {id}")))?;
        let row = by_id(change.conn(), id).await?;
        let mut detail = row.detail;
        let record = &mut detail.record;
        if *parked > 0 {
            let before = record.requests_parked.unwrap_or(0);
            record.requests_parked = Some(before.saturating_add(*parked));
            record.longest_park_ms = record.longest_park_ms.max(Some(*longest_ms));
        }
        record.late_arrivals = record.late_arrivals.saturating_add(*late);
        write(&mut change, id, row.state, &detail, row.error.as_deref()).await?;
        change.commit().await?;
        if *parked > 0 {
            counts::parked(*longest_ms);
        }
        Ok(())
    }
}
