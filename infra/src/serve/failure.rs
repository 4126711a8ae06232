//! What a request that failed is answered: an RFC 9457 problem, made in one place and logged in one place.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use shared::error::{Classify, Kind, PROBLEM_JSON, Problem, chain};

use crate::catalog::CatalogError;
use crate::pod_store::PodStoreError;

/// The answer of a handler.
pub(super) type Answer<T> = Result<T, Failure>;

/// Why a request failed: what the client reads, and what the log says besides.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) kind: Kind,
    pub(super) detail: Option<String>,
    pub(super) field: Option<String>,
    /// For the log alone.
    pub(super) log: Option<String>,
}

impl Failure {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: Some(detail.into()),
            field: None,
            log: None,
        }
    }

    /// 400 with the field at fault.
    pub(super) fn field(field: &str, detail: impl Into<String>) -> Self {
        Self {
            field: Some(field.to_owned()),
            ..Self::new(Kind::Invalid, detail)
        }
    }

    /// Says more to the client.
    pub(super) fn and(mut self, more: &str) -> Self {
        let detail = self
            .detail
            .take()
            .unwrap_or_else(|| self.kind.title().to_owned());
        self.detail = Some(format!("{detail}; {more}"));
        self
    }

    fn of<E: Classify + 'static>(error: &E) -> Self {
        Self {
            kind: error.kind(),
            detail: error.client_text(),
            field: None,
            log: Some(chain(error)),
        }
    }

    /// The body, for the request of that id.
    pub(super) fn problem(&self, request: &str) -> Problem {
        Problem {
            detail: self.detail.clone(),
            field: self.field.clone(),
            request: Some(request.to_owned()),
            ..Problem::new(self.kind)
        }
    }

    /// The whole answer, once the request's id is known.
    pub(super) fn render(&self, request: &str) -> Response {
        let text = self
            .log
            .as_deref()
            .or(self.detail.as_deref())
            .unwrap_or_default();
        match self.kind.fault() {
            shared::error::Fault::Server if self.kind == Kind::Internal => {
                tracing::error!(request, kind = self.kind.slug(), "request failed: {text}");
            }
            shared::error::Fault::Server => {
                tracing::warn!(request, kind = self.kind.slug(), "request failed: {text}");
            }
            shared::error::Fault::Client | shared::error::Fault::State => {
                tracing::debug!(request, kind = self.kind.slug(), "request refused: {text}");
            }
        }
        let body = serde_json::to_vec(&self.problem(request)).unwrap_or_default();
        let status =
            StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        if let Some(seconds) = self.kind.retry_after_s() {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.kind == Kind::Unauthorized {
            let basic = HeaderValue::from_static("Bearer, Basic realm=\"podhost\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, basic);
        }
        response
    }
}

/// A failure travels as an extension; the outermost layer, which knows the request's id, renders it.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        Self {
            field: error.field().map(str::to_owned),
            ..Self::of(&error)
        }
    }
}

impl From<PodStoreError> for Failure {
    fn from(error: PodStoreError) -> Self {
        Self {
            log: Some(error.brief()),
            ..Self::of(&error)
        }
    }
}
