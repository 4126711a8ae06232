//! Looking at a fleet: the wish, what lies on the disk, what runs, what the control server knows. All I/O before a plan is
//! here, and nothing but the register of ports is changed by it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::join_all;
use shared::PodId;

use crate::api;
use crate::client::Control;
use crate::fleet_file::{FleetFile, PodWish};
use crate::home_dir::{FleetLock, HomeDir};
use crate::layout::{CONTROL, Layout, Programs, Seat, UnitPorts, seats};
use crate::mysqld::Mysqld;
use crate::mysqld::admin::Server;
use crate::ports::Ports;
use crate::secrets;
use crate::step::serves;
use crate::unit::{Kind, RunState, State, Unit};

/// The control server is on this machine; it answers or it does not.
const CONTROL_WITHIN: Duration = Duration::from_secs(5);

/// The wish in every detail.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) home: HomeDir,
    pub(crate) fleet: FleetFile,
    pub(crate) layout: Layout,
    pub(crate) mysqld: Mysqld,
}

/// What is there, as far as a plan asks.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    /// The fleet's keys and tokens.
    pub(crate) secrets: bool,
    pub(crate) units: BTreeMap<String, UnitSeen>,
    pub(crate) pods: BTreeMap<PodId, PodSeen>,
    /// None while nobody answers.
    pub(crate) control: Option<ControlSeen>,
    /// Units that the wish does not have.
    pub(crate) surplus: Vec<Unit>,
}

/// A unit: whether it is as the layout says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UnitSeen {
    /// Its configuration file.
    pub(crate) file: bool,
    /// Its process, started with that configuration, and serving.
    pub(crate) running: bool,
}

/// A pod: what is done already. What cannot be seen, since its servers are down, counts as not done: each step looks
/// again before it does anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodSeen {
    pub(crate) secrets: bool,
    pub(crate) data: bool,
    pub(crate) provisioned: bool,
    pub(crate) following: bool,
    pub(crate) token: bool,
    pub(crate) primary_open: bool,
    pub(crate) migrated: bool,
    pub(crate) activated: bool,
}

/// What the control server knows.
#[derive(Debug, Clone)]
pub(crate) struct ControlSeen {
    pub(crate) pods: BTreeMap<PodId, api::Pod>,
}

impl Observed {
    pub(crate) fn unit(&self, name: &str) -> UnitSeen {
        self.units.get(name).copied().unwrap_or_default()
    }
}

/// Where a fleet is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `podctl up` has just begun: nothing runs, so nobody is asked.
    Starting,
    /// Somebody runs it, or nobody does.
    Any,
}

/// Looks. `mysqld` names the server program, if the operator did.
pub(crate) async fn observe(
    home: &HomeDir,
    mysqld: &[String],
    phase: Phase,
) -> anyhow::Result<(World, Observed)> {
    let fleet = FleetFile::load(home)?;
    let mysqld = Mysqld::find(mysqld).await?;
    let programs = programs(mysqld.clone())?;
    let units = Unit::all(home)?;
    let ports = ports(home, &fleet, &units)?;
    let kept = units.iter().filter_map(|unit| unit.pod).collect();
    let layout = Layout::make(home, &fleet, &programs, &ports, &kept)?;
    let supervised = phase == Phase::Any && FleetLock::holder(&home.lock_file()).is_some();
    let states = join_all(layout.units.iter().map(|(name, wanted)| async move {
        let file =
            std::fs::read(&wanted.file.path).is_ok_and(|text| text == wanted.file.text.as_bytes());
        let running =
            supervised && runs(home, &wanted.unit) && serves(home, &wanted.unit).await.is_ok();
        (name.clone(), UnitSeen { file, running })
    }));
    let states = states.await.into_iter().collect();
    let control = if supervised {
        control_seen(home).await
    } else {
        None
    };
    let mut pods = BTreeMap::new();
    for pod in &fleet.pods {
        pods.insert(
            pod.id,
            pod_seen(home, &layout, pod, control.as_ref(), supervised).await,
        );
    }
    let observed = Observed {
        secrets: are_there(home, &secrets::of_fleet()),
        units: states,
        pods,
        control: control.map(|(_, seen)| seen),
        surplus: units
            .into_iter()
            .filter(|unit| !layout.units.contains_key(&unit.name))
            .collect(),
    };
    Ok((
        World {
            home: home.clone(),
            fleet,
            layout,
            mysqld,
        },
        observed,
    ))
}

