//! The difference between the wish and what was observed, as steps. Pure and deterministic: no I/O, no clock, no
//! randomness; ports and facts come in. Applying it is [`crate::apply`]'s business and decides nothing.

use std::fmt;

use serde::Serialize;

use crate::fleet_file::PodWish;
use crate::home_dir::HomeDir;
use crate::layout::{CONTROL, Layout};
use crate::observe::{self, ControlSeen, Observed, Phase, PodSeen, UnitSeen, World};
use crate::step::Step;
use crate::unit::Kind;

/// What is to be done, in order. Steps of different pods do not depend on one another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// What a person should know: differences that are nobody's to take away.
    pub notes: Vec<String>,
}

/// A plan with what it was made from, which applying it needs.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Prepared {
    /// The plan.
    pub plan: Plan,
    #[serde(skip)]
    pub(crate) world: World,
}

impl fmt::Display for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt(f)
    }
}

/// Observes a home and plans.
pub async fn make(home: &HomeDir) -> anyhow::Result<Prepared> {
    make_in(home, &[], Phase::Any).await
}

/// As [`make`], for a fleet that is being started, with the words of the database server's program if they were named.
pub(crate) async fn make_for_start(home: &HomeDir, mysqld: &[String]) -> anyhow::Result<Prepared> {
    make_in(home, mysqld, Phase::Starting).await
}

async fn make_in(home: &HomeDir, mysqld: &[String], phase: Phase) -> anyhow::Result<Prepared> {
    let (world, observed) = observe::observe(home, mysqld, phase).await?;
    let plan = plan(&world.layout, &world.fleet.pods, &observed);
    Ok(Prepared { plan, world })
}

/// Plans.
pub(crate) fn plan(layout: &Layout, pods: &[PodWish], observed: &Observed) -> Plan {
    let mut steps = Vec::new();
    if !observed.secrets {
        steps.push(Step::FleetSecrets);
    }
    // The control server's file names the tokens of all pods.
    let pod_seen = |pod: &PodWish| observed.pods.get(&pod.id).cloned().unwrap_or_default();
    let secretless = pods.iter().filter(|pod| !pod_seen(pod).secrets);
    steps.extend(secretless.map(|pod| Step::PodSecrets { pod: pod.id }));
    let control = observed.unit(CONTROL);
    steps.extend((!control.file).then_some(Step::ControlFile));
    steps.extend((!control.running).then_some(Step::Control));
    for pod in pods {
        of_pod(layout, pod, &pod_seen(pod), observed, &mut steps);
    }
    let edges = layout.edges();
    let edge =
        |seen: fn(&UnitSeen) -> bool| edges.iter().all(|it| seen(&observed.unit(&it.unit.name)));
    steps.extend((!edge(|seen| seen.file)).then_some(Step::EdgeFiles));
    steps.extend((!edge(|seen| seen.running)).then_some(Step::Edges));
    let mut notes = Vec::new();
    for unit in &observed.surplus {
        // A pod that is not in the file may own shops: nobody stops it because a line is missing.
        let pod_is_wished = unit
            .pod
            .is_none_or(|id| pods.iter().any(|pod| pod.id == id));
        if pod_is_wished && matches!(unit.kind, Kind::Edge | Kind::Pod) {
            steps.push(Step::Remove {
                unit: unit.name.clone(),
            });
        } else {
            notes.push(format!(
                "unit {} is not in fleet.toml and is left alone: move its shops away, drain its pod, then `podctl process stop {0}`",
                unit.name
            ));
        }
    }
    Plan { steps, notes }
}

fn of_pod(
    layout: &Layout,
    wish: &PodWish,
    seen: &PodSeen,
    observed: &Observed,
    steps: &mut Vec<Step>,
) {
    let pod = wish.id;
    let all = |kind: Kind, seen: fn(&UnitSeen) -> bool| {
        layout
            .of_pod(pod, kind)
            .iter()
            .all(|it| seen(&observed.unit(&it.unit.name)))
    };
    let stores = |seen: fn(&UnitSeen) -> bool| all(Kind::Mysql, seen) && all(Kind::Redis, seen);
    let PodSeen {
        secrets: _,
        data,
        provisioned,
        following,
        token,
        primary_open,
        migrated,
        activated,
    } = *seen;
    let registered = match &observed.control {
        Some(ControlSeen { pods }) => pods
            .get(&pod)
            .is_some_and(|it| layout.is_registered(wish, it)),
        None => false,
    };
    let wanted = [
        (!data, Step::Data { pod }),
        (!stores(|it| it.file), Step::StoreFiles { pod }),
        (!stores(|it| it.running), Step::Stores { pod }),
        (!provisioned, Step::Provision { pod }),
        (!following, Step::Follow { pod }),
        (!token, Step::Token { pod }),
        (!registered, Step::Register { pod }),
        (!primary_open, Step::Open { pod }),
        (!migrated, Step::Migrate { pod }),
        (!all(Kind::Pod, |it| it.file), Step::ProcessFiles { pod }),
        (!all(Kind::Pod, |it| it.running), Step::Processes { pod }),
        (!activated, Step::Activate { pod }),
    ];
    steps.extend(
        wanted
            .into_iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, step)| step),
    );
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            writeln!(f, "Nothing to do: the fleet is as fleet.toml says.")?;
        }
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>3}. {step}", index + 1)?;
        }
        for note in &self.notes {
            writeln!(f, "Note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
