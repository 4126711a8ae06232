//! Pods: registered, listed, drained; their topology, and who is primary.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use serde::Deserialize;
use shared::PodId;
use shared::error::Kind;
use utoipa::IntoParams;

use super::app::{App, stopped};
use super::auth::Caller;
use super::body::{Json, Params};
use super::check;
use super::failure::{Answer, Failure};
use crate::api::{Pod, PodList, PodPut, PodStatusChange, PrimaryChange, Topology};

type Body<T> = axum::Json<T>;

/// All pods.
#[utoipa::path(get, path = "/v1/pods", tag = "pods", responses((status = 200, body = PodList)))]
pub(super) async fn list(app: State<Arc<App>>) -> Answer<Body<PodList>> {
    Ok(axum::Json(PodList {
        pods: app.catalog.pods().await?,
    }))
}

/// A pod by id or name.
#[utoipa::path(get, path = "/v1/pods/{ref}", tag = "pods", params(("ref" = String, Path)),
    responses((status = 200, body = Pod), (status = 404, description = "No such pod.")))]
pub(super) async fn show(app: State<Arc<App>>, Path(reference): Path<String>) -> Answer<Body<Pod>> {
    Ok(axum::Json(app.catalog.pod(&reference).await?))
}

/// Registers a pod, or makes it be as told. The same again changes nothing; who is primary has its own call.
#[utoipa::path(put, path = "/v1/pods/{id}", tag = "pods", params(("id" = u32, Path)), request_body = PodPut,
    responses((status = 200, body = Pod), (status = 400, description = "A field is wrong."),
        (status = 409, description = "The name or a server is another pod's, or the primary is missing.")))]
pub(super) async fn put(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(put): Json<PodPut>,
) -> Answer<Body<Pod>> {
    let id: PodId = id
        .parse()
        .map_err(|e: shared::id::Invalid| Failure::field("id", e.to_string()))?;
    let put = check::pod(put)?;
    Ok(axum::Json(
        app.catalog.put_pod(&caller.name, id, &put).await?,
    ))
}

/// Says whether a pod takes shops (`active`), keeps those it has (`draining`), or is not to be asked (`offline`).
#[utoipa::path(post, path = "/v1/pods/{ref}/status", tag = "pods", params(("ref" = String, Path)),
    request_body = PodStatusChange, responses((status = 200, body = Pod), (status = 404, description = "No such pod.")))]
pub(super) async fn set_status(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
    Json(change): Json<PodStatusChange>,
) -> Answer<Body<Pod>> {
    let PodStatusChange { status, reason } = change;
    let reason = check::line("reason", reason, check::TEXT_LEN_MAX)?;
    let (actor, reason) = (&caller.name, reason.as_deref());
    Ok(axum::Json(
        app.catalog
            .set_pod_status(actor, &reference, status, reason)
            .await?,
    ))
}

/// Names another primary, if the term is still the one told.
#[utoipa::path(put, path = "/v1/pods/{ref}/primary", tag = "pods", params(("ref" = String, Path)),
    request_body = PrimaryChange, responses((status = 200, body = Topology), (status = 404, description = "No such pod."),
        (status = 409, description = "The term is another one.")))]
pub(super) async fn set_primary(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
    Json(change): Json<PrimaryChange>,
) -> Answer<Body<Topology>> {
    let PrimaryChange { address, term } = change;
    app.catalog
        .set_primary(&caller.name, &reference, &address, term)
        .await?;
    Ok(axum::Json(app.catalog.topology(&reference).await?))
}

/// The query of a pod's topology.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct TopologyQuery {
    /// Wait until the topology is newer than this version.
    after: Option<u64>,
    /// How long, in milliseconds; at most, and without it, `limits.wait_max`.
    wait_ms: Option<u64>,
}

/// Where a pod's servers are. With `after` the answer waits for a change.
#[utoipa::path(get, path = "/v1/pods/{ref}/topology", tag = "pods", params(("ref" = String, Path), TopologyQuery),
    responses((status = 200, body = Topology), (status = 403, description = "Another pod's token."),
        (status = 404, description = "No such pod.")))]
pub(super) async fn topology(
    app: State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(reference): Path<String>,
    Params(query): Params<TopologyQuery>,
) -> Answer<Body<Topology>> {
    // Subscribe before looking: a change after the look wakes.
    let mut changes = app.catalog.watch();
    let first = app.catalog.topology(&reference).await?;
    if caller.pod.is_some_and(|own| own != first.pod) {
        let text = format!("the token {} is for another pod", caller.name);
        return Err(Failure::new(Kind::Forbidden, text));
    }
    let Some(after) = query.after else {
        return Ok(axum::Json(first));
    };
    if first.version != after {
        return Ok(axum::Json(first));
    }
    let (_place, deadline) = app.poll(query.wait_ms)?;
    loop {
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep_until(deadline) => return Ok(axum::Json(first)),
            () = stopped(app.stopping.clone()) => return Ok(axum::Json(first)),
        }
        let now = app.catalog.topology(&reference).await?;
        if now.version != after {
            return Ok(axum::Json(now));
        }
    }
}
