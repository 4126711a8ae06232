//! What the fields of a request may hold, and how a path or a query is read. Each fault is a 400 that names its field.

use axum::extract::{FromRequestParts, Path, Query};
use http::request::Parts;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use shared::error::Kind;
use uuid::Uuid;

use crate::extract::urlencoded_fault;
use crate::{App, Error};

/// The column is `varchar(200)`; MySQL counts characters, as we do.
const TITLE_CHARS_MAX: usize = 200;

/// RFC 5321 section 4.5.3.1, less the angle brackets.
const EMAIL_LEN_MAX: usize = 254;
/// RFC 5321 section 4.5.3.1.1.
const EMAIL_LOCAL_LEN_MAX: usize = 64;

/// A 400 for a field.
pub(crate) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Error {
    Error::field(Kind::Invalid, field, detail)
}

/// Something for sale: its name on one line.
pub(crate) fn title(text: &str) -> Result<String, Error> {
    let text = text.trim();
    let length = text.chars().count();
    if length == 0 || length > TITLE_CHARS_MAX || text.chars().any(char::is_control) {
        let rule = format!("A title has 1 to {TITLE_CHARS_MAX} characters on one line.");
        return Err(invalid("title", rule));
    }
    Ok(text.to_owned())
}

/// An e-mail address, lowered. Whether it is somebody's shows when a message is sent; this refuses what cannot be one.
pub(crate) fn email(text: &str) -> Result<String, Error> {
    let address = text.trim().to_lowercase();
    let printable = address
        .chars()
        .all(|c| !c.is_whitespace() && !c.is_control());
    let ok = printable
        && address.len() <= EMAIL_LEN_MAX
        && address
            .rsplit_once('@')
            .is_some_and(|(local, domain)| email_local(local) && email_domain(domain));
    if ok {
        Ok(address)
    } else {
        Err(invalid("email", "This is not an e-mail address."))
    }
}

fn email_local(local: &str) -> bool {
    !local.is_empty()
        && local.len() <= EMAIL_LOCAL_LEN_MAX
        && !local.contains(['@', ',', ';', ':', '<', '>', '"', '(', ')', '[', ']', '\\'])
        && local.split('.').all(|part| !part.is_empty())
}

fn email_domain(domain: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    domain.contains('.') && domain.split('.').all(label)
}

/// Units that somebody buys.
pub(crate) fn quantity(field: &str, number: i64, max: u32) -> Result<i32, Error> {
    i32::try_from(number)
        .ok()
        .filter(|n| (1..=i64::from(max)).contains(&i64::from(*n)))
        .ok_or_else(|| invalid(field, format!("A quantity is 1 to {max}.")))
}

/// Units that there are.
pub(crate) fn available(number: i64, max: u32) -> Result<i64, Error> {
    if (0..=i64::from(max)).contains(&number) {
        Ok(number)
    } else {
        let rule = format!("The units available are 0 to {max}.");
        Err(invalid("available", rule))
    }
}

/// The one spelling of an id: 36 characters with hyphens.
pub(crate) fn id(text: &str) -> Option<Uuid> {
    if text.len() == 36 {
        Uuid::try_parse(text).ok()
    } else {
        None
    }
}

/// A field of a change that may be left out, but not be `null`.
pub(crate) fn some<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// The id in a path. What is no id names nothing: 404.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathId(pub(crate) Uuid);

impl FromRequestParts<App> for PathId {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let path = Path::<String>::from_request_parts(parts, app).await;
        path.ok()
            .and_then(|Path(text)| id(&text))
            .map(Self)
            .ok_or_else(Error::not_found)
    }
}

/// The query, strictly: a misspelt `cursor` that is passed over would give the first page for ever.
#[derive(Debug)]
pub(crate) struct Strict<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Strict<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        match Query::<T>::from_request_parts(parts, app).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(urlencoded_fault(&rejection.body_text())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_be_one_are_refused() {
        for good in [
            "a@b.c",
            "Ann.Other+tag@Shop-1.Example",
            "müller@bücher.example",
        ] {
            assert_eq!(email(good).unwrap(), good.to_lowercase(), "{good}");
        }
        let long = format!("{}@b.c", "a".repeat(65));
        for bad in [
            "",
            "a",
            "@b.c",
            "a@",
            "a@b",
            "a b@c.d",
            "a@b..c",
            "a@-b.c",
            "a@b@c.d",
            "a@b.c\nbcc: x@y.z",
            ".a@b.c",
            "<a@b.c>",
            &long,
        ] {
            assert!(email(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        assert!(quantity("q", 1, 9).is_ok() && quantity("q", 9, 9).is_ok());
        for bad in [0, -1, 10, i64::MAX, i64::MIN] {
            assert!(quantity("q", bad, 9).is_err(), "{bad}");
        }
        assert!(available(0, 9).is_ok() && available(9, 9).is_ok());
        assert!(available(-1, 9).is_err() && available(10, 9).is_err());
    }

    #[test]
    fn titles_are_one_line() {
        assert_eq!(title("  Lamp ").unwrap(), "Lamp");
        assert!(title(&"é".repeat(200)).is_ok());
        for bad in ["", "  ", "a\nb", "a\0b", &"é".repeat(201)] {
            assert!(title(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let uuid = Uuid::now_v7();
        assert_eq!(id(&uuid.to_string()), Some(uuid));
        for bad in [
            uuid.simple().to_string(),
            uuid.braced().to_string(),
            uuid.urn().to_string(),
        ] {
            assert_eq!(id(&bad), None, "{bad}");
        }
    }
}
