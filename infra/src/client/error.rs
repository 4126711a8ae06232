//! Why a call to the control server failed, and the way out.

use std::time::Duration;

use reqwest::Url;
use shared::error::{Kind, PROBLEM_TYPE, Problem};

/// A call that failed. `Display` is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An empty list of addresses.
    #[error("no address of a control server is known: name one with --control")]
    NoAddress,
    /// An address that cannot work.
    #[error("the control server's address {url:?} is not valid: {why}")]
    Address {
        /// As given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The client itself could not be made.
    #[error("the HTTP client cannot be set up")]
    Client(#[source] reqwest::Error),
    /// A request that is no JSON: a bug.
    #[error("the request cannot be written as JSON")]
    Encode(#[source] serde_json::Error),
    /// Nobody takes a connection.
    #[error(
        "no control server answers at {urls} ({why}): start the fleet with `podctl up`, or look with `podctl process list`"
    )]
    Unreachable {
        /// All addresses tried.
        urls: String,
        /// The last one's fault.
        why: String,
    },
    /// Connected, and silent.
    #[error(
        "the control server at {url} did not answer within {after:?}{}", if *.changes { MAYBE_DONE } else { "" }
    )]
    Timeout {
        /// Which one.
        url: String,
        /// The bound.
        after: Duration,
        /// Whether the call changes something.
        changes: bool,
    },
    /// The connection broke after the request was sent.
    #[error("the connection to the control server at {url} broke ({why}){}", if *.changes { MAYBE_DONE } else { "" })]
    Broken {
        /// Which one.
        url: String,
        /// Whether the call changes something.
        changes: bool,
        /// The fault.
        why: String,
    },
    /// It answered with a problem.
    #[error("{}", problem_text(.0))]
    Refused(Box<Problem>),
    /// An answer that no control server gives.
    #[error("what answers at {url} is no control server of this version: {why}")]
    Nonsense {
        /// Which one.
        url: String,
        /// What is wrong with the answer.
        why: String,
    },
}

const MAYBE_DONE: &str = "; it may still do what was asked: look before asking again";

impl Error {
    pub(super) fn nonsense(base: &Url, why: String) -> Self {
        Self::Nonsense {
            url: base.as_str().trim_end_matches('/').into(),
            why,
        }
    }

    /// The kind of a refusal.
    pub fn kind(&self) -> Option<Kind> {
        let Self::Refused(problem) = self else {
            return None;
        };
        let slug = problem.r#type.strip_prefix(PROBLEM_TYPE)?;
        Kind::ALL.into_iter().find(|k| k.slug() == slug)
    }

    /// Whether the thing named does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.status == 404)
    }

    /// Whether a server has answered that does its work.
    pub(super) fn is_answer(&self) -> bool {
        match self {
            Self::Refused(problem) => problem.status < 500,
            Self::Unreachable { .. }
            | Self::Broken { .. }
            | Self::Timeout { .. }
            | Self::NoAddress
            | Self::Address { .. }
            | Self::Client(_)
            | Self::Encode(_)
            | Self::Nonsense { .. } => false,
        }
    }

    /// Whether nobody is there to answer.
    pub const fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Broken { .. }
        )
    }

    /// Whether the same `GET` may get an answer in a moment.
    pub(super) fn worth_another_try(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::Refused(problem) => problem.status == 503,
            // The whole time is used up: by all of them for what only reads, else by the one that has the request.
            Self::Timeout { .. }
            | Self::NoAddress
            | Self::Address { .. }
            | Self::Client(_)
            | Self::Encode(_)
            | Self::Nonsense { .. } => false,
        }
    }
}

/// The innermost cause: what lies around it says only that a request was sent.
pub(super) fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

fn problem_text(problem: &Problem) -> String {
    let mut text = problem
        .detail
        .clone()
        .unwrap_or_else(|| problem.title.clone());
    if let Some(field) = &problem.field {
        text.push_str(&format!(" (field `{field}`)"));
    }
    text
}
