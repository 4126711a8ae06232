//! What runs, where, and what it serves: the units of the local fleet joined with the catalog.

use std::collections::BTreeMap;

use shared::PodId;

use crate::api;
use crate::fleet_file::FleetFile;
use crate::home_dir::{FleetLock, HomeDir};
use crate::pod_store::DATABASE;
use crate::secrets::{self, Account};
use crate::unit::{self, Kind, RunState, State, Unit, proc};
use report::{ControlServer, Edge, Move, Mysql, Pod, Process, Redis, Report, Server, Shop};

mod print;
pub mod report;

pub use print::text;

/// Where the servers of a local fleet listen.
const LOCAL_HOST: &str = "127.0.0.1";

/// What the catalog says, where a control server answers.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// All pods.
    pub pods: Vec<api::Pod>,
    /// All shops.
    pub shops: Vec<api::Shop>,
    /// Moves that are open.
    pub moves: Vec<api::Move>,
}

/// A unit and its process, if that is alive.
type Run = (Unit, Option<u32>);

/// Where the fleet of this home has its control servers.
pub fn control_urls(home: &HomeDir) -> anyhow::Result<Vec<String>> {
    let units = Unit::all(home)?;
    let control = units.into_iter().filter(|unit| unit.kind == Kind::Control);
    let urls: Vec<_> = control.filter_map(|unit| unit.facts.http).collect();
    if urls.is_empty() {
        let home = home.path().display();
        anyhow::bail!("the fleet in {home} was never started: start it with `podctl up`");
    }
    Ok(urls)
}

/// Every unit of a home with its process. Without a `podctl up`, what a killed one left running.
pub fn runs(home: &HomeDir) -> anyhow::Result<Vec<Run>> {
    let alive = |run: RunState| (run.state == State::Running).then_some(run.pid).flatten();
    let units = unit::list(home)?;
    let left = if is_supervised(home) {
        Vec::new()
    } else {
        proc::of_fleet(home)?
    };
    let leftover = |unit: &Unit| left.iter().find(|it| it.unit == unit.name).map(|it| it.pid);
    Ok(units
        .into_iter()
        .map(|(unit, run)| {
            let pid = run.and_then(alive).or_else(|| leftover(&unit));
            (unit, pid)
        })
        .collect())
}

/// Whether a `podctl up` runs the fleet of this home.
pub fn is_supervised(home: &HomeDir) -> bool {
    FleetLock::holder(&home.lock_file()).is_some()
}

/// The report of a home's fleet.
pub fn of_home(home: &HomeDir, catalog: Option<&Catalog>) -> anyhow::Result<Report> {
    let wish = FleetFile::load(home)?;
    Ok(assemble(home, &wish, &runs(home)?, catalog))
}

/// Joins what the machine shows with what the catalog says. Pure.
pub fn assemble(
    home: &HomeDir,
    wish: &FleetFile,
    runs: &[Run],
    catalog: Option<&Catalog>,
) -> Report {
    let seen = runs.iter().filter_map(|(unit, _)| unit.pod);
    let listed = catalog
        .into_iter()
        .flat_map(|c| c.pods.iter().map(|pod| pod.id));
    let mut pods = BTreeMap::new();
    for id in seen.chain(listed) {
        let known = catalog.and_then(|c| c.pods.iter().find(|pod| pod.id == id));
        pods.entry(id)
            .or_insert_with(|| pod(home, id, wish, runs, known));
    }
    let edges = of(runs, Kind::Edge, None).map(|(unit, pid)| Edge {
        http: unit.facts.http.clone(),
        admin: unit.facts.admin.clone(),
        pid: *pid,
    });
    let controls = of(runs, Kind::Control, None).map(|(unit, pid)| ControlServer {
        http: unit.facts.http.clone(),
        pid: *pid,
        operator_token_file: text_of(&home.secret_file(secrets::OPERATOR_TOKEN)),
    });
    Report {
        base_domain: wish.base_domain.as_str().into(),
        edges: edges.collect(),
        controls: controls.collect(),
        pods: pods.into_values().collect(),
        shops: catalog
            .map(|c| c.shops.iter().map(shop).collect())
            .unwrap_or_default(),
        moves: catalog
            .map(|c| c.moves.iter().map(moving).collect())
            .unwrap_or_default(),
        unreachable: if catalog.is_some() {
            Vec::new()
        } else {
            vec!["control"]
        },
    }
}

