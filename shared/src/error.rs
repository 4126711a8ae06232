//! Kinds of errors: what happened, whose fault it is, whether it may be retried. One kind is one metric label, one
//! HTTP status and one `type` of an RFC 9457 problem.

use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// 400: the request is malformed, ambiguous or names a field wrongly.
    Invalid,
    /// 401: no token, or an unknown one.
    Unauthorized,
    /// 402: the payment provider declined.
    PaymentDeclined,
    /// 403: the token is known and may not do this, or the request has gone around the edge.
    Forbidden,
    /// 404: no such thing in this shop.
    NotFound,
    /// 404: no shop of that name.
    UnknownShop,
    /// 405: the path exists, the method does not.
    MethodNotAllowed,
    /// 408: the client began a body and did not end it in time.
    SlowBody,
    /// 409: the request does not fit the state of the thing.
    Conflict,
    /// 409: too few units.
    InsufficientStock,
    /// 409: an order in that state cannot do this.
    OrderState,
    /// 409 with `Retry-After`: the first request with this key is still running.
    InFlight,
    /// 410: the thing is no longer kept.
    Gone,
    /// 413: the body is over its limit.
    TooLarge,
    /// 415: the body is not JSON.
    MediaType,
    /// 421: not here; see [`crate::wire::Fence`].
    Misdirected,
    /// 422: the same idempotency key with another body.
    KeyReused,
    /// 429: over a limit.
    Limited,
    /// 431: too many or too large header fields.
    HeadersTooLarge,
    /// 500: a bug.
    Internal,
    /// 502: the pod answered nonsense.
    BadGateway,
    /// 503: an operator stopped the writes of this shop.
    Frozen,
    /// 503: an operator took this shop offline.
    Offline,
    /// 503: something this needs is not there just now.
    Unavailable,
    /// 503: shed, a queue is full.
    Overloaded,
    /// 504: reached, and did not answer in time.
    Timeout,
}

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The client's: sending the same again gives the same.
    Client,
    /// Ours.
    Server,
    /// Nobody's: the state of things, or an operator's wish.
    State,
}

impl Kind {
    /// All of them, for metrics and tests.
    pub const ALL: [Self; 26] = [
        Self::Invalid,
        Self::Unauthorized,
        Self::PaymentDeclined,
        Self::Forbidden,
        Self::NotFound,
        Self::UnknownShop,
        Self::MethodNotAllowed,
        Self::SlowBody,
        Self::Conflict,
        Self::InsufficientStock,
        Self::OrderState,
        Self::InFlight,
        Self::Gone,
        Self::TooLarge,
        Self::MediaType,
        Self::Misdirected,
        Self::KeyReused,
        Self::Limited,
        Self::HeadersTooLarge,
        Self::Internal,
        Self::BadGateway,
        Self::Frozen,
        Self::Offline,
        Self::Unavailable,
        Self::Overloaded,
        Self::Timeout,
    ];

    /// Status, slug (the last part of `type` and the metric label), title, fault, whether the same request may be sent
    /// again later: the whole table in one place.
    #[rustfmt::skip] // a table: one kind a line
    const fn row(self) -> (u16, &'static str, &'static str, Fault, bool) {
        use Fault::{Client, Server, State};
        match self {
            Self::Invalid => (400, "invalid", "The request is not valid", Client, false),
            Self::Unauthorized => (401, "unauthorized", "A valid token is needed", Client, false),
            Self::PaymentDeclined => (402, "payment-declined", "The payment was declined", Client, false),
            Self::Forbidden => (403, "forbidden", "This is not allowed", Client, false),
            Self::NotFound => (404, "not-found", "There is no such thing here", Client, false),
            Self::UnknownShop => (404, "unknown-shop", "There is no shop at this address", Client, false),
            Self::MethodNotAllowed => (405, "method-not-allowed", "This method is not allowed here", Client, false),
            Self::SlowBody => (408, "slow-body", "The body did not arrive in time", Client, true),
            Self::Conflict => (409, "conflict", "The request does not fit the present state", State, false),
            Self::InsufficientStock => (409, "insufficient-stock", "There is not enough stock", State, false),
            Self::OrderState => (409, "order-state", "The order is not in a state for this", State, false),
            Self::InFlight => (409, "in-flight", "The same request is still running", State, true),
            Self::Gone => (410, "gone", "This is no longer kept", State, false),
            Self::TooLarge => (413, "too-large", "The body is too large", Client, false),
            Self::MediaType => (415, "media-type", "The body is of a kind that is not taken here", Client, false),
            Self::Misdirected => (421, "misdirected", "The shop is not served here", State, true),
            Self::KeyReused => (422, "key-reused", "The idempotency key was used for another request", Client, false),
            Self::Limited => (429, "limited", "Too many requests", Client, true),
            Self::HeadersTooLarge => (431, "headers-too-large", "The header fields are too large", Client, false),
            Self::Internal => (500, "internal", "Something went wrong on our side", Server, false),
            Self::BadGateway => (502, "bad-gateway", "The shop's pod gave no valid answer", Server, true),
            Self::Frozen => (503, "frozen", "The shop takes no changes just now", State, true),
            Self::Offline => (503, "offline", "The shop is offline", State, true),
            Self::Unavailable => (503, "unavailable", "The shop cannot be reached just now", Server, true),
            Self::Overloaded => (503, "overloaded", "Too much is waiting just now", Server, true),
            Self::Timeout => (504, "timeout", "The shop did not answer in time", Server, true),
        }
    }

