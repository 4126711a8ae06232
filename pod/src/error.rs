//! What can go wrong in a pod, and what a client is told of it: the one place where an error becomes an answer.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use shared::error::{Classify, Fault, Kind, PROBLEM_JSON, Problem, chain};
use shared::wire::{FENCE, Fence};

use crate::db::number;

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
    /// 421 `unready`: no primary is there to ask, or the one asked went away; nothing was committed.
    #[error("{what}: there is no primary")]
    NoPrimary {
        /// What was tried.
        what: &'static str,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// A deadline passed, and nothing was committed.
    #[error("{0} did not end in time")]
    Slow(&'static str),
    /// The same rows were wanted by too many at once; nothing was committed.
    #[error("{what}: still in conflict after all reruns")]
    Conflict {
        /// What was tried.
        what: &'static str,
        /// What the server said.
        #[source]
        source: sqlx::Error,
    },
    /// A statement that the server refused.
    #[error("{what}")]
    Statement {
        /// What was tried.
        what: &'static str,
        /// What the server or the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// A commit was sent, its answer never came, and it could not be settled in time.
    #[error("the outcome of a commit is unknown: {0}")]
    Unknown(&'static str),
    /// A bug, named for the log.
    #[error("{0}")]
    Bug(String),
}

/// Duplicate entry: a unique key has that value already.
const DUPLICATE: u16 = 1062;

/// Table full, disk full, and the engine's word for both.
const NO_ROOM: [u16; 3] = [1114, 1021, 1030];

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

    /// Whether a statement met a unique key that has its value already. The transaction goes on.
    pub fn is_duplicate(&self) -> bool {
        matches!(self, Self::Statement { source, .. } if number(source) == Some(DUPLICATE))
    }

    /// The same once more, for all who waited for one read.
    pub(crate) fn echo(&self) -> Self {
        let again = |source: &sqlx::Error| sqlx::Error::Protocol(source.to_string());
        match self {
            Self::Problem {
                kind,
                detail,
                field,
            } => Self::Problem {
                kind: *kind,
                detail: detail.clone(),
                field: field.clone(),
            },
            Self::Fence(fence) => Self::Fence(*fence),
            Self::NoPrimary { what, source } => Self::NoPrimary {
                what,
                source: again(source),
            },
            Self::Slow(what) => Self::Slow(what),
            Self::Conflict { what, source } => Self::Conflict {
                what,
                source: again(source),
            },
            Self::Statement { what, source } => Self::Statement {
                what,
                source: again(source),
            },
            Self::Unknown(what) => Self::Unknown(what),
            Self::Bug(text) => Self::Bug(text.clone()),
        }
    }

    /// What the client is told.
    pub fn problem(&self) -> Problem {
        let mut problem = Problem::new(self.kind());
        problem.detail = self.client_text();
        if let Self::Problem { field, .. } = self {
            problem.field.clone_from(field);
        }
        problem
    }
}

impl Classify for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Problem { kind, .. } => *kind,
            Self::Fence(_) | Self::NoPrimary { .. } => Kind::Misdirected,
            // 504 is for those who asked somebody and got no answer: an edge, or a payment provider's shop.
            Self::Slow(_) => Kind::Unavailable,
            Self::Conflict { .. } => Kind::Overloaded,
            Self::Statement { source, .. }
                if number(source).is_some_and(|n| NO_ROOM.contains(&n)) =>
            {
                Kind::Unavailable
            }
            Self::Unknown(_) => Kind::Unavailable,
            Self::Statement { .. } | Self::Bug(_) => Kind::Internal,
        }
    }

    fn client_text(&self) -> Option<String> {
        let text = match self {
            Self::Problem { detail, .. } => return detail.clone(),
            Self::Conflict { .. } => {
                "Too many requests change the same thing just now; send it again in a moment."
            }
            Self::Slow(_) => "Nothing was changed; send it again in a moment.",
            Self::Unknown(_) => {
                "Whether the change was made is not known yet. Send the same request with the same Idempotency-Key again: it will not be made twice."
            }
            Self::Statement { .. } if self.kind() == Kind::Unavailable => {
                "The shop's database has no room left; nothing was changed."
            }
            Self::Fence(_) | Self::NoPrimary { .. } | Self::Statement { .. } | Self::Bug(_) => {
                return None;
            }
        };
        Some(text.to_owned())
    }
}

impl IntoResponse for Error {
    /// The problem without the request's id, which the outermost layer adds.
    fn into_response(self) -> Response {
        let kind = self.kind();
        let (slug, error) = (kind.slug(), chain(&self));
        match kind.fault() {
            // A person must look.
            Fault::Server if !kind.retryable() => {
                tracing::error!(kind = slug, error, "answered an error");
            }
            // The state of things; metrics tell when there is too much of it.
            Fault::Server => tracing::warn!(kind = slug, error, "answered an error"),
            Fault::Client | Fault::State => {
                tracing::debug!(kind = slug, error, "answered an error")
            }
        }
        crate::meter::problem(kind);
        let mut response = problem_response(kind, &self.problem());
        let fence = match &self {
            Self::Fence(fence) => Some(*fence),
            Self::NoPrimary { .. } => Some(Fence::Unready),
            Self::Problem { .. }
            | Self::Slow(_)
            | Self::Conflict { .. }
            | Self::Statement { .. }
            | Self::Unknown(_)
            | Self::Bug(_) => None,
        };
        if let Some(fence) = fence {
            crate::meter::fenced(&fence);
            if let Ok(value) = HeaderValue::from_str(&fence.to_header()) {
                response.headers_mut().insert(FENCE, value);
            }
        }
        response
    }
}

/// A problem as an answer. The problem rides along, so that an outer layer may add to it.
pub(crate) fn problem_response(kind: Kind, problem: &Problem) -> Response {
    let status = StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    if let Some(seconds) = kind.retry_after_s() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.extensions_mut().insert((kind, problem.clone()));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_a_421_with_its_header_and_a_server_says_nothing_of_itself() {
        let response = Error::Fence(Fence::Fenced).into_response();
        assert_eq!(response.status(), 421);
        assert_eq!(response.headers()[FENCE], "fenced");
        let gone = Error::NoPrimary {
            what: "begin",
            source: sqlx::Error::Protocol("secret address".into()),
        };
        assert_eq!(gone.client_text(), None);
        assert_eq!(gone.into_response().headers()[FENCE], "unready");
        let bug = Error::bug("table x");
        assert_eq!(bug.problem().detail, None);
        assert_eq!(bug.into_response().status(), 500);
        let slow = Error::Slow("the write").into_response();
        assert_eq!(slow.status(), 503);
        assert!(slow.headers().contains_key(header::RETRY_AFTER));
    }
}
