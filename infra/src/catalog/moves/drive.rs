//! What a move's driver does with it. Of two that believe to drive one move, the later owner wins at each of these.

use shared::moves::{MoveEvent, MoveId, MoveState};
use sqlx::SqliteConnection;

use super::begin::worked_on;
use super::switch::owned_by_target;
use super::{
    DRIVER, MoveDetail, MoveRow, append, append_taken, by_id, counts, drop_lease, expect,
    leftovers, write,
};
use crate::catalog::{Catalog, CatalogError, Change, now_ms, signed};
use crate::output::{count, the_pod};

impl Catalog {
    /// Takes a move up: raises its owner, if no other holder's lease is alive. `force` is for a process that holds the
    /// catalog's lock alone, so that nobody can renew the lease that it finds.
    pub(crate) async fn take_move(
        &self,
        id: MoveId,
        holder: &str,
        lease_ms: u64,
        force: bool,
    ) -> Result<Option<MoveRow>, CatalogError> {
        if !force && self.is_held(id, holder).await? {
            return Ok(None);
        }
        let mut change = self.change(DRIVER).await?;
        let row = by_id(change.conn(), id).await?;
        if !row.state.is_open() || !take_lease(&mut change, id, holder, lease_ms, force).await? {
            return Ok(None);
        }
        sqlx::query("update move set owner = owner + 1 where id = $1")
            .bind(id.to_string())
            .execute(change.conn())
            .await?;
        append_taken(&mut change, id, row.state, row.owner + 1, "", holder).await?;
        let row = by_id(change.conn(), id).await?;
        change.commit().await?;
        Ok(Some(row))
    }

    /// Keeps the lease, and gives the row as it stands: an operator may have ordered something.
    pub(crate) async fn renew_move(
        &self,
        id: MoveId,
        owner: u64,
        holder: &str,
        lease_ms: u64,
    ) -> Result<MoveRow, CatalogError> {
        let mut change = self.change(DRIVER).await?;
        let row = by_id(change.conn(), id).await?;
        let lost = || CatalogError::Stale(format!("the lease of move {id}"));
        if row.owner != owner || !row.state.is_open() {
            return Err(lost());
        }
        let expires = change.at_ms.saturating_add(signed(lease_ms));
        let renewed =
            sqlx::query("update move_lease set expires_ms = $1 where move = $2 and holder = $3")
                .bind(expires)
                .bind(id.to_string())
                .bind(holder)
                .execute(change.conn())
                .await?
                .rows_affected();
        if renewed == 0 {
            return Err(lost());
        }
        change.commit().await?;
        Ok(row)
    }

    /// Gives the lease back at an orderly end, so that the next one need not wait for it to run out.
    pub(crate) async fn leave_move(&self, id: MoveId, holder: &str) -> Result<(), CatalogError> {
        let mut change = self.change(DRIVER).await?;
        sqlx::query("delete from move_lease where move = $1 and holder = $2")
            .bind(id.to_string())
            .bind(holder)
            .execute(change.conn())
            .await?;
        change.touch_moves();
        change.commit().await
    }

    /// The next state, by what happened. A `Conflict` says that the catalog does not allow it now: a shop's state is
    /// being set (try again), or the target owns the shop already (go forward).
    pub(crate) async fn step_move(
        &self,
        seen: &MoveRow,
        event: MoveEvent,
        detail: &MoveDetail,
        error: Option<&str>,
    ) -> Result<MoveRow, CatalogError> {
        let mut change = self.change(DRIVER).await?;
        let found = expect(&mut change, seen).await?;
        let detail = merged(detail, &found.detail);
        apply(&mut change, &found, event, detail, error, error).await?;
        let row = by_id(change.conn(), found.id).await?;
        change.commit().await?;
        counts::stepped(found.state, &row);
        Ok(row)
    }

    /// Keeps what is known, in the same state. What an operator would see becomes an event.
    pub(crate) async fn note_move(
        &self,
        seen: &MoveRow,
        detail: &MoveDetail,
        error: Option<&str>,
    ) -> Result<MoveRow, CatalogError> {
        let mut change = self.change(DRIVER).await?;
        let found = expect(&mut change, seen).await?;
        let detail = merged(detail, &found.detail);
        let note = news(&found, &detail, error);
        write(&mut change, found.id, found.state, &detail, error).await?;
        if let Some(note) = note {
            append(&mut change, found.id, found.state, found.owner, Some(&note)).await?;
        }
        let row = by_id(change.conn(), found.id).await?;
        change.commit().await?;
        Ok(row)
    }

    /// Keeps why the move is to fail, until that step is done: the fence that stands is lifted first. From the catalog's
    /// step on it goes only forward, and nothing is kept.
    pub(crate) async fn note_must_fail(
        &self,
        seen: &MoveRow,
        why: &str,
    ) -> Result<MoveRow, CatalogError> {
        let mut change = self.change(DRIVER).await?;
        let found = expect(&mut change, seen).await?;
        if owned_by_target(&mut change, &found).await? {
            return Ok(found);
        }
        let (id, state) = (found.id, found.state);
        let detail = MoveDetail {
            must_fail: Some(why.to_owned()),
            ..found.detail
        };
        write(&mut change, id, state, &detail, Some(why)).await?;
        let note = format!("to fail: {why}");
        append(&mut change, id, state, found.owner, Some(&note)).await?;
        let row = by_id(change.conn(), id).await?;
        change.commit().await?;
        Ok(row)
    }
}

