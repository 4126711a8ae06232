//! How much may be parked, for how long, and how it goes on: the `[park]` table of the configuration.

use std::time::Duration;

use shared::config::{Section, Size, format_duration};
use shared::pause;

/// How long a request waits at most: longer than a move's pause, shorter than clients and their proxies wait.
const WINDOW: Duration = pause::WINDOW;
/// The longest that a mover fences a shop (`moves.pause_bound` at the control server).
const PAUSE_BOUND: Duration = pause::PAUSE_BOUND;
/// Where the mover dies meanwhile the next one comes so much later (`moves.lease` there).
const LEASE: Duration = pause::LEASE;
/// A shop with a hundred writes a second fills it in a whole window.
const SHOP_MAX: usize = 1_000;
/// Five such shops; half of the connections are left for all others.
const ALL_MAX: usize = 5_000;
/// A thousand of the largest bodies that are kept (64 KiB).
const BYTES_MAX: Size = Size::mib(64);
/// A shop that is fenced for longer is no longer waited for: two windows, in which a second control server has taken over
/// or nobody will.
const FENCE_MAX: Duration = Duration::from_secs(20);
/// A pod that loses its primary again so soon flaps: its clients are told at once.
const UNREADY_GAP: Duration = Duration::from_secs(60);
/// How often one of a shop's parked requests asks the pod.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// Parked requests that ask one pod at a time whether it has a primary again: it refuses all of its shops then, so one
/// answer speaks for all. Two for each of its two processes, of which one may hang.
const PROBE_POD_MAX: usize = 4;
/// Parked requests of one shop that follow at a time: as many as one shop may hold of a pod's connections.
const DRAIN_SHOP_MAX: usize = 8;
/// The same of all shops of one pod: the write transactions that its two processes run at once.
const DRAIN_POD_MAX: usize = 32;

/// The first question comes sooner, and each pause is twice as long, up to `probe_every`: a home whose row a mover only
/// holds for a statement is free again in some milliseconds.
const PROBE_FIRST: Duration = Duration::from_millis(10);
/// Between two that ask one pod for a primary, whatever shops they are of: fifty a second, each of which costs the pod a
/// look at what it knows. One shop alone asks no sooner.
const PROBE_POD_GAP: Duration = Duration::from_millis(20);
/// A request that was sent from its seat and is not answered yet keeps others waiting for so long: a slow one must not
/// hold up its shop.
const SLOT: Duration = Duration::from_secs(1);
/// The processes of a pod find its new primary within this of each other: each looks again after some tenths of a second,
/// and a connection may take a second.
const SETTLE: Duration = Duration::from_secs(2);
/// What is known of a fence that nobody waits for is forgotten after this.
const KNOWN: Duration = Duration::from_secs(1);
/// What is known of a shop that was fenced for too long is forgotten when nobody asked for it for so long.
const IDLE: Duration = Duration::from_secs(600);
/// Bodies up to this are read and kept while their request is parked: what Pingora keeps to send again.
pub(crate) const BODY_MAX: usize = 64 * 1024;

const _: () = assert!(WINDOW.as_millis() <= FENCE_MAX.as_millis());
const _: () = assert!(SHOP_MAX < ALL_MAX);
const _: () = assert!(PROBE_FIRST.as_millis() <= PROBE_EVERY.as_millis());

/// Why a pod does not take a request just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The shop changes hands.
    Fenced,
    /// The pod has no primary.
    Unready,
}

impl Reason {
    /// The label of a metric.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::Unready => "unready",
        }
    }
}

/// `[park]`
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) window: Duration,
    pub(crate) shop_max: usize,
    pub(crate) all_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) fence_max: Duration,
    pub(crate) unready_gap: Duration,
    pub(crate) probe_every: Duration,
    pub(crate) probe_pod_max: usize,
    pub(crate) drain_shop_max: usize,
    pub(crate) drain_pod_max: usize,
}

impl Settings {
    /// Reads the table. `answer` is how long a pod may take to answer, `connections` how many clients there may be.
    pub(crate) fn read(s: &mut Section<'_>, answer: Duration, connections: u32) -> Self {
        const SECOND: Duration = Duration::from_secs(1);
        const HOUR: Duration = Duration::from_secs(3600);
        let half = usize::try_from(connections / 2)
            .unwrap_or(usize::MAX)
            .max(1);
        let all_max = s.within("all_max", ALL_MAX.min(half), 0..=1_000_000);
        let bytes_range = Size::bytes(0)..=Size::mib(64 * 1024);
        let bytes_max = s.within("bytes_max", BYTES_MAX, bytes_range);
        let settings = Self {
            window: s.within("window", WINDOW, SECOND..=HOUR),
            shop_max: s.within("shop_max", SHOP_MAX.min(all_max), 0..=1_000_000),
            all_max,
            bytes_max: bytes_max.get(),
            fence_max: s.within("fence_max", FENCE_MAX, SECOND..=HOUR),
            unready_gap: s.within("unready_gap", UNREADY_GAP, Duration::ZERO..=HOUR),
            probe_every: s.within("probe_every", PROBE_EVERY, PROBE_FIRST..=SECOND),
            probe_pod_max: s.within("probe_pod_max", PROBE_POD_MAX, 1..=10_000),
            drain_shop_max: s.within("drain_shop_max", DRAIN_SHOP_MAX, 1..=10_000),
            drain_pod_max: s.within("drain_pod_max", DRAIN_POD_MAX, 1..=10_000),
        };
        let pause_bound = s.within("pause_bound", PAUSE_BOUND, Duration::from_millis(1)..=HOUR);
        let lease = s.within("lease", LEASE, Duration::from_millis(1)..=HOUR);
        if settings.window < pause_bound + lease {
            let text = format!(
                "{} is shorter than park.pause_bound and park.lease ({} and {}): a move's pause would outlast it",
                format_duration(settings.window),
                format_duration(pause_bound),
                format_duration(lease)
            );
            s.fault("window", text);
        }
        if settings.window >= answer {
            let text = "not shorter than timeouts.answer";
            s.fault("window", text);
        }
        if settings.fence_max < settings.window {
            let text = "shorter than park.window: a request would never wait for so long";
            s.fault("fence_max", text);
        }
        if settings.shop_max > settings.all_max {
            let text = "more than park.all_max, which includes it";
            s.fault("shop_max", text);
        }
        if settings.all_max >= connections as usize {
            let text =
                "as many as limits.connections_max: parked requests would keep all others out";
            s.fault("all_max", text);
        }
        settings
    }

    pub(crate) fn probe_first(&self) -> Duration {
        PROBE_FIRST.min(self.probe_every)
    }

    pub(crate) fn probe_pod_gap(&self) -> Duration {
        PROBE_POD_GAP.min(self.probe_every)
    }

    pub(crate) const fn slot(&self) -> Duration {
        SLOT
    }

    pub(crate) const fn settle(&self) -> Duration {
        SETTLE
    }

    pub(crate) const fn known(&self) -> Duration {
        KNOWN
    }

    pub(crate) const fn idle(&self) -> Duration {
        IDLE
    }

    /// How often one request may be sent at most, whatever happens: each probe of two windows (the second one for what
    /// follows through a gate that opens and closes), and what marks and stale routes may cost.
    pub(crate) fn tries_max(&self) -> usize {
        let probes = self.window.as_millis() / self.probe_every.as_millis().max(1);
        2 * usize::try_from(probes).unwrap_or(usize::MAX / 4) + 64
    }
}
