//! What can go wrong in a pod, and what a client is told of it: the one place where an error becomes an answer.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use shared::error::{Classify, Kind, PROBLEM_JSON, Problem};
use shared::wire::{FENCE, Fence};

/// An error of a handler, a transaction or a read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the application says to its client. It rolls the transaction back and is not stored under the key.
    #[error("{}: {}", kind.slug(), detail.as_deref().unwrap_or("-"))]
    Problem {
        /// What happened.
        kind: Kind,
        /// What the client reads, beyond the kind's sentence.
        detail: Option<String>,
        /// The field at fault.
        field: Option<String>,
    },
    /// 421: not here, or not now; every effect so far is committed under the request's key, or there is none.
    #[error("the home does not allow it: {}", .0.reason())]
    Fence(Fence),
    /// The database refused a statement or went away.
    #[error("{what}")]
    Database {
        /// What was tried.
        what: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// A bug, named for the log.
    #[error("{0}")]
    Bug(String),
}

impl Error {
    /// An error of a kind, without details.
    pub const fn new(kind: Kind) -> Self {
        Self::Problem {
            kind,
            detail: None,
            field: None,
        }
    }

    /// An error of a kind with a sentence for the client.
    pub fn because(kind: Kind, detail: impl Into<String>) -> Self {
        Self::Problem {
            kind,
            detail: Some(detail.into()),
            field: None,
        }
    }

    /// An error of a kind that names the field at fault (`lines[0].quantity`).
    pub fn field(kind: Kind, field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Problem {
            kind,
            detail: Some(detail.into()),
            field: Some(field.into()),
        }
    }

    /// No such thing in this shop.
    pub const fn not_found() -> Self {
        Self::new(Kind::NotFound)
    }

    /// A bug: a 500 for the client, the text for the log.
    pub fn bug(text: impl Into<String>) -> Self {
        Self::Bug(text.into())
    }
}

impl Classify for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Problem { kind, .. } => *kind,
            Self::Fence(_) => Kind::Misdirected,
            Self::Database { .. } => Kind::Unavailable,
            Self::Bug(_) => Kind::Internal,
        }
    }

    fn client_text(&self) -> Option<String> {
        match self {
            Self::Problem { detail, .. } => detail.clone(),
            Self::Fence(_) | Self::Database { .. } | Self::Bug(_) => None,
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let kind = self.kind();
        let mut problem = Problem::new(kind);
        problem.detail = self.client_text();
        if let Self::Problem { field, .. } = &self {
            problem.field.clone_from(field);
        }
        let status = StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = kind.retry_after_s() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Self::Fence(fence) = &self
            && let Ok(value) = HeaderValue::from_str(&fence.to_header())
        {
            headers.insert(FENCE, value);
        }
        response
    }
}
