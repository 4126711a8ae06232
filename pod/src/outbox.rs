//! Domain events: rows of the transaction that caused them, relayed in commit order per shop, at least once.

use serde::Serialize;

use crate::Error;

/// A domain event.
#[derive(Debug, Clone)]
pub struct Event {
    pub(crate) kind: &'static str,
    pub(crate) subject: String,
    pub(crate) payload: Vec<u8>,
}

impl Event {
    /// `kind` as `order.paid`, `subject` the id of the thing, `payload` JSON.
    pub fn new(kind: &'static str, subject: impl Into<String>, payload: &impl Serialize) -> Result<Self, Error> {
        let payload = serde_json::to_vec(payload)
            .map_err(|e| Error::bug(format!("an event is not JSON: {e}")))?;
        Ok(Self { kind, subject: subject.into(), payload })
    }
}
