//! Moves: ordered, followed, stopped; pins of shops.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use shared::error::Kind;
use shared::moves::MoveId;
use tokio::time::Instant;

use super::app::{App, stopped};
use super::auth::Caller;
use super::body::{Json, Params};
use super::check;
use super::failure::{Answer, Failure};
use crate::api::{
    MOVES_MAX, Move, MoveCheck, MoveEvents, MoveEventsQuery, MoveFinish, MoveList, MoveNew,
    MoveQuery, OBSERVE_MAX_MS, ParkReport, Pin, PinPut,
};
use crate::catalog::{MoveFilter, MoveOrder, MoveRef, MoveRow, NewMove, ShopRef};
use crate::mover::dry_run::dry_run;
use crate::mover::error::MoveError;
use crate::mover::gone;
use crate::output::the_pod;

type Body<T> = axum::Json<T>;
/// A page when nobody says how long.
const PAGE: u32 = 100;

/// Moves, open ones first, then the newest.
#[utoipa::path(get, path = "/v1/moves", tag = "moves", params(MoveQuery),
    responses((status = 200, body = MoveList), (status = 400, description = "A field is wrong."),
        (status = 404, description = "No such shop or pod.")))]
pub(super) async fn list(
    app: State<Arc<App>>,
    Params(query): Params<MoveQuery>,
) -> Answer<Body<MoveList>> {
    let MoveQuery {
        shop,
        pod,
        open,
        limit,
    } = query;
    let limit = limit.unwrap_or(PAGE);
    if !(1..=MOVES_MAX).contains(&limit) {
        let text = format!("not within 1 and {MOVES_MAX}");
        return Err(Failure::field("limit", text));
    }
    let shop = shop
        .map(|text| ShopRef::parse(&text, app.catalog.domains()))
        .transpose()?;
    let filter = MoveFilter {
        shop,
        pod,
        open,
        limit,
    };
    Ok(axum::Json(MoveList {
        moves: listed(&app, &filter).await?,
    }))
}

async fn listed(app: &App, filter: &MoveFilter) -> Answer<Vec<Move>> {
    let rows = app.catalog.list_moves(filter).await?;
    rows.into_iter().map(|row| view(app, row)).collect()
}

/// The open ones and the newest, for the console.
pub(super) async fn newest(app: &App, limit: u32) -> Answer<Vec<Move>> {
    let filter = MoveFilter {
        limit,
        ..MoveFilter::default()
    };
    listed(app, &filter).await
}

/// Orders a move; it goes on by itself. A move to the former pod, while the last one is observing, takes that back; where the
/// copy there was changed meanwhile, `despite_strays` must say how often.
#[utoipa::path(post, path = "/v1/moves", tag = "moves", request_body = MoveNew,
    responses((status = 201, body = Move), (status = 400, description = "A field is wrong."),
        (status = 404, description = "No such shop."),
        (status = 409, description = "It cannot be done as things are; `detail` names every reason and the way out."),
        (status = 503, description = "A pod cannot be reached, or the catalog is not reconciled; nothing was begun.")))]
pub(super) async fn create(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Json(new): Json<MoveNew>,
) -> Answer<(StatusCode, Body<Move>)> {
    let new = checked(&app, new)?;
    // What a pod has against it is told before anything is recorded; `preparing` asks it all again.
    look_before(&app, &new).await?;
    let row = app.catalog.begin_move(&caller.name, &new).await?;
    tracing::info!(id = %row.id, shop = row.shop.get(), from = %row.source, to = %row.target, "move ordered");
    Ok((StatusCode::CREATED, axum::Json(view(&app, row)?)))
}

/// Says whether a move could be done, with sizes and an estimate. Nothing is begun.
#[utoipa::path(post, path = "/v1/moves/check", tag = "moves", request_body = MoveNew,
    responses((status = 200, body = MoveCheck), (status = 400, description = "A field is wrong."),
        (status = 404, description = "No such shop."),
        (status = 409, description = "It cannot be done as things are; `detail` names every reason and the way out."),
        (status = 503, description = "A pod cannot be reached.")))]
pub(super) async fn try_out(
    app: State<Arc<App>>,
    Json(new): Json<MoveNew>,
) -> Answer<Body<MoveCheck>> {
    let new = checked(&app, new)?;
    Ok(axum::Json(look_before(&app, &new).await?))
}

async fn look_before(app: &App, new: &NewMove) -> Answer<MoveCheck> {
    let planned = app.catalog.check_move(new).await?;
    let observe = Duration::from_millis(new.observe_ms);
    Box::pin(dry_run(&app.mover, &planned, observe))
        .await
        .map_err(|error| against(error, ", or name another pod"))
}

/// What a pod has against an order, for the operator; `or` is what else can be done where it is away.
pub(super) fn against(error: MoveError, or: &str) -> Failure {
    let text = error.brief();
    if let Some(pod) = error.away() {
        let way = format!(
            "{text}; nothing was begun. See that pod {pod} runs (`podctl doctor`) and try again{or}"
        );
        return Failure::new(Kind::Unavailable, way);
    }
    if matches!(error, MoveError::Refused { .. }) {
        return Failure::new(Kind::Conflict, text);
    }
    if let MoveError::Catalog(error) = error {
        return Failure::from(error);
    }
    let failure = if let MoveError::Servers(error) = error {
        Failure::from(error)
    } else {
        Failure::new(Kind::Conflict, text)
    };
    failure.and("nothing was begun")
}

