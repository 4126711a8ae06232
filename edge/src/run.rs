//! The edge as a whole: built, then served until it is told to stop, then drained.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use pingora_core::apps::HttpServerApp as _;
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::HttpProxy;
use shared::config::Secret;
use shared::error::chain;
use shared::telemetry::{Settings, Telemetry};
use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;

use crate::access_log::AccessLog;
use crate::admin::{self, Admin};
use crate::catalog::{CatalogSettings, Follower};
use crate::config::Config;
use crate::disk::{self, Keeper};
use crate::limits::ShopsInFlight;
use crate::listener::{self, Acceptor};
use crate::metrics::Metrics;
use crate::park::report::{self, Reporter};
use crate::park::{self, Parking};
use crate::proxy::{Edge, ask};
use crate::routes::Routes;
use crate::upstream::{Pods, health};

/// Pingora's own bound on the attempts of one request, above what may be parked; `retry::FORWARDS_MAX`, the connects and
/// `park::Settings::tries_max` are the edge's.
const ATTEMPTS_MAX: usize = 16;
/// The file is some seconds behind: a shop made meanwhile would get a 404 at first. A control server that answers does
/// so in milliseconds; one that does not must not keep the edge from serving by its file.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);
/// Spans that were not sent when the edge stops.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// An edge with everything bound and nothing running.
pub struct App {
    /// Requests run here.
    requests: Runtime,
    /// What must not wait behind requests: admin port, catalog, health checks, disk.
    control: Runtime,
    listeners: Vec<TcpListener>,
    admin_listener: TcpListener,
    acceptor: Arc<Acceptor>,
    stop: watch::Sender<bool>,
    stopping: Arc<AtomicBool>,
    routes: Arc<Routes>,
    parking: Arc<Parking>,
    reporter: Reporter,
    follower: Follower,
    keeper: Keeper,
    access_log: Option<Arc<AccessLog>>,
    telemetry: Telemetry,
    health_every: Duration,
    stop_max: Duration,
}

impl App {
    /// Reads the route table from disk and binds all addresses.
    pub fn build(config: Config, telemetry: Telemetry) -> anyhow::Result<Self> {
        let (patience, drain, peers) = (config.patience(), config.drain(), config.peers());
        let (limits, timeouts, park) = (config.limits, config.timeouts, config.park);
        let requests = threads_for("requests", config.threads)?;
        let control = threads_for("control", 1)?;
        let listeners = config
            .listen
            .into_iter()
            .map(|a| bind(&requests, a))
            .collect::<Result<_, _>>()?;
        let admin_listener = bind(&control, config.admin)?;
        let routes = Arc::new(Routes::new(
            Pods::new(peers),
            config.keys,
            config.catalog.max_stale,
        ));
        let (keeper, follower) = start_table(&routes, config.catalog)?;
        let access_log = start_log(config.access_log, &config.telemetry)?;
        let metrics = Arc::new(Metrics::new());
        let (reports, reported) = report::channel();
        let (parking, reporter) = (Parking::new(park, reports), follower.reporter(reported));
        let (stop, stopped) = watch::channel(false);
        let edge = Edge {
            routes: Arc::clone(&routes),
            domains: config.domains,
            shops: ShopsInFlight::new(limits.shop_in_flight_max),
            parking: Arc::clone(&parking),
            stop: stopped.clone(),
            metrics: Arc::clone(&metrics),
            access_log: access_log.clone(),
            header_bytes_max: limits.header_bytes_max,
            header_fields_max: limits.header_fields_max,
            shop_cookie_age: config.shop_cookie_age,
            client_timeout: timeouts.client,
            refresh_max: timeouts.refresh,
            drain,
            asks: ask::client().context("make a client for questions to pods")?,
            traces: telemetry.traces(),
        };
        let acceptor = Arc::new(Acceptor {
            proxy: proxy(edge, config.threads, limits.pod_idle_connections_max, &park),
            patience,
            trusted: config.trusted_proxies,
            metrics,
            access_log: access_log.clone(),
            room: Arc::new(Semaphore::new(limits.connections_max as usize)),
            connections: TaskTracker::new(),
            stop: stopped,
        });
        Ok(Self {
            requests,
            control,
            listeners,
            admin_listener,
            acceptor,
            stop,
            stopping: Arc::new(AtomicBool::new(false)),
            routes,
            parking,
            reporter,
            follower,
            keeper,
            access_log,
            telemetry,
            health_every: timeouts.health_every,
            stop_max: timeouts.stop,
        })
    }

    /// The addresses that are bound: those of clients, then the admin port's.
    pub fn addresses(&self) -> anyhow::Result<(Vec<SocketAddr>, SocketAddr)> {
        let clients = self.listeners.iter().map(TcpListener::local_addr);
        Ok((
            clients.collect::<Result<_, _>>()?,
            self.admin_listener.local_addr()?,
        ))
    }

