//! Tokens of merchants: `pht_` and 32 random bytes, of which the database has the hash alone.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use sha2::{Digest, Sha256};
use shared::error::Kind;
use uuid::Uuid;

use super::{Shop, only};
use crate::{App, Consistency, Error, Reader};

/// What a merchant's token begins with.
const PREFIX: &str = "pht_";

/// A merchant of this shop: 401 without a valid token. `Option<Merchant>` is `None` without an `Authorization` field.
#[derive(Debug, Clone)]
pub struct Merchant {
    /// Which token.
    pub token_id: Uuid,
}

impl FromRequestParts<App> for Merchant {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let token = bearer(&parts.headers)?.ok_or_else(refused)?;
        let token = token
            .strip_prefix(PREFIX)
            .map(|_| token)
            .ok_or_else(refused)?;
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut shop = Shop::from_request_parts(parts, app).await?;
        if !parts.method.is_safe() {
            shop = shop.about_to_write();
        }
        let known = app
            .read(&shop, Consistency::Strong, move |reader| {
                Box::pin(find(reader, hash))
            })
            .await?;
        let token_id = known.ok_or_else(refused)?;
        Ok(Self { token_id })
    }
}

impl OptionalFromRequestParts<App> for Merchant {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Option<Self>, Error> {
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Ok(None);
        }
        <Self as FromRequestParts<App>>::from_request_parts(parts, app)
            .await
            .map(Some)
    }
}

/// One sentence for a token that is unknown, revoked, or another shop's: which of them is nobody's business.
fn refused() -> Error {
    Error::because(
        Kind::Unauthorized,
        "This needs a merchant token of this shop, as `authorization: Bearer pht_...`.",
    )
}

/// The token after `Bearer`, whatever it is; `None` without the field, 401 for a field that is no bearer token.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let Some(value) = only(headers, AUTHORIZATION.as_str()) else {
        return Ok(None);
    };
    let (scheme, token) = value
        .ok()
        .and_then(|text| text.split_once(' '))
        .ok_or_else(refused)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        Ok(Some(token.trim()))
    } else {
        Err(refused())
    }
}

async fn find(reader: &mut Reader, hash: [u8; 32]) -> Result<Option<Uuid>, Error> {
    let query = sqlx::query_as(
        "select token_id from merchant_token
         where shop_id = ? and token_hash = ? and revoked_at is null",
    )
    .bind(reader.shop().get())
    .bind(hash.to_vec());
    let row: Option<(String,)> = reader.fetch_optional(query).await?;
    row.map(|(id,)| {
        id.parse()
            .map_err(|_| Error::bug(format!("token id {id:?} is no UUID")))
    })
    .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_given_once() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(|token| token.map(str::to_owned))
        };
        assert_eq!(of(&[]).unwrap(), None);
        for good in ["Bearer pht_x", "bearer  pht_x", "BEARER pht_x "] {
            assert_eq!(of(&[good]).unwrap().as_deref(), Some("pht_x"), "{good}");
        }
        for bad in ["pht_x", "Basic pht_x", ""] {
            assert!(of(&[bad]).is_err(), "{bad:?}");
        }
        assert!(of(&["Bearer a", "Bearer b"]).is_err(), "twice");
    }
}
