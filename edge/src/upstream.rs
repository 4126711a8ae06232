//! The pods as the edge reaches them: processes, whose turn it is, who is down, how much is in flight.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use metrics::Gauge;
use pingora_core::protocols::TcpKeepalive;
use pingora_core::upstreams::peer::HttpPeer;
use shared::PodId;
use shared::keys::{FleetKeys, PodKeys};
use shared::routes::PodRoute;
use shared::routes::wire::PodStatus;

use crate::limits::PodInFlight;
use crate::metrics::{PodMetrics, process_up};

// Asking each process whether it serves.
pub(crate) mod health;

/// How the edge speaks to pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerSettings {
    /// A connect that takes longer has failed.
    pub(crate) connect: Duration,
    /// A pod that is silent for so long in the middle of a request gets a 504 for it.
    pub(crate) answer: Duration,
    /// A pod that takes nothing for so long.
    pub(crate) write: Duration,
    /// An idle connection is closed after this.
    pub(crate) idle: Duration,
    /// Requests in flight at one pod.
    pub(crate) in_flight_max: u32,
}

/// All pods of the route table.
pub(crate) struct Pods {
    settings: PeerSettings,
    by_id: ArcSwap<HashMap<PodId, Arc<Pod>>>,
}

impl Pods {
    pub(crate) fn new(settings: PeerSettings) -> Self {
        Self {
            settings,
            by_id: ArcSwap::default(),
        }
    }

    pub(crate) fn get(&self, pod: PodId) -> Option<Arc<Pod>> {
        self.by_id.load().get(&pod).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Pod>> {
        self.by_id.load().values().cloned().collect()
    }

    /// Takes over what the table says, with these keys. What is known of a process (down, draining) and of a pod (in
    /// flight) is kept.
    pub(crate) fn sync(&self, routes: Vec<Arc<PodRoute>>, keys: &FleetKeys) {
        let before = self.by_id.load();
        let pods = routes
            .into_iter()
            .map(|route| {
                let old = before.get(&route.id);
                (route.id, Arc::new(self.pod(&route, old, keys)))
            })
            .collect();
        self.by_id.store(Arc::new(pods));
    }

    fn pod(&self, route: &PodRoute, old: Option<&Arc<Pod>>, keys: &FleetKeys) -> Pod {
        let known = |address: &SocketAddr| {
            let processes = old.map_or(&[][..], |old| &old.processes);
            processes.iter().find(|p| p.address == *address).cloned()
        };
        let processes = route
            .http
            .iter()
            .map(|address| {
                known(address).unwrap_or_else(|| Arc::new(self.process(route.id, *address)))
            })
            .collect();
        Pod {
            id: route.id,
            offline: match route.status {
                PodStatus::Active | PodStatus::Draining => false,
                PodStatus::Offline => true,
            },
            keys: keys.pod(route.id),
            processes,
            turn: AtomicUsize::new(0),
            in_flight: old.map_or_else(
                || PodInFlight::new(self.settings.in_flight_max),
                |old| Arc::clone(&old.in_flight),
            ),
            metrics: old.map_or_else(
                || Arc::new(PodMetrics::new(route.id)),
                |old| Arc::clone(&old.metrics),
            ),
        }
    }

    fn process(&self, pod: PodId, address: SocketAddr) -> Process {
        let PeerSettings {
            connect,
            answer,
            write,
            idle,
            in_flight_max: _,
        } = self.settings;
        let mut peer = HttpPeer::new(address, false, String::new());
        // Connections are shared within a pod and never between pods.
        peer.group_key = u64::from(pod);
        // Every one of these is unlimited unless it is set.
        let options = &mut peer.options;
        options.connection_timeout = Some(connect);
        options.total_connection_timeout = Some(connect);
        options.read_timeout = Some(answer);
        options.write_timeout = Some(write);
        options.idle_timeout = Some(idle);
        options.tcp_keepalive = Some(KEEPALIVE);
        Process {
            address,
            peer,
            health: AtomicU8::new(Health::Serving as u8),
            asked: AtomicBool::new(false),
            up: process_up(pod, address),
        }
    }
}

/// Finds connections whose other end has vanished without a word while they were idle.
const KEEPALIVE: TcpKeepalive = TcpKeepalive {
    idle: Duration::from_secs(15),
    interval: Duration::from_secs(5),
    count: 3,
    user_timeout: Duration::ZERO,
};

/// One pod.
pub(crate) struct Pod {
    pub(crate) id: PodId,
    /// An operator took it out of service.
    pub(crate) offline: bool,
    /// The keys that its processes know.
    pub(crate) keys: PodKeys,
    processes: Box<[Arc<Process>]>,
    turn: AtomicUsize,
    pub(crate) in_flight: Arc<PodInFlight>,
    pub(crate) metrics: Arc<PodMetrics>,
}

impl Pod {
    /// The process whose turn it is, but none of those tried before. One that drains is asked only if no other serves;
    /// one that is down is left to the health check, so that a dead pod costs its clients no connect.
    pub(crate) fn pick(&self, tried: &[SocketAddr]) -> Option<Arc<Process>> {
        if self.offline || self.processes.is_empty() {
            return None;
        }
        let count = self.processes.len();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % count;
        let mut draining = None;
        for process in self.processes[turn..].iter().chain(&self.processes[..turn]) {
            if tried.contains(&process.address) {
                continue;
            }
            match process.health() {
                Health::Serving => return Some(Arc::clone(process)),
                Health::Draining => draining = draining.or(Some(process)),
                Health::Down => {}
            }
        }
        draining.cloned()
    }

