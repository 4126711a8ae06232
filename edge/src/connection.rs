//! A client's connection: the stream that Pingora reads and writes, and what its requests share.
//!
//! Pingora has a time limit for each read of a header, none for the whole of it, and none at all between the requests
//! of a kept-alive connection (pingora#447, pingora#540). So [`Connection`] remembers since when a header is awaited, and
//! [`Connection::overdue`] ends the connections that take too long, however slowly they drip. What it cannot do: bound the
//! whole of a body, only the pause between two pieces of it (`timeouts.client`); a body that drips holds its shop's
//! permit, and no one else's.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::HeaderValue;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use shared::error::Kind;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use uuid::Uuid;

use crate::context::request_id;
use crate::reply::Reply;

/// A header and a small body go out in one segment and one system call; larger bodies pass by the buffer.
const WRITE_BUFFER: usize = 4096;

/// A parked client that has sent more than is read is looked at so often: its place is free within a second of its leaving.
const HUNG_UP_LOOK: Duration = Duration::from_millis(250);

/// Of a header so much is read at a time: what comes behind it is less, and leaves room for more of a body that is kept.
const HEAD_PIECE: usize = 16 * 1024;

/// What the requests of one connection share.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The peer's address as it goes into `x-forwarded-for` and the log.
    pub(crate) peer: HeaderValue,
    /// Whether the peer may say for whom it speaks.
    pub(crate) trusted: bool,
    opened: Instant,
    /// Milliseconds after `opened` since when a header is awaited; [`RUNNING`] while a request runs.
    waiting: AtomicU64,
    refused: OnceLock<Refused>,
}

/// A request that Pingora could not read, and so handed to nobody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub(crate) reply: Reply,
    pub(crate) request: Uuid,
}

const RUNNING: u64 = u64::MAX;

/// How long a client may take to send a whole request header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// From the beginning of the connection.
    pub(crate) first: Duration,
    /// From the end of the request before, idle time included.
    pub(crate) next: Duration,
}

impl Connection {
    pub(crate) fn new(peer: IpAddr, trusted: bool) -> io::Result<Self> {
        let peer = HeaderValue::from_str(&peer.to_string()).map_err(io::Error::other)?;
        Ok(Self {
            peer,
            trusted,
            opened: Instant::now(),
            waiting: AtomicU64::new(0),
            refused: OnceLock::new(),
        })
    }

    /// The request that Pingora could not read, if it came to that.
    pub(crate) fn refused(&self) -> Option<Refused> {
        self.refused.get().copied()
    }

    /// A request's header is complete.
    pub(crate) fn begin_request(&self) {
        self.waiting.store(RUNNING, Ordering::Relaxed);
    }

    /// A request has ended; the next header is awaited from this moment.
    pub(crate) fn end_request(&self) {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(RUNNING - 1);
        // 0 is the beginning of the connection, which has another limit.
        self.waiting.store(now.max(1), Ordering::Relaxed);
    }

    /// Returns when a header has been awaited for too long. It wakes once in a while instead of once a request, so
    /// it may be late by `patience.first`.
    pub(crate) async fn overdue(&self, patience: Patience) {
        loop {
            let waiting = self.waiting.load(Ordering::Relaxed);
            let look_again = match waiting {
                RUNNING => Instant::now() + patience.first,
                0 => self.opened + patience.first,
                since => self.opened + Duration::from_millis(since) + patience.next,
            };
            if waiting != RUNNING && look_again <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(look_again.min(Instant::now() + patience.first)).await;
        }
    }
}

/// The stream under Pingora's server session.
///
/// Pingora's own would be made by its own listener; this one is made by ours, has a write buffer, and asks the kernel
/// for nothing but the bytes. What Pingora writes before a request has begun is its own refusal of a malformed one; the
/// edge's takes its place, so that every answer looks alike.
#[derive(Debug)]
pub(crate) struct ClientStream {
    tcp: BufWriter<TcpStream>,
    connection: Arc<Connection>,
    head: Head,
    /// So much of a body is read at a time.
    piece: AtomicUsize,
}

/// The size of the header that is awaited: Pingora refuses one that is too large like any that it cannot read.
#[derive(Debug, Default)]
struct Head {
    /// Which one: [`Connection::waiting`].
    of: u64,
    lines: usize,
    bytes: usize,
}

impl Head {
    /// Smaller ones are none that Pingora refuses for their size, and are not looked at.
    const SMALL: usize = 2 * PINGORA_FIELDS;

    fn add(&mut self, of: u64, read: &[u8]) {
        if self.of != of {
            *self = Self {
                of,
                ..Self::default()
            };
        }
        self.bytes += read.len();
        if read.len() <= Self::SMALL {
            return;
        }
        let lines = |part: &[u8]| part.iter().filter(|b| **b == b'\n').count();
        let mut count = lines(read);
        if count > PINGORA_FIELDS {
            // Perhaps not all of them are the header's.
            let end = read.windows(4).position(|w| w == b"\r\n\r\n");
            count = lines(&read[..end.unwrap_or(read.len())]);
        }
        self.lines += count;
    }

