//! What is done on database servers.

use std::time::Duration;

use anyhow::{Context as _, bail};
use shared::PodId;

use super::catalog;
use crate::layout::mysql_name;
use crate::mysqld::admin::{Connection, Server};
use crate::mysqld::provision::{self, check_identity};
use crate::observe::World;
use crate::unit::Kind;

/// The control server looks at each pod twice a second; opening takes some statements.
const OPENED_WITHIN: Duration = Duration::from_secs(30);

/// How often it is looked whether a primary is open.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A pod's servers, the first one first.
fn servers(world: &World, pod: PodId) -> anyhow::Result<Vec<Server>> {
    let units = world.layout.of_pod(pod, Kind::Mysql);
    let servers: Vec<_> = units.iter().filter_map(|it| Server::of(&it.unit)).collect();
    let first = mysql_name(pod, 1);
    anyhow::ensure!(
        servers.first().is_some_and(|it| it.name == first),
        "pod {pod} has no first database server"
    );
    Ok(servers)
}

/// Whether some server of the pod has its identity, which comes last; and, as long as the control server does not know the
/// pod, whether the first one is shut again.
pub(super) async fn is_provisioned(world: &World, pod: PodId) -> anyhow::Result<bool> {
    let servers = servers(world, pod)?;
    let mut has = false;
    for server in &servers {
        let mut conn = server.connect(&world.home).await?;
        has |= check_identity(server, conn.identity().await?)?;
        conn.close().await;
    }
    Ok(has && (!any_open(world, pod).await? || catalog::known(world, pod).await?.is_some()))
}

/// Servers beyond the first get everything by replication, so nothing is done to them here.
pub(super) async fn provision(world: &World, pod: PodId) -> anyhow::Result<()> {
    let servers = servers(world, pod)?;
    provision::first(&world.home, &servers[0]).await
}

/// Whether every server has the pod's data. Who follows whom from then on is the control server's business.
pub(super) async fn all_follow(world: &World, pod: PodId) -> anyhow::Result<bool> {
    for server in servers(world, pod)? {
        let mut conn = server.connect(&world.home).await?;
        let has = check_identity(&server, conn.identity().await?)?;
        conn.close().await;
        if !has {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Empty servers follow the pod's primary: the catalog's, or the first server of a pod that it does not know.
pub(super) async fn follow(world: &World, pod: PodId) -> anyhow::Result<()> {
    let servers = servers(world, pod)?;
    let primary = match catalog::known(world, pod).await? {
        Some(known) => catalog::primary_port(&known),
        None => None,
    };
    let source = servers
        .iter()
        .find(|it| Some(it.port) == primary)
        .unwrap_or(&servers[0]);
    let mut empty = Vec::new();
    for server in servers.iter().filter(|it| it.port != source.port) {
        let mut conn = server.connect(&world.home).await?;
        if !check_identity(server, conn.identity().await?)? {
            empty.push(server);
        }
        conn.close().await;
    }
    let follow = empty
        .into_iter()
        .map(|server| provision::replica(&world.home, server, source));
    futures::future::try_join_all(follow).await.map(|_| ())
}

pub(super) async fn is_open(world: &World, pod: PodId) -> anyhow::Result<bool> {
    // A server that nobody registered is open only while it is being provisioned.
    Ok(catalog::known(world, pod).await?.is_some() && any_open(world, pod).await?)
}

async fn any_open(world: &World, pod: PodId) -> anyhow::Result<bool> {
    let Some((_, conn)) = open_one(world, pod).await? else {
        return Ok(false);
    };
    conn.close().await;
    Ok(true)
}

/// The server that takes writes, if one does.
async fn open_one(world: &World, pod: PodId) -> anyhow::Result<Option<(Server, Connection)>> {
    for server in servers(world, pod)? {
        let mut conn = server.connect(&world.home).await?;
        if conn.is_open().await? {
            return Ok(Some((server, conn)));
        }
        conn.close().await;
    }
    Ok(None)
}

pub(super) async fn is_migrated(world: &World, pod: PodId) -> anyhow::Result<bool> {
    let Some((_, mut conn)) = open_one(world, pod).await? else {
        return Ok(false);
    };
    let migrated = conn.is_migrated().await?;
    conn.close().await;
    Ok(migrated)
}

/// Forward only, safe to run again; a pod's processes refuse an older schema.
pub(super) async fn migrate(world: &World, pod: PodId) -> anyhow::Result<()> {
    let open = open_one(world, pod).await?;
    let (server, mut conn) =
        open.with_context(|| format!("no server of pod {pod} takes writes just now"))?;
    provision::migrate(&server, &mut conn).await?;
    conn.close().await;
    Ok(())
}

pub(super) async fn wait_until_open(world: &World, pod: PodId) -> anyhow::Result<()> {
    let began = tokio::time::Instant::now();
    while !any_open(world, pod).await? {
        if began.elapsed() > OPENED_WITHIN {
            let mut faults = Vec::new();
            for server in servers(world, pod)?.iter().skip(1) {
                let mut conn = server.connect(&world.home).await?;
                let fault = conn.replication_fault().await?;
                faults.extend(fault.map(|fault| format!("{}: {fault}", server.name)));
                conn.close().await;
            }
            bail!(
                "the control server has not opened pod {pod}'s primary after {OPENED_WITHIN:?}; its log is {}{}",
                world.home.log_file(crate::layout::CONTROL).display(),
                faults
                    .iter()
                    .map(|fault| format!("\n  {fault}"))
                    .collect::<String>()
            );
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    catalog::known(world, pod)
        .await?
        .context("the control server does not know the pod any more")?;
    Ok(())
}
