//! The run's fleets, and whose turn it is on them.

use std::collections::VecDeque;

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};

use crate::Fleet;
use crate::fleet::say;

/// Fleets that are started when they are first needed.
pub(super) struct Turns {
    fleets: Vec<OnceCell<Result<Fleet, String>>>,
    idle: Mutex<Idle>,
    /// As many permits as there are idle fleets.
    permits: Semaphore,
}

/// The fleets that no test works on.
struct Idle {
    /// The one that has waited for the longest is next: one that is not well must not draw all tests.
    fleets: VecDeque<usize>,
    /// How many tests can have, these and those at work.
    usable: usize,
}

/// A fleet for the time of a test; given back when it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    index: usize,
    /// It did not start or did not recover, and would fail the tests that come after too.
    pub(super) broken: bool,
}

impl Turns {
    pub(super) fn new(fleets: usize) -> Self {
        Self {
            fleets: (0..fleets).map(|_| OnceCell::new()).collect(),
            idle: Mutex::new(Idle {
                fleets: (0..fleets).collect(),
                usable: fleets,
            }),
            permits: Semaphore::new(fleets),
        }
    }

    pub(super) async fn next(&self) -> Result<Turn<'_>> {
        self.permits.acquire().await.context("a turn")?.forget();
        let index = self.idle.lock().fleets.pop_front();
        Ok(Turn {
            turns: self,
            index: index.context("an idle fleet")?,
            broken: false,
        })
    }

    /// Those that were needed, and why one did not start.
    pub(super) fn started(&self) -> impl Iterator<Item = &Result<Fleet, String>> {
        self.fleets.iter().filter_map(OnceCell::get)
    }
}

impl<'a> Turn<'a> {
    pub(super) async fn fleet(&mut self) -> Result<&'a Fleet> {
        let start = || async { Fleet::start().await.map_err(|e| format!("{e:#}")) };
        let cell = self.turns.fleets.get(self.index).context("a fleet")?;
        // A fleet that does not start fails every test on it at once instead of being tried by each.
        let started = cell.get_or_init(start).await;
        self.broken = started.is_err();
        started
            .as_ref()
            .map_err(|e| anyhow!("the run's fleet did not start: {e}"))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut idle = self.turns.idle.lock();
        // The last one in any case: on it the other tests fail, without it they would wait for ever.
        if self.broken && idle.usable > 1 {
            idle.usable -= 1;
            return say("a fleet is broken; the run goes on without it");
        }
        idle.fleets.push_back(self.index);
        self.turns.permits.add_permits(1);
    }
}
