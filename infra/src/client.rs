//! The control server's client: what the command line, apply and the tests' commands speak through.
//!
//! A `GET`, and a call that carries an idempotency key, is tried again a few times; anything else is sent once, and to the
//! next address only when no connection came about, so that it cannot be done twice.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::{Method, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::error::Problem;
use uuid::Uuid;

mod calls;
mod error;
mod moves;

pub use error::Error;
use error::cause;

/// A control server on the same network accepts in milliseconds; a dead address must not eat the patience of a script.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a call that may be repeated is tried in all: a control server that is started again by its supervisor is
/// back within a second.
pub const TRIES: u32 = 4;

/// The pause before the second try; it doubles.
const RETRY_PAUSE: Duration = Duration::from_millis(150);

/// The largest answer taken: a page of shops is some hundred kilobytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A way to the control server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    http: reqwest::Client,
    urls: Vec<Url>,
    token: SecretString,
    timeout: Duration,
}

impl Control {
    /// Addresses (`http://127.0.0.1:7000`), tried in this order, and the operator's token.
    pub fn new(urls: &[String], token: SecretString, timeout: Duration) -> Result<Self, Error> {
        if urls.is_empty() {
            return Err(Error::NoAddress);
        }
        let urls = urls
            .iter()
            .map(|u| parse_url(u))
            .collect::<Result<_, _>>()?;
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(Error::Client)?;
        Ok(Self {
            http,
            urls,
            token,
            timeout,
        })
    }

    /// The addresses, for messages.
    pub fn addresses(&self) -> String {
        let texts: Vec<_> = self
            .urls
            .iter()
            .map(|u| u.as_str().trim_end_matches('/'))
            .collect();
        texts.join(", ")
    }

    /// A `GET`.
    async fn get<T: DeserializeOwned>(&self, path: &Path<'_>) -> Result<T, Error> {
        decode(&self.patiently(&Call::new(Method::GET), path).await?)
    }

