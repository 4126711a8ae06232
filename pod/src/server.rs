//! The HTTP server towards the edges: a ceiling of connections, deadlines on heads, and a drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::App;

// What each request passes before its handler.
mod layers;
use layers::Layers;
// What is left of a body once the answer is there.
mod unread;

/// After a failed accept (no file handles left) the next try waits, or the loop would burn a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Starting, serving, draining: what `/-/healthz` says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Phase(Arc<AtomicU8>);

impl Phase {
    const SERVING: u8 = 1;
    const DRAINING: u8 = 2;

    pub(crate) fn serving(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::SERVING
    }

    pub(crate) fn serve(&self) {
        self.0.store(Self::SERVING, Ordering::Release);
    }

    pub(crate) fn drain(&self) {
        self.0.store(Self::DRAINING, Ordering::Release);
    }

    pub(crate) fn word(&self) -> &'static str {
        match self.0.load(Ordering::Acquire) {
            Self::SERVING => "serving",
            Self::DRAINING => "draining",
            _ => "starting",
        }
    }
}

/// The server.
pub(crate) struct Server {
    app: App,
    layers: Arc<Layers>,
    phase: Phase,
}

impl Server {
    pub(crate) fn new(app: App, router: Router<App>) -> Self {
        let phase = Phase::default();
        let layers = Arc::new(Layers::new(app.clone(), router, phase.clone()));
        Self { app, layers, phase }
    }

    pub(crate) fn ready(&self) {
        self.phase.serve();
    }

    pub(crate) fn draining(&self) {
        self.phase.drain();
    }

    /// Accepts on all listeners until the token is cancelled; then each connection ends with the request it is at.
    pub(crate) fn listen(
        &self,
        listeners: Vec<TcpListener>,
        stop: &CancellationToken,
    ) -> TaskTracker {
        let connections = TaskTracker::new();
        let ceiling = Arc::new(Semaphore::new(self.app.config().limits.connections));
        for listener in listeners {
            let accept = accept(
                listener,
                self.layers.clone(),
                self.app.clone(),
                ceiling.clone(),
                connections.clone(),
                stop.clone(),
            );
            let stop = stop.clone();
            connections.spawn(async move {
                stop.run_until_cancelled(accept).await;
            });
        }
        connections.close();
        connections
    }
}

async fn accept(
    listener: TcpListener,
    layers: Arc<Layers>,
    app: App,
    ceiling: Arc<Semaphore>,
    connections: TaskTracker,
    stop: CancellationToken,
) {
    loop {
        // The permit first: above the ceiling connections wait in the kernel's queue, and cost nothing here.
        let Ok(permit) = ceiling.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (layers, app, stop) = (layers.clone(), app.clone(), stop.clone());
        connections.spawn(async move {
            connection(stream, layers, &app, &stop).await;
            drop(permit);
        });
    }
}

async fn connection(stream: TcpStream, layers: Arc<Layers>, app: &App, stop: &CancellationToken) {
    let limits = &app.config().limits;
    // Answers are written whole; waiting for more to send would only add to their latency.
    let _ = stream.set_nodelay(true);
    let bounds = unread::Bounds {
        bytes: limits.unread_max.get(),
        time: limits.body_time,
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let layers = layers.clone();
        async move {
            let (request, rest) = unread::lend(request);
            let answer = layers.answer(request).await;
            rest.discard(bounds);
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_max.get())
        .max_headers(limits.headers)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
}