fn of(runs: &[Run], kind: Kind, pod: Option<PodId>) -> impl Iterator<Item = &Run> {
    runs.iter()
        .filter(move |(unit, _)| unit.kind == kind && unit.pod == pod)
}

fn pod(home: &HomeDir, id: PodId, wish: &FleetFile, runs: &[Run], known: Option<&api::Pod>) -> Pod {
    let processes: Vec<_> = of(runs, Kind::Pod, Some(id))
        .map(|(unit, pid)| Process {
            http: unit.facts.http.clone(),
            admin: unit.facts.admin.clone(),
            pid: *pid,
        })
        .collect();
    let (primary, replicas) = servers(id, runs, known);
    let redis = of(runs, Kind::Redis, Some(id)).next();
    let wished = || {
        wish.pods
            .iter()
            .find(|pod| pod.id == id)
            .map(|pod| &pod.name)
    };
    let name = known.map(|pod| &pod.name).or_else(wished);
    Pod {
        id,
        name: name.cloned().unwrap_or_else(|| format!("pod-{id}")),
        status: known.map_or("unknown", |pod| pod.status.as_str()).into(),
        http: processes.first().and_then(|process| process.http.clone()),
        processes,
        mysql: Mysql {
            user: Account::Operator.user().into(),
            password_file: text_of(&Account::Operator.password_file(home, id)),
            database: DATABASE.into(),
            primary,
            replicas,
        },
        redis: Redis {
            url: redis
                .and_then(|(unit, _)| unit.facts.port)
                .map(|port| format!("redis://{LOCAL_HOST}:{port}")),
            pid: redis.and_then(|(_, pid)| *pid),
        },
    }
}

/// The catalog names the primary. Without its word the server that was set up as primary is named.
fn servers(id: PodId, runs: &[Run], known: Option<&api::Pod>) -> (Option<Server>, Vec<Server>) {
    let mut local: Vec<Server> = of(runs, Kind::Mysql, Some(id))
        .filter_map(|(unit, pid)| {
            Some(Server {
                host: LOCAL_HOST.into(),
                port: unit.facts.port?,
                socket: unit.facts.socket.as_deref().map(text_of),
                pid: *pid,
            })
        })
        .collect();
    let named = known.map(|pod| {
        let mut endpoints = pod.endpoints.iter();
        endpoints
            .find(|e| e.role == api::EndpointRole::Primary)
            .map(|e| e.address.as_str())
    });
    let at = match named {
        Some(named) => local
            .iter()
            .position(|server| named == Some(format!("{}:{}", server.host, server.port).as_str())),
        None => (!local.is_empty()).then_some(0),
    };
    let primary = at.map(|at| local.remove(at));
    (primary, local)
}

fn shop(shop: &api::Shop) -> Shop {
    Shop {
        id: shop.id,
        handle: shop.handle.clone(),
        hosts: shop.hosts.clone(),
        pod: shop.pod.id,
        epoch: shop.epoch,
        state: shop.state,
        r#move: shop.r#move.clone(),
    }
}

fn moving(it: &api::Move) -> Move {
    Move {
        id: it.id,
        shop: it.shop.handle.clone(),
        from: it.source.name.clone(),
        to: it.target.name.clone(),
        state: it.state,
        note: it.error.clone().or_else(|| it.waits.clone()),
    }
}

fn text_of(path: &std::path::Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests;
