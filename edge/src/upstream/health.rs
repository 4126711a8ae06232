//! Asking each process whether it serves: `GET /-/healthz`, unsigned, on the port that requests go to.
//!
//! 503 means that it drains. Any other answer means that somebody is there who speaks HTTP: what is wrong with one
//! shop, or with the pod's database, the pod itself tells the client better than a process taken out of the rotation.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Health, Pods, Process};

/// A process that needs longer for a constant answer serves nobody.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The answer is a status and a word.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Asks for ever, each process by itself: a frozen one makes no other wait.
pub(crate) async fn watch(pods: &Pods, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for pod in pods.all() {
            for process in pod.processes() {
                if let Some(asking) = Asking::begin(process) {
                    tokio::spawn(async move { check(&asking.0).await });
                }
            }
        }
    }
}

/// One question to a process at a time.
struct Asking(Arc<Process>);

impl Asking {
    fn begin(process: &Arc<Process>) -> Option<Self> {
        let busy = process.asked.swap(true, Ordering::AcqRel);
        (!busy).then(|| Self(Arc::clone(process)))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asked.store(false, Ordering::Release);
    }
}

async fn check(process: &Process) {
    let health = match timeout(ANSWER_MAX, status(process.address)).await {
        Ok(Ok(503)) => Health::Draining,
        Ok(Ok(_)) => Health::Serving,
        Ok(Err(_)) | Err(_) => Health::Down,
    };
    let before = process.set_health(health);
    if before == health {
        return;
    }
    let address = process.address;
    match health {
        Health::Serving => tracing::info!(%address, "pod process {address} serves again"),
        Health::Draining => tracing::info!(%address, "pod process {address} drains"),
        Health::Down => tracing::warn!(%address, "pod process {address} does not answer"),
    }
}

/// The status of `GET /-/healthz`, on a connection of its own: a process that no longer accepts must be seen.
async fn status(address: SocketAddr) -> std::io::Result<u16> {
    const REQUEST: &[u8] =
        b"GET /-/healthz HTTP/1.1\r\nhost: podhost-edge\r\nconnection: close\r\n\r\n";
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(REQUEST).await?;
    // `HTTP/1.1 200`
    let mut line = [0; 12];
    stream.read_exact(&mut line).await?;
    // What is left unread would end the connection by a reset, which servers log as an error.
    let mut rest = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut rest).await?;
    let status = line
        .strip_prefix(b"HTTP/1.")
        .and_then(|rest| std::str::from_utf8(&rest[2..]).ok()?.parse().ok());
    status.ok_or_else(|| std::io::Error::other("the answer is not HTTP/1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn answer(text: &'static str) -> std::io::Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 256];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
        };
        tokio::join!(status(address), serve).0
    }

    #[tokio::test]
    async fn an_answer_is_read_and_nonsense_is_none() {
        assert_eq!(answer("HTTP/1.1 200 OK\r\n\r\n").await.unwrap(), 200);
        assert_eq!(answer("HTTP/1.0 503 Draining\r\n\r\n").await.unwrap(), 503);
        assert!(answer("SSH-2.0-OpenSSH_9.2").await.is_err());
        assert!(answer("HTTP/1.1").await.is_err());
    }
}
