//! Whether a server is worth asking: after it did not answer, requests fail at once instead of each waiting for the same
//! deadline, and one at a time tries again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How long nobody asks a server that did not answer. A restarted one is found again as quickly.
const REST: Duration = Duration::from_millis(300);

/// One for each server; its pools share it.
#[derive(Debug)]
pub(crate) struct Breaker {
    started: Instant,
    /// Milliseconds after `started` until which requests fail at once; 0 while the server answers.
    resting_until_ms: AtomicU64,
    /// How long the one that tries again may take.
    probe: Duration,
}

impl Breaker {
    pub(crate) fn new(probe: Duration) -> Self {
        Self {
            started: Instant::now(),
            resting_until_ms: AtomicU64::new(0),
            probe,
        }
    }

    /// Whether to ask the server. After the rest one caller is let through; the others wait for what it finds.
    pub(crate) fn lets_through(&self) -> bool {
        let until = self.resting_until_ms.load(Ordering::Acquire);
        if until == 0 {
            return true;
        }
        let now = self.now_ms();
        now >= until
            && self
                .resting_until_ms
                .compare_exchange(
                    until,
                    now + ms(self.probe),
                    Ordering::AcqRel,
                    Ordering::Acquire,
                )
                .is_ok()
    }

    /// The server answered.
    pub(crate) fn answered(&self) {
        if self.resting_until_ms.load(Ordering::Relaxed) != 0 {
            self.resting_until_ms.store(0, Ordering::Release);
        }
    }

    /// The server did not answer.
    pub(crate) fn silent(&self) {
        self.resting_until_ms
            .store(self.now_ms() + ms(REST), Ordering::Release);
    }

    /// Never 0, which means that it answers.
    fn now_ms(&self) -> u64 {
        ms(self.started.elapsed()) + 1
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_tries_again() {
        let breaker = Breaker::new(Duration::from_secs(1));
        assert!(breaker.lets_through());
        breaker.silent();
        assert!(!breaker.lets_through());
        tokio::time::advance(REST).await;
        assert!(breaker.lets_through(), "the one that tries");
        assert!(!breaker.lets_through(), "the others");
        breaker.answered();
        assert!(breaker.lets_through() && breaker.lets_through());
        breaker.silent();
        tokio::time::advance(REST).await;
        assert!(breaker.lets_through());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(breaker.lets_through(), "the one that tried never came back");
    }
}
