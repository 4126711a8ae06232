//! The supervisor on small real processes.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::unit::{Facts, Order, RunState, State, Stop, order};

const SOON: Duration = Duration::from_secs(5);

fn unit(name: &str, kind: Kind, script: &str) -> Unit {
    Unit {
        name: name.into(),
        kind,
        pod: None,
        command: ["bash", "-c", script].map(str::to_owned).to_vec(),
        desired: Desired::Running,
        stop: Stop::Term,
        revision: "1".into(),
        facts: Facts::default(),
    }
}

async fn running(home: &HomeDir, name: &str, not: Option<u32>) -> u32 {
    let began = tokio::time::Instant::now();
    loop {
        let run = RunState::load(home, name).filter(|run| run.state == State::Running);
        if let Some(pid) = run.and_then(|run| run.pid).filter(|pid| Some(*pid) != not) {
            return pid;
        }
        assert!(began.elapsed() < SOON, "{name} does not run");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

struct Fleet {
    home: HomeDir,
    supervisor: Supervisor,
    _lock: crate::home_dir::FleetLock,
    _folder: tempfile::TempDir,
    _events: mpsc::UnboundedReceiver<Event>,
}

async fn fleet(units: &[Unit]) -> Fleet {
    let folder = tempfile::tempdir().unwrap();
    let home = HomeDir::at(folder.path()).create().unwrap();
    for unit in units {
        unit.save(&home).unwrap();
    }
    let lock = crate::home_dir::FleetLock::take(&home.lock_file())
        .await
        .unwrap();
    let (events, heard) = mpsc::unbounded_channel();
    let supervisor = Supervisor::start(home.clone(), events);
    Fleet {
        home,
        supervisor,
        _lock: lock,
        _folder: folder,
        _events: heard,
    }
}

#[tokio::test]
async fn what_dies_is_back_within_a_second_and_what_is_stopped_stays_so() {
    let fleet = fleet(&[unit("redis-1", Kind::Redis, "exec sleep 60")]).await;
    let first = running(&fleet.home, "redis-1", None).await;
    let began = tokio::time::Instant::now();
    order(&fleet.home, "redis-1", Order::Kill, SOON)
        .await
        .unwrap();
    let second = running(&fleet.home, "redis-1", Some(first)).await;
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(RunState::load(&fleet.home, "redis-1").unwrap().restarts, 1);
    order(&fleet.home, "redis-1", Order::Stop, SOON)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(
        proc::of_fleet(&fleet.home).unwrap().is_empty(),
        "it stays stopped"
    );
    order(&fleet.home, "redis-1", Order::Start, SOON)
        .await
        .unwrap();
    running(&fleet.home, "redis-1", Some(second)).await;
    fleet.supervisor.stop().await.unwrap();
}

#[tokio::test]
async fn a_control_server_that_dies_again_and_again_is_back_within_a_second_each_time() {
    let fleet = fleet(&[unit("control", Kind::Control, "exec sleep 60")]).await;
    let mut last = running(&fleet.home, "control", None).await;
    for _ in 0..5 {
        let began = tokio::time::Instant::now();
        order(&fleet.home, "control", Order::Kill, SOON)
            .await
            .unwrap();
        last = running(&fleet.home, "control", Some(last)).await;
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
    }
    fleet.supervisor.stop().await.unwrap();
}

#[tokio::test]
async fn another_revision_means_another_process_and_a_removed_wish_none() {
    let mut wish = unit("redis-1", Kind::Redis, "exec sleep 60");
    let fleet = fleet(std::slice::from_ref(&wish)).await;
    let first = running(&fleet.home, "redis-1", None).await;
    wish.revision = "2".into();
    wish.save(&fleet.home).unwrap();
    running(&fleet.home, "redis-1", Some(first)).await;
    std::fs::remove_file(fleet.home.unit_file("redis-1")).unwrap();
    let began = tokio::time::Instant::now();
    while !proc::of_fleet(&fleet.home).unwrap().is_empty() {
        assert!(began.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fleet.supervisor.stop().await.unwrap();
}

#[tokio::test]
async fn a_fleet_ends_clients_first_and_leaves_no_process() {
    // Each writes its name into one file when it is asked to end.
    let script = |name: &str| {
        format!(
            "trap 'echo {name} >> order; exit' TERM; touch up-{name}; while :; do sleep 0.05; done"
        )
    };
    let kinds = [
        ("control", Kind::Control),
        ("edge-1", Kind::Edge),
        ("pod-1-1", Kind::Pod),
        ("redis-1", Kind::Redis),
    ];
    let units = kinds.map(|(name, kind)| unit(name, kind, &script(name)));
    let fleet = fleet(&units).await;
    for (name, _) in kinds {
        let began = tokio::time::Instant::now();
        while !fleet.home.path().join(format!("up-{name}")).exists() {
            assert!(began.elapsed() < SOON);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let home = fleet.home.clone();
    fleet.supervisor.stop().await.unwrap();
    let order = std::fs::read_to_string(home.path().join("order")).unwrap();
    assert_eq!(
        order.lines().collect::<Vec<_>>(),
        ["edge-1", "pod-1-1", "redis-1", "control"]
    );
    assert!(proc::of_fleet(&home).unwrap().is_empty());
    // Ending a fleet is no wish: the next start runs the same units.
    assert!(
        Unit::all(&home)
            .unwrap()
            .iter()
            .all(|unit| unit.desired == Desired::Running)
    );
}

#[tokio::test]
async fn leftovers_of_a_killed_supervisor_are_ended() {
    let fleet = fleet(&[unit(
        "pod-1-1",
        Kind::Pod,
        "trap '' TERM; while :; do sleep 0.05; done",
    )])
    .await;
    running(&fleet.home, "pod-1-1", None).await;
    // As if it had been killed: nothing is told to end.
    fleet.supervisor.reconciler.abort();
    let left = end_leftovers(&fleet.home).await.unwrap();
    assert_eq!(
        left.iter().filter(|unit| *unit == "pod-1-1").count(),
        left.len()
    );
    assert!(!left.is_empty());
}

#[tokio::test]
async fn a_log_can_be_read_by_its_owner_alone() {
    let fleet = fleet(&[unit("redis-1", Kind::Redis, "echo hello; exec sleep 60")]).await;
    running(&fleet.home, "redis-1", None).await;
    let log = fleet.home.log_file("redis-1");
    let began = tokio::time::Instant::now();
    while std::fs::read_to_string(&log).unwrap_or_default() != "hello\n" {
        assert!(began.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        std::fs::metadata(&log).unwrap().permissions().mode() & 0o777,
        0o600
    );
    fleet.supervisor.stop().await.unwrap();
}
