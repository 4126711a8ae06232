//! What a move left at a pod: rows to be deleted there, by whoever drives it, until it is done. An aborted move left them
//! at its target, one that ended without its source at that.

use shared::moves::MoveId;
use shared::{Epoch, PodId, ShopId};

use super::drive::take_lease;
use super::{DRIVER, MoveDetail, MoveRow, append, append_taken, by_id, drop_lease, text_of};
use crate::api::{Pod, Shop};
use crate::catalog::{Catalog, CatalogError, Change, epoch, pod_id, shop_id, signed, unsigned};
use crate::output::the_pod;

/// A copy to be taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leftover {
    /// The move that left it.
    pub(crate) id: MoveId,
    /// Whose rows.
    pub(crate) shop: ShopId,
    /// Where.
    pub(crate) pod: PodId,
    /// The epoch of the home there.
    pub(crate) epoch: Epoch,
    /// Raised by each takeover, like a move's.
    pub(crate) owner: u64,
    /// Since when.
    pub(crate) created_ms: i64,
}

type Raw = (String, i64, i64, i64, i64, i64);

/// `select` of [`Raw`].
macro_rules! select_leftover {
    ($tail:literal) => {
        concat!(
            "select l.move, l.shop, l.pod, case when l.pod = m.source_pod then m.source_epoch else m.epoch end, \
             l.owner, l.created_ms from move_leftover l join move m on m.id = l.move ",
            $tail
        )
    };
}

fn of_raw((id, shop, pod, number, owner, created_ms): Raw) -> Result<Leftover, CatalogError> {
    Ok(Leftover {
        id: move_id(&id)?,
        shop: shop_id(shop)?,
        pod: pod_id(pod)?,
        epoch: epoch(number)?,
        owner: unsigned(owner)?,
        created_ms,
    })
}

fn move_id(id: &str) -> Result<MoveId, CatalogError> {
    id.parse()
        .map_err(|_| CatalogError::Corrupt(format!("the id of move {id}")))
}

