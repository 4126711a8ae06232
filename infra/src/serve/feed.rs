//! What edges follow: the whole table as a stream, its changes as long polls.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use shared::error::{Kind, chain};
use shared::routes::wire::{Changes, NDJSON};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;

use super::app::{App, stopped};
use super::body::Params;
use super::failure::{Answer, Failure};
use crate::catalog::{CHANGES_PAGE_MAX, CatalogError, TableReader};

/// Pages read ahead of a slow reader.
const PAGES_AHEAD: usize = 2;

/// The whole table at a version: a line of JSON for the header, each pod, each shop, and the end.
#[utoipa::path(get, path = "/v1/routes", tag = "routes",
    responses((status = 200, content_type = "application/x-ndjson", body = String),
        (status = 503, description = "Too many full tables are being read.")))]
pub(super) async fn table(app: State<Arc<App>>) -> Answer<Response> {
    let permit = Arc::clone(&app.tables).try_acquire_owned().map_err(|_| {
        let text =
            "as many full tables as may be are being read (`limits.tables_max` of control.toml)";
        Failure::new(Kind::Overloaded, text)
    })?;
    let reader = app.catalog.table().await?;
    let (pages, body) = mpsc::channel(PAGES_AHEAD);
    tokio::spawn(send(reader, pages, permit, app.limits.table_deadline));
    let body = Body::from_stream(ReceiverStream::new(body));
    Ok(([(header::CONTENT_TYPE, NDJSON)], body).into_response())
}

/// Reads pages and hands them on, as long as somebody takes them and the deadline allows. A table that is cut short has
/// no end line, which its reader refuses.
async fn send(
    mut reader: TableReader,
    pages: mpsc::Sender<Result<Bytes, CatalogError>>,
    _permit: OwnedSemaphorePermit,
    deadline: Duration,
) {
    let deadline = Instant::now() + deadline;
    loop {
        let page = match reader.next_lines().await {
            Ok(Some(text)) => Ok(Bytes::from(text)),
            Ok(None) => return,
            Err(error) => {
                tracing::warn!("a full table was cut short: {}", chain(&error));
                Err(error)
            }
        };
        let failed = page.is_err();
        match timeout_at(deadline, pages.send(page)).await {
            Ok(Ok(())) if !failed => {}
            Ok(_) => return,
            Err(_) => {
                tracing::warn!("a full table was cut short: its reader is too slow");
                return;
            }
        }
    }
}

/// The query of the change feed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangesQuery {
    /// Of the table that the changes are for.
    incarnation: u64,
    /// The version of that table.
    after: u64,
    /// How long to wait for a change, in milliseconds; at most, and without it, `limits.wait_max`.
    wait_ms: Option<u64>,
}

/// What changed after a version, in order; waits for a change if there is none yet.
#[utoipa::path(get, path = "/v1/routes/changes", tag = "routes", params(ChangesQuery),
    responses((status = 200, body = Object), (status = 410, description = "Take the full table."),
        (status = 429, description = "Too many long polls.")))]
pub(super) async fn changes(
    app: State<Arc<App>>,
    Params(query): Params<ChangesQuery>,
) -> Answer<axum::Json<Changes>> {
    let ChangesQuery {
        incarnation,
        after,
        wait_ms,
    } = query;
    // Subscribe before looking: a change after the look wakes.
    let mut changed = app.catalog.watch();
    let first = app
        .catalog
        .changes(incarnation, after, CHANGES_PAGE_MAX)
        .await?;
    if !first.changes.is_empty() || wait_ms == Some(0) {
        return Ok(axum::Json(first));
    }
    let (_place, deadline) = app.poll(wait_ms)?;
    let mut last = first;
    loop {
        tokio::select! {
            _ = changed.changed() => {}
            () = tokio::time::sleep_until(deadline) => return Ok(axum::Json(last)),
            () = stopped(app.stopping.clone()) => return Ok(axum::Json(last)),
        }
        last = app
            .catalog
            .changes(incarnation, after, CHANGES_PAGE_MAX)
            .await?;
        if !last.changes.is_empty() {
            return Ok(axum::Json(last));
        }
    }
}
