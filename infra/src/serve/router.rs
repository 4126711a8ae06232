//! The one table of routes and the one list of layers.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use shared::error::Kind;
use shared::telemetry::metric;
use shared::wire::REQUEST_ID;
use tower_http::compression::CompressionLayer;
use utoipa::OpenApi as _;
use uuid::Uuid;

use super::app::App;
use super::failure::Failure;
use super::{auth, clear, feed, moves, openapi, operations, overview, pods, shops};

/// All routes with all layers.
pub(super) fn router(app: Arc<App>) -> Router {
    let edge = Router::new()
        .route("/v1/routes", get(feed::table))
        .route("/v1/routes/changes", get(feed::changes))
        .route("/v1/parks", post(moves::park))
        .route_layer(from_fn_with_state(Arc::clone(&app), auth::edge));
    let pod = Router::new()
        .route("/v1/pods/{ref}/topology", get(pods::topology))
        .route_layer(from_fn_with_state(Arc::clone(&app), auth::pod));
    let operator = Router::new()
        .route("/", get(overview::console))
        .route("/v1/status", get(overview::status))
        .route("/v1/shops", get(shops::list).post(shops::create))
        .route("/v1/shops/{ref}", get(shops::show))
        .route("/v1/shops/{ref}/state", put(shops::set_state))
        .route("/v1/shops/{ref}/history", get(shops::history))
        .route("/v1/shops/{ref}/placement", get(shops::placement))
        .route(
            "/v1/shops/{ref}/hosts/{host}",
            put(shops::add_host).delete(shops::remove_host),
        )
        .route(
            "/v1/shops/{ref}/tokens",
            get(shops::tokens).post(shops::create_token),
        )
        .route("/v1/shops/{ref}/tokens/{id}", delete(shops::revoke_token))
        .route("/v1/shops/{ref}/clear", post(clear::clear))
        .route("/v1/shops/{ref}/pin", put(moves::pin).delete(moves::unpin))
        .route("/v1/moves", get(moves::list).post(moves::create))
        .route("/v1/moves/check", post(moves::try_out))
        .route("/v1/moves/{ref}", get(moves::show))
        .route("/v1/moves/{ref}/pause", post(moves::pause))
        .route("/v1/moves/{ref}/resume", post(moves::resume))
        .route("/v1/moves/{ref}/abort", post(moves::abort))
        .route("/v1/moves/{ref}/finish", post(moves::finish))
        .route("/v1/moves/{ref}/events", get(moves::events))
        .route("/v1/pods", get(pods::list))
        .route("/v1/pods/{ref}", get(pods::show).put(pods::put))
        .route("/v1/pods/{ref}/status", post(pods::set_status))
        .route("/v1/pods/{ref}/primary", put(pods::set_primary))
        .route(
            "/v1/operations",
            get(operations::list).post(operations::create),
        )
        .route("/v1/operations/{id}", get(operations::show))
        .route("/v1/operations/{id}", patch(operations::change))
        .route_layer(from_fn_with_state(Arc::clone(&app), auth::operator));
    let open = Router::new()
        .route("/healthz", get(overview::healthz))
        .route("/metrics", get(overview::metrics))
        .route("/v1/openapi.json", get(document));
    Router::new()
        .merge(edge)
        .merge(pod)
        .merge(operator)
        .merge(open)
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        // From the innermost outwards.
        .layer(DefaultBodyLimit::max(app.limits.body_max.get()))
        .layer(from_fn_with_state(Arc::clone(&app), see_through))
        .layer(CompressionLayer::new())
        .layer(from_fn(finish))
        .with_state(app)
}

async fn document() -> impl IntoResponse {
    axum::Json(openapi::Document::openapi())
}

async fn no_such_path(request: Request) -> Failure {
    let path: String = request.uri().path().chars().take(200).collect();
    Failure::new(
        Kind::NotFound,
        format!("there is no path {path}; see /v1/openapi.json"),
    )
}

async fn no_such_method(request: Request) -> Failure {
    let text = format!("{} is not among the methods of this path", request.method());
    Failure::new(Kind::MethodNotAllowed, text)
}

/// Sees every request that changes something through to its end, whether its client is still there or not; a client
/// that waits longer than the deadline is told that it goes on. No database work is dropped halfway.
async fn see_through(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let work = tokio::spawn(next.run(request));
    match tokio::time::timeout(app.limits.request_deadline, work).await {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => {
            let log = Some(format!("a handler ended badly: {panic}"));
            Failure {
                log,
                ..Failure::new(Kind::Internal, "the request was not finished")
            }
            .into_response()
        }
        Err(_) => {
            let text = "this takes longer than `limits.request_deadline`; it goes on, look at /v1/operations";
            Failure::new(Kind::Timeout, text).into_response()
        }
    }
}

/// The outermost layer: gives the request its id, renders a failure, counts and times.
async fn finish(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = Uuid::now_v7().to_string();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned());
    let mut response = next.run(request).await;
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        metrics::counter!(metric::ERRORS, metric::KIND => failure.kind.slug()).increment(1);
        response = failure.render(&id);
    }
    let route = route.unwrap_or_else(|| "none".to_owned());
    let status = metric::status_class(response.status().as_u16());
    metrics::counter!(metric::REQUESTS, metric::ROUTE => route.clone(), metric::STATUS => status)
        .increment(1);
    metrics::histogram!(metric::REQUEST_SECONDS, metric::ROUTE => route)
        .record(begun.elapsed().as_secs_f64());
    if let Ok(value) = HeaderValue::from_str(&id) {
        response
            .headers_mut()
            .insert(HeaderName::from_static(REQUEST_ID), value);
    }
    response
}
