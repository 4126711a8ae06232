//! `podctl up`: a fleet in the foreground. It starts what is there or makes what is not, says where it can be reached, and
//! ends all of it when it is told to.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::fleet_file::{self, EDGE_PORT, FleetFile};
use crate::home_dir::{FleetLock, HomeDir, Locked, write_atomically};
use crate::output::{Progress, note};
use crate::plan::Prepared;
use crate::ports::{Ports, ensure_free};
use crate::supervisor::{ORDERED_WITHIN, Supervisor, end_leftovers};
use crate::unit::{Desired, Unit};
use crate::{apply, layout, plan};

// Two shops to look at.
mod demo;

// When it is to end.
mod end;
use end::End;

// What is said at the end.
mod greeting;

// Room on the disk.
mod room;

/// A killed server has a hundred megabytes to give back before it lets go of its port.
const LET_GO_WITHIN: Duration = Duration::from_secs(3);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What an operator wishes.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The fleet's home; the nearest `.podhost` if left out, else a new one here.
    pub home: Option<PathBuf>,
    /// Where the first edge listens; 0 picks a free port. The choice is remembered in fleet.toml.
    pub edge_port: Option<u16>,
    /// Whether a new fleet gets two demo shops.
    pub demo: bool,
    /// Words of the database server's command, if it is not to be looked for.
    pub mysqld: Vec<String>,
}

/// Runs a fleet until SIGINT or SIGTERM, or until its terminal is closed.
pub async fn run(options: Options, progress: &dyn Progress) -> anyhow::Result<()> {
    let mut end = End::new()?;
    let here = std::env::current_dir().context("find the folder one is in")?;
    let home = HomeDir::find_or_new(options.home.as_deref(), &here).create()?;
    let _lock = lock(&home).await?;
    remove_ready(&home)?;
    let left = end_leftovers(&home).await?;
    if !left.is_empty() {
        note(&format!(
            "ended {} processes that a killed `podctl up` had left: {}",
            left.len(),
            left.join(", ")
        ));
    }
    wish(&home, options.edge_port)?;
    hold(&home)?;
    let prepared = plan::make_for_start(&home, &options.mysqld).await?;
    room::check(&home, &prepared.world.fleet)?;
    wait_for_ports(&prepared).await?;
    let (events, heard) = mpsc::unbounded_channel();
    let supervisor = Supervisor::start(home.clone(), events);
    let teller = tokio::spawn(tell(heard));
    let served = tokio::select! {
        started = start(&home, &prepared, options.demo, progress) => match started {
            Ok(()) => {
                end.wait().await;
                Ok(())
            }
            Err(fault) => Err(fault),
        },
        () = end.wait() => Ok(()),
    };
    remove_ready(&home)?;
    stop(supervisor, &home, &mut end).await?;
    teller.abort();
    served
}

/// Brings everything up and says so.
async fn start(
    home: &HomeDir,
    prepared: &Prepared,
    with_demo: bool,
    progress: &dyn Progress,
) -> anyhow::Result<()> {
    apply::run(home, prepared, progress).await?;
    let world = &prepared.world;
    if with_demo {
        demo::make(world).await.context("make the demo shops")?;
    }
    for text in &prepared.plan.notes {
        note(text);
    }
    let addresses = greeting::addresses(world)?;
    greeting::say(world, &addresses).await?;
    let ready = serde_json::to_vec_pretty(&addresses)?;
    Ok(write_atomically(&home.ready_file(), &ready, 0o644)?)
}

/// Ends everything in order; at a second signal, at once.
async fn stop(supervisor: Supervisor, home: &HomeDir, end: &mut End) -> anyhow::Result<()> {
    note(
        "ending the fleet: edges, pods, databases, caches, control server (once more kills them at once)",
    );
    let ordered = tokio::time::timeout(ORDERED_WITHIN, supervisor.stop());
    let ended = tokio::select! {
        ended = ordered => ended,
        () = end.wait() => Ok(Ok(())),
    };
    // Nothing is left after an ordered end; a hurried one is finished here. SIGKILL loses nothing acknowledged.
    let left = end_leftovers(home).await?;
    if !left.is_empty() {
        note(&format!("killed: {}", left.join(", ")));
    }
    if let Ok(ended) = ended {
        ended?;
    }
    note("the fleet has ended");
    Ok(())
}

async fn lock(home: &HomeDir) -> anyhow::Result<FleetLock> {
    match FleetLock::take(&home.lock_file()).await {
        Ok(lock) => Ok(lock),
        Err(Locked::By(pid)) => bail!(
            "the fleet in {0} is run by process {pid} already: end that with `podctl down --home {0}`, or start another fleet with --home",
            home.path().display()
        ),
        Err(Locked::Write(fault)) => Err(fault.into()),
    }
}

/// A first start writes the wish; the edge's port is remembered there.
fn wish(home: &HomeDir, edge_port: Option<u16>) -> anyhow::Result<()> {
    if !home.fleet_file().exists() {
        let port = match edge_port {
            Some(0) => Ports::open(home)?.choose("edge")?,
            Some(port) => port,
            None => EDGE_PORT,
        };
        return fleet_file::write_first(home, port);
    }
    let has = FleetFile::load(home)?.edge.listen.port();
    match edge_port {
        // Any port will do: the one that it has.
        None | Some(0) => Ok(()),
        Some(port) if port == has => Ok(()),
        Some(port) => fleet_file::set_edge_port(home, port),
    }
}

/// Nothing starts by itself: applying the plan starts everything in its order.
fn hold(home: &HomeDir) -> anyhow::Result<()> {
    for mut unit in Unit::all(home)? {
        unit.desired = Desired::Stopped;
        unit.save(home)?;
        match std::fs::remove_file(home.run_file(&unit.name)) {
            Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => {
                return Err(fault).with_context(|| format!("forget what ran for {}", unit.name));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Nobody else may have the ports: said now, by name, and not by a server's log in a minute. What has just been killed
/// lets go within moments.
async fn wait_for_ports(prepared: &Prepared) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match check_ports(prepared) {
            Err(_) if began.elapsed() < LET_GO_WITHIN => tokio::time::sleep(LOOK_AGAIN).await,
            checked => return checked,
        }
    }
}

fn check_ports(prepared: &Prepared) -> anyhow::Result<()> {
    let world = &prepared.world;
    for seat in layout::seats(&world.fleet) {
        let facts = &world.layout.unit(&seat.name)?.unit.facts;
        let url_port = |url: &String| url.rsplit(':').next()?.parse::<u16>().ok();
        let of_urls = [&facts.http, &facts.admin]
            .into_iter()
            .filter_map(|url| url.as_ref().and_then(url_port));
        for port in facts.port.into_iter().chain(of_urls) {
            ensure_free(port, &seat.name, &seat.way_out())?;
        }
    }
    Ok(())
}

fn remove_ready(home: &HomeDir) -> anyhow::Result<()> {
    match std::fs::remove_file(home.ready_file()) {
        Err(fault) if fault.kind() != std::io::ErrorKind::NotFound => {
            Err(fault).with_context(|| format!("remove {}", home.ready_file().display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

async fn tell(mut heard: mpsc::UnboundedReceiver<String>) {
    while let Some(event) = heard.recv().await {
        note(&event);
    }
}
