//! Runs a fleet's processes: brings what runs to what `units/*.toml` wish, starts again what dies, and ends everything in
//! the order that loses no acknowledged write.
//!
//! It knows nothing of pods or catalogs: a unit is a command, a wish and a way to end it. It decides nothing either: a
//! database server that died comes back as its defaults file says, read only.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::home_dir::HomeDir;
use crate::mysqld::admin;
use crate::unit::{Desired, Kind, Unit, proc};

mod logs;
mod runner;

use runner::Runner;

/// How often the wishes are read: a dozen small files.
pub const LOOK_EVERY: Duration = Duration::from_millis(150);

/// How often logs are looked at for their size.
const LOGS_EVERY: Duration = Duration::from_secs(5);

/// A whole fleet ends within this.
pub const STOP_WITHIN: Duration = Duration::from_secs(20);

/// What an orderly end may take of it; the rest is for killing what did not end.
pub(crate) const ORDERED_WITHIN: Duration = Duration::from_secs(19);

/// Leftovers of a killed supervisor end within this: they get SIGKILL.
const LEFTOVERS_WITHIN: Duration = Duration::from_secs(5);

/// What happened to a unit that an operator should hear of.
pub type Event = String;

/// A running supervisor.
#[derive(Debug)]
pub struct Supervisor {
    home: HomeDir,
    quiet: watch::Sender<bool>,
    reconciler: JoinHandle<BTreeMap<String, Slot>>,
}

/// A unit's runner, as the reconciler holds it.
#[derive(Debug)]
struct Slot {
    wish: watch::Sender<Unit>,
    runner: JoinHandle<()>,
}

impl Slot {
    /// Ends its process and waits for that. Its wish on disk stays.
    async fn end(self) {
        self.wish
            .send_modify(|unit| unit.desired = Desired::Stopped);
        drop(self.wish);
        let _ = self.runner.await;
    }
}

impl Supervisor {
    /// Starts supervising. `events` hears of deaths and of wishes that cannot be read.
    pub fn start(home: HomeDir, events: mpsc::UnboundedSender<Event>) -> Self {
        let (quiet, stop) = watch::channel(false);
        let reconciler = tokio::spawn(reconcile(home.clone(), events, stop));
        Self {
            home,
            quiet,
            reconciler,
        }
    }

    /// Ends everything: edges, pods, primaries, replicas, caches, control server. Gives back what had to be ended
    /// afterwards because it was not a unit any more.
    pub async fn stop(self) -> anyhow::Result<()> {
        let home = &self.home;
        self.quiet.send_replace(true);
        let mut slots = self.reconciler.await?;
        for kind in [Kind::Edge, Kind::Pod] {
            end(take(&mut slots, |unit| unit.kind == kind)).await;
        }
        let servers = slots
            .values()
            .map(|slot| slot.wish.borrow().clone())
            .filter(|it| it.kind == Kind::Mysql);
        let primaries = join_all(servers.map(|unit| async move {
            admin::may_take_writes(home, &unit)
                .await
                .then_some(unit.name)
        }));
        let primaries: Vec<_> = primaries.await.into_iter().flatten().collect();
        end(take(&mut slots, |unit| primaries.contains(&unit.name))).await;
        for kind in [Kind::Mysql, Kind::Redis, Kind::Control] {
            end(take(&mut slots, |unit| unit.kind == kind)).await;
        }
        end_leftovers(home).await.map(|_| ())
    }
}

fn take(slots: &mut BTreeMap<String, Slot>, which: impl Fn(&Unit) -> bool) -> Vec<Slot> {
    let names: Vec<_> = slots
        .iter()
        .filter(|(_, slot)| which(&slot.wish.borrow()))
        .map(|(name, _)| name.clone())
        .collect();
    names.iter().filter_map(|name| slots.remove(name)).collect()
}

async fn end(slots: Vec<Slot>) {
    join_all(slots.into_iter().map(Slot::end)).await;
}

/// Reads the wishes again and again and gives each to its unit's runner, until told to stop; then hands the runners over.
async fn reconcile(
    home: HomeDir,
    events: mpsc::UnboundedSender<Event>,
    mut stop: watch::Receiver<bool>,
) -> BTreeMap<String, Slot> {
    let mut slots = BTreeMap::new();
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut logs = tokio::time::interval(LOGS_EVERY);
    let mut last_fault = String::new();
    loop {
        tokio::select! {
            _ = stop.changed() => return slots,
            _ = look.tick() => match Unit::all(&home) {
                Ok(units) => {
                    last_fault.clear();
                    give(&home, &mut slots, units, &events).await;
                }
                // A wish that cannot be read ends nothing: everything stays as it is.
                Err(fault) => {
                    let fault = format!("{fault:#}");
                    if fault != last_fault {
                        let _ = events.send(format!("{fault}; nothing is changed until it can be read"));
                        last_fault = fault;
                    }
                }
            },
            _ = logs.tick() => logs::bound(&home),
        }
    }
}

async fn give(
    home: &HomeDir,
    slots: &mut BTreeMap<String, Slot>,
    units: Vec<Unit>,
    events: &mpsc::UnboundedSender<Event>,
) {
    let gone = take(slots, |held| {
        units.iter().all(|unit| unit.name != held.name)
    });
    end(gone).await;
    for unit in units {
        match slots.get(&unit.name) {
            Some(slot) => {
                slot.wish.send_if_modified(|held| {
                    let differs = *held != unit;
                    if differs {
                        *held = unit;
                    }
                    differs
                });
            }
            None => {
                let name = unit.name.clone();
                let (wish, wishes) = watch::channel(unit);
                let runner = Runner::new(home.clone(), wishes, events.clone());
                slots.insert(
                    name,
                    Slot {
                        wish,
                        runner: tokio::spawn(runner.run()),
                    },
                );
            }
        }
    }
}

/// Ends what a killed supervisor left behind, clients first, and gives the names. SIGKILL acknowledges nothing, so
/// nothing that a client was told is lost.
pub async fn end_leftovers(home: &HomeDir) -> anyhow::Result<Vec<String>> {
    let mut left = proc::of_fleet(home)?;
    // Edges and pods before the servers that they wait for.
    left.sort_by_key(|process| (server_last(&process.unit), process.pid));
    for process in &left {
        process.kill()?;
    }
    for process in &left {
        anyhow::ensure!(
            process.gone(LEFTOVERS_WITHIN).await,
            "process {} ({}) of an earlier start cannot be ended: does the disk hang? Look at it with `ps -o stat,wchan -p {0}`",
            process.pid,
            process.unit
        );
    }
    Ok(left.into_iter().map(|process| process.unit).collect())
}

fn server_last(unit: &str) -> bool {
    unit.starts_with("mysql-") || unit.starts_with("redis-")
}

#[cfg(test)]
mod tests;
