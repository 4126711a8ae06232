//! Operations: listed, looked at, and the records of those that others run (apply).

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::app::App;
use super::auth::Caller;
use super::body::{Json, Params};
use super::failure::{Answer, Failure};
use crate::api::{Operation, OperationChange, OperationList, OperationNew};
use crate::catalog::OWN_KINDS;

type Body<T> = axum::Json<T>;
/// The most operations in one answer.
const LIMIT_MAX: u32 = 500;
/// A page when nobody says how long.
const LIMIT: u32 = 100;
/// Names of kinds and subjects stand in tables.
const NAME_LEN_MAX: usize = 100;

/// The query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// At most 500.
    limit: Option<u32>,
}

/// Unfinished operations first, then the newest.
#[utoipa::path(get, path = "/v1/operations", tag = "operations", params(ListQuery),
    responses((status = 200, body = OperationList)))]
pub(super) async fn list(
    app: State<Arc<App>>,
    Params(query): Params<ListQuery>,
) -> Answer<Body<OperationList>> {
    let limit = query.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Failure::field(
            "limit",
            format!("not within 1 and {LIMIT_MAX}"),
        ));
    }
    Ok(axum::Json(OperationList {
        operations: app.catalog.operations(limit).await?,
    }))
}

/// One operation.
#[utoipa::path(get, path = "/v1/operations/{id}", tag = "operations", params(("id" = String, Path)),
    responses((status = 200, body = Operation), (status = 404, description = "No such operation.")))]
pub(super) async fn show(app: State<Arc<App>>, Path(id): Path<String>) -> Answer<Body<Operation>> {
    Ok(axum::Json(app.catalog.operation(&id).await?))
}

/// Records an operation that the caller runs; the same id again is the same operation.
#[utoipa::path(post, path = "/v1/operations", tag = "operations", request_body = OperationNew,
    responses((status = 201, body = Operation), (status = 400, description = "A field is wrong."),
        (status = 409, description = "The id is another operation's.")))]
pub(super) async fn create(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Json(new): Json<OperationNew>,
) -> Answer<(StatusCode, Body<Operation>)> {
    if new.id.parse::<Uuid>().is_err() {
        return Err(Failure::field("id", "it is not a UUID"));
    }
    for (field, text) in [("kind", &new.kind), ("subject", &new.subject)] {
        if text.is_empty() || text.chars().count() > NAME_LEN_MAX {
            return Err(Failure::field(
                field,
                format!("not 1 to {NAME_LEN_MAX} characters"),
            ));
        }
    }
    if OWN_KINDS.contains(&new.kind.as_str()) {
        return Err(Failure::field(
            "kind",
            "the control server runs operations of this kind itself",
        ));
    }
    let operation = app.catalog.put_operation(&caller.name, &new).await?;
    Ok((StatusCode::CREATED, axum::Json(operation)))
}

/// Says how far such an operation is.
#[utoipa::path(patch, path = "/v1/operations/{id}", tag = "operations", params(("id" = String, Path)),
    request_body = OperationChange, responses((status = 200, body = Operation),
        (status = 404, description = "No such operation."), (status = 409, description = "It is done, or not yours.")))]
pub(super) async fn change(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(to): Json<OperationChange>,
) -> Answer<Body<Operation>> {
    Ok(axum::Json(
        app.catalog.change_operation(&caller.name, &id, &to).await?,
    ))
}
