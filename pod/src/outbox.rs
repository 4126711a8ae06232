//! Domain events: rows of the transaction that caused them, relayed in the order in which they became visible, at least
//! once.
//!
//! Order is told by the flag `waiting`, never by a cursor over positions: a transaction that took its position early may
//! commit late, and a cursor would have passed it. Within one look the order is that of positions; events are written as
//! the last statement of their transaction, under all its row locks, so of two transactions that touched the same row the
//! second one's event has the higher position.

use serde::Serialize;

use crate::Error;

// The relay: one in the pod at a time.
pub(crate) mod relay;
// The statements.
pub(crate) mod rows;
// Where events go.
pub mod sink;
pub use sink::{Relayed, Sink, SinkError};

/// A payload is a consumer's notice, not a document.
const PAYLOAD_MAX: usize = 64 * 1024;

/// A domain event.
#[derive(Debug, Clone)]
pub struct Event {
    kind: &'static str,
    subject: String,
    payload: String,
}

impl Event {
    /// `kind` as `order.paid`, `subject` the id of the thing, `payload` JSON.
    pub fn new(
        kind: &'static str,
        subject: impl Into<String>,
        payload: &impl Serialize,
    ) -> Result<Self, Error> {
        let payload = serde_json::to_string(payload)
            .map_err(|e| Error::bug(format!("an event is not JSON: {e}")))?;
        if payload.len() > PAYLOAD_MAX {
            return Err(Error::bug(format!(
                "an event {kind} is longer than {PAYLOAD_MAX} bytes"
            )));
        }
        Ok(Self {
            kind,
            subject: subject.into(),
            payload,
        })
    }
}