impl Catalog {
    /// All of them, oldest first.
    pub(crate) async fn leftovers(&self) -> Result<Vec<Leftover>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows: Vec<Raw> = sqlx::query_as(select_leftover!("order by l.created_ms, l.move"))
            .fetch_all(&mut *conn)
            .await?;
        rows.into_iter().map(of_raw).collect()
    }

    /// The moves of a shop that are over and have no leftover, the newest so many.
    pub(crate) async fn moves_over(
        &self,
        shop: ShopId,
        limit: u32,
    ) -> Result<Vec<MoveId>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let ids: Vec<String> = sqlx::query_scalar(
            "select m.id from move m where m.shop = $1 and m.state in ('done', 'aborted') \
             and not exists (select 1 from move_leftover l where l.move = m.id) \
             order by m.created_ms desc, m.id desc limit $2",
        )
        .bind(signed(shop.get()))
        .bind(i64::from(limit))
        .fetch_all(&mut *conn)
        .await?;
        ids.iter().map(|id| move_id(id)).collect()
    }

    /// Takes one up, as a move is taken up; `None` where another holder's lease is alive, or it is done.
    pub(crate) async fn take_leftover(
        &self,
        id: MoveId,
        holder: &str,
        lease_ms: u64,
        force: bool,
    ) -> Result<Option<Leftover>, CatalogError> {
        if !force && self.is_held(id, holder).await? {
            return Ok(None);
        }
        let mut change = self.change(DRIVER).await?;
        let raised: Option<i64> = sqlx::query_scalar(
            "update move_leftover set owner = owner + 1 where move = $1 returning owner",
        )
        .bind(id.to_string())
        .fetch_optional(change.conn())
        .await?;
        let Some(owner) = raised else { return Ok(None) };
        if !take_lease(&mut change, id, holder, lease_ms, force).await? {
            return Ok(None);
        }
        // The shop's next move goes on from this number.
        sqlx::query("update move set owner = $1 where id = $2")
            .bind(owner)
            .bind(id.to_string())
            .execute(change.conn())
            .await?;
        let row: Raw = sqlx::query_as(select_leftover!("where l.move = $1"))
            .bind(id.to_string())
            .fetch_one(change.conn())
            .await?;
        let of_move = by_id(change.conn(), id).await?;
        let what = "the copy it left is ";
        append_taken(
            &mut change,
            id,
            of_move.state,
            unsigned(owner)?,
            what,
            holder,
        )
        .await?;
        change.commit().await?;
        of_raw(row).map(Some)
    }

    /// Keeps the lease of one.
    pub(crate) async fn renew_leftover(
        &self,
        id: MoveId,
        owner: u64,
        holder: &str,
        lease_ms: u64,
    ) -> Result<(), CatalogError> {
        let mut change = self.change(DRIVER).await?;
        let expires = change.at_ms.saturating_add(signed(lease_ms));
        let renewed = sqlx::query(
            "update move_lease set expires_ms = $1 where move = $2 and holder = $3 \
             and exists (select 1 from move_leftover l where l.move = $2 and l.owner = $4)",
        )
        .bind(expires)
        .bind(id.to_string())
        .bind(holder)
        .bind(signed(owner))
        .execute(change.conn())
        .await?
        .rows_affected();
        if renewed == 0 {
            return Err(stale(id));
        }
        change.commit().await
    }

    /// Says why one is still there, or that nothing stands in the way any more; the same again is no news. Why the move ended
    /// as it did stays.
    pub(crate) async fn note_leftover(
        &self,
        left: &Leftover,
        text: Option<&str>,
    ) -> Result<(), CatalogError> {
        let mut change = self.change(DRIVER).await?;
        let row = by_id(change.conn(), left.id).await?;
        if row.leftover_ms.is_none() || row.detail.waits.as_deref() == text {
            return Ok(());
        }
        waits(&mut change, left.id, row.detail, text).await?;
        if text.is_some() {
            append(&mut change, left.id, row.state, left.owner, text).await?;
        }
        change.commit().await
    }

    /// Notes where the dump is of what a source had that came back, which may have sold meanwhile, and has that nowhere else; or
    /// of what a move back had found at its target.
    pub(crate) async fn note_left_dump(
        &self,
        left: &Leftover,
        dump: &str,
    ) -> Result<(), CatalogError> {
        let mut change = self.change(DRIVER).await?;
        let mut row = held(&mut change, left).await?;
        let record = &mut row.detail.record;
        let (pod, noted) = if left.pod == row.source {
            (&row.source_name, &mut record.gone_dump)
        } else {
            (&row.target_name, &mut record.back_dump)
        };
        if noted.as_deref() == Some(dump) {
            return Ok(());
        }
        *noted = Some(dump.to_owned());
        let note = format!("what {} had of the shop is in {dump}", the_pod(pod));
        store(&mut change, left.id, &row.detail).await?;
        append(&mut change, left.id, row.state, left.owner, Some(&note)).await?;
        change.commit().await
    }

    /// Keeps what is known of rows that are being cleared: how far their pod's binlog was looked at, who else changed them
    /// meanwhile, their dump. `note` is news.
    pub(crate) async fn note_cleared(
        &self,
        left: &Leftover,
        detail: &MoveDetail,
        note: Option<&str>,
    ) -> Result<(), CatalogError> {
        let mut change = self.change(DRIVER).await?;
        let row = held(&mut change, left).await?;
        let mut kept = row.detail;
        kept.watched.clone_from(&detail.watched);
        kept.strays.clone_from(&detail.strays);
        kept.strays_total = detail.strays_total;
        kept.record.dump.clone_from(&detail.record.dump);
        kept.record.deleted_rows = detail.record.deleted_rows;
        store(&mut change, left.id, &kept).await?;
        if note.is_some() {
            append(&mut change, left.id, row.state, left.owner, note).await?;
        }
        change.commit().await
    }

    /// The copy is gone: the shop may move there again.
    pub(crate) async fn leftover_done(&self, left: &Leftover) -> Result<(), CatalogError> {
        let mut change = self.change(DRIVER).await?;
        let row = by_id(change.conn(), left.id).await?;
        let gone = sqlx::query("delete from move_leftover where move = $1 and owner = $2")
            .bind(left.id.to_string())
            .bind(signed(left.owner))
            .execute(change.conn())
            .await?
            .rows_affected();
        if gone == 0 {
            return Err(stale(left.id));
        }
        drop_lease(&mut change, left.id).await?;
        waits(&mut change, left.id, row.detail, None).await?;
        let pod = if left.pod == row.source {
            &row.source_name
        } else {
            &row.target_name
        };
        let note = format!("no row of the shop is left at {}", the_pod(pod));
        append(&mut change, left.id, row.state, left.owner, Some(&note)).await?;
        change.commit().await
    }
}

