//! The times of a write, of the fence that waits for it, of the pause around both, and of a request that waits for that: each
//! within the next (invariant 9). A part that is configured otherwise must be told what the others have, and refuses what
//! does not fit.

use std::time::Duration;

/// A pod's transaction, from its first packet to the answer to its commit: a fence waits for it.
pub const TRANSACTION: Duration = Duration::from_secs(2);
/// A write that has held its shop's home for that long is past its own deadline, its process frozen or gone: a mover ends it.
pub const FENCE_KILL_AFTER: Duration = Duration::from_millis(2_200);
/// How long a fence waits for the writes in flight; what is left of the pause is for the hand-over, and to tell why a fence
/// missed.
pub const FENCE_BOUND: Duration = Duration::from_secs(4);
/// All of fence and hand-over; past it the fence is lifted.
pub const PAUSE_BOUND: Duration = Duration::from_secs(5);
/// The longest lease on a move: where its holder dies inside of a pause the next one comes so much later.
pub const LEASE: Duration = Duration::from_secs(3);
/// How long an edge parks a request.
pub const WINDOW: Duration = Duration::from_secs(10);

const _: () = assert!(TRANSACTION.as_millis() < FENCE_KILL_AFTER.as_millis());
const _: () = assert!(FENCE_KILL_AFTER.as_millis() < FENCE_BOUND.as_millis());
const _: () = assert!(FENCE_BOUND.as_millis() < PAUSE_BOUND.as_millis());
const _: () = assert!(PAUSE_BOUND.as_millis() + LEASE.as_millis() <= WINDOW.as_millis());
