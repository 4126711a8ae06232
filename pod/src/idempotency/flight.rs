//! Calls that are running in this process: of requests with the same key, one runs and the others wait for its answer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shared::ShopId;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::idempotency::{Call, Fingerprint, in_flight, key_reused};
use crate::{Error, Reply, meter};

type Key = (ShopId, &'static str, String);

#[derive(Debug, Clone)]
enum State {
    Running,
    /// The answer, for whoever sent the same.
    Done(Option<Fingerprint>, Reply),
    /// It failed, or its process gave it up: the next one runs.
    Left,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    state: watch::Sender<State>,
    /// A call between its two steps counts as running until then.
    until: Option<Instant>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: HashMap<Key, Entry>,
}

/// The running calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flights(Arc<Mutex<Table>>);

/// The right to run a call. Dropping it lets the next one run.
#[derive(Debug)]
pub(crate) struct Turn {
    flights: Flights,
    key: Key,
    number: u64,
    /// Kept for the last step.
    parked: bool,
}

/// What a request with a key gets.
#[derive(Debug)]
pub(crate) enum Entered {
    /// It is the first, or the first ones failed: it runs.
    Run(Turn),
    /// The answer of the one that ran.
    Answer(Reply),
}

impl Flights {
    /// Waits for its turn or for the answer, until the deadline.
    pub(crate) async fn enter(
        &self,
        shop: ShopId,
        call: &Call,
        deadline: Instant,
    ) -> Result<Entered, Error> {
        loop {
            let mut state = match self.join(shop, call) {
                Ok(turn) => return Ok(Entered::Run(turn)),
                Err(state) => state,
            };
            let ended =
                timeout_at(deadline, state.wait_for(|s| !matches!(s, State::Running))).await;
            match ended {
                Ok(Ok(state)) => {
                    if let State::Done(fingerprint, reply) = &*state {
                        if call.fingerprint.is_some() && *fingerprint != call.fingerprint {
                            return Err(key_reused());
                        }
                        meter::replayed();
                        return Ok(Entered::Answer(Reply {
                            replayed: true,
                            ..reply.clone()
                        }));
                    }
                }
                // Its sender is gone: the next one runs.
                Ok(Err(_)) => {}
                Err(_) => return Err(in_flight()),
            }
        }
    }

    fn join(&self, shop: ShopId, call: &Call) -> Result<Turn, watch::Receiver<State>> {
        let key = (shop, call.endpoint, call.key.clone());
        let mut table = self.0.lock();
        if let Some(entry) = table.entries.get(&key)
            && entry.until.is_none_or(|until| until > Instant::now())
        {
            return Err(entry.state.subscribe());
        }
        table.next += 1;
        let number = table.next;
        let entry = Entry {
            number,
            state: watch::Sender::new(State::Running),
            until: None,
        };
        table.entries.insert(key.clone(), entry);
        Ok(Turn {
            flights: self.clone(),
            key,
            number,
            parked: false,
        })
    }

    /// The turn of a call between its two steps, if it was begun in this process.
    pub(crate) fn resume(&self, shop: ShopId, call: &Call) -> Option<Turn> {
        let key = (shop, call.endpoint, call.key.clone());
        let mut table = self.0.lock();
        let entry = table.entries.get_mut(&key)?;
        entry.until.take()?;
        Some(Turn {
            flights: self.clone(),
            number: entry.number,
            key,
            parked: false,
        })
    }

    /// Forgets calls whose last step never came.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.0
            .lock()
            .entries
            .retain(|_, e| e.until.is_none_or(|until| until > now));
    }
}

impl Turn {
    /// Gives the answer to those who wait.
    pub(crate) fn done(self, call: &Call, reply: &Reply) {
        self.end(State::Done(call.fingerprint, reply.clone()));
    }

    /// Keeps the others waiting for the last step.
    pub(crate) fn park(mut self, until: Instant) {
        if let Some(entry) = self.flights.0.lock().entries.get_mut(&self.key)
            && entry.number == self.number
        {
            entry.until = Some(until);
            self.parked = true;
        }
    }

    fn end(&self, state: State) {
        let mut table = self.flights.0.lock();
        if table
            .entries
            .get(&self.key)
            .is_some_and(|e| e.number == self.number)
            && let Some(entry) = table.entries.remove(&self.key)
        {
            entry.state.send_replace(state);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.parked {
            self.end(State::Left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use http::StatusCode;

    fn call(body: &str) -> Call {
        Call {
            endpoint: "test",
            key: "k".into(),
            fingerprint: Some(Fingerprint::of(&[body.as_bytes()])),
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(2)
    }

    #[tokio::test(start_paused = true)]
    async fn one_runs_and_the_others_get_its_answer() {
        let flights = Flights::default();
        let shop = ShopId::new(7).unwrap();
        let Ok(Entered::Run(turn)) = flights.enter(shop, &call("a"), soon()).await else {
            panic!("the first one runs");
        };
        let waiting = tokio::spawn({
            let flights = flights.clone();
            async move { flights.enter(shop, &call("a"), soon()).await }
        });
        let other = tokio::spawn({
            let flights = flights.clone();
            async move { flights.enter(shop, &call("b"), soon()).await }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        turn.done(
            &call("a"),
            &Reply::new(StatusCode::CREATED, "text/plain", "x"),
        );
        let Ok(Entered::Answer(reply)) = waiting.await.unwrap() else {
            panic!("the second one has the answer");
        };
        assert!(reply.replayed() && reply.status() == StatusCode::CREATED);
        let Err(Error::Problem { kind, .. }) = other.await.unwrap() else {
            panic!("another body");
        };
        assert_eq!(kind, shared::error::Kind::KeyReused);
        assert!(matches!(
            flights.enter(shop, &call("a"), soon()).await,
            Ok(Entered::Run(_))
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_one_lets_the_next_run_and_a_long_one_is_a_409() {
        let flights = Flights::default();
        let shop = ShopId::new(7).unwrap();
        let Ok(Entered::Run(turn)) = flights.enter(shop, &call("a"), soon()).await else {
            panic!("the first one runs");
        };
        let Err(Error::Problem { kind, .. }) = flights.enter(shop, &call("a"), soon()).await else {
            panic!("still running after the deadline");
        };
        assert_eq!(kind, shared::error::Kind::InFlight);
        drop(turn);
        let Ok(Entered::Run(turn)) = flights.enter(shop, &call("a"), soon()).await else {
            panic!("the next one runs");
        };
        turn.park(Instant::now() + Duration::from_secs(1));
        assert!(flights.resume(shop, &call("a")).is_some());
    }
}
