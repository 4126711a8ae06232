//! Bodies, read whole under a limit and a deadline, and strictly: a wrong type, a missing or an unknown field is a 400
//! that names the field.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use shared::error::Kind;

use super::only;
use crate::{App, Error, Fingerprint};

/// Text of a fault that a client is shown: the parser repeats the value it met, which may be long.
const FAULT_CHARS_MAX: usize = 200;

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

    async fn from_request(request: Request, app: &App) -> Result<Self, Error> {
        media_type(request.headers(), "application/json")?;
        let whole = Whole::read(request, app).await?;
        Ok(Self {
            value: json(&whole.body)?,
            fingerprint: whole.fingerprint(),
        })
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

    async fn from_request(request: Request, app: &App) -> Result<Self, Error> {
        media_type(request.headers(), "application/x-www-form-urlencoded")?;
        let headers = request.headers().clone();
        let whole = Whole::read(request, app).await?;
        let mut again = Request::new(Body::from(whole.body.clone()));
        *again.method_mut() = Method::POST;
        *again.headers_mut() = headers;
        let form = axum::Form::<T>::from_request(again, app).await;
        let axum::Form(value) =
            form.map_err(|rejection| urlencoded_fault(&rejection.body_text()))?;
        Ok(Self {
            value,
            fingerprint: whole.fingerprint(),
        })
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

    async fn from_request(request: Request, app: &App) -> Result<Self, Error> {
        let mut whole = Whole::read(request, app).await?;
        let text: Vec<u8> = whole
            .body
            .iter()
            .copied()
            .filter(|b| !b.is_ascii_whitespace())
            .collect();
        if !text.is_empty() && text != b"{}" {
            return Err(Error::because(Kind::Invalid, "This call takes no body."));
        }
        // Nothing and an empty object are the same request.
        whole.body = Bytes::new();
        Ok(Self {
            fingerprint: whole.fingerprint(),
        })
    }
}

/// A request that has been read to its end.
struct Whole {
    method: Method,
    path: String,
    body: Bytes,
}

impl Whole {
    async fn read(request: Request, app: &App) -> Result<Self, Error> {
        let limits = &app.config().limits;
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            path: path.to_owned(),
            method: parts.method,
            body: read(body, limits.body_max.get(), limits.body_time).await?,
        })
    }

    fn fingerprint(&self) -> Fingerprint {
        let method = self.method.as_str().as_bytes();
        Fingerprint::of(&[method, self.path.as_bytes(), &self.body])
    }
}

async fn read(body: Body, len_max: usize, time: Duration) -> Result<Bytes, Error> {
    let collected = tokio::time::timeout(time, Limited::new(body, len_max).collect());
    match collected.await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("A body has at most {len_max} bytes.");
            Err(Error::because(Kind::TooLarge, detail))
        }
        Ok(Err(_)) => Err(Error::because(Kind::Invalid, "The body ended early.")),
        Err(_) => Err(Error::new(Kind::SlowBody)),
    }
}

/// 415 unless the body says that it is `wanted`; parameters (a charset) are passed over.
fn media_type(headers: &HeaderMap, wanted: &str) -> Result<(), Error> {
    let is_wanted = only(headers, CONTENT_TYPE.as_str())
        .and_then(Result::ok)
        .and_then(|text| text.split(';').next())
        .is_some_and(|essence| essence.trim().eq_ignore_ascii_case(wanted));
    if is_wanted {
        Ok(())
    } else {
        let detail = format!("Send the body as `content-type: {wanted}`.");
        Err(Error::because(Kind::MediaType, detail))
    }
}

/// Reads JSON. A derived struct would take an array of its fields in order too; a client that sends one has not meant it.
fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Error::because(
            Kind::Invalid,
            "The body must be a JSON object.",
        ));
    }
    let mut source = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut source).map_err(|error| {
        let path = error.path().to_string();
        json_fault(&path, &error.into_inner())
    })?;
    let trailing = source.end();
    trailing.map_err(|error| json_fault(".", &error))?;
    Ok(value)
}

fn json_fault(path: &str, error: &serde_json::Error) -> Error {
    use serde_json::error::Category;
    let text = error.to_string();
    match error.classify() {
        Category::Data => {}
        Category::Syntax | Category::Eof | Category::Io => {
            return Error::because(
                Kind::Invalid,
                format!("The body is not JSON: {}.", short(&text)),
            );
        }
    }
    // Where in the text it was helps nobody who is told the field.
    let what = text.split(" at line ").next().unwrap_or(&text);
    field_fault(path, what)
}

/// A fault of a field. The path of a missing one, or of one that is there twice, is its parent's; its name is in the
/// text.
fn field_fault(path: &str, what: &str) -> Error {
    let named = ["missing field `", "duplicate field `"]
        .iter()
        .find_map(|start| what.strip_prefix(start)?.strip_suffix('`'));
    let field = match (path, named) {
        (".", Some(name)) => name.to_owned(),
        (parent, Some(name)) => format!("{parent}.{name}"),
        (path, None) => path.to_owned(),
    };
    let what = in_json_words(what);
    let what = what.as_str();
    if field == "." {
        Error::because(
            Kind::Invalid,
            format!("The request has another form: {}.", short(what)),
        )
    } else {
        let field: String = field.chars().take(FAULT_CHARS_MAX).collect();
        Error::field(
            Kind::Invalid,
            field,
            format!("This field is not right: {}.", short(what)),
        )
    }
}

/// A parser speaks of the program's types; a client knows JSON's.
fn in_json_words(what: &str) -> String {
    let Some((met, wanted)) = what.rsplit_once(", expected ") else {
        return what.to_owned();
    };
    let wanted = match wanted.split(' ').next().unwrap_or_default() {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "struct" => "an object",
        "a" if wanted.starts_with("a sequence") => "an array",
        _ => wanted,
    };
    format!("{met}, expected {wanted}")
}

/// A fault of a form or a query: a rejection of axum's reads `Failed to deserialize form body: <field>: <what>`.
pub(crate) fn urlencoded_fault(text: &str) -> Error {
    let what = [
        "Failed to deserialize form body: ",
        "Failed to deserialize query string: ",
    ]
    .iter()
    .find_map(|start| text.strip_prefix(start))
    .unwrap_or(text);
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match what.split_once(": ") {
        Some((field, what)) if is_name(field) => field_fault(field, what),
        Some(_) | None => field_fault(".", what),
    }
}

fn short(text: &str) -> String {
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(FAULT_CHARS_MAX).collect();
    if chars.next().is_some() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests;
