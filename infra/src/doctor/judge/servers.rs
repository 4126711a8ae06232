//! Database servers: settings, who takes writes, who follows.

use shared::PodId;
use shared::mysql::{Role, wrong_settings};

use super::Found;
use crate::doctor::facts::{Pod, Replica, Server, ServerState};

/// With fewer replicas a promoted server has nobody to acknowledge its commits.
const REPLICAS_MIN: usize = 2;

/// `why_shut` is the control server's reason for not opening the primary.
pub(super) fn all(id: PodId, pod: &Pod, why_shut: Option<&str>, found: &mut Found) {
    let pod_name = format!("pod {id}");
    let Some(primary) = pod.servers.iter().find(|server| server.is_primary) else {
        found.error(
            "replica",
            pod_name,
            "the catalog names no primary for it",
            "finish its set-up with `podctl apply`",
        );
        return;
    };
    let replicas = pod
        .servers
        .iter()
        .filter(|server| !server.is_primary)
        .count();
    if replicas < REPLICAS_MIN {
        found.warning(
            "replica",
            pod_name,
            format!("it has {replicas} replicas: a lost primary cannot be replaced without stopping its writes"),
            "set replicas = 2 or more for it in fleet.toml",
        );
    }
    for server in &pod.servers {
        match &server.state {
            Err(why) => found.error(
                "replica",
                named(server),
                format!("it cannot be asked: {why}"),
                "`podctl process list` shows whether it runs; its log is in logs/mysql-*.log",
            ),
            Ok(state) => {
                settings(server, state, found);
                if server.is_primary {
                    at_primary(server, state, why_shut, found);
                } else {
                    at_replica(server, state, &primary.address, found);
                }
            }
        }
    }
}

fn named(server: &Server) -> String {
    let role = if server.is_primary {
        "primary"
    } else {
        "replica"
    };
    format!("{role} {}", server.address)
}

/// What every server must be set to. What makes a replica one is judged by itself, since its way out is another.
fn settings(server: &Server, state: &ServerState, found: &mut Found) {
    for wrong in wrong_settings(Role::Primary, &state.variables) {
        found.error(
            "setting",
            format!("{} {}", named(server), wrong.setting.name),
            wrong.to_string(),
            "set it in the server's my.cnf and restart the server: podctl process stop, then start",
        );
    }
}

fn is_on(state: &ServerState, variable: &str) -> bool {
    state
        .variables
        .get(variable)
        .is_some_and(|value| is_yes(value))
}

fn at_primary(server: &Server, state: &ServerState, why_shut: Option<&str>, found: &mut Found) {
    let subject = named(server);
    let shut = is_on(state, "read_only") || is_on(state, "super_read_only");
    if shut {
        found.error(
            "replica",
            &subject,
            match why_shut {
                Some(why) => format!("it is read only, its shops' writes are refused: {why}"),
                None => "it is read only: its shops' writes are refused".into(),
            },
            "the control server opens it when a replica follows it and holds all that it has: mend the replicas, and see \
             that the control server runs",
        );
    }
    // A primary that was started again has them off until the control server opens it, which turns them on first.
    if !shut && !is_on(state, "rpl_semi_sync_source_enabled") {
        found.error(
            "replica",
            &subject,
            "semi-synchronous commits are off at the primary: an acknowledged write may be on one server only",
            "set global rpl_semi_sync_source_enabled = ON there",
        );
    }
    if let Some(replica) = &state.replica {
        found.error(
            "replica",
            &subject,
            format!("the primary itself follows {}", replica.source),
            "compare `podctl pod show` with the server; stop its replication with `reset replica all` if it is the primary",
        );
    }
}

fn at_replica(server: &Server, state: &ServerState, primary: &str, found: &mut Found) {
    let subject = named(server);
    if !is_on(state, "super_read_only") {
        found.error(
            "replica",
            &subject,
            "it can be written to",
            "set global super_read_only = ON there, then look for transactions that only it has",
        );
    }
    if is_on(state, "rpl_semi_sync_source_enabled") {
        found.error(
            "replica",
            &subject,
            "the source side of semi-synchronous replication is on at a replica: it stops its applier for ever",
            "set global rpl_semi_sync_source_enabled = OFF there",
        );
    }
    if !is_on(state, "rpl_semi_sync_replica_enabled") {
        found.error(
            "replica",
            &subject,
            "it does not acknowledge commits",
            "set global rpl_semi_sync_replica_enabled = ON there, then stop and start its receiver",
        );
    }
    if let Some(errant) = state.errant.as_deref().filter(|set| !set.is_empty()) {
        found.error(
            "replica",
            &subject,
            format!("it has transactions that the primary lacks: {errant}"),
            "it must never be promoted: rebuild it from the primary",
        );
    }
    follows(&subject, state.replica.as_ref(), primary, found);
}

fn follows(subject: &str, replica: Option<&Replica>, primary: &str, found: &mut Found) {
    let Some(Replica {
        source,
        receiver,
        applier,
        fault,
    }) = replica
    else {
        found.error(
            "replica",
            subject,
            "it follows nobody",
            "finish the pod's set-up with `podctl apply`",
        );
        return;
    };
    if source != primary {
        found.error(
            "replica",
            subject,
            format!("it follows {source}, not the primary {primary}"),
            "point it to the primary: change replication source to ...",
        );
    }
    if !is_yes(receiver) || !is_yes(applier) {
        let fault = if fault.is_empty() {
            "no fault is named"
        } else {
            fault
        };
        found.error(
            "replica",
            subject,
            format!("receiver {receiver}, applier {applier}: {fault}"),
            "see that the primary runs; then `start replica` there",
        );
    }
}

/// MySQL shows a switch as `ON` or `1`, a thread as `Yes`, by variable and version.
fn is_yes(value: &str) -> bool {
    ["ON", "1", "YES"]
        .iter()
        .any(|yes| yes.eq_ignore_ascii_case(value))
}
