//! Telling the control server what a fence cost: how many requests were parked and how long at most, for the record of
//! the move. Nothing waits for it, and nothing is lost but a number when it does not come through.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Client;
use serde_json::json;
use shared::config::Secret;
use shared::{Epoch, ShopId};
use tokio::sync::mpsc;

/// Reports that wait to be sent; a fleet has few fences at once.
const WAITING_MAX: usize = 256;
/// A control server answers in milliseconds, or is not there.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A fence as its shop's requests saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) shop: ShopId,
    /// The epoch under which they went on.
    pub(crate) epoch: Epoch,
    pub(crate) parked: u64,
    pub(crate) longest_ms: u64,
}

/// Where reports go, and where they come out.
pub(crate) fn channel() -> (mpsc::Sender<Report>, mpsc::Receiver<Report>) {
    mpsc::channel(WAITING_MAX)
}

/// Sends reports to a control server.
pub(crate) struct Reporter {
    pub(crate) http: Client,
    pub(crate) urls: Vec<String>,
    pub(crate) token: Arc<Mutex<Secret>>,
    pub(crate) reports: mpsc::Receiver<Report>,
}

impl Reporter {
    /// Sends them for ever.
    pub(crate) async fn run(mut self) {
        while let Some(report) = self.reports.recv().await {
            for url in &self.urls {
                match self.send(url, report).await {
                    Ok(status) if status.is_server_error() => {}
                    // A move that is not known there has no record to be completed.
                    Ok(_) => break,
                    Err(error) => tracing::debug!("no report of a fence to {url}: {error}"),
                }
            }
        }
    }

    async fn send(&self, url: &str, report: Report) -> reqwest::Result<reqwest::StatusCode> {
        let token = self.token.lock().expose().to_owned();
        let body = json!({
            "shop": report.shop.get(),
            "epoch": report.epoch.get(),
            "parked": report.parked,
            "longest_ms": report.longest_ms,
        });
        let request = self
            .http
            .post(format!("{}/v1/parks", url.trim_end_matches('/')))
            .bearer_auth(token)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string())
            .timeout(ANSWER_MAX);
        Ok(request.send().await?.status())
    }
}