    pub(crate) fn processes(&self) -> &[Arc<Process>] {
        &self.processes
    }

    /// Sets the gauges, for a scrape.
    pub(crate) fn observe(&self) {
        self.metrics.in_flight.set(self.in_flight.now());
        for process in &self.processes {
            let up = match process.health() {
                Health::Serving => 1.0,
                Health::Draining | Health::Down => 0.0,
            };
            process.up.set(up);
        }
    }
}

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Health {
    /// It answers, or was never asked.
    Serving = 0,
    /// It asks to be left alone: it is stopping.
    Draining = 1,
    /// It cannot be connected to, or does not answer.
    Down = 2,
}

/// One process of a pod.
pub(crate) struct Process {
    pub(crate) address: SocketAddr,
    /// Ready to be copied for a request.
    pub(crate) peer: HttpPeer,
    health: AtomicU8,
    /// A health check is under way.
    asked: AtomicBool,
    up: Gauge,
}

impl Process {
    pub(crate) fn health(&self) -> Health {
        match self.health.load(Ordering::Relaxed) {
            0 => Health::Serving,
            1 => Health::Draining,
            _ => Health::Down,
        }
    }

    /// Sets it and says what it was.
    pub(crate) fn set_health(&self, health: Health) -> Health {
        match self.health.swap(health as u8, Ordering::Relaxed) {
            0 => Health::Serving,
            1 => Health::Draining,
            _ => Health::Down,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> Pods {
        let second = Duration::from_secs(1);
        Pods::new(PeerSettings {
            connect: second,
            answer: second,
            write: second,
            idle: second,
            in_flight_max: 10,
        })
    }

    fn route(ports: &[u16], status: PodStatus) -> Vec<Arc<PodRoute>> {
        let http = ports.iter().map(|p| SocketAddr::from(([127, 0, 0, 1], *p)));
        vec![Arc::new(PodRoute {
            id: PodId::new(1).unwrap(),
            name: "one".into(),
            status,
            http: http.collect(),
        })]
    }

    fn pod(pods: &Pods) -> Arc<Pod> {
        pods.get(PodId::new(1).unwrap()).unwrap()
    }

    fn picked(pod: &Pod, times: usize) -> Vec<u16> {
        let ports = (0..times).map(|_| pod.pick(&[]).map_or(0, |p| p.address.port()));
        ports.collect()
    }

    #[test]
    fn processes_take_turns_and_who_is_down_is_passed_over() {
        let keys = FleetKeys::generate("k1").unwrap();
        let pods = pods();
        pods.sync(route(&[1, 2, 3], PodStatus::Active), &keys);
        let pod = pod(&pods);
        assert_eq!(picked(&pod, 4), [1, 2, 3, 1]);
        pod.processes()[1].set_health(Health::Down);
        assert!(!picked(&pod, 6).contains(&2));
        pod.processes()[0].set_health(Health::Draining);
        assert_eq!(picked(&pod, 3), [3, 3, 3], "one that serves goes first");
        pod.processes()[2].set_health(Health::Down);
        assert_eq!(
            picked(&pod, 2),
            [1, 1],
            "one that drains is better than none"
        );
        pod.processes()[0].set_health(Health::Down);
        assert_eq!(picked(&pod, 2), [0, 0]);
    }

    #[test]
    fn a_process_that_was_tried_is_not_tried_again() {
        let keys = FleetKeys::generate("k1").unwrap();
        let pods = pods();
        pods.sync(route(&[1, 2], PodStatus::Active), &keys);
        let pod = pod(&pods);
        let first = pod.pick(&[]).unwrap();
        let second = pod.pick(&[first.address]).unwrap();
        assert_ne!(first.address, second.address);
        assert!(pod.pick(&[first.address, second.address]).is_none());
    }

    #[test]
    fn a_change_of_the_table_keeps_what_is_known() {
        let keys = FleetKeys::generate("k1").unwrap();
        let pods = pods();
        pods.sync(route(&[1, 2], PodStatus::Active), &keys);
        let before = pod(&pods);
        before.processes()[1].set_health(Health::Down);
        let _permit = before.in_flight.enter().unwrap();
        pods.sync(route(&[2, 3], PodStatus::Draining), &keys);
        let after = pod(&pods);
        assert_eq!(after.processes()[0].health(), Health::Down);
        assert_eq!(after.in_flight.now(), 1);
        assert_eq!(picked(&after, 2), [3, 3]);
        pods.sync(route(&[2, 3], PodStatus::Offline), &keys);
        assert_eq!(picked(&pod(&pods), 1), [0]);
        pods.sync(vec![], &keys);
        assert!(pods.get(PodId::new(1).unwrap()).is_none());
    }
}
