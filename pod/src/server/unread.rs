//! A body that its handler did not read to the end.
//!
//! Hyper would close the connection at once, with the rest of the body still on its way; that resets it, and the edge
//! may lose the answer, or the client that is writing (RFC 9112 section 9.6). So the rest is read and thrown away beside
//! the answer, within bounds.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::Request;
use http::header::EXPECT;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How much of a body that nobody wants is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) time: Duration,
}

/// A request for a handler, and what takes up the rest of its body once the answer is there.
///
/// A client that waits for `100 Continue` would be told to send a body by being read from: of that one nothing is taken up.
pub(super) fn lend(request: Request<Incoming>) -> (Request<Body>, Unread) {
    let (back, rest) = oneshot::channel();
    let waits = request.headers().contains_key(EXPECT);
    let request = request.map(|body| {
        Body::new(Lent {
            body: Some(body),
            back: (!waits).then_some(back),
        })
    });
    (request, Unread(rest))
}

/// The rest of a body, if its handler leaves one.
pub(super) struct Unread(oneshot::Receiver<Incoming>);

impl Unread {
    /// Throws the rest away beside the answer. Whoever still sends after the bounds meets a closed connection.
    pub(super) fn discard(mut self, bounds: Bounds) {
        // A handler that works on after its answer (a write that must end) keeps its body, and has read it.
        let Ok(mut rest) = self.0.try_recv() else {
            return;
        };
        let read = async move {
            let mut bytes = 0;
            while let Some(Ok(frame)) = rest.frame().await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > bounds.bytes {
                    break;
                }
            }
        };
        tokio::spawn(timeout(bounds.time, read));
    }
}

/// Comes back when it is dropped before its end.
struct Lent {
    body: Option<Incoming>,
    back: Option<oneshot::Sender<Incoming>>,
}

impl hyper::body::Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map(Incoming::size_hint);
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take())
            && !body.is_end_stream()
        {
            // The connection may be gone, and with it whoever would read the rest.
            let _ = back.send(body);
        }
    }
}

#[cfg(test)]
mod tests;
