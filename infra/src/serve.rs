//! The control server: the catalog behind an HTTP interface, the keepers of the pods' primaries, and the work that ends
//! what was begun.
//!
//! A request is checked (`check`), authorised (`auth`) and handled in the file of its thing (`shops`, `pods`,
//! `moves`, `operations`, `feed`, `overview`). Whatever takes several steps is an operation in the catalog and has a driver
//! (`creation`, `state_order`) that the request and `resume` share.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use parking_lot::RwLock;
use shared::telemetry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::catalog::{ApiToken, Catalog, Domains};
use crate::mover::{self, Mover, Moves};
use crate::pod_store::PodStore;

mod app;
mod auth;
mod body;
mod check;
mod clear;
mod config;
mod creation;
mod currency;
mod failure;
mod feed;
mod gauges;
mod homes;
mod keeper;
mod listen;
mod moves;
mod openapi;
mod operations;
mod overview;
mod pods;
mod resume;
mod router;
mod shops;
mod state_order;

use app::App;
pub use config::{Config, Limits, TokenFile};

/// Spans and logs on their way out when the server stops.
const FLUSH_DEADLINE: std::time::Duration = std::time::Duration::from_secs(2);

/// What `podctl serve` is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// `control.toml`.
    pub config: PathBuf,
    /// Look at the file and everything it names, and stop.
    pub check_config: bool,
}

/// Runs the control server until SIGINT or SIGTERM. A file with faults ends in [`shared::config::Faults`].
pub async fn run(options: Options) -> anyhow::Result<()> {
    let config = Config::load(&options.config)?;
    let tokens = auth::read_tokens(&config.tokens)
        .map_err(|faults| anyhow::anyhow!("{}", faults.join("\n")))?;
    if options.check_config {
        return Ok(());
    }
    let telemetry = telemetry::init("control", &config.telemetry)?;
    let catalog = open_catalog(&config).await?;
    catalog.replace_tokens(&tokens).await?;
    let tokens = catalog.tokens().await?;
    let listeners = listen::bind(&config.listen)
        .await
        .map_err(|(address, error)| {
            anyhow::Error::new(error).context(format!("cannot listen on {address}"))
        })?;
    for listener in &listeners {
        let address = listener
            .local_addr()
            .context("a listener without an address")?;
        tracing::info!(%address, "listening");
    }
    let (stop, stopping) = watch::channel(false);
    let limits = config.limits.clone();
    let tokens = RwLock::new(tokens.into());
    let app = Arc::new(assemble(
        &config,
        catalog,
        tokens,
        stopping.clone(),
        &telemetry,
    ));
    let mut background = JoinSet::new();
    if app.catalog.is_shared() {
        let catalog = Arc::clone(&app.catalog);
        background.spawn(async move { catalog.follow_others().await });
    }
    let movers = tokio::spawn(mover::run(Arc::clone(&app.mover), stopping.clone()));
    background.spawn(keeper::run(Arc::clone(&app)));
    background.spawn(resume::run(Arc::clone(&app)));
    background.spawn(gauges::run(Arc::clone(&app)));
    background.spawn(follow_signals(Arc::clone(&app), options.config, stop));
    listen::serve(listeners, router::router(app), &limits, stopping).await;
    // A fence that stands is ended first, within its bound.
    movers.await.context("the mover failed")?;
    // Work at pods is bounded by its sessions and goes on from the catalog at the next start.
    background.shutdown().await;
    tracing::info!("stopped");
    let flushed = tokio::task::spawn_blocking(move || telemetry.shutdown(FLUSH_DEADLINE)).await;
    flushed.context("cannot end telemetry")
}

async fn open_catalog(config: &Config) -> anyhow::Result<Arc<Catalog>> {
    let domains = Domains {
        base: config.base_domain.clone(),
        platform: config.platform_domain.clone(),
    };
    let catalog = if config.catalog_shared {
        Catalog::open_shared(&config.catalog, domains).await?
    } else {
        Catalog::open(&config.catalog, domains).await?
    };
    Ok(Arc::new(catalog))
}

fn assemble(
    config: &Config,
    catalog: Arc<Catalog>,
    tokens: RwLock<Arc<[ApiToken]>>,
    stopping: watch::Receiver<bool>,
    telemetry: &telemetry::Telemetry,
) -> App {
    let limits = config.limits.clone();
    let store = Arc::new(PodStore::new(
        Arc::clone(&catalog),
        config.secrets_dir.clone(),
    ));
    let move_limits = Arc::new(config.moves.clone());
    let moves = Arc::new(Moves::default());
    let mover = Arc::new(Mover::new(
        Arc::clone(&catalog),
        Arc::clone(&store),
        Arc::clone(&moves),
        Arc::clone(&move_limits),
        config.moves_dir.clone(),
    ));
    App {
        store,
        catalog,
        polls: Semaphore::new(limits.long_polls_max),
        tables: Arc::new(Semaphore::new(limits.tables_max)),
        limits,
        tokens,
        primaries: keeper::Primaries::default(),
        shops: crate::turns::Turns::default(),
        moves,
        mover,
        move_limits,
        stopping,
        metrics: Some(telemetry.metrics()),
        looked: gauges::Looked::default(),
    }
}

/// SIGHUP reads the tokens again; SIGINT and SIGTERM stop.
async fn follow_signals(app: Arc<App>, config: PathBuf, stop: watch::Sender<bool>) {
    let signals = (
        signal(SignalKind::hangup()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    );
    let (Ok(mut hangup), Ok(mut interrupt), Ok(mut terminate)) = signals else {
        tracing::error!("signals cannot be followed; stopping");
        stop.send_replace(true);
        return;
    };
    loop {
        tokio::select! {
            _ = hangup.recv() => match reload(&app, &config).await {
                Ok(count) => tracing::info!(count, "tokens read again"),
                Err(error) => tracing::error!("tokens not read again, the old ones stay: {error:#}"),
            },
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    tracing::info!("stopping");
    stop.send_replace(true);
    // The sender stays alive: its end would look like a stop of its own.
    std::future::pending::<()>().await;
}

async fn reload(app: &App, config: &std::path::Path) -> anyhow::Result<usize> {
    let config = Config::load(config)?;
    let tokens = auth::read_tokens(&config.tokens)
        .map_err(|faults| anyhow::anyhow!("{}", faults.join("\n")))?;
    app.catalog.replace_tokens(&tokens).await?;
    let count = tokens.len();
    *app.tokens.write() = tokens.into();
    Ok(count)
}
