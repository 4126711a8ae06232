//! Reading requests: JSON bodies, queries and path parts, each fault named with its field.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, FailedToBufferBody, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::header;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use shared::error::Kind;

use super::failure::Failure;

/// A JSON body.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<S, T> FromRequest<S> for Json<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let media = request
            .headers()
            .get(header::CONTENT_TYPE)
            .map(|v| v.to_str().unwrap_or(""));
        let essence = media.unwrap_or("").split(';').next().unwrap_or("").trim();
        let json = essence.eq_ignore_ascii_case("application/json");
        let bytes = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| body_failure(&rejection))?;
        if !json {
            let text = "send the body as JSON with `content-type: application/json`";
            return Err(Failure::new(Kind::MediaType, text));
        }
        parse(&bytes).map(Self)
    }
}

fn body_failure(rejection: &BytesRejection) -> Failure {
    use BytesRejection::FailedToBufferBody as Buffer;
    if matches!(rejection, Buffer(FailedToBufferBody::LengthLimitError(_))) {
        let text = "the body is longer than `limits.body_max` of control.toml";
        return Failure::new(Kind::TooLarge, text);
    }
    Failure::new(
        Kind::Invalid,
        format!("the body could not be read: {rejection}"),
    )
}

/// Reads a body; the field is named as a path (`endpoints[0].kind`).
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let mut text = serde_json::Deserializer::from_slice(bytes);
    let it = serde_path_to_error::deserialize(&mut text).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_syntax() || inner.is_eof() {
            return Failure::new(Kind::Invalid, format!("the body is not JSON: {inner}"));
        }
        let said = inner.to_string();
        match field_of(&path, &said) {
            Some(field) => Failure::field(&field, said),
            None => Failure::new(Kind::Invalid, said),
        }
    })?;
    text.end()
        .map_err(|_| Failure::new(Kind::Invalid, "the body has more after its JSON"))?;
    Ok(it)
}

/// The field at fault: serde names a missing one in its message alone.
fn field_of(path: &str, said: &str) -> Option<String> {
    let named = ["missing field `", "unknown field `"]
        .iter()
        .find_map(|start| {
            let (name, _) = said.strip_prefix(start)?.split_once('`')?;
            Some(name)
        });
    let path = if path == "." { "" } else { path };
    match named {
        Some(name) if path.is_empty() => Some(name.to_owned()),
        Some(name) if path == name || path.ends_with(&format!(".{name}")) => Some(path.to_owned()),
        Some(name) => Some(format!("{path}.{name}")),
        None => (!path.is_empty()).then(|| path.to_owned()),
    }
}

/// A query string.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<S, T> FromRequestParts<S> for Params<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let query: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        query.map(|Query(it)| Self(it)).map_err(|rejection| {
            let said = rejection.body_text();
            let said = said
                .strip_prefix("Failed to deserialize query string: ")
                .unwrap_or(&said);
            let (path, rest) = said.split_once(": ").unwrap_or(("", said));
            let path = if path.contains(' ') { "" } else { path };
            match field_of(path, if path.is_empty() { said } else { rest }) {
                Some(field) => Failure::field(&field, said),
                None => Failure::new(Kind::Invalid, said),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PodPut, ShopNew};

    fn fault<T: DeserializeOwned + std::fmt::Debug>(body: &str) -> Failure {
        parse::<T>(body.as_bytes()).unwrap_err()
    }

    #[test]
    fn the_field_at_fault_is_named() {
        for (body, field) in [
            (r#"{}"#, Some("handle")),
            (r#"{"handle":7}"#, Some("handle")),
            (r#"{"handle":"a","colour":"red"}"#, Some("colour")),
            (
                r#"{"handle":"a","hosts":["a.example",7]}"#,
                Some("hosts[1]"),
            ),
            (r#"{"handle":"a"} x"#, None),
            (r#"{"handle""#, None),
            (r#"[]"#, None),
        ] {
            assert_eq!(fault::<ShopNew>(body).field.as_deref(), field, "{body}");
        }
        let pod = r#"{"name":"a","region":"a","pool":"a","class":"a","max_shops":1,"status":"active",
            "endpoints":[{"kind":"smtp","role":"primary","address":"a"}]}"#;
        assert_eq!(
            fault::<PodPut>(pod).field.as_deref(),
            Some("endpoints[0].kind")
        );
    }
}
