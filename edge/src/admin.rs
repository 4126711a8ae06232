//! The admin port: whether the edge lives, whether it is ready, what it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use shared::telemetry::MetricsText;

use crate::park::Parking;
use crate::routes::{Routes, Standing};

/// What the admin port shows.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) routes: Arc<Routes>,
    pub(crate) parking: Arc<Parking>,
    pub(crate) metrics: MetricsText,
    pub(crate) stopping: Arc<AtomicBool>,
}

/// All its routes.
pub(crate) fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(admin)
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    let red = StatusCode::SERVICE_UNAVAILABLE;
    if admin.stopping.load(Ordering::Relaxed) {
        return (red, "stopping\n");
    }
    match admin.routes.standing() {
        Standing::Good => (StatusCode::OK, "ready\n"),
        Standing::Empty => (
            red,
            "no route table: no file, and no control server has answered\n",
        ),
        Standing::Stale => (
            red,
            "no control server has answered for longer than max_stale\n",
        ),
    }
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    admin.routes.observe();
    admin.parking.observe();
    let content_type = (header::CONTENT_TYPE, MetricsText::CONTENT_TYPE);
    ([content_type], admin.metrics.render())
}
