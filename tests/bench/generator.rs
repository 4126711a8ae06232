//! The load: plain HTTP/1.1 connections that send prepared requests, as fast as answers come or at a fixed rate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Makes the text of the next request.
pub(crate) type Requests = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

/// What a load saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) answers: u64,
    /// Sorted.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) took: Duration,
}

impl Seen {
    pub(crate) fn per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of some seconds")]
        let answers = self.answers as f64;
        answers / self.took.as_secs_f64().max(1e-9)
    }
}

/// How requests are paced.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// Each connection sends when it has its answer.
    Closed,
    /// So many a second over all connections, whether answers come or not.
    PerSecond(u32),
}

/// Puts a load on an address. Any answer but 200 ends it: a bench of errors means nothing.
pub(crate) async fn load(
    to: SocketAddr,
    connections: usize,
    lasts: Duration,
    pace: Pace,
    requests: Requests,
) -> Result<Seen> {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|index| {
            let each = Connection {
                index,
                connections,
                begun,
                lasts,
                pace,
            };
            tokio::spawn(each.run(to, Arc::clone(&requests)))
        })
        .collect();
    let mut seen = Seen::default();
    for task in tasks {
        let latencies = task.await.context("a connection of the load")??;
        seen.latencies.extend(latencies);
    }
    seen.took = begun.elapsed();
    seen.answers = seen.latencies.len() as u64;
    seen.latencies.sort_unstable();
    ensure!(seen.answers > 0, "no answers at all");
    Ok(seen)
}

#[derive(Clone, Copy)]
struct Connection {
    index: usize,
    connections: usize,
    begun: Instant,
    lasts: Duration,
    pace: Pace,
}

impl Connection {
    async fn run(self, to: SocketAddr, requests: Requests) -> Result<Vec<Duration>> {
        let mut stream = TcpStream::connect(to).await.context("connect the load")?;
        stream.set_nodelay(true).context("connect the load")?;
        let mut buffer = vec![0; 256 * 1024];
        let mut latencies = Vec::new();
        for turn in 0_u32.. {
            let due = match self.pace {
                Pace::Closed => Instant::now(),
                Pace::PerSecond(rate) => self.begun + self.offset(turn, rate),
            };
            if due.saturating_duration_since(self.begun) >= self.lasts {
                break;
            }
            let since = if Instant::now() < due {
                tokio::time::sleep_until(due.into()).await;
                // The timer is coarse; its lateness is not the candidate's.
                Instant::now()
            } else {
                due
            };
            stream
                .write_all(&requests())
                .await
                .context("send a request")?;
            answer(&mut stream, &mut buffer).await?;
            latencies.push(since.elapsed());
        }
        Ok(latencies)
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a run of seconds")]
    fn offset(self, turn: u32, rate: u32) -> Duration {
        let number = f64::from(turn) * self.connections as f64 + self.index as f64;
        Duration::from_secs_f64(number / f64::from(rate))
    }
}

/// Reads one answer with a `content-length`, or one in chunks.
async fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<()> {
    let mut filled = 0;
    loop {
        let n = stream
            .read(&mut buffer[filled..])
            .await
            .context("read an answer")?;
        filled += n;
        if n == 0 || filled == buffer.len() {
            bail!(
                "cut off: {}",
                String::from_utf8_lossy(&buffer[..filled.min(300)])
            );
        }
        let seen = &buffer[..filled];
        let Some(head) = seen.windows(4).position(|w| w == b"\r\n\r\n") else {
            continue;
        };
        let (head, body) = (&seen[..head + 2], &seen[head + 4..]);
        if !head.starts_with(b"HTTP/1.1 2") {
            bail!(
                "not a success: {}",
                String::from_utf8_lossy(&seen[..seen.len().min(600)])
            );
        }
        let whole = match content_length(head) {
            Some(length) => body.len() >= length,
            None => body.ends_with(b"0\r\n\r\n"),
        };
        if whole {
            return Ok(());
        }
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"\r\ncontent-length:";
    let at = head
        .windows(NAME.len())
        .position(|w| w.eq_ignore_ascii_case(NAME))?;
    let rest = &head[at + NAME.len()..];
    let end = rest.iter().position(|b| *b == b'\r')?;
    std::str::from_utf8(&rest[..end]).ok()?.trim().parse().ok()
}
