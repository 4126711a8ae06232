//! What happened to a move, for operators and for clients that follow it.
//!
//! A move that stands still for days is tried all the while, and what is tried again is no news. Whatever varies is bounded:
//! of one move [`MOVE_EVENTS_MAX`] events are kept, the first ones and the last.

use shared::moves::{MoveId, MoveState};

use super::{by_id, text_of};
use crate::api::{MOVE_EVENTS_FIRST, MOVE_EVENTS_MAX, MoveEventRow};
use crate::catalog::{Catalog, CatalogError, Change, instant, signed, unsigned, word};

type Raw = (i64, String, i64, String, Option<String>, i64);

fn of_raw((sequence, state, owner, actor, note, at_ms): Raw) -> Result<MoveEventRow, CatalogError> {
    Ok(MoveEventRow {
        sequence: unsigned(sequence)?,
        state: word(MoveState::parse(&state), &state)?,
        owner: unsigned(owner)?,
        actor,
        note,
        at: instant(at_ms)?,
    })
}

impl Catalog {
    /// What happened to a move after a sequence, oldest first.
    pub(crate) async fn move_events(
        &self,
        id: MoveId,
        after: u64,
    ) -> Result<Vec<MoveEventRow>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows: Vec<Raw> = sqlx::query_as(
            "select sequence, state, owner, actor, note, at_ms from move_event \
             where move = $1 and sequence > $2 order by sequence limit $3",
        )
        .bind(id.to_string())
        .bind(signed(after))
        .bind(i64::from(MOVE_EVENTS_MAX))
        .fetch_all(&mut *conn)
        .await?;
        rows.into_iter().map(of_raw).collect()
    }

    /// The last so many, oldest first.
    pub(crate) async fn last_move_events(
        &self,
        id: MoveId,
        last: u32,
    ) -> Result<Vec<MoveEventRow>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows: Vec<Raw> = sqlx::query_as(
            "select sequence, state, owner, actor, note, at_ms from move_event \
             where move = $1 order by sequence desc limit $2",
        )
        .bind(id.to_string())
        .bind(i64::from(last.min(MOVE_EVENTS_MAX)))
        .fetch_all(&mut *conn)
        .await?;
        rows.into_iter().rev().map(of_raw).collect()
    }

    /// How many events that are kept came before one.
    pub(crate) async fn move_events_before(
        &self,
        id: MoveId,
        sequence: u64,
    ) -> Result<u64, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let before: i64 =
            sqlx::query_scalar("select count(*) from move_event where move = $1 and sequence < $2")
                .bind(id.to_string())
                .bind(signed(sequence))
                .fetch_one(&mut *conn)
                .await?;
        unsigned(before)
    }

    /// Forgets what happened to moves that were over before an instant; the moves themselves stay, with their epochs.
    pub(crate) async fn prune_move_events(&self, before_ms: i64) -> Result<u64, CatalogError> {
        let mut change = self.change("control").await?;
        // Asked often, and mostly there is nothing: the oldest says so without a look at the others.
        let oldest: Option<i64> =
            sqlx::query_scalar("select at_ms from move_event order by sequence limit 1")
                .fetch_optional(change.conn())
                .await?;
        if oldest.is_none_or(|at_ms| at_ms >= before_ms) {
            return Ok(0);
        }
        let gone = sqlx::query(
            "delete from move_event where at_ms < $1 and move in \
             (select id from move where state in ('done', 'aborted') and changed_ms < $1)",
        )
        .bind(before_ms)
        .execute(change.conn())
        .await?
        .rows_affected();
        change.commit().await?;
        Ok(gone)
    }
}

/// Says what happened to a move, in the transaction that did it.
pub(super) async fn append(
    change: &mut Change<'_>,
    id: MoveId,
    state: MoveState,
    owner: u64,
    note: Option<&str>,
) -> Result<(), CatalogError> {
    let sequence: i64 = sqlx::query_scalar(
        "update catalog_meta set event_last = event_last + 1 where one = 1 returning event_last",
    )
    .fetch_one(change.conn())
    .await?;
    let (at_ms, actor) = (change.at_ms, change.actor.clone());
    sqlx::query(
        "insert into move_event (sequence, move, state, owner, actor, note, at_ms) values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(sequence)
    .bind(id.to_string())
    .bind(state.as_str())
    .bind(signed(owner))
    .bind(actor)
    .bind(note)
    .bind(at_ms)
    .execute(change.conn())
    .await?;
    leave_out(change, id).await?;
    change.touch_moves();
    Ok(())
}

/// Says who took up a move, or (`what`) something of it. The same holder again, in the same state, is no news: it tries what
/// it tried before, some times a second where a shop waits.
pub(super) async fn append_taken(
    change: &mut Change<'_>,
    id: MoveId,
    state: MoveState,
    owner: u64,
    what: &str,
    holder: &str,
) -> Result<(), CatalogError> {
    let begins = format!("{what}taken up by ");
    let note = format!("{begins}{holder}");
    let last: Option<(String, String)> = sqlx::query_as(
        "select state, note from move_event where move = $1 and substr(note, 1, length($2)) = $2 \
         order by sequence desc limit 1",
    )
    .bind(id.to_string())
    .bind(begins)
    .fetch_optional(change.conn())
    .await?;
    if last.is_some_and(|(before, said)| before == state.as_str() && said == note) {
        return Ok(());
    }
    append(change, id, state, owner, Some(&note)).await
}

/// Forgets the oldest that are not among the first, where there are too many, and counts them with the move.
async fn leave_out(change: &mut Change<'_>, id: MoveId) -> Result<(), CatalogError> {
    // Both ends of the gap by the index alone; with few events there is nothing between them.
    let gone = sqlx::query(
        "delete from move_event where move = $1 and sequence > (select max(f.sequence) from \
         (select sequence from move_event where move = $1 order by sequence limit $2) f) \
         and sequence < (select min(l.sequence) from \
         (select sequence from move_event where move = $1 order by sequence desc limit $3) l)",
    )
    .bind(id.to_string())
    .bind(i64::from(MOVE_EVENTS_FIRST))
    .bind(i64::from(MOVE_EVENTS_MAX - MOVE_EVENTS_FIRST))
    .execute(change.conn())
    .await?
    .rows_affected();
    if gone == 0 {
        return Ok(());
    }
    let mut detail = by_id(change.conn(), id).await?.detail;
    detail.events_left_out = detail.events_left_out.saturating_add(gone);
    sqlx::query("update move set detail = $1 where id = $2")
        .bind(text_of(&detail)?)
        .bind(id.to_string())
        .execute(change.conn())
        .await?;
    Ok(())
}
