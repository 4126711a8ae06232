//! Operations, buckets, processes, disks.

use time::{Duration, OffsetDateTime};

use super::Found;
use crate::api::{OperationState, PodStatus};
use crate::catalog::BUCKETS;
use crate::doctor::Severity;
use crate::doctor::facts::{Asked, Catalog, Disk, Unit};

/// The control server takes up what a crash left within seconds; what has not moved for this long is stuck.
const OPERATION_STUCK: Duration = Duration::minutes(1);

/// With less than this share free a binlog or a copy of a table may not fit any more...
const DISK_LOW_PERCENT: u64 = 10;

/// ... but on a large disk a tenth is plenty: with this much free (in bytes) nothing is told.
const DISK_ENOUGH: u64 = 20 << 30;

/// With less than this share free the servers stop at any moment.
const DISK_OUT_PERCENT: u64 = 2;

pub(super) fn reconciled(catalog: &Catalog, found: &mut Found) {
    if !catalog.status.reconciled {
        found.error(
            "control",
            "catalog",
            "it was restored and is not reconciled: no shop is made and none moves",
            "compare its placements with the pods' homes (the placement findings here) before it is trusted again",
        );
    }
}

pub(super) fn operations(catalog: &Catalog, now: OffsetDateTime, found: &mut Found) {
    for operation in &catalog.operations {
        if operation.state != OperationState::Running
            || now - operation.changed_at < OPERATION_STUCK
        {
            continue;
        }
        let step = operation.step.as_deref().unwrap_or("its first step");
        let why = operation
            .error
            .as_deref()
            .map(|e| format!(" ({e})"))
            .unwrap_or_default();
        let fix = if operation.kind == "apply" {
            "finish it: podctl apply"
        } else {
            "the control server finishes it when what it needs is there: mend the other findings first"
        };
        found.warning(
            "operation",
            format!("{} {}", operation.kind, operation.subject),
            format!("unfinished since {}, at {step}{why}", operation.changed_at),
            fix,
        );
    }
}

pub(super) fn buckets(catalog: &Catalog, found: &mut Found) {
    let shares = &catalog.status.buckets;
    let sum: u32 = shares.iter().map(|share| share.live).sum();
    if u64::from(sum) != BUCKETS {
        found.error(
            "bucket",
            "bucket_placement",
            format!("it has {sum} rows, not {BUCKETS}: shops of the missing buckets get any pod"),
            "restore the catalog from a copy",
        );
    }
    for share in shares.iter().filter(|share| share.live > 0) {
        let Some(id) = share.pod else { continue };
        let live = share.live;
        match catalog.pods.iter().find(|pod| pod.id == id).map(|pod| (&pod.name, pod.status)) {
            Some((_, PodStatus::Active | PodStatus::Draining)) => {}
            Some((name, PodStatus::Offline)) => found.warning(
                "bucket",
                name,
                format!("{live} buckets propose it for new shops, and it is offline"),
                "new shops go to the emptiest pod that fits meanwhile; bring the pod back, or add one",
            ),
            None => found.error(
                "bucket",
                format!("pod {id}"),
                format!("{live} buckets propose it, and there is no such pod"),
                "restore the catalog from a copy",
            ),
        }
    }
}

/// A process that does not run is a step too: what has no finding of its own is found here.
pub(super) fn plan(plan: &Asked<Vec<String>>, found: &mut Found) {
    match plan {
        Ok(steps) => {
            if let Some(first) = steps.first() {
                found.warning(
                    "plan",
                    "fleet.toml",
                    match steps.len() {
                        1 => format!("the fleet is not what it says, one step is to be done: {first}"),
                        many => format!("the fleet is not what it says, {many} steps are to be done, the first: {first}"),
                    },
                    "`podctl plan` shows them, `podctl apply` does them",
                );
            }
        }
        Err(why) => found.error(
            "plan",
            "fleet.toml",
            format!("it cannot be compared with the fleet: {why}"),
            "mend what it names, and look again",
        ),
    }
}

pub(super) fn units(supervised: Option<bool>, units: &[Unit], found: &mut Found) {
    if supervised == Some(false) {
        let runs = units.iter().any(|unit| unit.pid.is_some());
        found.error(
            "process",
            "podctl up",
            if runs {
                "it was killed: what dies now is not started again"
            } else {
                "the fleet does not run"
            },
            "start it: podctl up; it ends what is left and starts everything in its order",
        );
        if !runs {
            return;
        }
    }
    for unit in units {
        let Unit {
            name,
            wanted,
            pid,
            ready,
            route_version: _,
            log,
        } = unit;
        match (wanted, pid) {
            (false, _) => found.warning(
                "process",
                name,
                "an operator stopped it",
                format!("start it when it is wanted again: podctl process start {name}"),
            ),
            (true, None) => found.error(
                "process",
                name,
                "it does not run",
                format!("start the fleet with `podctl up`; if it runs, {log} says why this process does not"),
            ),
            (true, Some(_)) => {
                if let Some(Err(why)) = ready {
                    found.error(
                        "process",
                        name,
                        format!("it runs and is not ready: {why}"),
                        format!("{log} says more"),
                    );
                }
            }
        }
    }
}

/// Every edge shows at least the last change of routes that the catalog had when it was asked, before the edges.
pub(super) fn routes(catalog: &Catalog, units: &[Unit], found: &mut Found) {
    let wanted = catalog.status.routes_version;
    for unit in units {
        if let Some(version) = unit.route_version.filter(|version| *version < wanted) {
            found.error(
                "route",
                &unit.name,
                format!("its route table is at version {version}, routes changed at {wanted}"),
                format!("{} says why it cannot follow the control server", unit.log),
            );
        }
    }
}

pub(super) fn disks(disks: &[Disk], found: &mut Found) {
    for disk in disks {
        let percent = u128::from(disk.free) * 100 / u128::from(disk.total.max(1));
        let severity = if percent < u128::from(DISK_OUT_PERCENT) {
            Severity::Error
        } else if percent < u128::from(DISK_LOW_PERCENT) && disk.free < DISK_ENOUGH {
            Severity::Warning
        } else {
            continue;
        };
        found.add(
            severity,
            "disk",
            &disk.path,
            format!(
                "{} MiB of {} MiB are free ({percent} %)",
                disk.free >> 20,
                disk.total >> 20
            ),
            "make room: a database server with a full disk stops in the middle of its writes",
        );
    }
}
