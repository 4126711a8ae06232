//! Accepting connections and running Pingora's proxy on each of them.
//!
//! An accept loop of our own instead of Pingora's server: it bounds the connections, ends those that send no whole
//! header in time, and can stop as soon as nothing is in flight (Pingora's sleeps through its whole grace period).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::HttpServerApp as _;
use pingora_core::protocols::http::ServerSession;
use pingora_proxy::HttpProxy;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use tokio_util::task::TaskTracker;

use crate::access_log::{AccessLog, Entry};
use crate::connection::{ClientStream, Connection, Patience, Refused, canonical};
use crate::metrics::Metrics;
use crate::proxy::Edge;
use crate::trusted::TrustedProxies;

/// Connections that wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: u32 = 4096;
/// Out of file descriptors: time for some to be closed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Pingora's own limit for each read of a header. [`Connection::overdue`] ends a connection before; this is above all
/// that its settings allow.
const KEEP_ALIVE_S: u64 = 2 * 3600;

/// Binds an address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // A restart need not wait for connections of the process before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// What all connections share.
pub(crate) struct Acceptor {
    pub(crate) proxy: Arc<HttpProxy<Edge>>,
    pub(crate) patience: Patience,
    pub(crate) trusted: TrustedProxies,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
    pub(crate) room: Arc<Semaphore>,
    pub(crate) connections: TaskTracker,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Acceptor {
    /// Accepts until it is told to stop. At the limit of connections new ones wait in the kernel.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) {
        let mut stop = self.stop.clone();
        let accept = async {
            loop {
                let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else {
                    return;
                };
                match listener.accept().await {
                    Ok((tcp, peer)) => {
                        let this = Arc::clone(&self);
                        self.connections.spawn(async move {
                            let _permit = permit;
                            this.serve(tcp, peer).await;
                        });
                    }
                    Err(error) => {
                        tracing::warn!("cannot accept a connection: {error}");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accept => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn serve(&self, tcp: TcpStream, peer: SocketAddr) {
        let peer = canonical(peer);
        let connection = Connection::new(peer, self.trusted.contains(peer)).map(Arc::new);
        let stream = connection.and_then(|connection| {
            ClientStream::new(tcp, Arc::clone(&connection)).map(|stream| (stream, connection))
        });
        // Else the client is gone already.
        let Ok((stream, connection)) = stream else {
            return;
        };
        self.metrics.connections.increment(1);
        tokio::select! {
            () = self.requests(stream, &connection) => {}
            () = connection.overdue(self.patience) => self.metrics.header_timeouts.increment(1),
        }
        self.metrics.connections.decrement(1);
        if let Some(refused) = connection.refused() {
            self.note(&connection, refused);
        }
    }

    /// A request that Pingora could not read: the proxy never heard of it.
    fn note(&self, connection: &Connection, refused: Refused) {
        let kind = refused.reply.kind;
        self.metrics.error(kind);
        self.metrics.podless.count(kind.status());
        if let Some(log) = &self.access_log {
            log.write(&Entry {
                request: refused.request,
                peer: connection.peer.as_bytes(),
                method: "-",
                host: b"-",
                path: "-",
                route: None,
                process: None,
                status: kind.status(),
                problem: Some(kind.slug()),
                forwards: 0,
                parked: None,
                fence: None,
                bytes_in: 0,
                bytes_out: 0,
                took: Duration::ZERO,
                pod_took: None,
                error: None,
            });
        }
    }

    /// Runs the requests of a connection, one after the other.
    async fn requests(&self, stream: ClientStream, connection: &Arc<Connection>) {
        let mut session = ServerSession::new_http1(Box::new(stream));
        // A client that sends its next request early gets both answers, in order.
        session.set_pipelining_enabled(true);
        loop {
            session.set_keepalive((!*self.stop.borrow()).then_some(KEEP_ALIVE_S));
            session.set_connection_user_context(Some(Box::new(Arc::clone(connection))));
            let Some(reused) = self.proxy.process_new_http(session, &self.stop).await else {
                return;
            };
            if *self.stop.borrow() {
                return;
            }
            connection.end_request();
            let (stream, settings) = reused.consume();
            session = ServerSession::new_http1(stream);
            if let Some(settings) = settings {
                settings.apply_to_session(&mut session);
            }
        }
    }
}
