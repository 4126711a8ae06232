//! The admin port: alive, ready, metrics. Unsigned; it is bound to an address that only operators reach.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{StatusCode, header};
use serde::Serialize;
use shared::telemetry::MetricsText;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::App;
use crate::server::Phase;

/// The running admin port.
pub(crate) struct Admin {
    phase: Phase,
    stop: CancellationToken,
}

struct Shared {
    app: App,
    phase: Phase,
    metrics: Option<MetricsText>,
}

/// What `/readyz` says.
#[derive(Debug, Serialize)]
struct Ready {
    phase: &'static str,
    pod: u32,
    process: u32,
    /// Whether the primary is open.
    primary: &'static str,
    replicas: Vec<ReplicaLine>,
}

#[derive(Debug, Serialize)]
struct ReplicaLine {
    address: String,
    standing: String,
}

impl Admin {
    pub(crate) fn start(listener: TcpListener, app: App, metrics: Option<MetricsText>) -> Self {
        let phase = Phase::default();
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            app,
            phase: phase.clone(),
            metrics,
        });
        let router = Router::new()
            .route("/healthz", get(async || "alive"))
            .route("/readyz", get(readyz))
            .route("/metrics", get(render))
            .with_state(shared);
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router)
                .with_graceful_shutdown(stopped)
                .await
            {
                tracing::error!(%error, "the admin port ended");
            }
        });
        Self { phase, stop }
    }

    pub(crate) fn ready(&self) {
        self.phase.serve();
    }

    pub(crate) fn draining(&self) {
        self.phase.drain();
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }
}

/// 200 while requests are taken. A primary that is lost or shut does not make it red: reads go on, and both processes
/// of a pod would go at once.
async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    let servers = &shared.app.db().servers;
    let ready = Ready {
        phase: shared.phase.word(),
        pod: shared.app.pod().get(),
        process: shared.app.config().process,
        primary: if servers.primary_open() {
            "open"
        } else {
            "not open"
        },
        replicas: servers
            .describe()
            .into_iter()
            .map(|(address, standing)| ReplicaLine { address, standing })
            .collect(),
    };
    let status = if shared.phase.serving() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(ready)).into_response()
}

async fn render(State(shared): State<Arc<Shared>>) -> Response {
    match &shared.metrics {
        Some(metrics) => (
            [(header::CONTENT_TYPE, MetricsText::CONTENT_TYPE)],
            metrics.render(),
        )
            .into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
