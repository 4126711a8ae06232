//! What a handler asks of a request: the shop, the key, the body, the merchant.

use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequestParts, Request};
use http::request::Parts;
use serde::de::DeserializeOwned;
use shared::{Epoch, ShopId};
use uuid::Uuid;

use crate::actor::Actor;
use crate::{App, Error, Fingerprint};

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

    /// The shop of a job.
    pub(crate) const fn job(actor: Actor) -> Self {
        Self {
            actor,
            prefix: String::new(),
        }
    }

    pub(crate) const fn actor(&self) -> &Actor {
        &self.actor
    }

    /// What to put before each path in a link: `/s/<handle>` on the platform domain, else empty.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl FromRequestParts<App> for Shop {
    type Rejection = Error;
    async fn from_request_parts(_parts: &mut Parts, _app: &App) -> Result<Self, Error> {
        todo!()
    }
}

/// `Idempotency-Key`, else the request's id.
#[derive(Debug, Clone)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A key that an application takes from elsewhere (a form's hidden field); checked like the header.
    pub fn parse(_text: &str) -> Result<Self, Error> {
        todo!()
    }
}

impl FromRequestParts<App> for IdempotencyKey {
    type Rejection = Error;
    async fn from_request_parts(_parts: &mut Parts, _app: &App) -> Result<Self, Error> {
        todo!()
    }
}

/// `Idempotency-Key`, 400 without.
#[derive(Debug, Clone)]
pub struct RequiredKey(pub IdempotencyKey);

impl FromRequestParts<App> for RequiredKey {
    type Rejection = Error;
    async fn from_request_parts(_parts: &mut Parts, _app: &App) -> Result<Self, Error> {
        todo!()
    }
}

/// A JSON body, strictly: `T` has `#[serde(deny_unknown_fields)]`, a fault names its field.
#[derive(Debug, Clone)]
pub struct Json<T> {
    /// The body.
    pub value: T,
    /// Method, path and body in one hash, for [`crate::Call`].
    pub fingerprint: Fingerprint,
}

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Error;
    async fn from_request(_request: Request, _app: &App) -> Result<Self, Error> {
        todo!()
    }
}

/// A form's body (`application/x-www-form-urlencoded`), strictly.
#[derive(Debug, Clone)]
pub struct Form<T> {
    /// The body.
    pub value: T,
    /// Method, path and body in one hash, for [`crate::Call`].
    pub fingerprint: Fingerprint,
}

impl<T: DeserializeOwned> FromRequest<App> for Form<T> {
    type Rejection = Error;
    async fn from_request(_request: Request, _app: &App) -> Result<Self, Error> {
        todo!()
    }
}

/// No body at all, or an empty JSON object.
#[derive(Debug, Clone)]
pub struct NoBody {
    /// Method and path in one hash, for [`crate::Call`].
    pub fingerprint: Fingerprint,
}

impl FromRequest<App> for NoBody {
    type Rejection = Error;
    async fn from_request(_request: Request, _app: &App) -> Result<Self, Error> {
        todo!()
    }
}

/// A merchant of this shop: 401 without a valid token. `Option<Merchant>` is `None` without an `Authorization` field.
#[derive(Debug, Clone)]
pub struct Merchant {
    /// Which token.
    pub token_id: Uuid,
}

impl FromRequestParts<App> for Merchant {
    type Rejection = Error;
    async fn from_request_parts(_parts: &mut Parts, _app: &App) -> Result<Self, Error> {
        todo!()
    }
}

impl OptionalFromRequestParts<App> for Merchant {
    type Rejection = Error;
    async fn from_request_parts(_parts: &mut Parts, _app: &App) -> Result<Option<Self>, Error> {
        todo!()
    }
}
