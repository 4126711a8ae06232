//! Moves: the record of each, and the rules that only the catalog can keep.
//!
//! A driver says with each change which row it has seen; the change is made only if owner and state are still the same,
//! and the next state is [`MoveState::after`]'s. Everything that happens to a move has its event, written in the
//! transaction that did it. Who drives a move is decided by its lease.

use serde::{Deserialize, Serialize};
use shared::moves::{MoveId, MoveState, ResumePoint};
use shared::{Epoch, Handle, PodId, ShopId};

use super::shops::{self, ShopRef};
use super::{Catalog, CatalogError, Change, signed};
use crate::api::{MoveRecord, Stray};

// A move back.
mod back;
// A move begins, or is refused with the way out.
mod begin;
// Rows that no move made, at a pod that does not own their shop.
mod clear;
// What the metrics count of moves.
pub(crate) mod counts;
// What its driver does with it: taking it, steps, notes.
mod drive;
// What happened to it.
mod events;
// What a move left at a pod.
mod leftovers;
// What an operator may order.
mod orders;
// What the edges tell.
mod parks;
// Which pod a shop may be at.
mod pins;
// Notes that are no news.
mod quiet;
// Rows, and the ways to name one.
mod row;
// The one step that changes the owner of a shop.
mod switch;

pub(super) use begin::refuse_migration_beside;
pub use begin::{NewMove, Planned};
pub use clear::ClearOrder;
use events::{append, append_taken};
pub(crate) use leftovers::Leftover;
pub(crate) use orders::MoveOrder;
pub(super) use orders::refuse_state_order;
use row::{RawMove, by_id, find, open_of, select_move};

/// The actor of what a driver does by itself.
const DRIVER: &str = "control";

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MoveKind {
    Move,
    /// No move: an operator's order to clear the shop's rows at the target, where the shop is not and was not to go.
    Clear,
}

impl MoveKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Clear => "clear",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Move, Self::Clear]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// A move, with the names that messages need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MoveRow {
    pub(crate) id: MoveId,
    pub(crate) shop: ShopId,
    pub(crate) handle: Handle,
    pub(crate) source: PodId,
    pub(crate) source_name: String,
    pub(crate) target: PodId,
    pub(crate) target_name: String,
    pub(crate) source_epoch: Epoch,
    pub(crate) epoch: Epoch,
    pub(crate) kind: MoveKind,
    pub(crate) state: MoveState,
    /// Raised by each takeover.
    pub(crate) owner: u64,
    pub(crate) detail: MoveDetail,
    /// Why it failed, or why its last try did.
    pub(crate) error: Option<String>,
    /// Who ordered it.
    pub(crate) actor: String,
    pub(crate) created_ms: i64,
    pub(crate) changed_ms: i64,
    /// Since when a copy that it left waits to be deleted: at the target after an abort, at a source that was gone.
    pub(crate) leftover_ms: Option<i64>,
}

