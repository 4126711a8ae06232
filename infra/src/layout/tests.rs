//! What a fleet is laid out as.

use super::*;
use crate::fleet_file::EdgeWish;

pub(crate) fn pod(id: u64, name: &str) -> PodWish {
    PodWish {
        id: PodId::new(id).unwrap(),
        name: name.into(),
        region: "local".into(),
        pool: "shared".into(),
        class: "small".into(),
        max_shops: 100,
        replicas: 2,
        processes: 2,
    }
}

pub(crate) fn fleet(pods: Vec<PodWish>) -> FleetFile {
    FleetFile {
        base_domain: "localhost".parse().unwrap(),
        platform_domain: "localhost".parse().unwrap(),
        edge: EdgeWish {
            listen: "127.0.0.1:8080".parse().unwrap(),
            count: 1,
        },
        moves: String::new(),
        pods,
    }
}

pub(crate) fn ports(fleet: &FleetFile) -> BTreeMap<String, UnitPorts> {
    let ports = (20_000..).step_by(2);
    let unit_ports = |(seat, port): (Seat, u16)| {
        let admin = seat.has_admin().then_some(port + 1);
        (seat.name, UnitPorts { main: port, admin })
    };
    seats(fleet)
        .into_iter()
        .zip(ports)
        .map(unit_ports)
        .collect()
}

pub(crate) fn programs() -> Programs {
    let mysqld = Mysqld {
        words: vec!["ld.so".into(), "mysqld".into()],
        version: "9.7.4".into(),
    };
    Programs {
        podctl: "/bin/podctl".into(),
        edge: "/bin/edge".into(),
        pod: "/bin/pod".into(),
        redis: "/bin/redis-server".into(),
        mysqld,
        root: true,
    }
}

pub(crate) fn layout(fleet: &FleetFile) -> Layout {
    Layout::make(
        &HomeDir::at("/h"),
        fleet,
        &programs(),
        &ports(fleet),
        &BTreeSet::new(),
    )
    .unwrap()
}

#[test]
fn two_pods_are_fourteen_units_and_every_text_is_what_its_program_reads() {
    let layout = layout(&fleet(vec![pod(1, "north"), pod(2, "south")]));
    assert_eq!(
        layout.units.keys().map(String::as_str).collect::<Vec<_>>(),
        [
            "control",
            "edge-1",
            "mysql-1-1",
            "mysql-1-2",
            "mysql-1-3",
            "mysql-2-1",
            "mysql-2-2",
            "mysql-2-3",
            "pod-1-1",
            "pod-1-2",
            "pod-2-1",
            "pod-2-2",
            "redis-1",
            "redis-2"
        ]
    );
    for (name, wanted) in &layout.units {
        assert!(!wanted.file.text.contains("{{"), "{name}");
        if wanted
            .file
            .path
            .extension()
            .is_some_and(|end| end == "toml")
        {
            wanted
                .file
                .text
                .parse::<toml::Table>()
                .unwrap_or_else(|fault| panic!("{name}: {fault}"));
        }
    }
}

#[test]
fn a_pod_process_knows_its_own_servers_and_nobody_elses_secrets() {
    let layout = layout(&fleet(vec![pod(1, "north"), pod(2, "south")]));
    let text = &layout.unit("pod-2-1").unwrap().file.text;
    let table: toml::Table = text.parse().unwrap();
    let port = |name: &str| i64::from(layout.unit(name).unwrap().unit.facts.port.unwrap());
    assert_eq!(
        table["mysql"]["primary"]["port"].as_integer(),
        Some(port("mysql-2-1"))
    );
    let replicas: Vec<_> = table["mysql"]["replicas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["port"].as_integer())
        .collect();
    assert_eq!(replicas, [Some(port("mysql-2-2")), Some(port("mysql-2-3"))]);
    for secret in ["pod-1-", "fleet-key", "operator"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[test]
fn mysql_starts_with_its_defaults_file_first_and_read_only() {
    let layout = layout(&fleet(vec![pod(1, "north")]));
    let wanted = layout.unit("mysql-1-3").unwrap();
    assert_eq!(
        wanted.unit.command,
        ["ld.so", "mysqld", "--defaults-file=/h/pod-1/mysql-3/my.cnf"]
    );
    assert_eq!(wanted.unit.stop, Stop::Mysql);
    for line in [
        "super_read_only = ON",
        "server_id = 3",
        "relay_log_recovery = OFF",
        "datadir = /h/pod-1/mysql-3/data",
    ] {
        assert!(wanted.file.text.lines().any(|it| it == line), "{line}");
    }
}

#[test]
fn what_moves_may_take_stays_in_the_control_servers_file_and_is_a_restart_of_it() {
    let control = |fleet: &FleetFile| layout(fleet).unit(CONTROL).unwrap().clone();
    let moves = |wanted: &Wanted| {
        let table: toml::Table = wanted.file.text.parse().unwrap();
        table.get("moves").cloned()
    };
    let mut wish = fleet(vec![pod(1, "north")]);
    let before = control(&wish);
    assert_eq!(moves(&before), None);
    wish.moves = "[moves]\nstreams = 5".into();
    let after = control(&wish);
    assert_eq!(
        moves(&after).unwrap()["streams"].as_integer(),
        Some(5),
        "{}",
        after.file.text
    );
    assert_ne!(before.unit.revision, after.unit.revision);
    // Another pod changes the file and takes nothing away.
    wish.pods.push(pod(2, "south"));
    let third = control(&wish);
    assert_eq!(moves(&third), moves(&after));
    assert_eq!(third.unit.revision, after.unit.revision);
}

#[test]
fn a_third_pod_restarts_nothing_of_the_others() {
    let two = fleet(vec![pod(1, "north"), pod(2, "south")]);
    let three = fleet(vec![pod(1, "north"), pod(2, "south"), pod(3, "east")]);
    let mut ports = ports(&three);
    // What runs keeps its ports.
    ports.extend(super::tests::ports(&two));
    for (index, (_, unit)) in ports
        .iter_mut()
        .filter(|(name, _)| name.contains("-3-") || *name == "redis-3")
        .enumerate()
    {
        unit.main = 30_000 + u16::try_from(index).unwrap();
    }
    let before = Layout::make(
        &HomeDir::at("/h"),
        &two,
        &programs(),
        &ports,
        &BTreeSet::new(),
    )
    .unwrap();
    let after = Layout::make(
        &HomeDir::at("/h"),
        &three,
        &programs(),
        &ports,
        &BTreeSet::new(),
    )
    .unwrap();
    for (name, wanted) in &before.units {
        assert_eq!(wanted.unit, after.unit(name).unwrap().unit, "{name}");
    }
    // The control server hears of the new pod's token without a restart.
    let control = |layout: &Layout| layout.unit(CONTROL).unwrap().file.text.clone();
    assert_ne!(control(&before), control(&after));
    assert!(control(&after).contains("name = \"pod-3\""));
    // A pod that is missing in the file serves on: its token stays.
    let kept = BTreeSet::from([PodId::new(3).unwrap()]);
    let missing = Layout::make(&HomeDir::at("/h"), &two, &programs(), &ports, &kept).unwrap();
    assert_eq!(control(&missing), control(&after));
}