fn checked(app: &App, new: MoveNew) -> Answer<NewMove> {
    let MoveNew {
        shop,
        to,
        reason,
        observe_ms,
        despite_strays,
    } = new;
    let observe = app.move_limits.observe;
    let observe_ms =
        observe_ms.unwrap_or_else(|| u64::try_from(observe.as_millis()).unwrap_or(OBSERVE_MAX_MS));
    if observe_ms > OBSERVE_MAX_MS {
        let days = Duration::from_millis(OBSERVE_MAX_MS).as_secs() / 86_400;
        return Err(Failure::field(
            "observe_ms",
            format!("the source's copy is kept for {days} days at most"),
        ));
    }
    Ok(NewMove {
        shop: ShopRef::parse(&shop, app.catalog.domains())?,
        target: to,
        reason: check::line("reason", reason, check::TEXT_LEN_MAX)?,
        observe_ms,
        despite_strays,
    })
}

/// A move by its id, the beginning of it, or its shop (that one's open or latest move).
#[utoipa::path(get, path = "/v1/moves/{ref}", tag = "moves", params(("ref" = String, Path)),
    responses((status = 200, body = Move), (status = 404, description = "No such move."),
        (status = 409, description = "More than one id begins so.")))]
pub(super) async fn show(
    app: State<Arc<App>>,
    Path(reference): Path<String>,
) -> Answer<Body<Move>> {
    let row = app.catalog.move_row(&MoveRef::parse(&reference)).await?;
    Ok(axum::Json(view(&app, row)?))
}

/// Stops a move where it touches nobody's writes.
#[utoipa::path(post, path = "/v1/moves/{ref}/pause", tag = "moves", params(("ref" = String, Path)),
    responses((status = 200, body = Move), (status = 404, description = "No such move."),
        (status = 409, description = "Its state does not allow it; `detail` says what does.")))]
pub(super) async fn pause(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
) -> Answer<Body<Move>> {
    order(&app, &caller, &reference, MoveOrder::Pause).await
}

/// Lets a paused move go on, and begins a failed one anew.
#[utoipa::path(post, path = "/v1/moves/{ref}/resume", tag = "moves", params(("ref" = String, Path)),
    responses((status = 200, body = Move), (status = 404, description = "No such move."),
        (status = 409, description = "It is not stopped; `detail` says what can be done.")))]
pub(super) async fn resume(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
) -> Answer<Body<Move>> {
    order(&app, &caller, &reference, MoveOrder::Resume).await
}

/// Undoes a move: the source serves, and what was copied is deleted.
#[utoipa::path(post, path = "/v1/moves/{ref}/abort", tag = "moves", params(("ref" = String, Path)),
    responses((status = 200, body = Move), (status = 404, description = "No such move."),
        (status = 409, description = "The target owns the shop already, or the move is over.")))]
pub(super) async fn abort(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
) -> Answer<Body<Move>> {
    order(&app, &caller, &reference, MoveOrder::Abort).await
}

/// Ends the time of observation: the source's copy is dumped and deleted. Or ends a move whose source is gone for good.
#[utoipa::path(post, path = "/v1/moves/{ref}/finish", tag = "moves", params(("ref" = String, Path)),
    request_body = MoveFinish, responses((status = 200, body = Move),
        (status = 400, description = "Both wishes at once."), (status = 404, description = "No such move."),
        (status = 409, description = "It is not observing, the source's copy was changed after the fence, or a source that \
            is said to be gone owns the shop or answers.")))]
pub(super) async fn finish(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
    Json(wish): Json<MoveFinish>,
) -> Answer<Body<Move>> {
    let MoveFinish {
        despite_strays,
        source_gone,
    } = wish;
    if despite_strays > 0 && source_gone {
        return Err(Failure::field(
            "despite_strays",
            "cannot be ordered together with `source_gone`: what a source that is gone has is dumped and deleted when it comes \
             back; order one of the two",
        ));
    }
    let wish = if source_gone {
        is_gone(&app, &MoveRef::parse(&reference)).await?;
        MoveOrder::SourceGone
    } else {
        MoveOrder::Finish { despite_strays }
    };
    order(&app, &caller, &reference, wish).await
}

/// Refuses to give up a source that answers. What the catalog has against the order comes first; what is so already needs
/// no look.
async fn is_gone(app: &App, reference: &MoveRef) -> Answer<()> {
    let changes = app
        .catalog
        .check_order(reference, MoveOrder::SourceGone)
        .await?;
    let Some(row) = changes else { return Ok(()) };
    let Some(server) = gone::answering(&app.mover, row.source).await? else {
        return Ok(());
    };
    let text = format!(
        "{0} is not gone: its server {server} answers. Bring the pod back (`podctl doctor` says what it lacks), and move \
         {1} of shop {2} goes on by itself; or stop that server for good, then try again",
        the_pod(&row.source_name),
        row.id,
        row.handle
    );
    Err(Failure::new(Kind::Conflict, text))
}