/// What a move needs to go on after a crash, and what it took. Sets of transactions are kept as MySQL writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MoveDetail {
    /// Why, if somebody said so.
    pub(crate) reason: Option<String>,
    /// How long the source's copy is kept after the hand-over.
    pub(crate) observe_ms: u64,
    /// The move that this one takes back.
    pub(crate) back_of: Option<MoveId>,
    /// That move's `ready_gtid`: its target, which is this one's source, had not sold before it.
    pub(crate) back_from: Option<String>,
    /// How much of the binlog of that move's source, which is this one's target, was looked at: what it held of strays the
    /// operator knew.
    pub(crate) back_seen: Option<String>,
    /// Where it goes on when it is paused.
    pub(crate) resume: Option<ResumePoint>,
    /// What the source had executed before the first row was copied.
    pub(crate) source_from: Option<String>,
    /// What the target had executed before its first row was written; later, how much of its binlog was looked at and held
    /// no change but the mover's.
    pub(crate) target_from: Option<String>,
    /// What the source had executed once its fence stood.
    pub(crate) fence_gtid: Option<String>,
    /// How much of the source's binlog after that was looked at: what it held of strays is in `strays`.
    pub(crate) watched: Option<String>,
    /// What the target had executed when its home became `ready`.
    pub(crate) ready_gtid: Option<String>,
    /// Since when it is in its state.
    pub(crate) since_ms: Option<i64>,
    /// When the target became the owner; the time of observation counts from here.
    pub(crate) observing_since_ms: Option<i64>,
    /// An operator's word: the source's copy goes although it has so many strays, which were looked at. One more stops it.
    pub(crate) strays_let_go: u64,
    /// An operator's word: the source is gone for good, and the move ends without it.
    pub(crate) source_gone: bool,
    /// A move back that failed past `preparing`: it copies everything anew.
    pub(crate) recopy: bool,
    /// Why it is to fail, said inside of its fence: that is lifted first, and whoever does it must not take it for one that
    /// missed.
    pub(crate) must_fail: Option<String>,
    /// Fences of it were tried before it was resumed; those are not counted any more.
    pub(crate) fenced_before: bool,
    /// What it took.
    pub(crate) record: MoveRecord,
    /// Changes at the source after its fence, the first ones of many.
    pub(crate) strays: Vec<Stray>,
    /// How many there are. Of those that are not listed some may count twice where a mover was taken over: an operator is
    /// asked once more then, and not once less.
    pub(crate) strays_total: u64,
    /// What it waits for.
    pub(crate) waits: Option<String>,
    /// The move that took it back.
    pub(crate) taken_back_by: Option<MoveId>,
    /// Events of it that are not kept any more.
    pub(crate) events_left_out: u64,
}

impl MoveDetail {
    /// Whether a fence of it was ever tried: its target's home may have been `ready`.
    pub(crate) const fn was_fenced(&self) -> bool {
        self.fenced_before || self.record.fence_tries > 0
    }

    /// How many strays were told.
    pub(crate) fn strays_told(&self) -> u64 {
        self.strays_total.max(self.strays.len() as u64)
    }

    /// Whether there are strays that nobody has let go.
    pub(crate) fn strays_stand(&self) -> bool {
        self.strays_told() > self.strays_let_go
    }
}

/// How a request names a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveRef {
    /// By its id.
    Id(MoveId),
    /// By a shop (its open or latest move), or by the beginning of an id that only one has.
    Named(String),
}

impl MoveRef {
    /// Reads it; whether there is such a move shows later.
    pub fn parse(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Named(text.to_owned()), Self::Id)
    }
}

/// Which moves a list shows.
#[derive(Debug, Clone, Default)]
pub struct MoveFilter {
    /// Those of one shop.
    pub shop: Option<ShopRef>,
    /// Those from or to one pod, by id or name.
    pub pod: Option<String>,
    /// Those that are open, or those that are over.
    pub open: Option<bool>,
    /// At most so many.
    pub limit: u32,
}

