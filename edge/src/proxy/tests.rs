//! The edge between real sockets: a client, pods that answer by a script, and a catalog that is asked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fake_pod::{Deed, FakePod, Seen};
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::HttpProxy;
use shared::keys::FleetKeys;
use shared::routes::RouteTable;
use shared::routes::wire::{Change, Changes, Header, Line, Now, Pod, PodStatus, Shop};
use shared::{Epoch, PlacementState, PodId, ShopId, wire};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::*;
use crate::connection::Patience;
use crate::context::unix_ms;
use crate::identify::Domains;
use crate::keys::Keys;
use crate::listener::Acceptor;
use crate::park::{Settings, report};
use crate::trusted::TrustedProxies;
use crate::upstream::{PeerSettings, Pods};

const ANSWER: Duration = Duration::from_millis(400);

/// An edge with one shop, on pod 1 at epoch 1.
struct Rig {
    address: SocketAddr,
    routes: Arc<Routes>,
    keys: FleetKeys,
    parking: Arc<Parking>,
    shops: Arc<ShopsInFlight>,
    reported: report::Reported,
    stop: watch::Sender<bool>,
}

impl Rig {
    fn start(pods: &[(u64, &[SocketAddr])]) -> Self {
        Self::parking(pods, park_settings())
    }

    fn parking(pods: &[(u64, &[SocketAddr])], settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let keys = FleetKeys::generate("k1").unwrap();
        std::fs::write(&file, keys.to_text()).unwrap();
        let source = format!("file:{}", file.display()).parse().unwrap();
        let held = Keys::new(shared::config::Secret::read(source).unwrap()).unwrap();
        let second = Duration::from_secs(1);
        let routes = Arc::new(Routes::new(
            Pods::new(PeerSettings {
                connect: second,
                answer: ANSWER,
                write: second,
                idle: second,
                in_flight_max: 10,
            }),
            held,
            Duration::from_secs(3600),
        ));
        routes.replace(table(pods)).unwrap();
        let metrics = Arc::new(Metrics::new());
        let (stop, stopped) = watch::channel(false);
        let (reports, reported) = report::channel();
        let parking = Parking::new(settings, reports);
        let conf = ServerConf {
            max_retries: 16 + settings.tries_max(),
            ..ServerConf::default()
        };
        let shops = ShopsInFlight::new(10);
        let edge = Edge {
            parking: Arc::clone(&parking),
            shops: Arc::clone(&shops),
            stop: stopped.clone(),
            ..edge(Arc::clone(&routes), Arc::clone(&metrics))
        };
        let mut proxy = HttpProxy::new(edge, Arc::new(conf));
        proxy.handle_init_modules();
        let (park, table) = (Arc::clone(&parking), Arc::clone(&routes));
        tokio::spawn(async move { park.run(&table).await });
        let acceptor = Arc::new(Acceptor {
            proxy: Arc::new(proxy),
            patience: Patience {
                first: second,
                next: second,
            },
            trusted: TrustedProxies::default(),
            metrics,
            access_log: None,
            room: Arc::new(Semaphore::new(100)),
            connections: TaskTracker::new(),
            stop: stopped,
        });
        let listener = crate::listener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(acceptor.run(listener));
        Self {
            address,
            routes,
            keys,
            parking,
            shops,
            reported,
            stop,
        }
    }

    /// The table places the shop there from now on.
    fn places(&self, pod: u64, epoch: u64) {
        let version = self.routes.table().as_ref().unwrap().version() + 1;
        let now = Now::Shop(shop(pod, epoch));
        let changes = Changes {
            incarnation: 1,
            version,
            changes: vec![Change { version, now }],
        };
        self.routes.apply(&changes).unwrap();
    }

