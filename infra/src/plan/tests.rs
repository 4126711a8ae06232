//! Plans from what was seen.

use std::collections::{BTreeMap, BTreeSet};

use shared::PodId;

use super::*;
use crate::layout::tests::{fleet, layout, pod};

fn all_well(layout: &Layout, pods: &[PodWish]) -> Observed {
    let seen = UnitSeen {
        file: true,
        running: true,
    };
    let well = PodSeen {
        secrets: true,
        data: true,
        provisioned: true,
        following: true,
        token: true,
        primary_open: true,
        migrated: true,
        activated: true,
    };
    let registered = pods
        .iter()
        .map(|pod| (pod.id, layout.registration(pod, None).into_pod(pod.id)))
        .collect();
    Observed {
        secrets: true,
        units: layout
            .units
            .keys()
            .map(|name| (name.clone(), seen))
            .collect(),
        pods: pods.iter().map(|pod| (pod.id, well.clone())).collect(),
        control: Some(ControlSeen { pods: registered }),
        surplus: Vec::new(),
    }
}

fn texts(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(Step::to_string).collect()
}

#[test]
fn a_fleet_that_is_as_wished_needs_nothing() {
    let fleet = fleet(vec![pod(1, "north"), pod(2, "south")]);
    let layout = layout(&fleet);
    let plan = plan(&layout, &fleet.pods, &all_well(&layout, &fleet.pods));
    assert_eq!(
        plan,
        Plan {
            steps: vec![],
            notes: vec![]
        }
    );
    assert!(plan.to_string().starts_with("Nothing to do"));
}

#[test]
fn a_new_fleet_goes_from_secrets_to_edges_and_the_plan_is_the_same_each_time() {
    let fleet = fleet(vec![pod(1, "north")]);
    let layout = layout(&fleet);
    let nothing = Observed {
        secrets: false,
        units: BTreeMap::new(),
        pods: BTreeMap::new(),
        control: None,
        surplus: Vec::new(),
    };
    let first = plan(&layout, &fleet.pods, &nothing);
    assert_eq!(first, plan(&layout, &fleet.pods, &nothing));
    assert_eq!(
        texts(&first),
        [
            "fleet: make keys and tokens",
            "pod 1: make its keys and passwords",
            "control: write its configuration",
            "control: start it",
            "pod 1: copy fresh data folders for its database servers",
            "pod 1: write the configuration of its database servers and its cache",
            "pod 1: start its database servers and its cache",
            "pod 1: make accounts, schema and identity",
            "pod 1: attach its replicas",
            "pod 1: make its token known to the control server",
            "pod 1: register it with the control server",
            "pod 1: wait until the control server has opened its primary",
            "pod 1: migrate its schema",
            "pod 1: write the configuration of its processes",
            "pod 1: start its processes",
            "pod 1: take it into service",
            "edges: write their configuration",
            "edges: start them",
        ]
    );
}

#[test]
fn a_third_pod_touches_nothing_of_the_others() {
    let two = fleet(vec![pod(1, "north"), pod(2, "south")]);
    let three = fleet(vec![pod(1, "north"), pod(2, "south"), pod(3, "east")]);
    let seen = all_well(&layout(&two), &two.pods);
    let mut seen = Observed {
        control: seen.control,
        ..seen
    };
    // Its token stands in the control server's file, which is another text now.
    seen.units.insert(
        CONTROL.into(),
        UnitSeen {
            file: false,
            running: true,
        },
    );
    let plan = plan(&layout_with_ports_of(&two, &three), &three.pods, &seen);
    assert_eq!(plan.steps[1], Step::ControlFile);
    let third = PodId::new(3).ok();
    let mut others = plan.steps.iter().filter(|step| **step != Step::ControlFile);
    assert!(others.all(|step| step.pod() == third), "{plan}");
    assert_eq!(plan.steps.len(), 14);
}

/// The bigger fleet, with the units of the smaller one where they are.
fn layout_with_ports_of(
    small: &crate::fleet_file::FleetFile,
    big: &crate::fleet_file::FleetFile,
) -> Layout {
    use crate::layout::tests::{ports, programs};
    let mut all = ports(big);
    for (index, (_, unit)) in all.iter_mut().enumerate() {
        unit.main = 30_000 + u16::try_from(index).unwrap();
    }
    all.extend(ports(small));
    Layout::make(&HomeDir::at("/h"), big, &programs(), &all, &BTreeSet::new()).unwrap()
}

#[test]
fn only_what_is_missing_is_planned() {
    let fleet = fleet(vec![pod(1, "north")]);
    let layout = layout(&fleet);
    let id = fleet.pods[0].id;
    let with = |change: fn(&mut Observed, PodId)| {
        let mut seen = all_well(&layout, &fleet.pods);
        change(&mut seen, id);
        plan(&layout, &fleet.pods, &seen).steps
    };
    let dead_replica = with(|seen, _| seen.units.get_mut("mysql-1-2").unwrap().running = false);
    assert_eq!(dead_replica, [Step::Stores { pod: id }]);
    let shut = with(|seen, id| seen.pods.get_mut(&id).unwrap().primary_open = false);
    assert_eq!(shut, [Step::Open { pod: id }]);
    let renamed = with(|seen, id| {
        seen.control
            .as_mut()
            .unwrap()
            .pods
            .get_mut(&id)
            .unwrap()
            .name = "old".into();
    });
    assert_eq!(renamed, [Step::Register { pod: id }]);
    // What an operator decided about a pod's service stays.
    let drained = with(|seen, id| {
        seen.control
            .as_mut()
            .unwrap()
            .pods
            .get_mut(&id)
            .unwrap()
            .status = crate::api::PodStatus::Draining;
    });
    assert_eq!(drained, []);
}

#[test]
fn a_surplus_process_goes_and_a_pod_missing_in_the_file_stays() {
    let fleet = fleet(vec![pod(1, "north")]);
    let layout = layout(&fleet);
    let unit = |name: &str, kind: Kind, id: u64| {
        let mut unit = layout.unit("pod-1-1").unwrap().unit.clone();
        (unit.name, unit.kind, unit.pod) = (name.into(), kind, PodId::new(id).ok());
        unit
    };
    let surplus = vec![
        unit("pod-1-3", Kind::Pod, 1),
        unit("mysql-2-1", Kind::Mysql, 2),
        unit("pod-2-1", Kind::Pod, 2),
    ];
    let seen = Observed {
        surplus,
        ..all_well(&layout, &fleet.pods)
    };
    let plan = plan(&layout, &fleet.pods, &seen);
    assert_eq!(
        plan.steps,
        [Step::Remove {
            unit: "pod-1-3".into()
        }]
    );
    assert_eq!(plan.notes.len(), 2);
}
