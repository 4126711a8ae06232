//! Logs, traces and metrics of a process: started in one call, flushed in one call.
//!
//! Logs go to standard error, as text or as JSON, one event a line. Spans go to an OTLP collector when an endpoint is
//! configured, in batches, from a thread of the SDK's own: no thread of a runtime ever waits for the collector, and a
//! collector that is away costs the spans alone. Metrics are kept in process and rendered as Prometheus text for the admin
//! port.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::config::Section;

// Names, labels and descriptions of all metrics.
pub mod metric;

// W3C trace context.
mod trace;
pub use trace::{TRACEPARENT, TraceParent};

/// What a process says when nothing is configured: each request is in the access log and in the metrics already.
const FILTER: &str = "info";
/// One request in twenty shows where time goes and costs next to nothing.
const TRACE_RATIO: f64 = 0.05;
/// A collector on the same machine or network answers in milliseconds.
const EXPORT_DEADLINE: Duration = Duration::from_secs(5);
/// Samples of histograms pile up until somebody renders or tidies; a scrape may never come.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// Upper bounds in seconds: from a cache hit to the longest deadline of a request.
const LATENCY_BUCKETS: [f64; 15] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For machines: one object a line.
    Json,
}

/// The `[telemetry]` table.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `format = "text" | "json"`.
    pub format: Format,
    /// `filter`: directives of `tracing_subscriber::EnvFilter` (`"info,edge=debug"`).
    pub filter: String,
    /// `otlp_endpoint`: the base URL of an OTLP/HTTP collector (`"http://127.0.0.1:4318"`); none: no spans are made.
    pub otlp_endpoint: Option<String>,
    /// `trace_ratio`: the part of the traces begun here that is kept; a caller's decision is followed.
    pub trace_ratio: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            format: Format::Text,
            filter: FILTER.into(),
            otlp_endpoint: None,
            trace_ratio: TRACE_RATIO,
        }
    }
}

impl Settings {
    /// Reads the table: `s.section("telemetry", Settings::read)`.
    pub fn read(s: &mut Section<'_>) -> Self {
        let words = [("text", Format::Text), ("json", Format::Json)];
        let format = s.word("format", Format::Text, &words);
        let filter = s.or("filter", FILTER.to_owned());
        if let Err(error) = EnvFilter::try_new(&filter) {
            s.fault("filter", format!("{filter:?} is not a filter: {error}"));
        }
        let otlp_endpoint: Option<String> = s.optional("otlp_endpoint");
        let plain = otlp_endpoint
            .as_ref()
            .is_none_or(|url| url.starts_with("http://"));
        if !plain {
            let text = "not an http:// URL; for TLS run a collector on this machine and name that";
            s.fault("otlp_endpoint", text);
        }
        Self {
            format,
            filter,
            otlp_endpoint,
            trace_ratio: s.within("trace_ratio", TRACE_RATIO, 0.0..=1.0),
        }
    }
}

/// Why telemetry did not start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum TelemetryError {
    #[error("the log filter is not valid")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    #[error("the OTLP exporter cannot be made")]
    Otlp(#[source] opentelemetry_otlp::ExporterBuildError),
    #[error("logging was started before")]
    Logs(#[source] tracing_subscriber::util::TryInitError),
    #[error("metrics were started before, or cannot be")]
    Metrics(#[source] metrics_exporter_prometheus::BuildError),
    #[error("the thread that tidies metrics cannot be started")]
    Thread(#[source] std::io::Error),
}

/// The running telemetry of a process.
#[derive(Debug)]
pub struct Telemetry {
    metrics: MetricsText,
    tracer: Option<SdkTracerProvider>,
    /// Its end ends the upkeep thread.
    _upkeep: Sender<()>,
}

/// Renders the metrics of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MetricsText(PrometheusHandle);

impl MetricsText {
    /// The media type of the text.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// All metrics as Prometheus text.
    pub fn render(&self) -> String {
        self.0.render()
    }
}

/// Starts logs, traces and metrics. Once per process; threads are started, so a process that forks does so before.
pub fn init(service: &'static str, settings: &Settings) -> Result<Telemetry, TelemetryError> {
    let filter = EnvFilter::try_new(&settings.filter).map_err(TelemetryError::Filter)?;
    let tracer = match &settings.otlp_endpoint {
        Some(endpoint) => Some(exporter(service, endpoint, settings.trace_ratio)?),
        None => None,
    };
    let spans = tracer
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(service)));
    tracing_subscriber::registry()
        .with(lines(settings.format))
        .with(spans)
        .with(filter)
        .try_init()
        .map_err(TelemetryError::Logs)?;
    let (metrics, upkeep) = start_metrics(service)?;
    Ok(Telemetry {
        metrics,
        tracer,
        _upkeep: upkeep,
    })
}

fn lines(format: Format) -> Box<dyn Layer<Registry> + Send + Sync> {
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        Format::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
        Format::Json => layer.json().flatten_event(true).boxed(),
    }
}

/// The exporter's blocking client is made and used on threads of its own (the SDK's batch processor has one), so that
/// this may be called from within a runtime.
fn exporter(
    service: &'static str,
    endpoint: &str,
    ratio: f64,
) -> Result<SdkTracerProvider, TelemetryError> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .with_timeout(EXPORT_DEADLINE)
        .build()
        .map_err(TelemetryError::Otlp)?;
    let root = Sampler::TraceIdRatioBased(ratio);
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::ParentBased(Box::new(root)))
        .with_resource(Resource::builder().with_service_name(service).build())
        .build())
}

fn start_metrics(service: &'static str) -> Result<(MetricsText, Sender<()>), TelemetryError> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &LATENCY_BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(TelemetryError::Metrics)?;
    metric::describe();
    let version = env!("CARGO_PKG_VERSION");
    metrics::gauge!(metric::BUILD_INFO, "service" => service, "version" => version).set(1.0);
    let (stop, stopped) = mpsc::channel();
    let tidied = handle.clone();
    std::thread::Builder::new()
        .name("metrics-upkeep".into())
        .spawn(move || {
            while stopped.recv_timeout(UPKEEP_EVERY) == Err(RecvTimeoutError::Timeout) {
                tidied.run_upkeep();
            }
        })
        .map_err(TelemetryError::Thread)?;
    Ok((MetricsText(handle), stop))
}

impl Telemetry {
    /// What the admin port serves.
    pub fn metrics(&self) -> MetricsText {
        self.metrics.clone()
    }

    /// Whether spans go anywhere: without it nobody need make one for each request.
    pub const fn traces(&self) -> bool {
        self.tracer.is_some()
    }

    /// Sends what is not sent yet and waits for it, but no longer than `deadline`. Blocks: within a runtime call it by
    /// `spawn_blocking`.
    pub fn shutdown(self, deadline: Duration) {
        let ended = self.tracer.map(|t| t.shutdown_with_timeout(deadline));
        if let Some(Err(error)) = ended {
            tracing::warn!("the last spans were not sent: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
