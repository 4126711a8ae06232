//! The bands by which a replica is in or out, without servers.

use super::*;
use crate::config::Replica;
use crate::db::Settings;

const UUID: &str = "bdbea337-ec7c-11f1-86a3-02fc00000001";

fn set(to: u64) -> GtidSet {
    GtidSet::parse(&format!("{UUID}:1-{to}")).unwrap()
}

fn answer(to: u64) -> Option<PrimaryAnswer> {
    Some(PrimaryAnswer {
        open: true,
        server_uuid: UUID.into(),
        executed: set(to),
    })
}

fn standing(to: u64) -> Standing {
    Standing {
        at: Instant::now(),
        executed: set(to),
        fault: "",
        cut_off: false,
    }
}

fn servers() -> Servers {
    let config = crate::config::tests::good();
    let config = Config {
        mysql: Mysql {
            replicas: vec![Replica {
                at: config.mysql.primary.clone(),
                group: Group::Online,
                weight: 1,
            }],
            ..config.mysql.clone()
        },
        ..config
    };
    Servers::new(&config, |_| {
        Pool::new(
            sqlx::mysql::MySqlConnectOptions::new(),
            Settings {
                role: "replica",
                max: 1,
                wait: Duration::ZERO,
                connect: Duration::ZERO,
                ping: Duration::ZERO,
                idle: Duration::ZERO,
                life: Duration::ZERO,
                queue: 1,
                per_shop: 1,
                queue_per_shop: 1,
                session: String::new(),
                breaker: Arc::new(crate::db::Breaker::new(Duration::ZERO)),
            },
        )
    })
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_in_by_what_it_holds_and_how_old_that_is() {
    let servers = servers();
    let replica = servers.replicas[0].clone();
    let count = |ready: Option<&GtidSet>| servers.candidates(ready).len();
    assert_eq!(count(None), 0, "not asked yet");

    servers.note_primary(Instant::now(), answer(10));
    servers.note_replica(&replica, standing(10));
    assert_eq!(count(None), 1);
    assert_eq!(count(Some(&set(10))), 1);
    assert_eq!(count(Some(&set(11))), 0, "it lacks what the home asks for");

    // It stays at 10 while the primary goes on.
    tokio::time::advance(Duration::from_millis(600)).await;
    servers.note_primary(Instant::now(), answer(20));
    servers.note_replica(&replica, standing(10));
    assert_eq!(count(None), 1, "600 ms behind");
    tokio::time::advance(Duration::from_millis(600)).await;
    servers.note_primary(Instant::now(), answer(20));
    servers.note_replica(&replica, standing(10));
    assert_eq!(count(None), 0, "1200 ms behind");

    servers.note_replica(&replica, standing(20));
    assert_eq!(count(None), 1, "caught up");
    servers.note_replica(&replica, Standing::out("its applier is stopped"));
    assert_eq!(count(None), 0, "stopped");
}

#[tokio::test(start_paused = true)]
async fn without_a_primary_replicas_in_band_go_on_for_a_stated_time() {
    let servers = servers();
    let replica = servers.replicas[0].clone();
    servers.note_primary(Instant::now(), answer(10));
    let cut_off = || Standing {
        cut_off: true,
        ..standing(10)
    };
    servers.note_replica(&replica, cut_off());
    assert_eq!(
        servers.candidates(None).len(),
        0,
        "cut off from a primary that is there"
    );

    servers.note_primary(Instant::now(), None);
    assert!(servers.may_stand_in());
    tokio::time::advance(Duration::from_secs(10)).await;
    servers.note_replica(&replica, cut_off());
    assert_eq!(servers.candidates(None).len(), 1);
    tokio::time::advance(servers.reads.orphan).await;
    assert!(!servers.may_stand_in());
    assert_eq!(servers.candidates(None).len(), 0);
}
