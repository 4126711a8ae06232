//! What a handler asks of a request: the shop, the key, the body, the merchant. Each is checked before the handler runs,
//! and each refusal names what is wrong.

// Bodies, read whole and strictly.
mod body;
// The idempotency key.
mod key;
// Tokens of merchants.
mod merchant;

pub(crate) use body::urlencoded_fault;
pub use body::{Form, Json, NoBody};
pub use key::{IdempotencyKey, RequiredKey};
pub use merchant::Merchant;
pub(crate) use merchant::bearer;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use shared::error::Kind;
use shared::wire::FORWARDED_PREFIX;
use shared::{Epoch, Handle, ShopId};
use uuid::Uuid;

use crate::actor::Actor;
use crate::{App, Error};

/// The shop of a request, from its verified headers; or the shop a job runs for.
#[derive(Debug, Clone)]
pub struct Shop {
    actor: Actor,
    prefix: String,
}

impl Shop {
    /// The tenant.
    pub const fn id(&self) -> ShopId {
        self.actor.shop()
    }

    /// The epoch that the edge's table named.
    pub const fn epoch(&self) -> Epoch {
        self.actor.epoch()
    }

    /// The request's id.
    pub const fn request(&self) -> Uuid {
        self.actor.id()
    }

    /// What to put before each path in a link: `/s/<handle>` on the platform domain, else empty.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The same, for a read on whose outcome a write hangs.
    pub(crate) fn about_to_write(self) -> Self {
        Self {
            actor: self.actor.about_to_write(),
            ..self
        }
    }

    pub(crate) const fn actor(&self) -> &Actor {
        &self.actor
    }

    /// The shop of a job, which makes no links.
    pub(crate) const fn job(actor: Actor) -> Self {
        Self {
            actor,
            prefix: String::new(),
        }
    }
}

impl FromRequestParts<App> for Shop {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Error> {
        let actor = actor(parts)?;
        let prefix = prefix(&parts.headers);
        Ok(Self { actor, prefix })
    }
}

/// Who acts: put there by the layer that verified the headers.
fn actor(parts: &Parts) -> Result<Actor, Error> {
    let actor = parts.extensions.get::<Actor>();
    actor.copied().ok_or_else(|| Error::new(Kind::Forbidden))
}

/// A prefix goes into links and `location`: anything but `/s/<handle>` is passed over.
fn prefix(headers: &HeaderMap) -> String {
    let text = headers
        .get(FORWARDED_PREFIX)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    match text.strip_prefix("/s/").map(str::parse::<Handle>) {
        Some(Ok(_)) => text.to_owned(),
        Some(Err(_)) | None => String::new(),
    }
}

/// The one value of a header: `None` if it is not there, an error if it is there twice or is no text.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<Result<&'a str, ()>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() {
        return Some(Err(()));
    }
    Some(first.to_str().map_err(|_| ()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_handles_path_is_a_prefix() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(FORWARDED_PREFIX, text.parse().unwrap());
            prefix(&headers)
        };
        assert_eq!(of("/s/snow-9"), "/s/snow-9");
        for bad in [
            "",
            "/",
            "/s/",
            "/s/A",
            "/s/a/b",
            "//evil.example",
            "/s/../x",
            "https://evil.example/s/a",
            "/s/a\"><script>",
        ] {
            assert_eq!(of(bad), "", "{bad}");
        }
        assert_eq!(prefix(&HeaderMap::new()), "");
    }
}