async fn order(
    app: &App,
    caller: &Caller,
    reference: &str,
    order: MoveOrder,
) -> Answer<Body<Move>> {
    let reference = MoveRef::parse(reference);
    let row = app
        .catalog
        .order_move(&caller.name, &reference, order)
        .await?;
    tracing::info!(id = %row.id, state = %row.state, ?order, "move ordered");
    Ok(axum::Json(view(app, row)?))
}

/// What happened to a move after a sequence; waits for something to happen if nothing has. The move comes with it as it
/// stands, so that a client with a short wait follows its progress too.
#[utoipa::path(get, path = "/v1/moves/{ref}/events", tag = "moves", params(("ref" = String, Path), MoveEventsQuery),
    responses((status = 200, body = MoveEvents), (status = 404, description = "No such move."),
        (status = 429, description = "Too many long polls.")))]
pub(super) async fn events(
    app: State<Arc<App>>,
    Path(reference): Path<String>,
    Params(query): Params<MoveEventsQuery>,
) -> Answer<Body<MoveEvents>> {
    let MoveEventsQuery {
        after,
        wait_ms,
        last,
    } = query;
    // Subscribe before looking: a change after the look wakes.
    let mut changed = app.catalog.watch_moves();
    // A shop's name is looked up once: what is followed is this move, also when another one begins meanwhile.
    let id = app.catalog.move_row(&MoveRef::parse(&reference)).await?.id;
    let mut found = told(&app, id, after, last).await?;
    if !found.events.is_empty() || last.is_some() || wait_ms == Some(0) {
        return Ok(axum::Json(found));
    }
    let (_place, deadline): (_, Instant) = app.poll(wait_ms)?;
    loop {
        tokio::select! {
            _ = changed.changed() => {}
            () = tokio::time::sleep_until(deadline) => {
                return Ok(axum::Json(told(&app, id, after, None).await?));
            }
            () = stopped(app.stopping.clone()) => return Ok(axum::Json(found)),
        }
        found = told(&app, id, after, None).await?;
        if !found.events.is_empty() {
            return Ok(axum::Json(found));
        }
    }
}

async fn told(app: &App, id: MoveId, after: u64, last: Option<u32>) -> Answer<MoveEvents> {
    let (catalog, mut before) = (&app.catalog, 0);
    let events = match last {
        Some(last) => catalog.last_move_events(id, last).await?,
        None => catalog.move_events(id, after).await?,
    };
    let row = catalog.move_row(&MoveRef::Id(id)).await?;
    if let Some(first) = events.first().filter(|_| last.is_some()) {
        before = catalog.move_events_before(id, first.sequence).await? + row.detail.events_left_out;
    }
    Ok(MoveEvents {
        next: events.last().map_or(after, |event| event.sequence),
        events,
        before,
        r#move: view(app, row)?,
    })
}

/// A move with what its mover is doing.
pub(super) fn view(app: &App, row: MoveRow) -> Answer<Move> {
    let mut it = row.into_api()?;
    it.progress = app.moves.progress(it.id);
    Ok(it)
}

/// An edge tells what it parked for a shop; it is kept with the shop's move.
#[utoipa::path(post, path = "/v1/parks", tag = "moves", request_body = ParkReport,
    responses((status = 204), (status = 404, description = "The shop never moved.")))]
pub(super) async fn park(
    app: State<Arc<App>>,
    Json(report): Json<ParkReport>,
) -> Answer<StatusCode> {
    app.catalog.note_park(&report).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pins a shop to a pod: no move takes it elsewhere.
#[utoipa::path(put, path = "/v1/shops/{ref}/pin", tag = "pins", params(("ref" = String, Path)), request_body = PinPut,
    responses((status = 200, body = Pin), (status = 400, description = "A field is wrong."),
        (status = 404, description = "No such shop."), (status = 409, description = "It is on its way elsewhere.")))]
pub(super) async fn pin(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
    Json(wish): Json<PinPut>,
) -> Answer<Body<Pin>> {
    let PinPut { pod, reason } = wish;
    let reason = check::line("reason", reason, check::TEXT_LEN_MAX)?;
    let shop = ShopRef::parse(&reference, app.catalog.domains())?;
    let pin = app
        .catalog
        .pin_shop(&caller.name, &shop, pod.as_deref(), reason.as_deref())
        .await?;
    Ok(axum::Json(pin))
}

/// Takes a pin away.
#[utoipa::path(delete, path = "/v1/shops/{ref}/pin", tag = "pins", params(("ref" = String, Path)),
    responses((status = 204), (status = 404, description = "No such shop, or it is not pinned.")))]
pub(super) async fn unpin(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
) -> Answer<StatusCode> {
    let shop = ShopRef::parse(&reference, app.catalog.domains())?;
    app.catalog.unpin_shop(&caller.name, &shop).await?;
    Ok(StatusCode::NO_CONTENT)
}
