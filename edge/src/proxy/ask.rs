//! Asking a pod whether it lets a request in, before a body goes there that is too large to be kept: a refusal would cost the
//! client all of it. It costs a small request for each such upload.

use std::time::{Duration, Instant};

use pingora_error::Result;
use pingora_proxy::Session;
use shared::pause;
use shared::wire::{self, Fence};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Edge, parked};
use crate::context::{Again, Context, Route, unix_ms};
use crate::upstream::Process;

/// The pod waits for the home's lock as a write does.
const ANSWER_MAX: Duration = pause::TRANSACTION.saturating_add(Duration::from_secs(1));
/// The answer's head, and a few words; after `100 Continue` another one.
const ANSWER_BYTES_MAX: u64 = 4096;
/// Until the pod has closed, when its answer is known.
const REST_MAX: Duration = Duration::from_millis(50);
/// The status of "not here".
const MISDIRECTED: u16 = 421;

impl Edge {
    /// Whether the request may be sent to this process. Where the pod says "not here" it is noted what follows, as if the
    /// request had been sent; nothing was, so nothing of its body is lost. A pod that gives no answer, or another one, is
    /// to give it to the request.
    pub(super) async fn ask_first(
        &self,
        session: &mut Session,
        context: &mut Context,
        process: &Process,
    ) -> Result<bool> {
        let route = context.route.as_ref();
        let asks = parked::may_write(session) && parked::is_unkept(session);
        let Some(route) = route.filter(|_| asks) else {
            return Ok(true);
        };
        let asked = Instant::now();
        let question = question(route, context);
        let answer = timeout(ANSWER_MAX, send(process, &question)).await;
        let Ok(Ok(Some(fence))) = answer else {
            return Ok(true);
        };
        context.forwards += 1;
        context.forwarded = Some(asked);
        let refused = self.misdirected(session, context, fence);
        if context.again == Again::No {
            return Err(refused);
        }
        Ok(false)
    }
}

/// A request of its own that writes nothing, signed as the client's would be.
fn question(route: &Route, context: &Context) -> String {
    let signed = wire::Route {
        shop: route.shop,
        pod: route.pod_id(),
        epoch: route.epoch,
        request: context.request,
    };
    let fields = signed.headers(&route.pod.keys, unix_ms(), "POST", wire::LETS_IN);
    let fields: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let path = wire::LETS_IN;
    format!(
        "POST {path} HTTP/1.1\r\nhost: podhost-edge\r\ncontent-length: 0\r\nconnection: close\r\n{fields}\r\n"
    )
}

/// The fence of the answer, if it is "not here"; nothing in it where it cannot be read.
async fn send(process: &Process, question: &str) -> std::io::Result<Option<Option<Fence>>> {
    let mut stream = TcpStream::connect(process.address).await?;
    stream.write_all(question.as_bytes()).await?;
    let mut stream = stream.take(ANSWER_BYTES_MAX);
    let mut answer = Vec::new();
    while head(&String::from_utf8_lossy(&answer)).is_none() {
        if stream.read_buf(&mut answer).await? == 0 {
            return Ok(None);
        }
    }
    let fence = fence(&String::from_utf8_lossy(&answer));
    // What is left unread would end the connection by a reset, which servers log as an error.
    let _ = timeout(REST_MAX, stream.read_to_end(&mut answer)).await;
    Ok(fence)
}

/// The head of the last answer, when it is here whole.
fn head(answer: &str) -> Option<&str> {
    let (mut head, mut rest) = answer.split_once("\r\n\r\n")?;
    while status(head).is_some_and(|status| status < 200) {
        (head, rest) = rest.split_once("\r\n\r\n")?;
    }
    Some(head)
}

fn fence(answer: &str) -> Option<Option<Fence>> {
    let head = head(answer)?;
    if status(head) != Some(MISDIRECTED) {
        return None;
    }
    let mut fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let field = fields.find(|(name, _)| name.eq_ignore_ascii_case(wire::FENCE));
    // Without it somebody else has answered.
    field.map(|(_, value)| Fence::from_header(value.trim()))
}

fn status(head: &str) -> Option<u16> {
    head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pod_that_says_not_here_is_believed() {
        let answer = |status: &str, field: &str| format!("HTTP/1.1 {status}\r\n{field}\r\n\r\n");
        let fenced = answer("421 Misdirected Request", "Podhost-Fence: fenced");
        assert_eq!(fence(&fenced), Some(Some(Fence::Fenced)));
        let after = answer("100 Continue", "x: y") + &fenced;
        assert_eq!(fence(&after), Some(Some(Fence::Fenced)));
        let nonsense = answer("421 Misdirected Request", "podhost-fence: what");
        assert_eq!(fence(&nonsense), Some(None));
        for other in [
            answer("421 Misdirected Request", "server: another"),
            answer("204 No Content", "podhost-fence: fenced"),
            answer("404 Not Found", "x: y"),
            answer("100 Continue", "x: y"),
            "SSH-2.0".to_owned(),
            String::new(),
        ] {
            assert_eq!(fence(&other), None, "{other}");
        }
    }
}
