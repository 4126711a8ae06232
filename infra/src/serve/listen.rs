//! Listening: bounded in connections and in the time to a request's head; stops in an orderly way.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::app::stopped;
use super::config::Limits;

/// After a failed accept (too many open files) trying again at once would only burn a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Header fields of our own clients take some hundred bytes; hyper's least buffer is 8 KiB.
const HEAD_LEN_MAX: usize = 32 * 1024;

/// Binds all addresses, or says which one could not be had.
pub(super) async fn bind(
    addresses: &[SocketAddr],
) -> Result<Vec<TcpListener>, (SocketAddr, io::Error)> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| (*address, error))?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Serves until the server stops, then lets requests under way end within the deadline.
pub(super) async fn serve(
    listeners: Vec<TcpListener>,
    router: Router,
    limits: &Limits,
    stopping: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(limits.connections_max));
    let graceful = GracefulShutdown::new();
    let accepting = listeners.into_iter().map(|listener| {
        accept(
            listener,
            router.clone(),
            limits,
            Arc::clone(&slots),
            &graceful,
            stopping.clone(),
        )
    });
    futures::future::join_all(accepting).await;
    if tokio::time::timeout(limits.stop_deadline, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not end in time and were cut off");
    }
}

async fn accept(
    listener: TcpListener,
    router: Router,
    limits: &Limits,
    slots: Arc<Semaphore>,
    graceful: &GracefulShutdown,
    stopping: watch::Receiver<bool>,
) {
    loop {
        // A slot first: over the limit, connections wait in the system's queue.
        let slot = tokio::select! {
            slot = Arc::clone(&slots).acquire_owned() => slot,
            () = stopped(stopping.clone()) => return,
        };
        let Ok(slot) = slot else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(stopping.clone()) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = connection(stream, router.clone(), limits, graceful);
                tokio::spawn(async move {
                    // Clients break off as they like; what a request did is logged with it.
                    let _ = connection.await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!("a connection could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn connection(
    stream: TcpStream,
    router: Router,
    limits: &Limits,
    graceful: &GracefulShutdown,
) -> impl Future<Output = Result<(), hyper::Error>> + Send + 'static {
    // Answers are small and clients wait for them.
    let _ = stream.set_nodelay(true);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_deadline)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    graceful.watch(connection)
}
