//! The local fleet: `up`, `down`, `plan`, `apply`, `pod add`, `serve`.

use anyhow::{Context as _, ensure};
use serde::Serialize;

use super::Context;
use crate::cli::{PodAdd, Serve, Up};
use crate::fleet_file::{self, FleetFile, PodNew, PodWish};
use crate::home_dir::{FleetLock, HomeDir};
use crate::output::{Steps, the_pod};
use crate::plan::Prepared;
use crate::{apply, down, plan, serve, up};

/// `podctl up`: returns when the fleet has ended.
pub async fn up(cx: &Context, wish: Up) -> anyhow::Result<()> {
    let Up {
        edge_port,
        no_demo,
        mysqld,
    } = wish;
    let options = up::Options {
        home: cx.home_wish(),
        edge_port,
        demo: !no_demo,
        mysqld,
    };
    up::run(options, &Steps::default()).await
}

/// `podctl down`.
pub async fn down(cx: &Context) -> anyhow::Result<()> {
    down::run(&cx.home()?).await
}

/// `podctl serve`: returns when the control server has ended.
pub async fn serve(cx: &Context, wish: Serve) -> anyhow::Result<()> {
    let Serve {
        config,
        check_config,
    } = wish;
    let config = match config {
        Some(config) => config,
        None => cx.home()?.control_config(),
    };
    serve::run(serve::Options {
        config,
        check_config,
    })
    .await
}

/// `podctl plan`.
pub async fn plan(cx: &Context) -> anyhow::Result<()> {
    let plan = plan::make(&cx.home()?).await?;
    Ok(cx.out.result(&plan, ToString::to_string)?)
}

/// What `apply` and `pod add` answer.
#[derive(Debug, Serialize)]
struct Applied<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a PodWish>,
    #[serde(flatten)]
    plan: &'a Prepared,
}

/// `podctl apply`.
pub async fn apply(cx: &Context) -> anyhow::Result<()> {
    let home = cx.home()?;
    supervised(&home)?;
    let plan = bring_up(&home).await?;
    let (pod, plan) = (None, &plan);
    Ok(cx.out.result(&Applied { pod, plan }, served)?)
}

/// `podctl pod add`: the wish first, so that an interrupted one is finished by `podctl apply`.
pub async fn pod_add(cx: &Context, wish: PodAdd) -> anyhow::Result<()> {
    let (pod, plan) = added(cx, wish).await?;
    let (pod, plan) = (Some(&pod), &plan);
    Ok(cx.out.result(&Applied { pod, plan }, served)?)
}

/// The same for another command, whose result is not the pod.
pub(super) async fn add(cx: &Context, wish: PodAdd) -> anyhow::Result<PodWish> {
    Ok(added(cx, wish).await?.0)
}

async fn added(cx: &Context, wish: PodAdd) -> anyhow::Result<(PodWish, Prepared)> {
    let home = cx.home()?;
    supervised(&home)?;
    let PodAdd {
        name,
        id,
        region,
        pool,
        class,
        max_shops,
    } = wish;
    // Of two that add a pod at once each keeps the other's; while an apply runs nothing is written.
    let turn = apply::turn(&home).await?;
    let (name, id) = match name {
        Some(name) => (name, id),
        None => {
            let id = id.map_or_else(|| FleetFile::load(&home)?.next_id(), Ok)?;
            (format!("pod-{id}"), Some(id))
        }
    };
    let new = PodNew {
        name,
        id,
        region,
        pool,
        class,
        max_shops,
    };
    let pod = fleet_file::add_pod(&home, &new)?;
    drop(turn);
    let plan = bring_up(&home).await?;
    Ok((pod, plan))
}

/// Refuses before anything is written: of a fleet that does not run, no step could be finished.
fn supervised(home: &HomeDir) -> anyhow::Result<()> {
    ensure!(
        FleetLock::holder(&home.lock_file()).is_some(),
        "no `podctl up` runs this fleet ({}): start it first; a start applies fleet.toml by itself",
        home.path().display()
    );
    Ok(())
}

async fn bring_up(home: &HomeDir) -> anyhow::Result<Prepared> {
    let plan = plan::make(home).await?;
    let steps = Steps::default();
    let applied = apply::run(home, &plan, &steps).await;
    applied.context("what is done stays done; mend this, and `podctl apply` goes on from there")?;
    Ok(plan)
}

fn served(applied: &Applied<'_>) -> String {
    match applied.pod {
        Some(pod) => format!("{} ({}) serves", the_pod(&pod.name), pod.id),
        None => "the fleet is what fleet.toml says".into(),
    }
}