/// The programs beside this one, and Redis from the PATH.
fn programs(mysqld: Mysqld) -> anyhow::Result<Programs> {
    let podctl = std::env::current_exe().context("find this program's own file")?;
    // Linux says so when the file was replaced while it runs.
    let podctl = podctl
        .to_string_lossy()
        .trim_end_matches(" (deleted)")
        .to_owned();
    let podctl = PathBuf::from(podctl);
    let beside = |name: &str| {
        let path = podctl.with_file_name(name);
        anyhow::ensure!(
            path.is_file(),
            "there is no {name} beside {}: build it (`cargo build -p {name}`), or start with `infra/up`, which does",
            podctl.display()
        );
        Ok(path)
    };
    let redis = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path)
            .chain(["/usr/sbin".into()])
            .map(|folder| folder.join("redis-server"))
            .find(|program| program.is_file())
    });
    Ok(Programs {
        edge: beside("edge")?,
        pod: beside("pod")?,
        redis: redis
            .context("there is no redis-server on the PATH: `infra/setup/system` installs it")?,
        podctl,
        mysqld,
        root: rustix::process::geteuid().is_root(),
    })
}

/// The ports that units have, and new ones for those that have none.
fn ports(
    home: &HomeDir,
    fleet: &FleetFile,
    units: &[Unit],
) -> anyhow::Result<BTreeMap<String, UnitPorts>> {
    // Opened only when it is needed: other fleets wait for it.
    let mut register = None;
    let mut choose = |what: &str| match &mut register {
        Some(ports) => Ports::choose(ports, what),
        None => register.insert(Ports::open(home)?).choose(what),
    };
    seats(fleet)
        .into_iter()
        .map(|seat| {
            let had = units
                .iter()
                .find(|unit| unit.name == seat.name)
                .and_then(had_ports);
            let admin_name = format!("{} admin", seat.name);
            let ports = match (seat.kind, had) {
                // The wish says where edges listen.
                (Kind::Edge, had) => UnitPorts {
                    main: fleet.edge.listen.port() + (seat.number - 1),
                    admin: Some(
                        had.and_then(|had| had.admin)
                            .map_or_else(|| choose(&admin_name), Ok)?,
                    ),
                },
                (Kind::Control | Kind::Redis | Kind::Mysql | Kind::Pod, Some(had)) => had,
                (Kind::Control | Kind::Redis | Kind::Mysql | Kind::Pod, None) => UnitPorts {
                    main: choose(&seat.name)?,
                    admin: seat.has_admin().then(|| choose(&admin_name)).transpose()?,
                },
            };
            Ok((seat.name, ports))
        })
        .collect()
}

fn had_ports(unit: &Unit) -> Option<UnitPorts> {
    let port = |url: &String| url.rsplit(':').next()?.trim_end_matches('/').parse().ok();
    let main = unit
        .facts
        .port
        .or_else(|| unit.facts.http.as_ref().and_then(port))?;
    Some(UnitPorts {
        main,
        admin: unit.facts.admin.as_ref().and_then(port),
    })
}

fn are_there(home: &HomeDir, secrets: &[String]) -> bool {
    secrets.iter().all(|name| home.secret_file(name).is_file())
}

/// Whether a unit is wished for just so, and its process was started for that wish.
pub(crate) fn runs(home: &HomeDir, unit: &Unit) -> bool {
    let wished = Unit::load(home, &unit.name)
        .ok()
        .flatten()
        .is_some_and(|wish| wish == *unit);
    wished
        && RunState::load(home, &unit.name)
            .is_some_and(|run| run.state == State::Running && run.revision == unit.revision)
}

