//! The answer of a write: stored under its idempotency key in the same transaction as its effect.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::Error;

/// On an answer that was stored: this request changed nothing.
pub const REPLAYED: &str = "idempotency-replayed";

/// Status, media type, location and body of an answer. Whatever its status, a transaction that returns one commits;
/// one that returns an [`Error`] rolls back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) media: String,
    pub(crate) location: Option<String>,
    pub(crate) body: Bytes,
    pub(crate) replayed: bool,
}

impl Reply {
    /// A JSON answer.
    pub fn json(status: StatusCode, body: &impl Serialize) -> Result<Self, Error> {
        let body = serde_json::to_vec(body)
            .map_err(|e| Error::bug(format!("an answer is not JSON: {e}")))?;
        Ok(Self::new(status, "application/json", body))
    }

    /// Any answer.
    pub fn new(status: StatusCode, media: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            media: media.into(),
            location: None,
            body: body.into(),
            replayed: false,
        }
    }

    /// 303 to a path of this shop, for forms.
    pub fn see_other(path: impl Into<String>) -> Self {
        Self {
            location: Some(path.into()),
            ..Self::new(StatusCode::SEE_OTHER, "text/plain", Bytes::new())
        }
    }

    /// The same with a `location`.
    #[must_use]
    pub fn at(mut self, location: impl Into<String>) -> Self {
        self.location = Some(location.into());
        self
    }

    /// The status.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether it was stored before this request.
    pub const fn replayed(&self) -> bool {
        self.replayed
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.body).into_response();
        let headers = response.headers_mut();
        if let Ok(media) = HeaderValue::from_str(&self.media) {
            headers.insert(header::CONTENT_TYPE, media);
        }
        if let Some(Ok(location)) = self.location.as_deref().map(HeaderValue::from_str) {
            headers.insert(header::LOCATION, location);
        }
        if self.replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}
