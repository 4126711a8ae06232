//! Following the catalog: a whole table once, then its changes by long poll, from whichever control server answers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Client, Response, StatusCode, header};
use shared::backoff::Backoff;
use shared::config::Secret;
use shared::error::chain;
use shared::routes::wire::{Changes, LINE_LEN_MAX, NDJSON, TableReader};
use shared::routes::{Fault, Faults, Refusal};
use tokio::time::{Instant, sleep, sleep_until};

use crate::park::report::{Reported, Reporter};
use crate::routes::Routes;

// Tables that were refused, kept for an engineer.
mod aside;
use aside::Aside;

/// Where the catalog is, and what is kept of it.
pub(crate) struct CatalogSettings {
    pub(crate) urls: Vec<String>,
    pub(crate) token: Secret,
    pub(crate) state_file: PathBuf,
    pub(crate) max_stale: Duration,
}

/// How long a control server may hold a question without an answer, unless `max_stale` asks for more certainty.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// What it may take beyond that; a frozen one is left for the next after it.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Control servers are few milliseconds away, if they are there.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Between two pieces of a whole table.
const READ_MAX: Duration = Duration::from_secs(10);
/// Requests that meet stale routes ask at most this often, all together.
const NUDGE_GAP: Duration = Duration::from_millis(50);
/// One answer of the change feed; more than this is a reason to take the whole table.
const CHANGES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Ten million shops at 200 bytes a line are 2 GB.
const TABLE_BYTES_MAX: usize = 8 * 1024 * 1024 * 1024;

