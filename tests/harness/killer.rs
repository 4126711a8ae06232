//! SIGKILL to a random process of a fleet, again and again, while something else goes on.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::fleet::say;
use crate::{Fleet, wait_until};

/// A unit that has just been killed is waited for by its supervisor for up to five seconds.
const RUNS_AGAIN_MAX: Duration = Duration::from_secs(30);

/// The variable that makes the kills of a failed run again: its number is in the failure.
pub const SEED: &str = "PODHOST_TEST_SEED";

/// The number from which kills are chosen: the variable's, else any.
pub fn seed() -> Result<u64> {
    match std::env::var(SEED) {
        Ok(text) => text.parse().with_context(|| format!("{SEED}={text}")),
        Err(_) => Ok(rand::rng().random()),
    }
}

/// Of the kills before a failure, so many are told.
const LAST: usize = 10;

/// Whom to kill, and how often.
#[derive(Debug, Clone)]
pub struct Killer {
    /// Names of units (`control`, `edge-1`, `pod-1-2`, `mysql-2-1`, `redis-1`).
    pub units: Vec<String>,
    /// The pause between two kills lies between these.
    pub pause: (Duration, Duration),
    /// Nobody is killed any more after that.
    pub until: Instant,
    /// What the choices are made from: the same seed, the same kills at the same moments.
    pub seed: u64,
}

impl Killer {
    /// Kills of anything that a move of a shop between pods 1 and 2 leans on. The pauses must let a move come some way in
    /// between: a unit that dies again and again waits for up to five seconds, then its primary must be opened, and a mover
    /// that is taken over compares anew.
    pub fn of_everything(seed: u64, pause: (Duration, Duration), until: Instant) -> Self {
        let units = [
            "control",
            "edge-1",
            "pod-1-1",
            "pod-1-2",
            "pod-2-1",
            "pod-2-2",
            "mysql-1-1",
            "mysql-2-1",
            "mysql-1-2",
            "mysql-2-3",
            "redis-1",
            "redis-2",
        ];
        Self {
            units: units.map(str::to_owned).into(),
            pause,
            until,
            seed,
        }
    }

    /// Kills while `work` goes on; its outcome, and who was killed when.
    pub async fn during<T>(
        &self,
        fleet: &Fleet,
        work: impl Future<Output = Result<T>>,
    ) -> Result<(T, Vec<(Duration, String)>)> {
        let mut killed = Vec::new();
        let done = {
            let kills = self.kill_for_ever(fleet, &mut killed);
            tokio::pin!(work);
            tokio::select! {
                done = &mut work => done,
                ended = kills => match ended {
                    Ok(()) => work.await,
                    Err(e) => Err(e.context("kill at random")),
                },
            }
        };
        let last = killed.len().saturating_sub(LAST);
        let done = done.with_context(|| {
            let (count, last) = (killed.len(), killed.get(last..));
            format!("{count} killed, at last {last:?}")
        })?;
        Ok((done, killed))
    }

    async fn kill_for_ever(
        &self,
        fleet: &Fleet,
        killed: &mut Vec<(Duration, String)>,
    ) -> Result<()> {
        let since = Instant::now();
        let mut dice = StdRng::seed_from_u64(self.seed);
        say(&format!("kills at random: {SEED}={}", self.seed));
        loop {
            let (short, long) = self.pause;
            tokio::time::sleep(dice.random_range(short..=long)).await;
            if Instant::now() > self.until {
                return Ok(());
            }
            let index = dice.random_range(0..self.units.len());
            let Some(unit) = self.units.get(index) else {
                return Ok(());
            };
            let what = format!("{unit} runs, so that it can be killed");
            wait_until(&what, RUNS_AGAIN_MAX, async || {
                fleet.unit(unit)?.kill().await
            })
            .await?;
            killed.push((since.elapsed(), unit.clone()));
        }
    }
}