    /// A call that changes something and gives an answer.
    async fn send<B, T>(&self, method: Method, path: &Path<'_>, body: &B) -> Result<T, Error>
    where
        B: Serialize + Sync,
        T: DeserializeOwned,
    {
        let body = serde_json::to_vec(body).map_err(Error::Encode)?;
        let call = Call {
            body: Some(body.into()),
            ..Call::new(method)
        };
        decode(&self.once(&call, path).await?)
    }

    /// A call that changes something, without a body or an answer that matters.
    async fn order(&self, method: Method, path: &Path<'_>) -> Result<(), Error> {
        self.once(&Call::new(method), path).await.map(drop)
    }

    /// A call that may be repeated, tried up to [`TRIES`] times over all addresses.
    async fn patiently(&self, call: &Call, path: &Path<'_>) -> Result<Answer, Error> {
        let mut pause = RETRY_PAUSE;
        let mut tries = 1;
        loop {
            match self.once(call, path).await {
                Err(error) if error.worth_another_try() && tries < TRIES => {
                    tracing::debug!(%error, tries, "asking again");
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// One try: the first address that takes a connection gets it.
    async fn once(&self, call: &Call, path: &Path<'_>) -> Result<Answer, Error> {
        let mut unreachable = None;
        for base in &self.urls {
            let mut request = self
                .http
                .request(call.method.clone(), path.on(base))
                .bearer_auth(self.token.expose_secret());
            if let Some(key) = call.key {
                request = request.header("idempotency-key", key.to_string());
            }
            if let Some(body) = &call.body {
                request = request
                    .header(http::header::CONTENT_TYPE, "application/json")
                    .body(body.clone());
            }
            match request.send().await {
                Ok(response) => return self.read(&call.method, base, response).await,
                Err(error) if error.is_connect() => unreachable = Some(error),
                Err(error) => return Err(self.broken(&call.method, base, &error)),
            }
        }
        Err(match unreachable {
            Some(error) => Error::Unreachable {
                urls: self.addresses(),
                why: cause(&error),
            },
            None => Error::NoAddress,
        })
    }

    async fn read(
        &self,
        method: &Method,
        base: &Url,
        mut response: Response,
    ) -> Result<Answer, Error> {
        let status = response.status();
        let mut body = BytesMut::new();
        loop {
            let chunk = response.chunk().await;
            let Some(chunk) = chunk.map_err(|e| self.broken(method, base, &e))? else {
                break;
            };
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(Error::nonsense(
                    base,
                    format!("it is over {ANSWER_BYTES_MAX} bytes"),
                ));
            }
            body.extend_from_slice(&chunk);
        }
        let body = body.freeze();
        if status.is_success() {
            return Ok(Answer {
                base: base.clone(),
                body,
            });
        }
        Err(refusal(base, status, &body))
    }

    fn broken(&self, method: &Method, base: &Url, source: &reqwest::Error) -> Error {
        let url = base.as_str().trim_end_matches('/').to_owned();
        let changes = *method != Method::GET;
        if source.is_timeout() {
            return Error::Timeout {
                url,
                after: self.timeout,
                changes,
            };
        }
        Error::Broken {
            url,
            changes,
            why: cause(source),
        }
    }
}

/// What is sent, but for where to.
struct Call {
    method: Method,
    body: Option<Bytes>,
    key: Option<Uuid>,
}

impl Call {
    const fn new(method: Method) -> Self {
        Self {
            method,
            body: None,
            key: None,
        }
    }
}

/// A body, and who sent it.
struct Answer {
    base: Url,
    body: Bytes,
}

fn decode<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    serde_json::from_slice(&answer.body).map_err(|e| Error::nonsense(&answer.base, e.to_string()))
}

fn refusal(base: &Url, status: StatusCode, body: &[u8]) -> Error {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => Error::Refused(Box::new(problem)),
        Err(_) => Error::nonsense(base, format!("status {status} without a problem document")),
    }
}

/// Only `http`: a control server listens on loopback or on a private network, behind a tunnel or a proxy that ends TLS.
fn parse_url(text: &str) -> Result<Url, Error> {
    let bad = |why: &str| Error::Address {
        url: text.into(),
        why: why.into(),
    };
    let Ok(url) = Url::parse(text) else {
        return Err(bad("it must look like http://127.0.0.1:7000"));
    };
    match url.scheme() {
        "http" if url.has_host() => Ok(url),
        "https" => Err(bad(
            "it must begin with http://; reach a remote one through a tunnel",
        )),
        _ => Err(bad("it must look like http://127.0.0.1:7000")),
    }
}

/// A path of segments and a query, each escaped on its own: a reference that an operator typed cannot change the path.
#[derive(Debug, Clone)]
struct Path<'a> {
    segments: Vec<&'a str>,
    query: Vec<(&'static str, String)>,
}

impl<'a> Path<'a> {
    fn of(segments: &[&'a str]) -> Self {
        Self {
            segments: segments.to_vec(),
            query: Vec::new(),
        }
    }

    fn query(mut self, key: &'static str, value: Option<String>) -> Self {
        self.query.extend(value.map(|value| (key, value)));
        self
    }

    fn on(&self, base: &Url) -> Url {
        let mut url = base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1").extend(&self.segments);
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_cannot_leave_its_segment() {
        let base = Url::parse("http://127.0.0.1:7000").unwrap();
        let path = Path::of(&["shops", "a/../../b?x#y"]).query("limit", Some("2&3".into()));
        assert_eq!(
            path.on(&base).as_str(),
            "http://127.0.0.1:7000/v1/shops/a%2F..%2F..%2Fb%3Fx%23y?limit=2%263"
        );
    }

    #[test]
    fn an_address_that_cannot_work_says_why() {
        for (text, part) in [
            ("https://control.example", "tunnel"),
            ("127.0.0.1:7000", "must look like"),
            ("control", "must look like"),
        ] {
            let error = parse_url(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_problem_is_kept_and_anything_else_is_nonsense() {
        let base = Url::parse("http://127.0.0.1:7000").unwrap();
        let body = br#"{"type":"urn:podhost:problem:conflict","title":"T","status":409,
            "detail":"the handle is taken","field":"handle"}"#;
        let error = refusal(&base, StatusCode::CONFLICT, body);
        assert_eq!(error.to_string(), "the handle is taken (field `handle`)");
        let error = refusal(&base, StatusCode::BAD_GATEWAY, b"<html>");
        assert!(error.to_string().contains("502"), "{error}");
    }
}
