//! Doing a plan: step by step, each looked at first and skipped when it is done, stopping at the first that fails.
//! Killed anywhere, the same again goes on where it was.
//!
//! It decides nothing. Steps of different pods are done side by side: a pod waits for its own servers, never for
//! another's.

use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(debug_assertions)]
use anyhow::{Context as _, ensure};
use futures::future::join_all;
use shared::PodId;

use crate::home_dir::{FleetLock, HomeDir, Locked};
use crate::observe::World;
use crate::output::Progress;
use crate::plan::Prepared;
use crate::step::Step;

mod record;

use record::Record;

/// Kills the process after so many steps: how tests cut an apply off. Only in builds for development.
#[cfg(debug_assertions)]
const STOP_AFTER: &str = "PODHOST_APPLY_STOP_AFTER";

/// Does a plan. One apply at a time per home.
pub async fn run(
    home: &HomeDir,
    prepared: &Prepared,
    progress: &dyn Progress,
) -> anyhow::Result<()> {
    let _turn = turn(home).await?;
    let steps = &prepared.plan.steps;
    let applying = Applying {
        world: &prepared.world,
        total: steps.len(),
        begun: AtomicUsize::new(0),
        finished: AtomicUsize::new(0),
        failed: AtomicUsize::new(0),
        record: Record::new(home, steps),
        progress,
    };
    let done = applying.all(steps).await;
    progress.done();
    applying.record.end(&done).await;
    done
}

/// The right to change the wish or to do it. Whoever changes the file while an apply runs would have the half of it done.
pub(crate) async fn turn(home: &HomeDir) -> anyhow::Result<FleetLock> {
    match FleetLock::take(&home.apply_lock_file()).await {
        Ok(lock) => Ok(lock),
        Err(Locked::By(pid)) => {
            anyhow::bail!(
                "process {pid} is applying fleet.toml just now: try again when it has ended"
            )
        }
        Err(Locked::Write(fault)) => Err(fault.into()),
    }
}

struct Applying<'a> {
    world: &'a World,
    total: usize,
    begun: AtomicUsize,
    finished: AtomicUsize,
    failed: AtomicUsize,
    record: Record,
    progress: &'a dyn Progress,
}

impl Applying<'_> {
    async fn all(&self, steps: &[Step]) -> anyhow::Result<()> {
        for stage in stages(steps) {
            let lanes = join_all(stage.into_iter().map(|lane| self.lane(lane))).await;
            lanes.into_iter().collect::<anyhow::Result<()>>()?;
        }
        Ok(())
    }

    async fn lane(&self, steps: Vec<&Step>) -> anyhow::Result<()> {
        for step in steps {
            // A fault elsewhere stops this one too, at a whole step.
            if self.failed.load(Ordering::Relaxed) > 0 {
                return Ok(());
            }
            if let Err(fault) = self.one(step).await {
                self.failed.fetch_add(1, Ordering::Relaxed);
                return Err(fault.context(format!("{step}: failed")));
            }
        }
        Ok(())
    }

    async fn one(&self, step: &Step) -> anyhow::Result<()> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.progress.step(number, self.total, &step.to_string());
        self.record.step(step).await;
        if !step.is_done(self.world).await? {
            step.run(self.world).await?;
        }
        let finished = self.finished.fetch_add(1, Ordering::Relaxed) + 1;
        stop_here(finished)
    }
}

/// Steps in order; those of pods that stand together side by side, a lane for each pod.
fn stages(steps: &[Step]) -> Vec<Vec<Vec<&Step>>> {
    let mut stages: Vec<Vec<(Option<PodId>, Vec<&Step>)>> = Vec::new();
    for step in steps {
        let pod = step.pod();
        let open = stages
            .last_mut()
            .filter(|stage| stage.iter().all(|(it, _)| it.is_some() == pod.is_some()));
        match open {
            Some(stage) => match stage.iter_mut().find(|(it, _)| *it == pod) {
                Some((_, lane)) => lane.push(step),
                None => stage.push((pod, vec![step])),
            },
            None => stages.push(vec![(pod, vec![step])]),
        }
    }
    stages
        .into_iter()
        .map(|stage| stage.into_iter().map(|(_, lane)| lane).collect())
        .collect()
}

#[cfg(debug_assertions)]
fn stop_here(finished: usize) -> anyhow::Result<()> {
    let Some(stop) = std::env::var_os(STOP_AFTER) else {
        return Ok(());
    };
    let stop = stop.to_str().and_then(|stop| stop.parse::<usize>().ok());
    let stop = stop.with_context(|| format!("{STOP_AFTER} is a number of steps"))?;
    ensure!(stop > 0, "{STOP_AFTER} counts from 1");
    if finished == stop {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
    }
    Ok(())
}

#[cfg(not(debug_assertions))]
fn stop_here(_finished: usize) -> anyhow::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_go_side_by_side_and_everything_else_in_order() {
        let [one, two] = [1, 2].map(|id| PodId::new(id).unwrap());
        let steps = [
            Step::FleetSecrets,
            Step::Control,
            Step::Data { pod: one },
            Step::Stores { pod: one },
            Step::Data { pod: two },
            Step::Edges,
        ];
        let texts = |lane: Vec<&Step>| lane.into_iter().cloned().collect::<Vec<_>>();
        let stages: Vec<Vec<Vec<Step>>> = stages(&steps)
            .into_iter()
            .map(|stage| stage.into_iter().map(texts).collect())
            .collect();
        let [a, b, c, d, e, f] = steps;
        assert_eq!(
            stages,
            [vec![vec![a, b]], vec![vec![c, d], vec![e]], vec![vec![f]]]
        );
    }
}
