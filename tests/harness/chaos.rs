//! A TCP proxy whose wire can be cut, slowed and silenced, while it runs and as often as a test likes.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the wire does to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Carries them.
    Open,
    /// Carries them later, in both directions.
    Slow(Duration),
    /// Every connection is closed, new ones at once.
    Cut,
    /// Connections are accepted and stay open; nothing gets through in these directions. With both, this is a machine
    /// that is gone; with one, a connection that is open at one end only.
    Silent(Silence),
}

/// Which bytes are kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// What the client sends.
    Requests,
    /// What the server sends.
    Answers,
    /// Both.
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

/// The proxy; it ends with the value.
#[derive(Debug)]
pub struct Chaos {
    address: SocketAddr,
    wire: watch::Sender<Wire>,
    accepts: JoinHandle<()>,
}

impl Chaos {
    /// Listens on a free port and forwards to that server.
    pub async fn to(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("bind a proxy")?;
        let address = listener.local_addr().context("read the bound port")?;
        let (wire, watch) = watch::channel(Wire::Open);
        let accepts = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, server, watch.clone()));
            }
        });
        Ok(Self {
            address,
            wire,
            accepts,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, for connections there are and new ones.
    pub fn set(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

async fn connection(client: TcpStream, server: SocketAddr, wire: watch::Receiver<Wire>) {
    if *wire.borrow() == Wire::Cut {
        return;
    }
    let Ok(upstream) = TcpStream::connect(server).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = upstream.into_split();
    // The first direction that ends takes the other with it: a proxied server closes both.
    tokio::select! {
        () = pump(from_client, to_server, Direction::ToServer, wire.clone()) => {}
        () = pump(from_server, to_client, Direction::ToClient, wire) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    mut wire: watch::Receiver<Wire>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            () = until_cut(wire.clone()) => return,
        };
        let Ok(length @ 1..) = read else { return };
        if !admitted(direction, &mut wire).await || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// Waits until the wire carries bytes of this direction; false once it is cut.
async fn admitted(direction: Direction, wire: &mut watch::Receiver<Wire>) -> bool {
    let mut waited = Duration::ZERO;
    loop {
        let now = *wire.borrow_and_update();
        let kept_back = match now {
            Wire::Open => return true,
            Wire::Cut => return false,
            Wire::Slow(by) if waited >= by => return true,
            Wire::Slow(by) => {
                let rest = by.saturating_sub(waited);
                let started = tokio::time::Instant::now();
                let _ = tokio::time::timeout(rest, wire.changed()).await;
                waited += started.elapsed();
                continue;
            }
            Wire::Silent(Silence::Both) => true,
            Wire::Silent(Silence::Requests) => direction == Direction::ToServer,
            Wire::Silent(Silence::Answers) => direction == Direction::ToClient,
        };
        if !kept_back {
            return true;
        }
        if wire.changed().await.is_err() {
            return false;
        }
    }
}

/// Ends when the wire is cut or the proxy is gone.
async fn until_cut(mut wire: watch::Receiver<Wire>) {
    let _ = wire.wait_for(|now| *now == Wire::Cut).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const SOON: Duration = Duration::from_millis(150);

    /// An echo server behind a proxy, and a client.
    async fn wired() -> (Chaos, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        let chaos = Chaos::to(server).await.unwrap();
        let client = TcpStream::connect(chaos.address()).await.unwrap();
        (chaos, client)
    }

    /// What comes back for one byte: the byte, `Some(0)` for a closed connection, `None` for silence.
    async fn echo(client: &mut TcpStream) -> Option<usize> {
        let mut byte = [0; 1];
        let exchange = async {
            if client.write_all(b"x").await.is_err() {
                return 0;
            }
            client.read(&mut byte).await.unwrap_or(0)
        };
        tokio::time::timeout(SOON, exchange).await.ok()
    }

    #[tokio::test]
    async fn open_carries_cut_closes_and_restoring_lets_new_connections_in() {
        let (chaos, mut client) = wired().await;
        assert_eq!(echo(&mut client).await, Some(1));
        chaos.set(Wire::Cut);
        assert_eq!(echo(&mut client).await, Some(0));
        let mut refused = TcpStream::connect(chaos.address()).await.unwrap();
        assert_eq!(echo(&mut refused).await, Some(0));
        chaos.set(Wire::Open);
        let mut again = TcpStream::connect(chaos.address()).await.unwrap();
        assert_eq!(echo(&mut again).await, Some(1));
    }

    #[tokio::test]
    async fn silence_keeps_the_connection_and_what_was_sent_arrives_when_it_ends() {
        for silence in [Silence::Requests, Silence::Answers, Silence::Both] {
            let (chaos, mut client) = wired().await;
            assert_eq!(echo(&mut client).await, Some(1));
            chaos.set(Wire::Silent(silence));
            assert_eq!(echo(&mut client).await, None, "{silence:?}");
            chaos.set(Wire::Open);
            assert_eq!(echo(&mut client).await, Some(1), "{silence:?}");
        }
    }

    #[tokio::test]
    async fn slow_delays_each_direction_and_a_cut_does_not_wait_for_it() {
        let (chaos, mut client) = wired().await;
        chaos.set(Wire::Slow(Duration::from_millis(50)));
        let started = Instant::now();
        assert_eq!(echo(&mut client).await, Some(1));
        assert!(
            started.elapsed() >= Duration::from_millis(100),
            "{:?}",
            started.elapsed()
        );
        chaos.set(Wire::Slow(Duration::from_secs(60)));
        assert_eq!(echo(&mut client).await, None);
        chaos.set(Wire::Cut);
        assert_eq!(echo(&mut client).await, Some(0));
    }
}
