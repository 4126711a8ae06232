//! The idempotency key: the client's name for one effect.

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use shared::error::Kind;

use super::{actor, only};
use crate::{App, Error};

/// The header, and the field that a problem names.
const HEADER: &str = "idempotency-key";

/// The column's length. A UUID has 36.
const LEN_MAX: usize = 128;

/// `Idempotency-Key`, else the request's id.
#[derive(Debug, Clone)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A key that an application takes from elsewhere (a form's hidden field); checked like the header.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        if visible && (1..=LEN_MAX).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(refused())
        }
    }

    fn of(headers: &HeaderMap) -> Result<Option<Self>, Error> {
        match only(headers, HEADER) {
            None => Ok(None),
            Some(Ok(text)) => Self::parse(text).map(Some),
            Some(Err(())) => Err(refused()),
        }
    }
}

fn refused() -> Error {
    let rule = format!(
        "An Idempotency-Key is given once, as 1 to {LEN_MAX} visible ASCII characters without blanks."
    );
    Error::field(Kind::Invalid, HEADER, rule)
}

impl FromRequestParts<App> for IdempotencyKey {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Error> {
        match Self::of(&parts.headers)? {
            Some(key) => Ok(key),
            None => Ok(Self(actor(parts)?.id().to_string())),
        }
    }
}

/// `Idempotency-Key`, 400 without.
#[derive(Debug, Clone)]
pub struct RequiredKey(pub IdempotencyKey);

impl FromRequestParts<App> for RequiredKey {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Error> {
        let missing = || {
            let detail = "This call needs an Idempotency-Key: choose one for each new order, and send the same one when you send the same order again.";
            Error::field(Kind::Invalid, HEADER, detail)
        };
        let key = IdempotencyKey::of(&parts.headers)?;
        key.map(Self).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_given_once_in_visible_characters() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, value.parse().unwrap());
            }
            IdempotencyKey::of(&headers).map(|key| key.map(|k| k.0))
        };
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&["a-1"]).unwrap().as_deref(), Some("a-1"));
        assert!(of(&[&"k".repeat(128)]).is_ok());
        for bad in ["", " ", "a b", "a\tb", &"k".repeat(129)] {
            assert!(of(&[bad]).is_err(), "{bad:?}");
        }
        assert!(of(&["a", "a"]).is_err(), "twice");
        assert!(IdempotencyKey::parse("ä").is_err());
    }
}
