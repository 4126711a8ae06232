//! Rows of `move`, and the ways to name one.

use shared::moves::{MoveId, MoveState};
use shared::{Epoch, PodId, ShopId};
use sqlx::SqliteConnection;

use super::{MoveDetail, MoveKind, MoveRef, MoveRow, text_of};
use crate::api::{Move, PodName, Shop, ShopName};
use crate::catalog::shops::{self, ShopRef};
use crate::catalog::{
    Catalog, CatalogError, Change, epoch, instant, pod_id, shop_id, signed, unsigned, word,
};

#[derive(Debug, sqlx::FromRow)]
pub(super) struct RawMove {
    id: String,
    shop: i64,
    handle: String,
    source_pod: i64,
    source_name: String,
    target_pod: i64,
    target_name: String,
    source_epoch: i64,
    epoch: i64,
    kind: String,
    state: String,
    owner: i64,
    detail: String,
    error: Option<String>,
    actor: String,
    created_ms: i64,
    changed_ms: i64,
    leftover_ms: Option<i64>,
}

/// `select` of [`RawMove`].
macro_rules! select_move {
    ($tail:literal) => {
        concat!(
            "select m.id, m.shop, s.handle, m.source_pod, a.name as source_name, m.target_pod, b.name as target_name, \
             m.source_epoch, m.epoch, m.kind, m.state, m.owner, m.detail, m.error, m.actor, m.created_ms, m.changed_ms, \
             (select l.created_ms from move_leftover l where l.move = m.id) as leftover_ms \
             from move m join shop s on s.id = m.shop join pod a on a.id = m.source_pod \
             join pod b on b.id = m.target_pod ",
            $tail
        )
    };
}
pub(super) use select_move;

/// A new row.
pub(super) struct Entry<'a> {
    pub(super) id: MoveId,
    /// At its source.
    pub(super) shop: &'a Shop,
    pub(super) target: PodId,
    /// Reserved for the target.
    pub(super) epoch: Epoch,
    pub(super) kind: MoveKind,
    pub(super) state: MoveState,
    /// The last one of the shop: whoever takes the move up raises it.
    pub(super) owner: u64,
    pub(super) detail: &'a MoveDetail,
}

impl Entry<'_> {
    pub(super) async fn insert(&self, change: &mut Change<'_>) -> Result<(), CatalogError> {
        let (at_ms, actor) = (change.at_ms, change.actor.clone());
        sqlx::query(
            "insert into move (id, shop, source_pod, target_pod, source_epoch, epoch, kind, state, owner, detail, \
             error, actor, created_ms, changed_ms) values ($1, $2, $3, $4, $5, $6, $12, $7, $11, $8, null, $9, $10, $10)",
        )
        .bind(self.id.to_string())
        .bind(signed(self.shop.id.get()))
        .bind(i64::from(self.shop.pod.id.get()))
        .bind(i64::from(self.target.get()))
        .bind(signed(self.shop.epoch.get()))
        .bind(signed(self.epoch.get()))
        .bind(self.state.as_str())
        .bind(text_of(self.detail)?)
        .bind(actor)
        .bind(at_ms)
        .bind(signed(self.owner))
        .bind(self.kind.as_str())
        .execute(change.conn())
        .await?;
        Ok(())
    }
}

impl RawMove {
    pub(super) fn into_row(self) -> Result<MoveRow, CatalogError> {
        let corrupt = |what: &str| CatalogError::Corrupt(format!("the {what} of move {}", self.id));
        Ok(MoveRow {
            id: self.id.parse().map_err(|_| corrupt("id"))?,
            shop: shop_id(self.shop)?,
            handle: self.handle.parse().map_err(|_| corrupt("handle"))?,
            source: pod_id(self.source_pod)?,
            target: pod_id(self.target_pod)?,
            source_epoch: epoch(self.source_epoch)?,
            epoch: epoch(self.epoch)?,
            kind: word(MoveKind::parse(&self.kind), &self.kind)?,
            state: word(MoveState::parse(&self.state), &self.state)?,
            owner: unsigned(self.owner)?,
            detail: serde_json::from_str(&self.detail).map_err(|_| corrupt("detail"))?,
            source_name: self.source_name,
            target_name: self.target_name,
            error: self.error,
            actor: self.actor,
            created_ms: self.created_ms,
            changed_ms: self.changed_ms,
            leftover_ms: self.leftover_ms,
        })
    }
}

impl MoveRow {
    /// Whether it is no move, but an operator's order to clear rows.
    pub(crate) fn clears(&self) -> bool {
        self.kind == MoveKind::Clear
    }

    /// Where its leftover is: one that ended without its source left what that had.
    pub(crate) fn left_at(&self) -> PodId {
        if self.state == MoveState::Done {
            self.source
        } else {
            self.target
        }
    }