    const fn is_too_large(&self) -> bool {
        self.lines > PINGORA_FIELDS || self.bytes > PINGORA_BYTES
    }
}

/// Fields, and bytes, of a header above which Pingora refuses it.
const PINGORA_FIELDS: usize = 256;
const PINGORA_BYTES: usize = 1_048_575;

impl ClientStream {
    pub(crate) fn new(tcp: TcpStream, connection: Arc<Connection>) -> io::Result<Self> {
        // What is written is complete: waiting for more would only add latency.
        tcp.set_nodelay(true)?;
        let tcp = BufWriter::with_capacity(WRITE_BUFFER, tcp);
        let head = Head::default();
        Ok(Self {
            tcp,
            connection,
            head,
            piece: AtomicUsize::new(usize::MAX),
        })
    }

    /// From now on so many bytes of a body are read at a time, at most; at least one, since none would be the end.
    pub(crate) fn read_at_most(&self, bytes: usize) {
        self.piece.store(bytes.max(1), Ordering::Relaxed);
    }

    /// Returns when the client has closed its side, or the connection is broken. Nothing is read: the kernel tells it beside
    /// whatever waits to be read.
    pub(crate) async fn hung_up(&self) {
        loop {
            match self.tcp.get_ref().ready(Interest::READABLE).await {
                Ok(ready) if ready.is_read_closed() => return,
                // Bytes wait, and go on being ready to be read; only time can tell more.
                Ok(_) => tokio::time::sleep(HUNG_UP_LOOK).await,
                Err(_) => return,
            }
        }
    }

    fn poll_refuse(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.connection.refused.get().is_none() {
            let refused = Refused {
                reply: if self.head.is_too_large() {
                    Kind::HeadersTooLarge.into()
                } else {
                    Reply::unread(bytes)
                },
                request: request_id(),
            };
            let answer = refused.reply.to_http(refused.request);
            // It fits the buffer, which takes it whole or not yet.
            let written = Pin::new(&mut self.tcp).poll_write(context, &answer);
            if std::task::ready!(written)? < answer.len() {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let _ = self.connection.refused.set(refused);
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let waiting = self.connection.waiting.load(Ordering::Relaxed);
        let most = if waiting == RUNNING {
            self.piece.load(Ordering::Relaxed)
        } else {
            HEAD_PIECE
        };
        let read = if buffer.remaining() <= most {
            Pin::new(&mut self.tcp).poll_read(context, buffer)
        } else {
            let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(most));
            let read = Pin::new(&mut self.tcp).poll_read(context, &mut piece);
            let got = piece.filled().len();
            buffer.advance(got);
            read
        };
        if waiting != RUNNING {
            self.head.add(waiting, &buffer.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.connection.waiting.load(Ordering::Relaxed) != RUNNING {
            return self.poll_refuse(context, bytes);
        }
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.connection.waiting.load(Ordering::Relaxed) != RUNNING {
            let first = slices.iter().find(|slice| !slice.is_empty());
            return self.poll_refuse(context, first.map_or(&[], |slice| slice));
        }
        Pin::new(&mut self.tcp).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        // The client may be gone; there is nobody to tell.
        let _ = AsyncWriteExt::shutdown(&mut self.tcp).await;
    }
}

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.tcp.get_ref().as_raw_fd()
    }
}

// Plain TCP; nobody reads these digests: the log takes the address from `Connection`.
impl Ssl for ClientStream {}

impl GetTimingDigest for ClientStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for ClientStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for ClientStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}

impl Peek for ClientStream {}

/// The address under which a peer is known: an IPv4 address that came over an IPv6 socket is itself.
pub(crate) fn canonical(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        first: Duration::from_secs(10),
        next: Duration::from_secs(60),
    };

    #[tokio::test(start_paused = true)]
    async fn a_first_header_that_drips_is_overdue() {
        let connection = Connection::new("192.0.2.1".parse().unwrap(), false).unwrap();
        let begin = Instant::now();
        connection.overdue(PATIENCE).await;
        assert_eq!(begin.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_request_is_never_overdue_and_an_idle_client_is() {
        let connection = Connection::new("192.0.2.1".parse().unwrap(), false).unwrap();
        connection.begin_request();
        let long = Duration::from_secs(3600);
        tokio::time::timeout(long, connection.overdue(PATIENCE))
            .await
            .unwrap_err();
        connection.end_request();
        let begin = Instant::now();
        connection.overdue(PATIENCE).await;
        let waited = begin.elapsed();
        assert!(
            PATIENCE.next <= waited && waited <= PATIENCE.next + PATIENCE.first,
            "{waited:?}"
        );
    }
}
