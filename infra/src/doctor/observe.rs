//! Looks at a fleet: the control server, each pod's database servers, and this machine's processes and disk. It changes
//! nothing and judges nothing; what does not answer in time is a fact too.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use shared::PodId;
use shared::config::SecretRef;
use shared::telemetry::metric::ROUTE_VERSION;
use time::OffsetDateTime;

use super::facts::{Asked, Catalog, Disk, Facts, Pod, Unit};
use crate::api::{self, EndpointKind, EndpointRole, MOVES_MAX, MoveQuery};
use crate::client::Control;
use crate::home_dir::HomeDir;
use crate::unit::{Desired, Kind};
use crate::{plan, status};

mod database;

/// How long one server may take for all its answers: they are small, and a hung one must not hold up the rest.
const SERVER_WITHIN: Duration = Duration::from_secs(10);

/// How long a process may take to say that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// Pods looked at at once: a large fleet is looked at in reasonable time without a crowd of connections.
const PODS_AT_ONCE: usize = 8;

/// A pod's database servers and how to get in.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// `host:port`, and whether it is the primary.
    pub(super) servers: Vec<(String, bool)>,
    /// Where the operator's password is.
    pub(super) secret: Asked<SecretRef>,
}

/// Looks once. `home` is given where the fleet runs on this machine.
pub async fn observe(control: &Control, home: Option<&HomeDir>) -> anyhow::Result<Facts> {
    let catalog = catalog(control).await.map_err(|e| shared::error::chain(&e));
    let targets = match (&catalog, home) {
        (Ok(catalog), _) => catalog
            .pods
            .iter()
            .map(|pod| (pod.id, by_catalog(pod, home)))
            .collect(),
        (Err(_), Some(home)) => by_units(home)?,
        (Err(_), None) => BTreeMap::new(),
    };
    let pods = futures::stream::iter(targets)
        .map(|(id, target)| async move { (id, look(&target).await) })
        .buffer_unordered(PODS_AT_ONCE)
        .collect()
        .await;
    let (plan, units, disks) = match home {
        Some(home) => (
            Some(steps(home).await),
            units(home).await?,
            vec![disk(home.path())?],
        ),
        None => (None, Vec::new(), Vec::new()),
    };
    Ok(Facts {
        at: OffsetDateTime::now_utc(),
        catalog,
        pods,
        plan,
        supervised: home.map(status::is_supervised),
        units,
        disks,
    })
}

async fn catalog(control: &Control) -> Result<Catalog, crate::client::Error> {
    Ok(Catalog {
        status: control.status().await?,
        pods: control.pods().await?,
        shops: control.shops().await?,
        operations: control.operations().await?,
        moves: control
            .moves(&MoveQuery {
                limit: Some(MOVES_MAX),
                ..MoveQuery::default()
            })
            .await?,
    })
}

fn by_catalog(pod: &api::Pod, home: Option<&HomeDir>) -> Target {
    let servers = || {
        pod.endpoints
            .iter()
            .filter(|e| e.kind == EndpointKind::Mysql)
    };
    let secret = servers().find_map(|e| e.secret.as_deref());
    Target {
        servers: servers()
            .map(|e| (e.address.clone(), e.role == EndpointRole::Primary))
            .collect(),
        secret: match secret {
            Some(reference) => {
                let secret = reference.parse::<SecretRef>().map_err(|e| e.to_string());
                secret.map(|secret| resolve(secret, home))
            }
            None => Err("the catalog refers to no password for it".into()),
        },
    }
}

/// A relative file lies among the home's secrets.
fn resolve(secret: SecretRef, home: Option<&HomeDir>) -> SecretRef {
    match (secret, home) {
        (SecretRef::File(file), Some(home)) => SecretRef::File(home.secrets().join(file)),
        (secret @ (SecretRef::File(_) | SecretRef::Env(_) | SecretRef::Command(_)), _) => secret,
    }
}

/// Without a catalog: what this machine's units say.
fn by_units(home: &HomeDir) -> anyhow::Result<BTreeMap<PodId, Target>> {
    let report = status::of_home(home, None)?;
    let targets = report.pods.into_iter().map(|pod| {
        let named = |server: &status::report::Server| format!("{}:{}", server.host, server.port);
        let primary = pod.mysql.primary.iter().map(|server| (named(server), true));
        let replicas = pod
            .mysql
            .replicas
            .iter()
            .map(|server| (named(server), false));
        let target = Target {
            servers: primary.chain(replicas).collect(),
            secret: Ok(SecretRef::File(pod.mysql.password_file.into())),
        };
        (pod.id, target)
    });
    Ok(targets.collect())
}

async fn look(target: &Target) -> Pod {
    let password = match &target.secret {
        Ok(secret) => secret.read().map_err(|e| shared::error::chain(&e)),
        Err(why) => Err(why.clone()),
    };
    database::look(target, password.as_ref()).await
}

async fn steps(home: &HomeDir) -> Asked<Vec<String>> {
    let prepared = plan::make(home).await.map_err(|e| format!("{e:#}"))?;
    Ok(prepared
        .plan
        .steps
        .iter()
        .map(ToString::to_string)
        .collect())
}

async fn units(home: &HomeDir) -> anyhow::Result<Vec<Unit>> {
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(READY_WITHIN)
        .build()?;
    let looks = status::runs(home)?.into_iter().map(|(unit, pid)| {
        let http = http.clone();
        let log = home.log_file(&unit.name).display().to_string();
        async move {
            let (mut ready, mut route_version) = (None, None);
            if let Some(admin) = unit.facts.admin.filter(|_| pid.is_some()) {
                ready = Some(is_ready(&http, &admin).await);
                if unit.kind == Kind::Edge {
                    route_version = shown_version(&http, &admin).await;
                }
            }
            let wanted = unit.desired == Desired::Running;
            Unit {
                name: unit.name,
                wanted,
                pid,
                ready,
                route_version,
                log,
            }
        }
    });
    Ok(futures::future::join_all(looks).await)
}

/// The version of an edge's route table, by its metrics. One that does not say is found not ready already.
async fn shown_version(http: &reqwest::Client, admin: &str) -> Option<u64> {
    let url = format!("{}/metrics", admin.trim_end_matches('/'));
    let text = http.get(url).send().await.ok()?.text().await.ok()?;
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let value = lines
        .filter(|(name, _)| *name == ROUTE_VERSION)
        .map(|(_, value)| value)
        .next()?;
    value.trim().parse().ok()
}

async fn is_ready(http: &reqwest::Client, admin: &str) -> Asked<()> {
    let url = format!("{}/readyz", admin.trim_end_matches('/'));
    let answer = http
        .get(url)
        .send()
        .await
        .map_err(|e| shared::error::chain(&e))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let text = answer.text().await.unwrap_or_default();
    let text: String = text.trim().chars().take(300).collect();
    Err(format!("{status} {text}"))
}

fn disk(folder: &Path) -> anyhow::Result<Disk> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(Disk {
        path: folder.display().to_string(),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}