    /// As an operator sees it, without the progress of its mover.
    pub(crate) fn into_api(self) -> Result<Move, CatalogError> {
        let (strays_total, clears) = (self.detail.strays_told(), self.clears());
        let MoveDetail {
            reason,
            observe_ms,
            back_of,
            record,
            strays,
            waits,
            source_gone,
            since_ms,
            taken_back_by,
            events_left_out,
            ..
        } = self.detail;
        Ok(Move {
            id: self.id,
            shop: ShopName {
                id: self.shop,
                handle: self.handle,
            },
            source: PodName {
                id: self.source,
                name: self.source_name,
            },
            target: PodName {
                id: self.target,
                name: self.target_name,
            },
            source_epoch: self.source_epoch,
            epoch: self.epoch,
            state: self.state,
            open: self.state.is_open(),
            owner: self.owner,
            reason,
            observe_ms,
            back_of,
            taken_back_by,
            waits,
            error: self.error,
            record,
            strays,
            strays_total,
            source_gone,
            clears,
            leftover_since: self.leftover_ms.map(instant).transpose()?,
            actor: self.actor,
            created_at: instant(self.created_ms)?,
            changed_at: instant(self.changed_ms)?,
            state_since: instant(since_ms.unwrap_or(self.changed_ms))?,
            events_left_out,
            progress: None,
        })
    }
}

/// A move by any of its names.
pub(super) async fn find(
    conn: &mut SqliteConnection,
    reference: &MoveRef,
    catalog: &Catalog,
) -> Result<MoveRow, CatalogError> {
    match reference {
        MoveRef::Id(id) => by_id(conn, *id).await,
        MoveRef::Named(name) => match of_shop(conn, name, catalog).await? {
            Some(row) => Ok(row),
            None => by_prefix(conn, name).await,
        },
    }
}

pub(super) async fn by_id(
    conn: &mut SqliteConnection,
    id: MoveId,
) -> Result<MoveRow, CatalogError> {
    let row: Option<RawMove> = sqlx::query_as(select_move!("where m.id = $1"))
        .bind(id.to_string())
        .fetch_optional(conn)
        .await?;
    row.ok_or_else(|| CatalogError::not_found("move", &id))?
        .into_row()
}

/// The open move of a shop, else its latest. A shop that never moved has none, which is told as such.
async fn of_shop(
    conn: &mut SqliteConnection,
    name: &str,
    catalog: &Catalog,
) -> Result<Option<MoveRow>, CatalogError> {
    let Ok(reference) = ShopRef::parse(name, &catalog.domains) else {
        return Ok(None);
    };
    let shop = match shops::find(conn, &reference, &catalog.domains).await {
        Ok(shop) => shop,
        Err(CatalogError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let row: Option<RawMove> = sqlx::query_as(select_move!(
        "where m.shop = $1 order by case when m.state in ('done', 'aborted') then 1 else 0 end, \
         m.created_ms desc, m.id desc limit 1"
    ))
    .bind(signed(shop.id.get()))
    .fetch_optional(conn)
    .await?;
    let row = row.ok_or_else(|| CatalogError::not_found("move of the shop", &shop.handle))?;
    row.into_row().map(Some)
}

/// Two are enough to know that the beginning names no single move.
async fn by_prefix(conn: &mut SqliteConnection, name: &str) -> Result<MoveRow, CatalogError> {
    let unknown = || CatalogError::not_found("move or shop", &name);
    let name_lower = name.to_ascii_lowercase();
    let is_prefix = !name.is_empty()
        && name_lower
            .bytes()
            .all(|b| b.is_ascii_hexdigit() || b == b'-');
    if !is_prefix {
        return Err(unknown());
    }
    // Nothing in it means anything to `like`.
    let mut rows: Vec<RawMove> =
        sqlx::query_as(select_move!("where m.id like $1 order by m.id limit 2"))
            .bind(format!("{name_lower}%"))
            .fetch_all(conn)
            .await?;
    match (rows.pop(), rows.pop()) {
        (Some(row), None) => row.into_row(),
        (Some(_), Some(_)) => Err(CatalogError::Conflict(format!(
            "more than one move begins with {name:?}; give more of the id (`podctl move list` shows it), or name the shop"
        ))),
        (None, _) => Err(unknown()),
    }
}

/// The open move of a shop.
pub(super) async fn open_of(
    conn: &mut SqliteConnection,
    shop: ShopId,
) -> Result<Option<MoveRow>, CatalogError> {
    let row: Option<RawMove> = sqlx::query_as(select_move!(
        "where m.shop = $1 and m.state not in ('done', 'aborted')"
    ))
    .bind(signed(shop.get()))
    .fetch_optional(conn)
    .await?;
    row.map(RawMove::into_row).transpose()
}
