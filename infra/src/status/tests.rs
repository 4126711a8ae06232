//! The report is what scripts lean on: its shape, who is named primary, and what is left without a control server.

use serde_json::json;
use shared::{Epoch, PlacementState, ShopId};

use super::*;
use crate::fleet_file::{EdgeWish, PodWish};
use crate::unit::{Desired, Facts, Stop};

fn id(pod: u64) -> PodId {
    PodId::new(pod).unwrap()
}

fn run(name: &str, kind: Kind, pod: Option<u64>, facts: Facts, pid: Option<u32>) -> Run {
    let unit = Unit {
        name: name.into(),
        kind,
        pod: pod.map(id),
        command: Vec::new(),
        desired: Desired::Running,
        stop: Stop::Term,
        revision: String::new(),
        facts,
    };
    (unit, pid)
}

fn web(port: u16) -> Facts {
    Facts {
        http: Some(format!("http://127.0.0.1:{port}")),
        admin: Some(format!("http://127.0.0.1:{}", port + 1)),
        ..Facts::default()
    }
}

fn store(port: u16, socket: Option<&str>) -> Facts {
    Facts {
        port: Some(port),
        socket: socket.map(Into::into),
        ..Facts::default()
    }
}

fn fleet() -> Vec<Run> {
    vec![
        run("control", Kind::Control, None, web(7000), Some(10)),
        run("redis-1", Kind::Redis, Some(1), store(6000, None), Some(11)),
        run(
            "mysql-1-1",
            Kind::Mysql,
            Some(1),
            store(3001, Some("/s/1")),
            Some(12),
        ),
        run(
            "mysql-1-2",
            Kind::Mysql,
            Some(1),
            store(3002, Some("/s/2")),
            None,
        ),
        run("pod-1-1", Kind::Pod, Some(1), web(9000), Some(14)),
        run("edge-1", Kind::Edge, None, web(8080), Some(15)),
    ]
}

fn wish() -> FleetFile {
    FleetFile {
        base_domain: "localhost".parse().unwrap(),
        platform_domain: "localhost".parse().unwrap(),
        edge: EdgeWish {
            listen: "127.0.0.1:8080".parse().unwrap(),
            count: 1,
        },
        moves: String::new(),
        pods: vec![PodWish {
            id: id(1),
            name: "one".into(),
            region: "local".into(),
            pool: "shared".into(),
            class: "small".into(),
            max_shops: 9,
            replicas: 2,
            processes: 1,
        }],
    }
}

fn catalog(primary: &str) -> Catalog {
    let endpoint = |role, address: &str| api::Endpoint {
        kind: api::EndpointKind::Mysql,
        role,
        address: address.into(),
        socket: None,
        secret: None,
    };
    Catalog {
        pods: vec![api::Pod {
            id: id(1),
            name: "first".into(),
            region: "local".into(),
            pool: "shared".into(),
            class: "small".into(),
            max_shops: 9,
            status: api::PodStatus::Draining,
            shops: 1,
            term: 2,
            version: 3,
            endpoints: vec![endpoint(api::EndpointRole::Primary, primary)],
        }],
        shops: vec![api::Shop {
            id: ShopId::new(7).unwrap(),
            handle: "milk".parse().unwrap(),
            plan: "basic".into(),
            currency: "USD".into(),
            region: None,
            status: "active".into(),
            hosts: vec!["milk.localhost".into()],
            pod: api::PodName {
                id: id(1),
                name: "first".into(),
            },
            epoch: Epoch::FIRST,
            state: PlacementState::Serving,
            version: 3,
            r#move: None,
            move_id: None,
            pinned: None,
            pin_reason: None,
        }],
        moves: Vec::new(),
    }
}

#[test]
fn the_whole_report_has_the_names_that_scripts_know() {
    let home = HomeDir::at("/h");
    let report = assemble(&home, &wish(), &fleet(), Some(&catalog("127.0.0.1:3002")));
    let wanted = json!({
        "base_domain": "localhost",
        "edges": [{"http": "http://127.0.0.1:8080", "admin": "http://127.0.0.1:8081", "pid": 15}],
        "controls": [{
            "http": "http://127.0.0.1:7000", "pid": 10,
            "operator_token_file": "/h/secrets/operator-token",
        }],
        "pods": [{
            "id": 1, "name": "first", "status": "draining", "http": "http://127.0.0.1:9000",
            "processes": [{
                "http": "http://127.0.0.1:9000", "admin": "http://127.0.0.1:9001", "pid": 14,
            }],
            "mysql": {
                "user": "podhost_operator",
                "password_file": "/h/secrets/pod-1-mysql-podhost_operator",
                "database": "podhost",
                // The catalog's word, not the order of set-up.
                "primary": {"host": "127.0.0.1", "port": 3002, "socket": "/s/2", "pid": null},
                "replicas": [{"host": "127.0.0.1", "port": 3001, "socket": "/s/1", "pid": 12}],
            },
            "redis": {"url": "redis://127.0.0.1:6000", "pid": 11},
        }],
        "shops": [{
            "id": 7, "handle": "milk", "hosts": ["milk.localhost"], "pod": 1, "epoch": 1,
            "state": "serving", "move": null,
        }],
        "moves": [], "unreachable": [],
    });
    assert_eq!(serde_json::to_value(&report).unwrap(), wanted);
}

#[test]
fn without_a_control_server_the_machine_still_shows_what_runs() {
    let report = assemble(&HomeDir::at("/h"), &wish(), &fleet(), None);
    assert_eq!(report.unreachable, ["control"]);
    assert!(report.shops.is_empty());
    let pod = &report.pods[0];
    assert_eq!((pod.name.as_str(), pod.status.as_str()), ("one", "unknown"));
    assert_eq!(pod.mysql.primary.as_ref().unwrap().port, 3001);
    assert!(
        !text(&report).contains("HANDLE"),
        "no empty table of shops that exist"
    );
}

#[test]
fn a_primary_that_is_not_on_this_machine_is_not_invented() {
    let report = assemble(
        &HomeDir::at("/h"),
        &wish(),
        &fleet(),
        Some(&catalog("10.0.0.9:3306")),
    );
    let mysql = &report.pods[0].mysql;
    assert_eq!(mysql.primary, None);
    assert_eq!(mysql.replicas.len(), 2);
}

#[test]
fn people_see_what_does_not_run() {
    let report = assemble(
        &HomeDir::at("/h"),
        &wish(),
        &fleet(),
        Some(&catalog("127.0.0.1:3001")),
    );
    let text = text(&report);
    let replica = text
        .lines()
        .find(|line| line.starts_with("replica"))
        .unwrap();
    assert!(
        replica.contains("127.0.0.1:3002") && replica.ends_with("not running"),
        "{replica}"
    );
    assert!(text.contains("first (draining)"), "{text}");
}
