//! What the control server is told.

use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use shared::PodId;
use tokio::time::Instant;

use crate::api::{EndpointRole, Pod, PodStatus, PodStatusChange};
use crate::client::Control;
use crate::fleet_file::PodWish;
use crate::home_dir::write_durably;
use crate::layout::CONTROL;
use crate::observe::{self, World};
use crate::unit::proc::{Mark, Process};
use crate::unit::{Order, RunState, State, Unit, order, wait_for};

/// The control server reads a short file again on SIGHUP.
const REREAD_WITHIN: Duration = Duration::from_secs(3);

/// It is back within a second when it is started again.
const RESTARTED_WITHIN: Duration = Duration::from_secs(10);

const ASK_EVERY: Duration = Duration::from_millis(30);

fn control(world: &World) -> anyhow::Result<Control> {
    observe::control(&world.home)?.context("the fleet has no control server yet")
}

fn wish(world: &World, pod: PodId) -> anyhow::Result<&PodWish> {
    let wish = world.fleet.pods.iter().find(|it| it.id == pod);
    wish.with_context(|| format!("pod {pod} is not in fleet.toml"))
}

/// The pod as the control server knows it.
pub(super) async fn known(world: &World, pod: PodId) -> anyhow::Result<Option<Pod>> {
    match control(world)?.pod(&pod.to_string()).await {
        Ok(pod) => Ok(Some(pod)),
        Err(fault) if fault.is_not_found() => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

/// The port of the primary that the catalog names.
pub(super) fn primary_port(pod: &Pod) -> Option<u16> {
    let primary = pod
        .endpoints
        .iter()
        .find(|it| it.role == EndpointRole::Primary)?;
    primary.address.rsplit(':').next()?.parse().ok()
}

pub(super) async fn token_is_known(world: &World, pod: PodId) -> bool {
    observe::token_is_known(&world.home, pod).await
}

/// Tells the control server to read its tokens again; one that does not is started again.
pub(super) async fn make_token_known(world: &World, pod: PodId) -> anyhow::Result<()> {
    let home = &world.home;
    let pid = RunState::load(home, CONTROL)
        .and_then(|run| run.pid)
        .context("the control server does not run")?;
    if let Some(process) = Process::open(pid, &Mark::new(home, CONTROL)) {
        process.signal(Signal::HUP)?;
        if wait_for_token(world, pod, REREAD_WITHIN).await {
            return Ok(());
        }
    }
    order(home, CONTROL, Order::Stop, RESTARTED_WITHIN).await?;
    order(home, CONTROL, Order::Start, RESTARTED_WITHIN).await?;
    let unit = Unit::load(home, CONTROL)?.context("the control server's unit is gone")?;
    wait_for(home, &unit, State::Running, RESTARTED_WITHIN).await?;
    anyhow::ensure!(
        wait_for_token(world, pod, RESTARTED_WITHIN).await,
        "the control server does not take pod {pod}'s token; its log is {}",
        home.log_file(CONTROL).display()
    );
    Ok(())
}

async fn wait_for_token(world: &World, pod: PodId, within: Duration) -> bool {
    let began = Instant::now();
    while !token_is_known(world, pod).await {
        if began.elapsed() > within {
            return false;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    true
}

pub(super) async fn is_registered(world: &World, pod: PodId) -> anyhow::Result<bool> {
    let wish = wish(world, pod)?;
    Ok(known(world, pod)
        .await?
        .is_some_and(|known| world.layout.is_registered(wish, &known)))
}

pub(super) async fn register(world: &World, pod: PodId) -> anyhow::Result<()> {
    let known = known(world, pod).await?;
    let put = world.layout.registration(wish(world, pod)?, known.as_ref());
    control(world)?.pod_put(pod, &put).await?;
    Ok(())
}

/// Takes a new pod into service. Once: later its status is what operators make it.
pub(super) async fn activate(world: &World, pod: PodId) -> anyhow::Result<()> {
    let change = PodStatusChange {
        status: PodStatus::Active,
        reason: Some("it serves".into()),
    };
    control(world)?
        .pod_status(&pod.to_string(), &change)
        .await?;
    Ok(write_durably(&world.home.pod_activated(pod), b"", 0o600)?)
}
