//! `podctl process`: the units of the local fleet.

use std::time::Duration;

use serde::Serialize;

use super::Context;
use crate::cli::ProcessCommand;
use crate::output::{or_dash, table};
use crate::unit::{self, Desired, Kind, Order, RunState, State, Unit};

/// A unit and what runs for it.
#[derive(Debug, Serialize)]
struct Process {
    name: String,
    kind: Kind,
    pod: Option<shared::PodId>,
    desired: Desired,
    /// None where no `podctl up` runs.
    state: Option<State>,
    pid: Option<u32>,
    restarts: u64,
    last_exit: Option<String>,
    log: String,
}

#[derive(Serialize)]
struct Processes {
    processes: Vec<Process>,
}

/// Runs one.
pub async fn run(cx: &Context, command: ProcessCommand) -> anyhow::Result<()> {
    let (unit, order) = match command {
        ProcessCommand::List => return list(cx),
        ProcessCommand::Stop { unit } => (unit, Order::Stop),
        ProcessCommand::Start { unit } => (unit, Order::Start),
        ProcessCommand::Kill { unit } => (unit, Order::Kill),
    };
    let home = cx.home()?;
    unit::order(
        &home,
        &unit,
        order,
        Duration::from_secs(30).max(cx.timeout()),
    )
    .await?;
    let done = match order {
        Order::Start => "started",
        Order::Stop => "stopped",
        Order::Kill => "killed",
    };
    Ok(cx
        .out
        .result(&serde_json::json!({ "unit": unit, "done": done }), |_| {
            format!("{unit} {done}")
        })?)
}

fn list(cx: &Context) -> anyhow::Result<()> {
    let home = cx.home()?;
    let units = unit::list(&home)?;
    let processes = units
        .into_iter()
        .map(|(unit, run)| {
            let log = home.log_file(&unit.name).display().to_string();
            process(unit, run, log)
        })
        .collect();
    Ok(cx.out.result(&Processes { processes }, |list| {
        let rows = list.processes.iter().map(row).collect();
        let header = ["unit", "wanted", "state", "pid", "restarts", "last exit"];
        table(
            "no processes; start the fleet with `podctl up`",
            header,
            rows,
        )
    })?)
}

fn process(unit: Unit, run: Option<RunState>, log: String) -> Process {
    let Unit {
        name,
        kind,
        pod,
        desired,
        command: _,
        stop: _,
        revision: _,
        facts: _,
    } = unit;
    let (state, pid, restarts, last_exit) = match run {
        Some(RunState {
            pid,
            restarts,
            state,
            last_exit,
            started_ms: _,
            revision: _,
        }) => (Some(state), pid, restarts, last_exit),
        None => (None, None, 0, None),
    };
    Process {
        name,
        kind,
        pod,
        desired,
        state,
        pid,
        restarts,
        last_exit,
        log,
    }
}

fn row(process: &Process) -> [String; 6] {
    let wanted = match process.desired {
        Desired::Running => "running",
        Desired::Stopped => "stopped",
    };
    let state = match process.state {
        Some(State::Running) => "running",
        Some(State::Waiting) => "waiting",
        Some(State::Stopping) => "stopping",
        Some(State::Stopped) => "stopped",
        None => "not running",
    };
    [
        process.name.clone(),
        wanted.into(),
        state.into(),
        or_dash(process.pid),
        process.restarts.to_string(),
        or_dash(process.last_exit.as_ref()),
    ]
}
