//! Rows of a shop at a pod that does not own it: an order to clear them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use shared::error::Kind;

use super::app::App;
use super::auth::Caller;
use super::body::Json;
use super::check;
use super::failure::{Answer, Failure};
use super::moves::{against, view};
use crate::api::{Move, ShopClear};
use crate::catalog::{ClearOrder, MoveRow, ShopRef};
use crate::mover::foreign::{self, Foreign};
use crate::output::the_pod;

type Body<T> = axum::Json<T>;

/// Dumps and deletes a shop's rows at a pod that does not own it: rows that no move made. It goes on by itself, and is followed
/// as a move that was over before it began (`clears`); `leftover_since` says whether rows may still be there. The same order
/// again is the same one, until it is done; then it says so.
#[utoipa::path(post, path = "/v1/shops/{ref}/clear", tag = "shops", params(("ref" = String, Path)),
    request_body = ShopClear, responses((status = 201, body = Move),
        (status = 200, body = Move, description = "It is ordered already, or done, and nothing is there."),
        (status = 400, description = "A field is wrong, or there is no such pod."),
        (status = 404, description = "No such shop."),
        (status = 409, description = "The pod owns the shop, or may serve it; a move of the shop is open, or has left \
            something there; the schema of the pod is being changed; or nothing is there. `detail` says which, and the way out."),
        (status = 503, description = "The pod cannot be reached, or the catalog is not reconciled; nothing was begun.")))]
pub(super) async fn clear(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
    Json(wish): Json<ShopClear>,
) -> Answer<(StatusCode, Body<Move>)> {
    let ShopClear { at, reason } = wish;
    let order = ClearOrder {
        shop: ShopRef::parse(&reference, app.catalog.domains())?,
        at,
        reason: check::line("reason", reason, check::TEXT_LEN_MAX)?,
    };
    let plan = app.catalog.check_clear(&order).await?;
    if let Some(row) = plan.under_way() {
        return found(&app, row.clone());
    }
    let (shop, pod) = (&plan.shop, &plan.pod);
    let looked = Box::pin(foreign::look(&app.mover, shop.id, pod.id)).await;
    let Foreign { home, rows } = looked.map_err(|error| against(error, ""))?;
    let (handle, name) = (&shop.handle, the_pod(&pod.name));
    if let Some(home) = home {
        let text = format!(
            "{name} has a home of shop {handle} that is {home}, and rows are cleared only where it is moved or missing: they \
             may be somebody's; run `podctl doctor`"
        );
        return Err(Failure::new(Kind::Conflict, text));
    }
    match plan.last.clone() {
        Some(row) if !rows => return found(&app, row),
        None if !rows => {
            let text = format!("{name} has no rows of shop {handle}: nothing is to be cleared");
            return Err(Failure::new(Kind::Conflict, text));
        }
        Some(_) | None => {}
    }
    let row = app.catalog.begin_clear(&caller.name, &order).await?;
    tracing::info!(id = %row.id, shop = row.shop.get(), at = %row.target, "clearing ordered");
    Ok((StatusCode::CREATED, axum::Json(view(&app, row)?)))
}

fn found(app: &App, row: MoveRow) -> Answer<(StatusCode, Body<Move>)> {
    Ok((StatusCode::OK, axum::Json(view(app, row)?)))
}
