//! One HTTP request and its answer, to the edge by host or to a pod with signed route headers.

use std::fmt::Display;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::de::DeserializeOwned;
use serde_json::Value;
use shared::error::PROBLEM_TYPE;
use shared::keys::PodKeys;
use shared::wire::{self, Fence, Route};
use shared::{Epoch, PodId, ShopId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

/// Longer than any answer may take (the edge's own deadline is shorter): only a hang gets here.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A request, before it is known where it goes.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    /// Any method.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// GET.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// POST.
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    /// With a JSON body.
    #[must_use]
    pub fn json(mut self, body: &Value) -> Self {
        self.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body = Bytes::from(body.to_string());
        self
    }

    /// With that body, whatever it is.
    #[must_use]
    pub fn body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        self.body = body.into();
        self
    }

    /// With a header more.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Display) -> Self {
        let value = HeaderValue::from_maybe_shared(Bytes::from(value.to_string()));
        // A test that cannot write its own header is wrong: the request without it says so soon enough.
        if let Ok(value) = value {
            self.headers.append(HeaderName::from_static(name), value);
        }
        self
    }

    /// As the bearer of a token, instead of an earlier one.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.headers.remove(AUTHORIZATION);
        self.header("authorization", format!("Bearer {token}"))
    }

    /// With an idempotency key.
    #[must_use]
    pub fn key(self, key: impl Display) -> Self {
        self.header("idempotency-key", key)
    }

    /// As a browser does.
    #[must_use]
    pub fn browser(mut self) -> Self {
        self.headers
            .insert(ACCEPT, HeaderValue::from_static("text/html,*/*;q=0.8"));
        self
    }

    async fn send(
        &self,
        http: &reqwest::Client,
        to: SocketAddr,
        more: HeaderMap,
    ) -> Result<Answer> {
        let what = || format!("{} {}", self.method, self.path);
        let request = http
            .request(self.method.clone(), format!("http://{to}{}", self.path))
            .headers(self.headers.clone())
            .headers(more)
            .body(self.body.clone());
        let answer = request.send().await.with_context(what)?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = answer.bytes().await.with_context(what)?;
        Ok(Answer {
            status,
            headers,
            body,
        })
    }
}

/// An answer, whole.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON of that form.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("{} with body {}", self.status, self.text()))
    }

    /// A header, if it is there once and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok(),
            (None, _) | (Some(_), Some(_)) => None,
        }
    }

    /// The status is this one; else the failure shows the body.
    pub fn wants(self, status: u16) -> Result<Self> {
        let text = self.text();
        ensure!(
            self.status == status,
            "answer {} instead of {status}: {text}",
            self.status
        );
        Ok(self)
    }

    /// It is a problem of that kind (and its HTTP status is the problem's).
    pub fn wants_problem(self, status: u16, kind: &str) -> Result<Value> {
        let answer = self.wants(status)?;
        let content_type = answer.header("content-type").unwrap_or_default();
        ensure!(
            content_type.starts_with("application/problem+json"),
            "type {content_type}"
        );
        let problem: Value = answer.json()?;
        let wanted = format!("{PROBLEM_TYPE}{kind}");
        ensure!(
            problem["type"] == wanted.as_str(),
            "not {wanted}: {problem}"
        );
        ensure!(problem["status"] == status, "status within: {problem}");
        Ok(problem)
    }

    /// Why a pod did not begin the request.
    pub fn fence(&self) -> Option<Fence> {
        self.header(wire::FENCE).and_then(Fence::from_header)
    }
}

fn client(answer_max: Duration) -> Result<reqwest::Client> {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(answer_max)
        .build();
    client.context("make an HTTP client")
}

/// The door for buyers and merchants.
#[derive(Debug, Clone)]
pub struct Edge {
    address: SocketAddr,
    http: reqwest::Client,
}

impl Edge {
    /// The edge at an address.
    pub fn new(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            address,
            http: client(ANSWER_MAX)?,
        })
    }

    /// The same for clients who wait for longer.
    pub fn new_patient(address: SocketAddr, answer_max: Duration) -> Result<Self> {
        Ok(Self {
            address,
            http: client(answer_max)?,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A request to a host by name, whatever its DNS says.
    pub async fn send(&self, host: &str, call: &Call) -> Result<Answer> {
        let host = HeaderValue::from_str(host).context("the host as a header")?;
        call.send(
            &self.http,
            self.address,
            HeaderMap::from_iter([(HOST, host)]),
        )
        .await
    }

    /// Bytes as they are, for requests that no HTTP client would send; all that comes back.
    pub async fn raw(&self, request: &[u8]) -> Result<String> {
        let exchange = async {
            let stream = TcpStream::connect(self.address).await?;
            let (mut read, mut write) = stream.into_split();
            let mut answer = Vec::new();
            // An edge that refuses a request before it has read all of it answers early, and may reset the connection.
            let (sent, got) = tokio::join!(write.write_all(request), read.read_to_end(&mut answer));
            match sent.and(got) {
                Err(e)
                    if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) =>
                {
                    Ok(answer)
                }
                Err(e) => Err(e),
                Ok(_) => Ok(answer),
            }
        };
        let answer = tokio::time::timeout(ANSWER_MAX, exchange)
            .await
            .context("the edge neither answered nor closed the connection")?
            .context("talk to the edge")?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// A pod process, addressed as the edge does it: for what the edge would hide (421 and its reason).
#[derive(Debug, Clone)]
pub struct PodDoor {
    address: SocketAddr,
    pod: PodId,
    keys: PodKeys,
    http: reqwest::Client,
}

impl PodDoor {
    /// A process of a pod, with the pod's keys.
    pub fn new(address: SocketAddr, pod: PodId, keys: PodKeys) -> Result<Self> {
        Ok(Self {
            address,
            pod,
            keys,
            http: client(ANSWER_MAX)?,
        })
    }

    /// The same door under the name of another pod, for the row "`podhost-pod` is not this pod".
    #[must_use]
    pub fn meant_for(&self, pod: PodId) -> Self {
        Self {
            pod,
            ..self.clone()
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A signed request.
    pub async fn send(&self, shop: ShopId, epoch: Epoch, call: &Call) -> Result<Answer> {
        let route = Route {
            shop,
            pod: self.pod,
            epoch,
            request: Uuid::now_v7(),
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .context("read the clock")?;
        let unix_ms = u64::try_from(now.as_millis()).context("read the clock")?;
        let mut headers = HeaderMap::new();
        for (name, value) in route.headers(&self.keys, unix_ms, call.method.as_str(), &call.path) {
            let value = HeaderValue::from_str(&value).context("sign the request")?;
            headers.insert(HeaderName::from_static(name), value);
        }
        call.send(&self.http, self.address, headers).await
    }

    /// A request without a signature.
    pub async fn send_unsigned(&self, call: &Call) -> Result<Answer> {
        call.send(&self.http, self.address, HeaderMap::new()).await
    }
}