/// The driver's detail, with what came from elsewhere after it was read: an operator's word, the edges' reports, what the
/// catalog keeps itself.
pub(super) fn merged(driver: &MoveDetail, stored: &MoveDetail) -> MoveDetail {
    let mut detail = driver.clone();
    detail.strays_let_go = detail.strays_let_go.max(stored.strays_let_go);
    detail.source_gone |= stored.source_gone;
    detail.must_fail.clone_from(&stored.must_fail);
    detail.since_ms = stored.since_ms;
    detail.events_left_out = stored.events_left_out;
    detail.record.requests_parked = stored.record.requests_parked;
    detail.record.longest_park_ms = stored.record.longest_park_ms;
    detail.record.late_arrivals = stored.record.late_arrivals;
    detail
}

/// What an operator would want to see of a note.
fn news(found: &MoveRow, detail: &MoveDetail, error: Option<&str>) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(error) = error.filter(|e| found.error.as_deref() != Some(e)) {
        parts.push(error.to_owned());
    }
    if let Some(waits) = &detail.waits
        && found.detail.waits != detail.waits
    {
        parts.push(format!("waits: {waits}"));
    }
    let strays = detail.strays_told();
    if strays > found.detail.strays_told() {
        parts.push(format!(
            "{} at {}",
            count(strays, "stray change"),
            the_pod(&found.source_name)
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Does one event to a move whose row was checked in this transaction; everything that changes a state comes through here.
pub(super) async fn apply(
    change: &mut Change<'_>,
    found: &MoveRow,
    event: MoveEvent,
    mut detail: MoveDetail,
    error: Option<&str>,
    note: Option<&str>,
) -> Result<MoveState, CatalogError> {
    let next = found.state.after(event).ok_or_else(|| {
        CatalogError::Conflict(format!(
            "move {} is {}, which has no event {event:?}",
            found.id, found.state
        ))
    })?;
    guard(change, found, next).await?;
    if next != found.state {
        detail.since_ms = Some(change.at_ms);
    }
    match next {
        MoveState::Paused => detail.resume = found.state.resume_point(),
        MoveState::Observing => detail.observing_since_ms = Some(change.at_ms),
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Retiring
        | MoveState::Done
        | MoveState::Aborting
        | MoveState::Aborted
        | MoveState::Failed => detail.resume = None,
    }
    if next != MoveState::Paused {
        detail.waits = None;
    }
    if matches!(next, MoveState::Failed | MoveState::Aborting) {
        detail.must_fail = None;
    }
    write(change, found.id, next, &detail, error).await?;
    append(change, found.id, next, found.owner, note).await?;
    match next {
        MoveState::Done => {
            if detail.source_gone {
                leftovers::add(change, found, found.source).await?;
            }
            drop_lease(change, found.id).await?;
        }
        // Its holder goes on with the leftover.
        MoveState::Aborted => leftovers::add(change, found, found.target).await?,
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Paused
        | MoveState::Aborting
        | MoveState::Failed => {}
    }
    Ok(next)
}

/// What the table of states cannot know.
async fn guard(
    change: &mut Change<'_>,
    found: &MoveRow,
    next: MoveState,
) -> Result<(), CatalogError> {
    let switched = owned_by_target(change, found).await?;
    let busy = match next {
        // An order to freeze a shop must not meet a home that is changing hands; orders are refused from here on.
        // When the move closes, no order may have read the placement before the home was set for the last time.
        MoveState::Fenced | MoveState::Aborted => worked_on(change, found.shop).await?,
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Cutover
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Aborting
        | MoveState::Failed => None,
    };
    if let Some(text) = busy {
        return Err(CatalogError::Conflict(text));
    }
    match next {
        MoveState::Observing if !switched => Err(CatalogError::Conflict(format!(
            "move {} has not changed the owner of shop {} yet",
            found.id, found.handle
        ))),
        // From the catalog's step on only forward.
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Aborting
        | MoveState::Aborted
        | MoveState::Failed
            if switched =>
        {
            Err(CatalogError::Conflict(format!(
                "shop {0} is at {1} already, and move {2} goes only forward; when it is observing, move the shop \
                 back with `podctl shop move {0} --to {3}`",
                found.handle,
                the_pod(&found.target_name),
                found.id,
                found.source_name
            )))
        }
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Aborting
        | MoveState::Aborted
        | MoveState::Failed => Ok(()),
    }
}

impl Catalog {
    /// Whether another holder's lease is alive. Who only waits for it to run out asks several times a second, and must not
    /// take the catalog's one lock for writes each time: the steps of a fence queue for that.
    pub(super) async fn is_held(&self, id: MoveId, holder: &str) -> Result<bool, CatalogError> {
        let mut conn = self.read.acquire().await?;
        is_alive(&mut conn, id, holder, now_ms()).await
    }
}

async fn is_alive(
    conn: &mut SqliteConnection,
    id: MoveId,
    holder: &str,
    now: i64,
) -> Result<bool, CatalogError> {
    let sql = "select exists (select 1 from move_lease where move = $1 and holder <> $2 and expires_ms > $3)";
    Ok(sqlx::query_scalar(sql)
        .bind(id.to_string())
        .bind(holder)
        .bind(now)
        .fetch_one(conn)
        .await?)
}

/// Whether the lease is the holder's from now on.
pub(super) async fn take_lease(
    change: &mut Change<'_>,
    id: MoveId,
    holder: &str,
    lease_ms: u64,
    force: bool,
) -> Result<bool, CatalogError> {
    let now = change.at_ms;
    if !force && is_alive(change.conn(), id, holder, now).await? {
        return Ok(false);
    }
    sqlx::query(
        "insert into move_lease (move, holder, expires_ms) values ($1, $2, $3) \
         on conflict (move) do update set holder = excluded.holder, expires_ms = excluded.expires_ms",
    )
    .bind(id.to_string())
    .bind(holder)
    .bind(now.saturating_add(signed(lease_ms)))
    .execute(change.conn())
    .await?;
    Ok(true)
}