/// The control server of a home, as its operator. None if the fleet has none yet.
pub(crate) fn control(home: &HomeDir) -> anyhow::Result<Option<Control>> {
    control_as(home, secrets::OPERATOR_TOKEN)
}

/// The control server of a home, with some token of the fleet's.
pub(crate) fn control_as(home: &HomeDir, token: &str) -> anyhow::Result<Option<Control>> {
    let url = Unit::load(home, CONTROL)?.and_then(|unit| unit.facts.http);
    let Some(url) = url.filter(|_| home.secret_file(token).is_file()) else {
        return Ok(None);
    };
    Ok(Some(Control::new(
        &[url],
        secrets::token(home, token)?,
        CONTROL_WITHIN,
    )?))
}

async fn control_seen(home: &HomeDir) -> Option<(Control, ControlSeen)> {
    let control = control(home).ok().flatten()?;
    let pods = control.pods().await.ok()?;
    let pods = pods.into_iter().map(|pod| (pod.id, pod)).collect();
    Some((control, ControlSeen { pods }))
}

async fn pod_seen(
    home: &HomeDir,
    layout: &Layout,
    wish: &PodWish,
    control: Option<&(Control, ControlSeen)>,
    supervised: bool,
) -> PodSeen {
    let servers = layout.of_pod(wish.id, Kind::Mysql);
    let mut seen = PodSeen {
        secrets: are_there(home, &secrets::of_pod(wish.id)),
        data: wish.servers().all(|k| has_data(&home.mysql(wish.id, k))),
        activated: home.pod_activated(wish.id).is_file(),
        ..PodSeen::default()
    };
    if !supervised || !seen.secrets || !seen.data {
        return seen;
    }
    seen.token = token_is_known(home, wish.id).await;
    let mut identities = Vec::new();
    for wanted in servers {
        let looked = look(home, &wanted.unit).await;
        let ServerSeen {
            identity,
            open,
            migrated,
        } = looked.unwrap_or_default();
        identities.push(identity == Some(wish.id.get()));
        seen.primary_open |= open;
        seen.migrated |= open && migrated;
    }
    let registered = control.is_some_and(|(_, seen)| seen.pods.contains_key(&wish.id));
    // Before the control server knows the pod, an open server is one that provisioning left so.
    seen.provisioned = identities.contains(&true) && (registered || !seen.primary_open);
    seen.following = identities.iter().all(|has| *has);
    seen.primary_open &= registered;
    seen
}

/// A database server.
#[derive(Debug, Default)]
struct ServerSeen {
    identity: Option<u32>,
    open: bool,
    migrated: bool,
}

async fn look(home: &HomeDir, unit: &Unit) -> anyhow::Result<ServerSeen> {
    let server = Server::of(unit).context("no database server")?;
    let mut conn = server.connect(home).await?;
    let identity = conn.identity().await?;
    let migrated = identity.is_some() && conn.is_migrated().await?;
    let seen = ServerSeen {
        identity,
        open: conn.is_open().await?,
        migrated,
    };
    conn.close().await;
    Ok(seen)
}

/// A data folder has its final name once it is whole.
pub(crate) fn has_data(folder: &Path) -> bool {
    folder.join("data").is_dir()
}

/// Whether the control server takes a pod's token. It answers for a pod that it does not know too.
pub(crate) async fn token_is_known(home: &HomeDir, pod: PodId) -> bool {
    let Ok(Some(control)) = control_as(home, &secrets::pod_token(pod)) else {
        return false;
    };
    match control.topology(&pod.to_string()).await {
        Ok(_) => true,
        Err(fault) => fault.is_not_found(),
    }
}

impl Seat {
    /// What to say about its port.
    pub(crate) fn way_out(&self) -> String {
        match self.kind {
            Kind::Edge => "or choose another with `--edge-port N` (0 picks a free one)".into(),
            Kind::Control | Kind::Redis | Kind::Mysql | Kind::Pod => {
                "then start again; the fleet keeps its ports since other parts know them".into()
            }
        }
    }
}
