//! Idempotency: one effect and one answer for a key, per shop and endpoint, in the transaction of the effect.

use sha2::{Digest, Sha256};

use crate::{IdempotencyKey, Reply};

/// SHA-256 over what makes two requests the same: method, path and body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    /// Of parts, each with its length, so that no two lists of parts are the same.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fingerprint({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// Which call a write is: the endpoint's name, the client's key, and what makes two requests the same.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) endpoint: &'static str,
    pub(crate) key: String,
    /// `None` for a job that ends what a request began.
    pub(crate) fingerprint: Option<Fingerprint>,
}

impl Call {
    /// The call of a request.
    pub fn new(endpoint: &'static str, key: &IdempotencyKey, fingerprint: Fingerprint) -> Self {
        Self { endpoint, key: key.as_str().to_owned(), fingerprint: Some(fingerprint) }
    }

    /// The same call as an earlier request, taken up by a job (a sweeper that settles what a crash left).
    pub fn resume(endpoint: &'static str, key: impl Into<String>) -> Self {
        Self { endpoint, key: key.into(), fingerprint: None }
    }

    /// The client's key, for tables that must find the call again.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// What [`crate::App::begin`] found or did.
#[derive(Debug)]
pub enum First {
    /// The call has its final answer already: give it.
    Done(Reply),
    /// The first step is committed, by this request or an earlier one that died; this is what it noted.
    Begun(Vec<u8>),
}