impl Catalog {
    /// Moves that are open, oldest first.
    pub(crate) async fn open_moves(&self) -> Result<Vec<MoveRow>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows: Vec<RawMove> = sqlx::query_as(select_move!(
            "where m.state not in ('done', 'aborted') order by m.created_ms, m.id"
        ))
        .fetch_all(&mut *conn)
        .await?;
        rows.into_iter().map(RawMove::into_row).collect()
    }

    /// Moves that are over and left a copy that is still there, and orders to clear rows that are not done; oldest first.
    pub(crate) async fn leaving_moves(&self) -> Result<Vec<MoveRow>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows: Vec<RawMove> = sqlx::query_as(select_move!(
            "where exists (select 1 from move_leftover l where l.move = m.id) order by m.created_ms, m.id"
        ))
        .fetch_all(&mut *conn)
        .await?;
        rows.into_iter().map(RawMove::into_row).collect()
    }

    /// One move.
    pub(crate) async fn move_row(&self, reference: &MoveRef) -> Result<MoveRow, CatalogError> {
        let mut view = self.snapshot().await?;
        find(&mut view, reference, self).await
    }

    /// The last move that was about a shop's copy at a pod, where it has this epoch: that tried to bring the shop from there, or
    /// there.
    pub(crate) async fn move_of_copy(
        &self,
        shop: ShopId,
        pod: PodId,
        epoch: Epoch,
    ) -> Result<Option<MoveRow>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let row: Option<RawMove> = sqlx::query_as(select_move!(
            "where m.shop = $1 and (m.source_pod = $2 and m.source_epoch = $3 or m.target_pod = $2 and m.epoch = $3) \
             order by m.created_ms desc, m.id desc limit 1"
        ))
        .bind(signed(shop.get()))
        .bind(i64::from(pod.get()))
        .bind(signed(epoch.get()))
        .fetch_optional(&mut *conn)
        .await?;
        row.map(RawMove::into_row).transpose()
    }

    /// Open ones and those that left a copy first, then the newest.
    pub(crate) async fn list_moves(
        &self,
        filter: &MoveFilter,
    ) -> Result<Vec<MoveRow>, CatalogError> {
        let MoveFilter {
            shop,
            pod,
            open,
            limit,
        } = filter;
        let mut view = self.snapshot().await?;
        let shop = match shop {
            Some(reference) => Some(shops::find(&mut view, reference, &self.domains).await?.id),
            None => None,
        };
        let pod = match pod {
            Some(reference) => Some(super::pods::find(&mut view, reference).await?.id),
            None => None,
        };
        let rows: Vec<RawMove> = sqlx::query_as(select_move!(
            "where ($1 is null or m.shop = $1) and ($2 is null or m.source_pod = $2 or m.target_pod = $2) \
             and ($3 is null or (m.state not in ('done', 'aborted')) = $3) \
             order by case when m.state not in ('done', 'aborted') \
             or exists (select 1 from move_leftover l where l.move = m.id) then 0 else 1 end, \
             m.created_ms desc, m.id desc limit $4"
        ))
        .bind(shop.map(|id| signed(id.get())))
        .bind(pod.map(|id| i64::from(id.get())))
        .bind(*open)
        .bind(i64::from(*limit))
        .fetch_all(&mut *view)
        .await?;
        rows.into_iter().map(RawMove::into_row).collect()
    }

    /// Woken after each change of a move. Subscribe before looking: a change after the look then wakes.
    pub(crate) fn watch_moves(&self) -> tokio::sync::watch::Receiver<u64> {
        self.moves.subscribe()
    }
}

/// The row, if owner and state are still as the caller has seen them.
async fn expect(change: &mut Change<'_>, seen: &MoveRow) -> Result<MoveRow, CatalogError> {
    let found = by_id(change.conn(), seen.id).await?;
    if (found.owner, found.state) == (seen.owner, seen.state) {
        Ok(found)
    } else {
        Err(CatalogError::Stale(format!(
            "move {} (it is {} of owner {}, not {} of owner {})",
            seen.id, found.state, found.owner, seen.state, seen.owner
        )))
    }
}

/// A detail as the catalog keeps it.
fn text_of(detail: &MoveDetail) -> Result<String, CatalogError> {
    serde_json::to_string(detail)
        .map_err(|e| CatalogError::Corrupt(format!("a move's detail: {e}")))
}

/// Writes state, detail and error of a move whose row was checked in this transaction.
async fn write(
    change: &mut Change<'_>,
    id: MoveId,
    state: MoveState,
    detail: &MoveDetail,
    error: Option<&str>,
) -> Result<(), CatalogError> {
    let detail = text_of(detail)?;
    let at_ms = change.at_ms;
    sqlx::query(
        "update move set state = $1, detail = $2, error = $3, changed_ms = $4 where id = $5",
    )
    .bind(state.as_str())
    .bind(detail)
    .bind(error)
    .bind(at_ms)
    .bind(id.to_string())
    .execute(change.conn())
    .await?;
    change.touch_moves();
    Ok(())
}

/// Nobody drives it any more.
async fn drop_lease(change: &mut Change<'_>, id: MoveId) -> Result<(), CatalogError> {
    sqlx::query("delete from move_lease where move = $1")
        .bind(id.to_string())
        .execute(change.conn())
        .await?;
    Ok(())
}
