//! Whether the pod of one shop takes requests.

use std::time::{Duration, Instant};

use super::settings::Reason;

/// What is known of a shop's pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// The pod takes requests, as far as is known.
    Open,
    /// It refuses.
    Closed {
        /// Why the last one was refused.
        reason: Reason,
        since: Instant,
        next_probe: Instant,
        /// From one probe to the next.
        gap: Duration,
    },
    /// It has refused for so long that nobody waits any more.
    Shut { next_probe: Instant },
}

/// What a new request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Go to the pod.
    Go,
    /// Wait with the others.
    Wait,
    /// Go to the pod, and tell what it said.
    Scout,
}
