//! Build, mount, serve.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::routing::{MethodRouter, any};
use futures::future::BoxFuture;
use shared::telemetry::MetricsText;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::outbox::Sink;
use crate::{App, Error, Routes, Shop, admin, background, cache, server, startup};

/// What a job does for one shop.
pub type JobRun = dyn Fn(App, Shop) -> BoxFuture<'static, Result<(), Error>> + Send + Sync;

/// Work that no request asks for. It runs in one process of the pod at a time, for one shop at a time, only for shops
/// whose home here is `serving` (not `ready`). It must be safe to run twice: which process runs it is decided by a
/// clock; what it may write is decided by the fence of each transaction.
pub struct Job {
    /// The name in logs.
    pub name: &'static str,
    /// How often to look for due shops.
    pub every: Duration,
    /// A query whose one column is `shop_id`: the shops that have something due. With a `limit`, and of shops whose home is
    /// `serving`: the others are passed over afterwards, and would fill the page for ever.
    pub due: Cow<'static, str>,
    /// What to do for one.
    pub run: Box<JobRun>,
}

impl Job {
    /// A job.
    pub fn new<F>(
        name: &'static str,
        every: Duration,
        due: impl Into<Cow<'static, str>>,
        run: F,
    ) -> Self
    where
        F: Fn(App, Shop) -> BoxFuture<'static, Result<(), Error>> + Send + Sync + 'static,
    {
        Self {
            name,
            every,
            due: due.into(),
            run: Box::new(run),
        }
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({}, every {:?})", self.name, self.every)
    }
}

/// A pod process that is built: checked, bound, not serving.
pub struct Host {
    app: App,
    listeners: Vec<TcpListener>,
    admin: admin::Admin,
    router: Router<App>,
    otherwise: MethodRouter<App>,
    jobs: Vec<Job>,
    sinks: Vec<Arc<dyn Sink>>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Host({:?}, {} jobs)", self.app, self.jobs.len())
    }
}

impl Host {
    /// Binds the listeners and checks the database, all faults at once. A database that cannot be reached is waited for;
    /// one that is wrong is an error. Until [`Self::serve`] only the admin port answers: alive, and not ready.
    pub async fn build(config: Config) -> anyhow::Result<Self> {
        Self::build_with(config, None).await
    }

    /// The same, with metrics on the admin port.
    pub async fn build_with(config: Config, metrics: Option<MetricsText>) -> anyhow::Result<Self> {
        let mut listeners = Vec::new();
        for address in &config.listen {
            listeners.push(bind(*address).await?);
        }
        let admin = bind(config.admin).await?;
        let app = App::new(config).context("the Redis client cannot be made")?;
        let admin = admin::Admin::start(admin, app.clone(), metrics);
        startup::check(&app).await?;
        Ok(Self {
            app,
            listeners,
            admin,
            router: Router::new(),
            otherwise: any(async || Error::not_found()),
            jobs: Vec::new(),
            sinks: Vec::new(),
        })
    }

    /// The state, for an application's own tasks.
    pub const fn app(&self) -> &App {
        &self.app
    }

    /// Adds an application's routes.
    #[must_use]
    pub fn mount(mut self, routes: Routes) -> Self {
        let (router, otherwise) = routes.into_parts();
        self.router = self.router.merge(router);
        if let Some(otherwise) = otherwise {
            self.otherwise = otherwise;
        }
        self
    }

    /// Adds a job.
    #[must_use]
    pub fn job(mut self, job: Job) -> Self {
        self.jobs.push(job);
        self
    }

    /// Adds a place where domain events go, beside the log and Redis.
    #[must_use]
    pub fn sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Serves until `shutdown` ends, then drains: not ready first, then no new connections, then the requests and
    /// transactions that were begun, all within the drain's deadline.
    pub async fn serve(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let Self {
            app,
            listeners,
            admin,
            router,
            otherwise,
            jobs,
            sinks,
        } = self;
        let limits = app.config().limits.clone();
        let stop_background = CancellationToken::new();
        let stop_listening = CancellationToken::new();
        let watcher = tokio::spawn(app.db().servers.clone().watch(stop_background.clone()));
        let follower = tokio::spawn(cache::redis::Redis::follow(
            app.clone(),
            stop_background.clone(),
        ));
        let worker = tokio::spawn(background::run(
            app.clone(),
            jobs,
            sinks,
            stop_background.clone(),
        ));
        let server = server::Server::new(app.clone(), router.fallback(otherwise));
        let connections = server.listen(listeners, &stop_listening);
        admin.ready();
        server.ready();

        shutdown.await;
        tracing::info!("draining");
        admin.draining();
        server.draining();
        tokio::time::sleep(limits.drain_notice).await;
        stop_listening.cancel();
        stop_background.cancel();
        let ended = tokio::time::timeout(limits.drain.saturating_sub(limits.drain_notice), async {
            connections.wait().await;
            app.work().close();
            app.work().wait().await;
            // Their last word is to give the lease up.
            drop(tokio::join!(watcher, follower, worker));
        })
        .await;
        match ended {
            Ok(()) => tracing::info!("drained"),
            Err(_) => tracing::warn!(
                connections = connections.len(),
                transactions = app.work().len(),
                "the drain's deadline has passed; what is left is cut off, which rolls back"
            ),
        }
        admin.stop();
        Ok(())
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}: is another process there, or the address not this machine's?"))?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    Ok(listener)
}