/// The move, if its leftover is still this owner's.
async fn held(change: &mut Change<'_>, left: &Leftover) -> Result<MoveRow, CatalogError> {
    let held: Option<i64> =
        sqlx::query_scalar("select 1 from move_leftover where move = $1 and owner = $2")
            .bind(left.id.to_string())
            .bind(signed(left.owner))
            .fetch_optional(change.conn())
            .await?;
    match held {
        Some(_) => by_id(change.conn(), left.id).await,
        None => Err(stale(left.id)),
    }
}

/// What the leftover of a closed move waits for.
async fn waits(
    change: &mut Change<'_>,
    id: MoveId,
    detail: MoveDetail,
    text: Option<&str>,
) -> Result<(), CatalogError> {
    let detail = MoveDetail {
        waits: text.map(str::to_owned),
        ..detail
    };
    store(change, id, &detail).await
}

async fn store(
    change: &mut Change<'_>,
    id: MoveId,
    detail: &MoveDetail,
) -> Result<(), CatalogError> {
    sqlx::query("update move set detail = $1 where id = $2")
        .bind(text_of(detail)?)
        .bind(id.to_string())
        .execute(change.conn())
        .await?;
    Ok(())
}

fn stale(id: MoveId) -> CatalogError {
    CatalogError::Stale(format!("the copy that move {id} left"))
}

/// What stands against a move of a shop to a pod where something is still to be deleted.
pub(super) async fn leftover_at(
    change: &mut Change<'_>,
    shop: &Shop,
    pod: &Pod,
) -> Result<Option<String>, CatalogError> {
    let left: Option<String> =
        sqlx::query_scalar("select move from move_leftover where shop = $1 and pod = $2 limit 1")
            .bind(signed(shop.id.get()))
            .bind(i64::from(pod.id.get()))
            .fetch_optional(change.conn())
            .await?;
    let Some(id) = left else { return Ok(None) };
    let row = by_id(change.conn(), move_id(&id)?).await?;
    let rows = still_there(&row, &pod.name);
    Ok(Some(format!(
        "{rows} as soon as the pod can be reached: try again when `podctl move show {id}` tells of no leftover"
    )))
}

/// What is still to be deleted at a pod (by name or id) of whichever shop, and of which move that is.
pub(super) async fn any_leftover(
    change: &mut Change<'_>,
    pod: &str,
) -> Result<Option<(String, MoveId)>, CatalogError> {
    let left: Option<(String, String)> = sqlx::query_as(
        "select l.move, d.name from move_leftover l join pod d on d.id = l.pod \
         where d.name = $1 or cast(d.id as text) = $1 order by l.created_ms, l.move limit 1",
    )
    .bind(pod)
    .fetch_optional(change.conn())
    .await?;
    let Some((id, name)) = left else {
        return Ok(None);
    };
    let row = by_id(change.conn(), move_id(&id)?).await?;
    Ok(Some((still_there(&row, &name), row.id)))
}

fn still_there(row: &MoveRow, pod: &str) -> String {
    let (pod, handle, id) = (the_pod(pod), &row.handle, row.id);
    let whose = if row.clears() {
        format!("are to be cleared (order {id})")
    } else {
        format!("move {id} left there")
    };
    format!("{pod} still has rows of shop {handle} that {whose}; they are deleted")
}

/// Added in the transaction that closes the move.
pub(super) async fn add(
    change: &mut Change<'_>,
    row: &MoveRow,
    pod: PodId,
) -> Result<(), CatalogError> {
    let at_ms = change.at_ms;
    sqlx::query(
        "insert into move_leftover (move, shop, pod, owner, created_ms) values ($1, $2, $3, $4, $5) \
         on conflict (move) do nothing",
    )
    .bind(row.id.to_string())
    .bind(signed(row.shop.get()))
    .bind(i64::from(pod.get()))
    .bind(signed(row.owner))
    .bind(at_ms)
    .execute(change.conn())
    .await?;
    Ok(())
}