/// A supervisor starts a control server again within a second; one that stays away is asked a few times a minute.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot ask")]
    Http(#[source] reqwest::Error),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error(
        "it refuses the token ({0}): edges need one of the role edge, see control.token in the configuration"
    )]
    Token(StatusCode),
    #[error("its answer is not the change feed")]
    Json(#[source] serde_json::Error),
    #[error("its answer is longer than {0} bytes")]
    Long(usize),
    #[error("its changes do not fit the table")]
    Changes(#[source] Fault),
    #[error("its table is not valid")]
    Table(#[source] Faults),
    #[error(
        "its table may not replace the one in use; if it is right, stop the edge, remove the state file, and start it"
    )]
    Refused(#[source] Refusal),
}

/// What a good answer means for the next question.
enum Answered {
    /// Ask for the changes after this.
    Follow,
    /// These changes are no longer kept: ask for the whole table.
    TooOld,
}

/// The follower of the catalog.
pub(crate) struct Follower {
    routes: Arc<Routes>,
    http: Client,
    urls: Vec<String>,
    /// The control server in use.
    at: usize,
    token: Arc<Mutex<Secret>>,
    state_file: PathBuf,
    wait: Duration,
    whole: bool,
    failures: u32,
}

impl Follower {
    pub(crate) fn new(
        routes: Arc<Routes>,
        settings: CatalogSettings,
    ) -> Result<Self, reqwest::Error> {
        let CatalogSettings {
            urls,
            token,
            state_file,
            max_stale,
        } = settings;
        let http = Client::builder()
            .connect_timeout(CONNECT_MAX)
            .read_timeout(WAIT_MAX + READ_MAX)
            .no_proxy()
            .build()?;
        Ok(Self {
            routes,
            http,
            urls,
            at: 0,
            token: Arc::new(Mutex::new(token)),
            state_file,
            // A catalog that answers is heard several times before its table is stale.
            wait: WAIT_MAX.min(max_stale / 4),
            whole: false,
            failures: 0,
        })
    }

    /// The token, for whoever reads it again when it was rotated.
    pub(crate) fn token(&self) -> Arc<Mutex<Secret>> {
        Arc::clone(&self.token)
    }

    /// What tells the control servers what moves cost.
    pub(crate) fn reporter(&self, reported: Reported) -> Reporter {
        Reporter {
            http: self.http.clone(),
            urls: self.urls.clone(),
            token: self.token(),
            reported,
        }
    }

    /// Follows for ever.
    pub(crate) async fn run(&mut self) {
        let mut wait = self.wait;
        let mut nudge_allowed = Instant::now();
        loop {
            let asked = Instant::now();
            let answer = match self.position() {
                Some(position) => {
                    let routes = Arc::clone(&self.routes);
                    tokio::select! {
                        // A question that waits for the next change says nothing about now; another one does.
                        () = routes.nudged(), if !wait.is_zero() => {
                            sleep_until(nudge_allowed).await;
                            nudge_allowed = Instant::now() + NUDGE_GAP;
                            wait = Duration::ZERO;
                            continue;
                        }
                        answer = self.changes(position, wait) => answer,
                    }
                }
                None => self.table().await,
            };
            wait = self.wait;
            match answer {
                Ok(Answered::Follow) => {
                    self.whole = false;
                    self.failures = 0;
                    self.routes.confirm(asked);
                }
                Ok(Answered::TooOld) => self.whole = true,
                Err(failure) => self.failed(&failure).await,
            }
        }
    }

    /// After which version to ask; `None` where a whole table is needed.
    fn position(&self) -> Option<(u64, u64)> {
        let table = self.routes.table();
        let table = table.as_ref().filter(|_| !self.whole)?;
        Some((table.incarnation(), table.version()))
    }

    async fn changes(&self, position: (u64, u64), wait: Duration) -> Result<Answered, Failure> {
        let (incarnation, after) = position;
        let (url, wait_ms) = (self.url(), wait.as_millis());
        let question = format!(
            "{url}/v1/routes/changes?incarnation={incarnation}&after={after}&wait_ms={wait_ms}"
        );
        let request = self.http.get(question).timeout(wait + ANSWER_MAX);
        let response = self.send(request).await?;
        if response.status() == StatusCode::GONE {
            return Ok(Answered::TooOld);
        }
        let body = read(ok(response)?, CHANGES_BYTES_MAX).await?;
        let changes: Changes = serde_json::from_slice(&body).map_err(Failure::Json)?;
        self.routes.apply(&changes).map_err(Failure::Changes)?;
        Ok(Answered::Follow)
    }

    async fn table(&self) -> Result<Answered, Failure> {
        let request = self.http.get(format!("{}/v1/routes", self.url()));
        let request = request.header(header::ACCEPT, NDJSON);
        let mut response = ok(self.send(request).await?)?;
        let mut reader = TableReader::default();
        let mut aside = Aside::new(&self.state_file);
        let mut rest = Vec::new();
        let mut total = 0;
        while let Some(chunk) = response.chunk().await.map_err(Failure::Http)? {
            total += chunk.len();
            if total > TABLE_BYTES_MAX {
                return Err(Failure::Long(TABLE_BYTES_MAX));
            }
            aside.write(&chunk);
            let mut lines = chunk.split_inclusive(|b| *b == b'\n');
            for line in &mut lines {
                rest.extend_from_slice(line);
                if rest.ends_with(b"\n") {
                    reader.line(&rest);
                    rest.clear();
                } else if rest.len() > LINE_LEN_MAX {
                    return Err(Failure::Long(LINE_LEN_MAX));
                }
            }
        }
        if !rest.is_empty() {
            reader.line(&rest);
        }
        let table = reader.finish().map_err(|faults| {
            aside.keep("faults");
            Failure::Table(faults)
        })?;
        let (shops, version) = (table.len(), table.version());
        self.routes.replace(table).map_err(|refusal| {
            aside.keep(refusal.reason());
            Failure::Refused(refusal)
        })?;
        tracing::info!(
            shops,
            version,
            "route table of {shops} shops taken at version {version}"
        );
        Ok(Answered::Follow)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Response, Failure> {
        let token = self.token.lock().expose().to_owned();
        request
            .bearer_auth(token)
            .send()
            .await
            .map_err(Failure::Http)
    }

    fn url(&self) -> &str {
        let url = self.urls.get(self.at).map_or("", String::as_str);
        url.trim_end_matches('/')
    }

    /// Notes a failure and waits before the next try, which is another control server's.
    async fn failed(&mut self, failure: &Failure) {
        self.failures = self.failures.saturating_add(1);
        self.routes.metrics.failures.increment(1);
        // What stays wrong is said once, then ever more rarely; a table that is refused is an alarm.
        let (url, failures) = (self.url(), self.failures);
        match failure {
            Failure::Table(_) | Failure::Refused(_) if !failures.is_power_of_two() => {}
            Failure::Table(_) | Failure::Refused(_) => {
                tracing::error!(
                    url,
                    failures,
                    "route table of {url} refused: {}",
                    chain(failure)
                );
            }
            Failure::Changes(_) | Failure::Token(_) => {
                tracing::warn!(url, failures, "control server {url}: {}", chain(failure));
            }
            Failure::Http(_) | Failure::Status(_) | Failure::Json(_) | Failure::Long(_) => {
                if failures.is_power_of_two() {
                    tracing::warn!(url, failures, "control server {url}: {}", chain(failure));
                }
            }
        }
        self.whole |= failure.wants_whole_table();
        self.at = (self.at + 1) % self.urls.len().max(1);
        let delay = BACKOFF.delay(self.failures, &mut rand::rng());
        tokio::select! {
            () = sleep(delay) => {}
            // Somebody waits: try at once, but do not spin.
            () = self.routes.nudged() => sleep(NUDGE_GAP).await,
        }
    }
}

impl Failure {
    /// Whether the table in use cannot be brought up to date by changes.
    const fn wants_whole_table(&self) -> bool {
        match self {
            Self::Changes(_) | Self::Json(_) | Self::Long(_) => true,
            Self::Http(_)
            | Self::Status(_)
            | Self::Token(_)
            | Self::Table(_)
            | Self::Refused(_) => false,
        }
    }
}

fn ok(response: Response) -> Result<Response, Failure> {
    match response.status() {
        StatusCode::OK => Ok(response),
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(Failure::Token(status)),
        status => Err(Failure::Status(status)),
    }
}

async fn read(mut response: Response, max: usize) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(Failure::Http)? {
        if body.len() + chunk.len() > max {
            return Err(Failure::Long(max));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

#[cfg(test)]
mod tests;
