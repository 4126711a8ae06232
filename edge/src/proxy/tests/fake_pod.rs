//! A pod that answers by a script, and remembers what it was asked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What a pod does with a request.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    Answer(&'static str),
    Fence(String),
    /// Refuses as soon as it has the header, and closes.
    FenceEarly,
    /// Says `100 Continue` before it reads the body, and answers.
    Continue(&'static str),
    /// Says `100 Continue` before it reads the body, and refuses.
    ContinueFence,
    /// Answers 101 and says back what it hears.
    Tunnel,
    Close,
    Silence,
}

/// A request as a pod saw it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: usize,
    /// Of the body, to see whether it came whole and in order.
    pub(super) sum: u64,
}

/// What [`Seen::sum`] is for this body.
pub(super) fn sum(body: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
    body.iter().fold(0, add)
}

/// One process of a pod. Its last deed is repeated.
pub(super) struct FakePod {
    pub(super) address: SocketAddr,
    script: Script,
    process: tokio::task::JoinHandle<()>,
}

#[derive(Clone, Default)]
struct Script {
    deeds: Arc<Mutex<VecDeque<Deed>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl FakePod {
    pub(super) async fn start(deeds: impl IntoIterator<Item = Deed>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Script::default();
        script.deeds.lock().extend(deeds);
        let played = script.clone();
        let process = tokio::spawn(async move {
            let mut requests = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                requests.spawn(serve(stream, played.clone()));
            }
        });
        Self {
            address,
            script,
            process,
        }
    }

    /// An address where nobody listens.
    pub(super) async fn dead() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    }

    /// What it does from now on.
    pub(super) fn does(&self, deed: Deed) {
        *self.script.deeds.lock() = [deed].into();
    }

    /// What it does next, and the last of it for ever.
    pub(super) fn script(&self, deeds: impl IntoIterator<Item = Deed>) {
        *self.script.deeds.lock() = deeds.into_iter().collect();
    }

    /// It is gone, and its connections too.
    pub(super) fn kill(&self) {
        self.process.abort();
    }

    /// What it saw so far is not of interest.
    pub(super) fn forget(&self) {
        self.script.seen.lock().clear();
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.script.seen.lock().clone()
    }
}

impl Script {
    fn next(&self) -> Deed {
        let mut deeds = self.deeds.lock();
        let next = deeds.front().cloned().unwrap();
        if deeds.len() > 1 {
            deeds.pop_front();
        }
        next
    }
}

const FENCED: &str =
    "HTTP/1.1 421 Misdirected Request\r\npodhost-fence: fenced\r\ncontent-length: 0\r\n\r\n";
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

async fn serve(mut stream: TcpStream, script: Script) {
    while let Some((mut seen, rest)) = read_head(&mut stream).await {
        let deed = script.next();
        let early = matches!(deed, Deed::FenceEarly);
        if matches!(deed, Deed::Continue(_) | Deed::ContinueFence) {
            stream.write_all(CONTINUE).await.unwrap();
        }
        if !early && read_body(&mut stream, &mut seen, rest).await.is_none() {
            return;
        }
        script.seen.lock().push(seen);
        let answer = match deed {
            Deed::Answer(body) | Deed::Continue(body) => {
                let length = body.len();
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")
            }
            Deed::Fence(fence) => FENCED.replace("fenced", &fence),
            Deed::FenceEarly | Deed::ContinueFence => FENCED.to_owned(),
            Deed::Tunnel => return tunnel(stream).await,
            Deed::Close => return,
            Deed::Silence => std::future::pending().await,
        };
        if stream.write_all(answer.as_bytes()).await.is_err() || early {
            return;
        }
    }
}

async fn tunnel(mut stream: TcpStream) {
    // A switch that is faster than the end of the request's empty body ends the tunnel (pingora#946).
    tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    let answer =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    stream.write_all(answer.as_bytes()).await.unwrap();
    let (mut read, mut write) = stream.split();
    let _ = tokio::io::copy(&mut read, &mut write).await;
}

async fn read_head(stream: &mut TcpStream) -> Option<(Seen, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut start = lines.next().unwrap().split(' ');
    let headers = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(k, v)| (k.parse::<http::HeaderName>().unwrap(), v.parse().unwrap()))
        .collect();
    let seen = Seen {
        method: start.next().unwrap().to_owned(),
        target: start.next().unwrap().to_owned(),
        headers,
        body: 0,
        sum: 0,
    };
    Some((seen, bytes.split_off(end + 4)))
}

/// Reads a body with a length or in chunks, if there is one.
async fn read_body(stream: &mut TcpStream, seen: &mut Seen, mut bytes: Vec<u8>) -> Option<()> {
    let chunked = seen.headers.contains_key("transfer-encoding");
    let length = seen.headers.get("content-length");
    let length = length.map_or(0, |v| v.to_str().unwrap().parse::<usize>().unwrap());
    while if chunked {
        !bytes.ends_with(b"0\r\n\r\n")
    } else {
        bytes.len() < length
    } {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = if chunked { chunks(&bytes) } else { bytes };
    seen.body = body.len();
    seen.sum = sum(&body);
    Some(())
}

fn chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let at = bytes.windows(2).position(|w| w == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..at]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[at + 2..at + 2 + size]);
        bytes = &bytes[at + 4 + size..];
    }
}
