//! What each request passes before its handler, in order: health, span and metrics, the signature, a deadline, a net for
//! panics, the router.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use http::{HeaderMap, Method, Request, StatusCode};
use shared::error::{Kind, Problem};
use shared::telemetry::{TRACEPARENT, TraceParent};
use shared::wire::{LETS_IN, Route};
use tower::ServiceExt as _;
use tracing::Instrument as _;

use crate::actor::Actor;
use crate::error::problem_response;
use crate::server::Phase;
use crate::{App, Error, meter};

/// Where an edge asks whether this process can take requests; not signed, since it says nothing of a shop.
const HEALTH: &str = "/-/healthz";

/// The label of a request that has no route of ours.
const NO_ROUTE: &str = "none";

pub(super) struct Layers {
    app: App,
    router: Router,
    phase: Phase,
    deadline: Duration,
}

impl Layers {
    pub(super) fn new(app: App, router: Router<App>, phase: Phase) -> Self {
        let deadline = app.config().limits.request;
        let router = router
            .route_layer(from_fn(label))
            .method_not_allowed_fallback(async || Error::new(Kind::MethodNotAllowed))
            .with_state(app.clone());
        Self {
            app,
            router,
            phase,
            deadline,
        }
    }

    /// The answer to a request.
    pub(super) async fn answer(&self, mut request: Request<Body>) -> Response {
        if request.uri().path() == HEALTH {
            let status = if self.phase.serving() {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            return (status, self.phase.word()).into_response();
        }
        let started = Instant::now();
        meter::in_flight(1);
        let _in_flight = scopeguard(|| meter::in_flight(-1));
        let route = match self.verify(&request) {
            Ok(route) => route,
            Err(response) => {
                meter::request(NO_ROUTE, response.status().as_u16(), started.elapsed());
                return response;
            }
        };
        let span = tracing::info_span!(
            "request",
            request = %route.request,
            shop = route.shop.get(),
            epoch = route.epoch.get(),
            method = %request.method(),
            // Without the query: it may hold an order's access token.
            path = request.uri().path(),
        );
        if let Some(parent) = trace_parent(request.headers()) {
            parent.adopt(&span);
        }
        let actor = Actor::request(route);
        request.extensions_mut().insert(actor);
        let asks = asks(request.method(), request.uri().path());
        let response = async {
            if asks {
                self.lets_in(&actor).await
            } else {
                self.run(request).await
            }
        };
        let response = response.instrument(span.clone()).await;
        let response = name_request(response, &route);
        let took = started.elapsed();
        let label = response
            .extensions()
            .get::<Label>()
            .map_or(NO_ROUTE, |l| l.0.as_str());
        let status = response.status().as_u16();
        meter::request(label, status, took);
        span.in_scope(|| {
            let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            tracing::debug!(target: "pod::access", status, route = label, took_us, "answered");
        });
        response
    }

    #[expect(clippy::result_large_err, reason = "the error is the answer")]
    fn verify(&self, request: &Request<Body>) -> Result<Route, Response> {
        let path = request.uri().path_and_query().map_or("/", |p| p.as_str());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Route::verify(request.headers(), self.app.keys(), now_ms, request.method().as_str(), path).map_err(|refused| {
            tracing::warn!(reason = %refused, "a request without a valid signature: it has gone around the edge");
            Error::because(Kind::Forbidden, "Requests reach a pod through an edge only.").into_response()
        })
    }

    /// For an edge that has a large body to send.
    async fn lets_in(&self, actor: &Actor) -> Response {
        match self.app.db().lets_in(actor).await {
            Ok(()) => StatusCode::NO_CONTENT.into_response(),
            Err(error) => error.into_response(),
        }
    }

    async fn run(&self, request: Request<Body>) -> Response {
        let handler = AssertUnwindSafe(self.router.clone().oneshot(request)).catch_unwind();
        match tokio::time::timeout(self.deadline, handler).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(never))) => match never {},
            Ok(Err(_)) => Error::bug("a handler panicked").into_response(),
            // What it has begun at the database goes on and is found under its key.
            Err(_) => Error::because(
                Kind::Unavailable,
                "The request took too long. Send it with the same Idempotency-Key again.",
            )
            .into_response(),
        }
    }
}

/// Whether an edge asks for a body that it has not sent. By any other method the path is one like all.
fn asks(method: &Method, path: &str) -> bool {
    method == Method::POST && path == LETS_IN
}

/// The route's template, for metrics.
#[derive(Debug, Clone)]
struct Label(MatchedPath);

async fn label(path: MatchedPath, request: Request<Body>, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.extensions_mut().insert(Label(path));
    response
}

fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    TraceParent::parse(headers.get(TRACEPARENT)?.to_str().ok()?)
}

/// Adds the request's id to a problem, so that a client can name it to support.
fn name_request(response: Response, route: &Route) -> Response {
    let Some((kind, problem)) = response.extensions().get::<(Kind, Problem)>() else {
        return response;
    };
    let kind = *kind;
    let named = Problem {
        request: Some(route.request.to_string()),
        ..problem.clone()
    };
    let (mut parts, _) = response.into_parts();
    let (fresh, body) = problem_response(kind, &named).into_parts();
    parts.headers.remove(http::header::CONTENT_LENGTH);
    parts.headers.extend(fresh.headers);
    Response::from_parts(parts, body)
}

/// Runs something at the end, also when the request is dropped.
fn scopeguard(end: impl FnMut()) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_asks_by_post_alone() {
        assert!(asks(&Method::POST, LETS_IN));
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
            assert!(!asks(&method, LETS_IN), "{method}");
        }
        for path in ["/-/lets-in/", "/-/lets-in/x", "/-/", "/lets-in", "/"] {
            assert!(!asks(&Method::POST, path), "{path}");
        }
    }
}
