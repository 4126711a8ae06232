//! Telling the control server what a move cost: how many requests were parked and how long at most, and how many came to
//! the old pod after it had handed the shop over. It is for the record of the move: nothing waits for it, and nothing is
//! lost but a number when it does not come through.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Client;
use serde_json::json;
use shared::config::Secret;
use shared::{Epoch, ShopId};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

/// Reports that wait to be sent; a fleet has few fences at once.
const WAITING_MAX: usize = 256;
/// A control server answers in milliseconds, or is not there.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long late arrivals are gathered before they are told: an edge without the new route sends each request astray.
const GATHERED_FOR: Duration = Duration::from_secs(1);

/// A fence as its shop's requests saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) shop: ShopId,
    /// The epoch under which they went on.
    pub(crate) epoch: Epoch,
    pub(crate) parked: u64,
    pub(crate) longest_ms: u64,
}

/// Requests that their pod answered with `moved`, by shop and the epoch that its mark names; those not told yet.
#[derive(Debug, Default)]
struct Late {
    counts: Mutex<BTreeMap<(ShopId, Epoch), u64>>,
    some: Notify,
}

impl Late {
    fn add(&self, shop: ShopId, epoch: Epoch, count: u64) {
        {
            let mut counts = self.counts.lock();
            let full = counts.len() >= WAITING_MAX;
            if full && !counts.contains_key(&(shop, epoch)) {
                return;
            }
            *counts.entry((shop, epoch)).or_default() += count;
        }
        self.some.notify_one();
    }

    async fn gathered(&self) -> BTreeMap<(ShopId, Epoch), u64> {
        // One that was broken off in its sleep has heard of those that are there.
        if self.counts.lock().is_empty() {
            self.some.notified().await;
        }
        sleep(GATHERED_FOR).await;
        std::mem::take(&mut *self.counts.lock())
    }
}

/// Where reports go.
#[derive(Debug, Clone)]
pub(crate) struct Reports {
    parks: mpsc::Sender<Report>,
    late: Arc<Late>,
}

impl Reports {
    /// What a fence cost; with too many of them waiting this one is left out.
    pub(crate) fn fence(&self, report: Report) {
        let _ = self.parks.try_send(report);
    }

    /// A request came to a pod after the shop was handed over under this epoch.
    pub(crate) fn late(&self, shop: ShopId, epoch: Epoch) {
        self.late.add(shop, epoch, 1);
    }
}

/// Where they come out.
#[derive(Debug)]
pub(crate) struct Reported {
    parks: mpsc::Receiver<Report>,
    late: Arc<Late>,
}

#[cfg(test)]
impl Reported {
    /// The next report of a fence.
    pub(crate) async fn fence(&mut self) -> Option<Report> {
        self.parks.recv().await
    }

    /// The late arrivals of a shop under an epoch.
    pub(crate) fn late(&self, shop: ShopId, epoch: Epoch) -> u64 {
        let counts = self.late.counts.lock();
        counts.get(&(shop, epoch)).copied().unwrap_or_default()
    }
}

/// Both ends.
pub(crate) fn channel() -> (Reports, Reported) {
    let (parks, told) = mpsc::channel(WAITING_MAX);
    let late = Arc::new(Late::default());
    let reports = Reports {
        parks,
        late: Arc::clone(&late),
    };
    (reports, Reported { parks: told, late })
}

/// Sends reports to a control server.
pub(crate) struct Reporter {
    pub(crate) http: Client,
    pub(crate) urls: Vec<String>,
    pub(crate) token: Arc<Mutex<Secret>>,
    pub(crate) reported: Reported,
}

impl Reporter {
    /// Sends them for ever.
    pub(crate) async fn run(mut self) {
        let late = Arc::clone(&self.reported.late);
        loop {
            tokio::select! {
                report = self.reported.parks.recv() => match report {
                    Some(Report { shop, epoch, parked, longest_ms }) => {
                        self.tell(&json!({
                            "shop": shop.get(),
                            "epoch": epoch.get(),
                            "parked": parked,
                            "longest_ms": longest_ms,
                        }))
                        .await;
                    }
                    None => return,
                },
                counts = late.gathered() => self.tell_late(counts).await,
            }
        }
    }

    /// What no control server takes is kept: an edge goes astray just while it hears nothing of the catalog.
    async fn tell_late(&self, counts: BTreeMap<(ShopId, Epoch), u64>) {
        for ((shop, epoch), late) in counts {
            let report = json!({ "shop": shop.get(), "epoch": epoch.get(), "late": late });
            if !self.tell(&report).await {
                self.reported.late.add(shop, epoch, late);
            }
        }
    }

    /// Whether a control server has answered.
    async fn tell(&self, report: &serde_json::Value) -> bool {
        for url in &self.urls {
            match self.send(url, report).await {
                Ok(status) if status.is_server_error() => {}
                // A move that is not known there has no record to be completed.
                Ok(_) => return true,
                Err(error) => tracing::debug!("no report of a move to {url}: {error}"),
            }
        }
        false
    }

    async fn send(
        &self,
        url: &str,
        report: &serde_json::Value,
    ) -> reqwest::Result<reqwest::StatusCode> {
        let token = self.token.lock().expose().to_owned();
        let request = self
            .http
            .post(format!("{}/v1/parks", url.trim_end_matches('/')))
            .bearer_auth(token)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(report.to_string())
            .timeout(ANSWER_MAX);
        Ok(request.send().await?.status())
    }
}