    /// A catalog that gives these placements of the shop, one after each question.
    fn catalog(&self, placements: impl IntoIterator<Item = (u64, u64)> + Send + 'static) {
        let routes = Arc::clone(&self.routes);
        let mut placements: VecDeque<_> = placements.into_iter().collect();
        tokio::spawn(async move {
            loop {
                routes.nudged().await;
                let asked = Instant::now();
                let version = routes.table().as_ref().unwrap().version() + 1;
                let change = placements.pop_front().map(|(pod, epoch)| Change {
                    version,
                    now: Now::Shop(shop(pod, epoch)),
                });
                let answer = Changes {
                    incarnation: 1,
                    version,
                    changes: change.into_iter().collect(),
                };
                routes.apply(&answer).unwrap();
                routes.confirm(asked);
            }
        });
    }

    async fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // An edge that refuses early may close before all is sent.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    async fn get(&self, target: &str) -> String {
        let head =
            format!("GET {target} HTTP/1.1\r\nhost: snow.localhost\r\nconnection: close\r\n\r\n");
        self.send(head.as_bytes()).await
    }

    async fn post(&self, body: usize) -> String {
        let head = format!(
            "POST /buy HTTP/1.1\r\nhost: snow.localhost\r\nconnection: close\r\ncontent-length: {body}\r\n\r\n"
        );
        self.send(&[head.as_bytes(), &vec![b'x'; body]].concat())
            .await
    }

    /// Whether the request is signed for this pod and epoch.
    fn is_signed(&self, seen: &Seen, pod: u64, epoch: u64) -> bool {
        let pod = PodId::new(pod).unwrap();
        let keys = self.keys.pod(pod);
        let (method, target) = (seen.method.as_str(), seen.target.as_str());
        let route = wire::Route::verify(&seen.headers, &keys, unix_ms(), method, target);
        route.is_ok_and(|r| r.pod == pod && r.epoch.get() == epoch && r.shop.get() == 1)
    }
}

fn edge(routes: Arc<Routes>, metrics: Arc<Metrics>) -> Edge {
    let domain: shared::Host = "localhost".parse().unwrap();
    Edge {
        routes,
        domains: Domains {
            base: domain.clone(),
            platform: domain,
        },
        shops: ShopsInFlight::new(10),
        parking: Parking::new(park_settings(), report::channel().0),
        stop: watch::channel(false).1,
        metrics,
        access_log: None,
        header_bytes_max: 8192,
        header_fields_max: 50,
        shop_cookie_age: Duration::from_secs(3600),
        client_timeout: Duration::from_secs(2),
        refresh_max: Duration::from_millis(300),
        drain: Drain {
            bytes: 1024 * 1024,
            time: Duration::from_millis(300),
        },
        asks: ask::client().unwrap(),
        traces: false,
    }
}

fn park_settings() -> Settings {
    Settings {
        window: Duration::from_secs(2),
        shop_max: 10,
        all_max: 20,
        bytes_max: 1024 * 1024,
        fence_max: Duration::from_secs(4),
        unready_gap: Duration::ZERO,
        probe_every: Duration::from_millis(100),
        probe_pod_max: 4,
        drain_shop_max: 4,
        drain_pod_max: 8,
    }
}

fn table(pods: &[(u64, &[SocketAddr])]) -> RouteTable {
    let header = Header {
        incarnation: 1,
        version: 1,
        base_domain: "localhost".parse().unwrap(),
        platform_domain: "localhost".parse().unwrap(),
    };
    let pods = pods.iter().map(|(id, http)| {
        Line::Pod(Pod {
            id: PodId::new(*id).unwrap(),
            name: format!("pod-{id}"),
            status: PodStatus::Active,
            http: http.to_vec(),
        })
    });
    RouteTable::build(header, pods.chain([Line::Shop(shop(1, 1))])).unwrap()
}

fn shop(pod: u64, epoch: u64) -> Shop {
    Shop {
        id: ShopId::new(1).unwrap(),
        handle: "snow".parse().unwrap(),
        hosts: vec![],
        pod: PodId::new(pod).unwrap(),
        epoch: Epoch::try_from(epoch).unwrap(),
        state: PlacementState::Serving,
    }
}

fn stale() -> Deed {
    Deed::Fence("stale".into())
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

// Before a large body is sent.
mod asked;
mod cases;
// Bodies of unknown length.
mod chunked;
// A pod by a script.
mod fake_pod;
mod parked;
mod parked_bodies;
mod parked_busy;
