//! A client's connection: the stream that Pingora reads and writes, and what its requests share.
//!
//! Pingora has a time limit for each read of a header, none for the whole of it, and none at all between the requests
//! of a kept-alive connection (pingora#447, pingora#540). So [`Connection`] remembers since when a header is awaited, and
//! [`Connection::overdue`] ends the connections that take too long, however slowly they drip.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::HeaderValue;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A header and a small body go out in one segment and one system call; larger bodies pass by the buffer.
const WRITE_BUFFER: usize = 4096;

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
}

const RUNNING: u64 = u64::MAX;

/// How long a client may take to send a whole request header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// From the connection's begin.
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
        })
    }

    /// A request's header is complete.
    pub(crate) fn begin_request(&self) {
        self.waiting.store(RUNNING, Ordering::Relaxed);
    }

    /// A request has ended; the next header is awaited from this moment.
    pub(crate) fn end_request(&self) {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(RUNNING - 1);
        // 0 is the connection's begin, which has another limit.
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
/// for nothing but the bytes.
#[derive(Debug)]
pub(crate) struct ClientStream(BufWriter<TcpStream>);

impl ClientStream {
    pub(crate) fn new(tcp: TcpStream) -> io::Result<Self> {
        // What is written is complete: waiting for more would only add latency.
        tcp.set_nodelay(true)?;
        Ok(Self(BufWriter::with_capacity(WRITE_BUFFER, tcp)))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        // The client may be gone; there is nobody to tell.
        let _ = AsyncWriteExt::shutdown(&mut self.0).await;
    }
}

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.0.get_ref().as_raw_fd()
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

/// Which peers may say for whom they speak: the addresses of load balancers in front of the edge.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustedProxies(Vec<(IpAddr, u8)>);

impl TrustedProxies {
    /// Reads `10.0.0.0/8` or `10.0.0.1`.
    pub(crate) fn parse(texts: &[String]) -> Result<Self, String> {
        let one = |text: &String| {
            let bad = || format!("{text:?} is not an address or a network such as 10.0.0.0/8");
            let (address, bits) = match text.split_once('/') {
                Some((address, bits)) => (address, Some(bits)),
                None => (text.as_str(), None),
            };
            let address: IpAddr = address.parse().map_err(|_| bad())?;
            let width = if address.is_ipv4() { 32 } else { 128 };
            let bits = match bits {
                Some(bits) => bits.parse().ok().filter(|b| *b <= width).ok_or_else(bad)?,
                None => width,
            };
            Ok((address, bits))
        };
        texts.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn contains(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.0.iter().any(|(network, bits)| match (network, peer) {
            (IpAddr::V4(network), IpAddr::V4(peer)) => {
                let shift = 32 - u32::from(*bits);
                // A shift by the whole width is no shift, but everything.
                (network.to_bits() ^ peer.to_bits())
                    .checked_shr(shift)
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(network), IpAddr::V6(peer)) => {
                let shift = 128 - u32::from(*bits);
                (network.to_bits() ^ peer.to_bits())
                    .checked_shr(shift)
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        })
    }
}

/// The address under which a peer is known: an IPv4 address that came over an IPv6 socket is itself.
pub(crate) fn canonical(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_what_they_say() {
        let trusted = |text: &str| TrustedProxies::parse(&[text.to_owned()]).unwrap();
        for (network, peer, inside) in [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::/32", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
            ("::/0", "192.0.2.1", false),
        ] {
            let peer: IpAddr = peer.parse().unwrap();
            assert_eq!(trusted(network).contains(peer), inside, "{network} {peer}");
        }
        for bad in ["", "10.0.0.0/33", "10.0.0.0/x", "host", "10.0.0.0/8/8", "::/129"] {
            assert!(TrustedProxies::parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }

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
        assert!(PATIENCE.next <= waited && waited <= PATIENCE.next + PATIENCE.first, "{waited:?}");
    }
}