    /// The HTTP status.
    pub const fn status(self) -> u16 {
        self.row().0
    }

    /// The label in metrics and logs, and the last part of the problem's `type`.
    pub const fn slug(self) -> &'static str {
        self.row().1
    }

    /// A sentence for people, the same for each occurrence.
    pub const fn title(self) -> &'static str {
        self.row().2
    }

    /// Whose fault it is.
    pub const fn fault(self) -> Fault {
        self.row().3
    }

    /// Whether the same request, sent again later, may get another answer; then the answer has `Retry-After`.
    pub const fn retryable(self) -> bool {
        self.row().4
    }

    /// Seconds for `Retry-After`, where the kind has one.
    pub const fn retry_after_s(self) -> Option<u32> {
        if self.retryable() { Some(1) } else { None }
    }
}

/// The prefix of a problem's `type`.
pub const PROBLEM_TYPE: &str = "urn:podhost:problem:";
/// The media type of a problem (RFC 9457 section 3).
pub const PROBLEM_JSON: &str = "application/problem+json";

/// An RFC 9457 problem: what a client is told. Texts for the log do not belong here.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Problem {
    /// `urn:podhost:problem:<kind>`.
    pub r#type: String,
    /// The kind's sentence.
    pub title: String,
    /// The status again.
    pub status: u16,
    /// What is wrong with this one request, and the way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The field at fault (`lines[0].quantity`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The request, to be named to support.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

impl Problem {
    /// A problem of a kind, without details.
    pub fn new(kind: Kind) -> Self {
        Self {
            r#type: format!("{PROBLEM_TYPE}{}", kind.slug()),
            title: kind.title().into(),
            status: kind.status(),
            detail: None,
            field: None,
            request: None,
        }
    }
}

/// An error that has a kind and a text for clients. The text is apart from `Display`, which is for the log: what a
/// log may say (addresses, statements) a client must not read.
pub trait Classify: std::error::Error {
    /// What happened.
    fn kind(&self) -> Kind;
    /// What the client reads, if more than the kind's sentence.
    fn client_text(&self) -> Option<String>;
}

/// The error and its sources in one line, `a: b: c`. No `Display` of ours repeats its source; those of others often do, and
/// what stands there already is not said again.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = once(&error.to_string());
    let mut next = error.source();
    while let Some(source) = next {
        let cause = once(&source.to_string());
        if !says(&text, &cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        next = source.source();
    }
    text
}

/// The text without parts that only repeat the one before them.
fn once(text: &str) -> String {
    let mut parts: Vec<&str> = text.split(": ").collect();
    parts.dedup();
    parts.join(": ")
}

/// Whether a text has these words: not the end of one word and the beginning of another.
fn says(text: &str, words: &str) -> bool {
    let in_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    words.is_empty()
        || text.match_indices(words).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + words.len()..]);
            !in_word(before.chars().next_back()) && !in_word(after.chars().next())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_unique_and_statuses_are_errors() {
        let mut slugs: Vec<_> = Kind::ALL.iter().map(|k| k.slug()).collect();
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), Kind::ALL.len());
        assert!(Kind::ALL.iter().all(|k| (400..600).contains(&k.status())));
    }

    /// An error with this text and cause.
    #[derive(Debug)]
    struct Said(String, Option<Box<Said>>);

    impl std::fmt::Display for Said {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl std::error::Error for Said {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn told(texts: &[&str]) -> String {
        let link = |cause, text: &&str| Some(Box::new(Said((*text).into(), cause)));
        let error = texts.iter().rev().fold(None, link);
        chain(&*error.expect("a text"))
    }

    #[test]
    fn each_cause_is_told_once() {
        for (texts, expected) in [
            (&["no"][..], "no"),
            (&["read it", "the disk", "late"], "read it: the disk: late"),
            // The driver's Display has its source's, on two levels.
            (
                &[
                    "connect failed",
                    "Input/output error: Input/output error: Connection refused (os error 111)",
                    "Input/output error: Connection refused (os error 111)",
                    "Connection refused (os error 111)",
                ],
                "connect failed: Input/output error: Connection refused (os error 111)",
            ),
            (
                &[
                    "open a session failed",
                    "Server error: `ERROR 1290 (HY000): the server is read only'",
                    "ERROR 1290 (HY000): the server is read only",
                ],
                "open a session failed: Server error: `ERROR 1290 (HY000): the server is read only'",
            ),
            // A cause that says more is told, and so is one that only looks like a part of a word.
            (
                &["the pod is late", "the pod is late: no answer"],
                "the pod is late: the pod is late: no answer",
            ),
            (&["translated", "late"], "translated: late"),
            (&["pod 12 failed", "pod 1"], "pod 12 failed: pod 1"),
            (&["no words", ""], "no words"),
        ] {
            assert_eq!(told(texts), expected);
        }
    }

    #[test]
    fn an_error_of_std_is_told_with_its_cause() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let text = refused.to_string();
        let wrapped = std::io::Error::other(refused);
        assert_eq!(chain(&wrapped), text);
    }
}
