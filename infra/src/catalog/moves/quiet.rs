//! What is kept with a move and is no news: nobody is woken, it is no event, and the move is not younger for it.

use super::{DRIVER, MoveDetail, MoveRow, expect, text_of};
use crate::api::MoveRecord;
use crate::catalog::{Catalog, CatalogError};

impl Catalog {
    /// Keeps how far the source's binlog was watched, for the next run.
    pub(crate) async fn note_watched(
        &self,
        seen: &MoveRow,
        watched: &str,
    ) -> Result<MoveRow, CatalogError> {
        self.note_quietly(seen, |detail| detail.watched = Some(watched.to_owned()))
            .await
    }

    /// Keeps how much of its work is done, for whoever looks when nobody drives it, and for the next run's counters.
    pub(crate) async fn note_counts(
        &self,
        seen: &MoveRow,
        counted: &MoveRecord,
    ) -> Result<MoveRow, CatalogError> {
        self.note_quietly(seen, |detail| {
            let record = &mut detail.record;
            record.copied_rows = counted.copied_rows;
            record.copied_bytes = counted.copied_bytes;
            record.applied_keys = counted.applied_keys;
            record.compared_rows = counted.compared_rows;
            record.repaired_rows = counted.repaired_rows;
            record.deleted_rows = counted.deleted_rows;
        })
        .await
    }

    async fn note_quietly(
        &self,
        seen: &MoveRow,
        note: impl FnOnce(&mut MoveDetail),
    ) -> Result<MoveRow, CatalogError> {
        let mut change = self.change(DRIVER).await?;
        let mut found = expect(&mut change, seen).await?;
        note(&mut found.detail);
        sqlx::query("update move set detail = $1 where id = $2")
            .bind(text_of(&found.detail)?)
            .bind(found.id.to_string())
            .execute(change.conn())
            .await?;
        change.commit().await?;
        Ok(found)
    }
}
