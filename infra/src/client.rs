//! The control server's client: what the command line, apply and the tests' commands speak through.
//!
//! A `GET`, and a call that carries an idempotency key, is tried again a few times; anything else is sent once, and to the
//! next address only when no connection came about, so that it cannot be done twice. A `GET` goes on to the next one also
//! when a server is silent, and gives each its share of the time. Whoever has answered is asked first from then on, so that
//! one that is silent costs its share once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Which of them is asked first: the one that answered last.
    first: Arc<AtomicUsize>,
    token: SecretString,
    timeout: Duration,
}

impl Control {
    /// Addresses (`http://127.0.0.1:7000`), tried in this order until one has answered, and the operator's token.
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
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(Error::Client)?;
        Ok(Self {
            http,
            urls,
            first: Arc::default(),
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

    /// One try: the first address that takes a connection gets it; of what only reads, the first one that answers.
    async fn once(&self, call: &Call, path: &Path<'_>) -> Result<Answer, Error> {
        let mut failed = None;
        let first = self.first.load(Ordering::Relaxed);
        let all = self.urls.iter().enumerate();
        for (at, base) in all.clone().skip(first).chain(all.take(first)) {
            match self.ask(call, path, base).await {
                Err(error) if call.goes_on(&error) => {
                    // One that is silent is told of before others that are not there.
                    let unreachable = matches!(failed, None | Some(Error::Unreachable { .. }));
                    failed = if unreachable { Some(error) } else { failed };
                }
                answer => {
                    if answer.as_ref().map_or_else(Error::is_answer, |_| true) {
                        self.first.store(at, Ordering::Relaxed);
                    }
                    return answer;
                }
            }
        }
        Err(match failed {
            Some(Error::Unreachable { why, .. }) => Error::Unreachable {
                urls: self.addresses(),
                why,
            },
            Some(error) => error,
            None => Error::NoAddress,
        })
    }

    /// Asks one server.
    async fn ask(&self, call: &Call, path: &Path<'_>, base: &Url) -> Result<Answer, Error> {
        let patience = self.patience(&call.method);
        let mut request = self
            .http
            .request(call.method.clone(), path.on(base))
            .timeout(patience)
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
            Ok(response) => self.read(&call.method, base, response).await,
            Err(error) if error.is_connect() => Err(Error::Unreachable {
                urls: base.to_string(),
                why: cause(&error),
            }),
            Err(error) => Err(self.broken(&call.method, base, &error)),
        }
    }

    /// How long one server may take. What only reads asks all of them within the whole time.
    fn patience(&self, method: &Method) -> Duration {
        let asked = if *method == Method::GET {
            self.urls.len()
        } else {
            1
        };
        self.timeout / u32::try_from(asked).unwrap_or(u32::MAX)
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
                after: self.patience(method),
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

    /// Whether the next server may be asked after this: nothing was sent, or nothing can be done twice.
    fn goes_on(&self, error: &Error) -> bool {
        match error {
            Error::Unreachable { .. } => true,
            Error::Timeout { .. } | Error::Broken { .. } => self.method == Method::GET,
            Error::NoAddress
            | Error::Address { .. }
            | Error::Client(_)
            | Error::Encode(_)
            | Error::Refused(_)
            | Error::Nonsense { .. } => false,
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
mod tests;
