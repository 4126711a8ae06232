//! The control server about itself: status, health, metrics, and the console.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use shared::error::Kind;
use shared::telemetry::MetricsText;
use shared::telemetry::metric;
use time::OffsetDateTime;

use super::app::App;
use super::failure::{Answer, Failure};
use crate::api::{Move, Operation, Pod, PrimaryState, PrimaryStatus, Shop, Status};
use crate::command::moves::print::progress_line;
use crate::output::{count, instant};

/// What the console shows of each list: it is for a look, `podctl` is for work.
const CONSOLE_ROWS: u32 = 100;

/// The control server's view of the fleet.
#[utoipa::path(get, path = "/v1/status", tag = "fleet", responses((status = 200, body = Status)))]
pub(super) async fn status(app: State<Arc<App>>) -> Answer<axum::Json<Status>> {
    Ok(axum::Json(look(&app).await?))
}

async fn look(app: &App) -> Answer<Status> {
    let catalog = &app.catalog;
    let position = catalog.position().await?;
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    Ok(Status {
        incarnation: position.incarnation,
        version: position.version,
        routes_version: catalog.routes_version().await?,
        base_domain: catalog.domains().base.to_string(),
        pods: count(catalog.pods().await?.len()),
        shops: catalog.shop_counts().await?.iter().map(|(_, n)| n).sum(),
        open_operations: catalog.open_operations().await?,
        buckets: catalog.bucket_shares().await?,
        reconciled: position.reconciled,
        primaries: app.primaries.all(),
    })
}

/// Whether the server lives and its catalog answers.
#[utoipa::path(get, path = "/healthz", tag = "fleet", security(()),
    responses((status = 200, description = "It does."), (status = 503, description = "The catalog does not.")))]
pub(super) async fn healthz(app: State<Arc<App>>) -> Answer<&'static str> {
    app.catalog.position().await?;
    Ok("ok\n")
}

/// Metrics as Prometheus text. No secret and no shop is in them, so that no token is asked for.
#[utoipa::path(get, path = "/metrics", tag = "fleet", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(app: State<Arc<App>>) -> Answer<Response> {
    let polls = app
        .limits
        .long_polls_max
        .saturating_sub(app.polls.available_permits());
    #[expect(
        clippy::cast_precision_loss,
        reason = "a gauge; counts are far below 2^52"
    )]
    metrics::gauge!(metric::LONG_POLLS).set(polls as f64);
    app.looked.show_ages();
    let text = app
        .metrics
        .as_ref()
        .map(MetricsText::render)
        .unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, MetricsText::CONTENT_TYPE)], text).into_response())
}

/// A pod with what is known of its primary.
struct PodLine {
    pod: Pod,
    primary: Option<PrimaryStatus>,
}

impl PodLine {
    fn primary_word(&self) -> &'static str {
        match self.primary.as_ref().map(|p| p.state) {
            Some(PrimaryState::Open) => "open",
            Some(PrimaryState::Closed) => "closed",
            Some(PrimaryState::Unknown) => "unknown",
            None => "not watched",
        }
    }

    fn reason(&self) -> &str {
        self.primary
            .as_ref()
            .and_then(|p| p.reason.as_deref())
            .unwrap_or_default()
    }
}

#[derive(Template)]
#[template(path = "console.html")]
struct Console {
    status: Status,
    pods: Vec<PodLine>,
    shops: Vec<Shop>,
    more_shops: bool,
    moves: Vec<Move>,
    operations: Vec<Operation>,
}

impl Console {
    fn when(at: &OffsetDateTime) -> String {
        instant(*at)
    }

    fn progress(it: &Move) -> String {
        progress_line(it).unwrap_or_default()
    }

    /// What an operator should know of it: why it failed or waits, and what was changed behind its back.
    fn note(it: &Move) -> String {
        let text = it.error.clone().or_else(|| it.waits.clone());
        match it.strays_told() {
            0 => text.unwrap_or_default(),
            strays => count(strays, "stray change"),
        }
    }
}

/// Pods, shops, moves and operations, to be read in a browser; the operator's token is the password.
pub(super) async fn console(app: State<Arc<App>>) -> Answer<Response> {
    let status = look(&app).await?;
    let mut pods = Vec::new();
    for pod in app.catalog.pods().await? {
        let primary = status.primaries.iter().find(|p| p.pod == pod.id).cloned();
        pods.push(PodLine { pod, primary });
    }
    let page = app.catalog.shops(None, CONSOLE_ROWS).await?;
    let moves = super::moves::newest(&app, CONSOLE_ROWS).await?;
    let operations = app.catalog.operations(CONSOLE_ROWS).await?;
    let more_shops = page.next.is_some();
    let console = Console {
        status,
        pods,
        shops: page.shops,
        more_shops,
        moves,
        operations,
    };
    let html = console.render().map_err(|e| Failure {
        log: Some(e.to_string()),
        ..Failure::new(Kind::Internal, "")
    })?;
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((StatusCode::OK, headers, Html(html)).into_response())
}
