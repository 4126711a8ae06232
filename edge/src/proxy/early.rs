//! Reading a body of unknown length before its request goes anywhere, as far as it can be kept to be sent again. Many clients
//! send small bodies in chunks: those need no question (`ask.rs`) and are parked like others.

use std::time::Duration;

use pingora_error::{Error, ErrorType, Result};
use pingora_proxy::Session;
use tokio::time::timeout;

use super::parked::{length, may_write, waits_to_send};
use crate::connection::ClientStream;
use crate::park::BODY_MAX;

/// What has not come by then is not waited for: a small body is here with its header or some round trips later.
const COMES_WITHIN: Duration = Duration::from_secs(1);

/// Reads the body of a write that does not say its length, until it ends, is too large to be kept, or is late. What is read is
/// kept; the rest stays with the client, and its request goes on as one with a large body.
pub(super) async fn read(session: &mut Session) -> Result<()> {
    if !may_write(session) || length(session).is_some() || waits_to_send(session) {
        return Ok(());
    }
    if session.is_body_done() || stream(session).is_none() {
        return Ok(());
    }
    session.enable_retry_buffering();
    let read = timeout(COMES_WITHIN, read_to_max(session)).await;
    if let Some(stream) = stream(session) {
        stream.read_at_most(usize::MAX);
    }
    // Late is no fault.
    read.unwrap_or(Ok(()))
}

/// Pingora keeps no more than [`BODY_MAX`], and drops all of it for a byte that is over: so no piece may be longer than what
/// there is room for.
async fn read_to_max(session: &mut Session) -> Result<()> {
    while !session.is_body_done() {
        let room = BODY_MAX.saturating_sub(session.body_bytes_read());
        if session.retry_buffer_truncated() {
            let lost = "more of a body was read than can be kept";
            return Error::e_explain(ErrorType::InternalError, lost);
        }
        if room == 0 {
            break;
        }
        if let Some(stream) = stream(session) {
            stream.read_at_most(room);
        }
        session
            .read_request_body()
            .await
            .map_err(|e| e.into_down())?;
    }
    Ok(())
}

/// The client's connection.
pub(super) fn stream(session: &Session) -> Option<&ClientStream> {
    let http = session.as_http1()?;
    (**http.stream()).as_any().downcast_ref()
}