    /// Catches up with the catalog, if there is one, and serves until SIGTERM or SIGINT, then finishes what is in
    /// flight within the deadline.
    pub fn serve(self) -> anyhow::Result<()> {
        let Self {
            requests,
            control,
            listeners,
            admin_listener,
            acceptor,
            stop,
            stopping,
            routes,
            parking,
            reporter,
            mut follower,
            mut keeper,
            access_log,
            telemetry,
            health_every,
            stop_max,
        } = self;
        let admin = admin::router(Admin {
            routes: Arc::clone(&routes),
            parking: Arc::clone(&parking),
            metrics: telemetry.metrics(),
            stopping: Arc::clone(&stopping),
        });
        let token = follower.token();
        control.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            tokio::spawn(async move { axum::serve(admin_listener, admin).await });
            tokio::spawn(reload_on_hangup(Arc::clone(&routes), token));
            let pods = Arc::clone(&routes);
            tokio::spawn(async move { health::watch(&pods.pods, health_every).await });
            let (park, table) = (Arc::clone(&parking), Arc::clone(&routes));
            tokio::spawn(async move { park.run(&table).await });
            tokio::spawn(reporter.run());
            let following = tokio::spawn(async move { follower.run().await });
            if !routes.refresh(CATCH_UP_MAX).await {
                tracing::warn!("no control server has answered yet");
            }
            for listener in listeners {
                requests.spawn(Arc::clone(&acceptor).run(listener));
            }
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = keeper.run() => {}
            }
            stopping.store(true, Ordering::Relaxed);
            tracing::info!("stopping");
            stop.send_replace(true);
            drain(&acceptor, stop_max).await;
            following.abort();
            keeper.save().await;
            anyhow::Ok(())
        })?;
        requests.shutdown_background();
        if let Some(log) = access_log {
            log.stop();
        }
        tracing::info!("stopped");
        telemetry.shutdown(LAST_SPANS);
        control.shutdown_background();
        Ok(())
    }
}

fn threads_for(what: &'static str, count: usize) -> anyhow::Result<Runtime> {
    runtime::Builder::new_multi_thread()
        .worker_threads(count)
        .thread_name(what)
        .enable_all()
        .build()
        .with_context(|| format!("cannot start the threads for {what}"))
}

/// Fills the table from disk; returns what keeps it there, and what follows the catalog.
fn start_table(
    routes: &Arc<Routes>,
    catalog: CatalogSettings,
) -> anyhow::Result<(Keeper, Follower)> {
    disk::load(routes, &catalog.state_file);
    let keeper = Keeper::new(Arc::clone(routes), catalog.state_file.clone());
    let follower = Follower::new(Arc::clone(routes), catalog)
        .context("cannot make the client of the control servers")?;
    Ok((keeper, follower))
}

fn start_log(wanted: bool, settings: &Settings) -> anyhow::Result<Option<Arc<AccessLog>>> {
    if !wanted {
        return Ok(None);
    }
    let log = AccessLog::start(settings.format).context("cannot start the access log")?;
    Ok(Some(Arc::new(log)))
}

fn bind(on: &Runtime, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let _runtime = on.enter();
    listener::bind(address).with_context(|| format!("cannot listen on {address}"))
}

fn proxy(
    edge: Edge,
    threads: usize,
    idle_max: usize,
    park: &park::Settings,
) -> Arc<HttpProxy<Edge>> {
    let conf = ServerConf {
        threads,
        max_retries: ATTEMPTS_MAX + park.tries_max(),
        upstream_keepalive_pool_size: idle_max,
        ..ServerConf::default()
    };
    let mut proxy = HttpProxy::new(edge, Arc::new(conf));
    proxy.handle_init_modules();
    Arc::new(proxy)
}

/// Closes idle connections at once and waits for the others.
async fn drain(acceptor: &Acceptor, stop_max: Duration) {
    acceptor.proxy.http_cleanup().await;
    acceptor.connections.close();
    if tokio::time::timeout(stop_max, acceptor.connections.wait())
        .await
        .is_err()
    {
        let left = acceptor.connections.len();
        tracing::warn!(
            connections = left,
            "{left} connections were cut: their requests took longer than timeouts.stop"
        );
    }
}

/// Reads keys and token again at each SIGHUP. What cannot be used changes nothing.
async fn reload_on_hangup(routes: Arc<Routes>, token: Arc<Mutex<Secret>>) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else {
        return;
    };
    while hangup.recv().await.is_some() {
        let (routes, token) = (Arc::clone(&routes), Arc::clone(&token));
        // A secret may come from a command that takes its time.
        let reload = tokio::task::spawn_blocking(move || reload(&routes, &token));
        if reload.await.is_err() {
            tracing::error!("reading keys and token again ended by a panic");
        }
    }
}

fn reload(routes: &Routes, token: &Mutex<Secret>) {
    match routes.keys.reload() {
        Ok(()) => {
            routes.sync_pods();
            tracing::info!("fleet keys read again");
        }
        Err(error) => tracing::error!("fleet keys stay as they are: {}", chain(&error)),
    }
    let held = token.lock().clone();
    match held.reread() {
        Ok(secret) => *token.lock() = secret,
        Err(error) => tracing::error!("control token stays as it is: {}", chain(&error)),
    }
}
