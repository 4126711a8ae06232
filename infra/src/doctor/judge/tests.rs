//! A sound fleet has no finding, and each single fault added to it has exactly its own.

use std::collections::BTreeMap;

use migrations::POD;
use serde_json::json;
use shared::home::HomeState;
use shared::{Epoch, PlacementState, PodId, ShopId};
use time::{Duration, OffsetDateTime};

use super::judge;
use crate::api::{self, OperationState, PodStatus};
use crate::doctor::facts::*;
use crate::doctor::settings::{EVERY_SERVER, Rule};
use crate::doctor::{Diagnosis, Severity};

const A: &str = "127.0.0.1:1";
const B: &str = "127.0.0.1:2";
const C: &str = "127.0.0.1:3";

fn pod_id(id: u64) -> PodId {
    PodId::new(id).unwrap()
}

fn shop_id(id: u64) -> ShopId {
    ShopId::new(id).unwrap()
}

fn epoch(n: u64) -> Epoch {
    Epoch::try_from(n).unwrap()
}

fn server(address: &str, primary: bool) -> Server {
    let mut variables: BTreeMap<String, String> = EVERY_SERVER
        .iter()
        .map(|setting| {
            let value = match setting.rule {
                Rule::Is(value) => value.to_owned(),
                Rule::AtLeast(least) => least.to_string(),
            };
            (setting.name.to_owned(), value)
        })
        .collect();
    let on = |is: bool| if is { "ON" } else { "OFF" }.to_owned();
    variables.insert("read_only".into(), on(!primary));
    variables.insert("super_read_only".into(), on(!primary));
    variables.insert("rpl_semi_sync_source_enabled".into(), on(primary));
    variables.insert("rpl_semi_sync_replica_enabled".into(), "ON".into());
    let replica = (!primary).then(|| Replica {
        source: A.into(),
        receiver: "Yes".into(),
        applier: "Yes".into(),
        fault: String::new(),
    });
    let errant = (!primary).then(String::new);
    let state = Ok(ServerState {
        variables,
        replica,
        errant,
    });
    Server {
        address: address.into(),
        is_primary: primary,
        state,
    }
}

fn table(name: &str) -> Table {
    Table {
        name: name.into(),
        has_shop: true,
        primary_first: Some("shop_id".into()),
        unique_elsewhere: Vec::new(),
    }
}

fn pod(id: u64, shop: u64) -> Pod {
    let home = Home {
        epoch: epoch(3),
        state: HomeState::Serving,
        in_move: false,
    };
    let ledger = POD.iter().map(|file| LedgerRow {
        version: file.version,
        checksum: file.checksum(),
        finished: true,
    });
    let local = Table {
        has_shop: false,
        primary_first: Some("one".into()),
        ..table("pod_identity")
    };
    Pod {
        contents: Ok(Contents {
            identity: Some(Identity {
                pod: id,
                term: 1,
                reconciled: true,
            }),
            homes: BTreeMap::from([(shop_id(shop), home)]),
            ledger: ledger.collect(),
            tables: vec![local, table("product")],
        }),
        servers: vec![server(A, true), server(B, false), server(C, false)],
    }
}

fn shop(id: u64, handle: &str, pod: u64) -> api::Shop {
    api::Shop {
        id: shop_id(id),
        handle: handle.parse().unwrap(),
        plan: "basic".into(),
        currency: "USD".into(),
        region: None,
        status: "active".into(),
        hosts: vec![format!("{handle}.localhost"), format!("{handle}.example")],
        pod: api::PodName {
            id: pod_id(pod),
            name: format!("p{pod}"),
        },
        epoch: epoch(3),
        state: PlacementState::Serving,
        version: 1,
        r#move: None,
    }
}

fn listed(id: u64) -> api::Pod {
    api::Pod {
        id: pod_id(id),
        name: format!("p{id}"),
        region: "local".into(),
        pool: "shared".into(),
        class: "small".into(),
        max_shops: 10,
        status: PodStatus::Active,
        shops: 1,
        term: 1,
        version: 1,
        endpoints: Vec::new(),
    }
}

fn operation(kind: &str, subject: &str, age: Duration) -> api::Operation {
    api::Operation {
        id: "o".into(),
        kind: kind.into(),
        subject: subject.into(),
        state: OperationState::Running,
        step: Some("home".into()),
        detail: json!({}),
        error: None,
        actor: "operator".into(),
        created_at: now() - age,
        changed_at: now() - age,
    }
}

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
}

fn sound() -> Facts {
    let share = |pod| api::BucketShare {
        pod: Some(pod_id(pod)),
        live: 512,
        planned: 512,
    };
    let status = api::Status {
        incarnation: 1,
        version: 9,
        base_domain: "localhost".into(),
        pods: 2,
        shops: 2,
        open_operations: 0,
        buckets: vec![share(1), share(2)],
    };
    Facts {
        at: now(),
        catalog: Ok(Catalog {
            status,
            pods: vec![listed(1), listed(2)],
            shops: vec![shop(1, "milk", 1), shop(2, "bread", 2)],
            operations: vec![operation("shop-create", "new", Duration::seconds(2))],
        }),
        pods: BTreeMap::from([(pod_id(1), pod(1, 1)), (pod_id(2), pod(2, 2))]),
        units: vec![Unit {
            name: "edge-1".into(),
            wanted: true,
            pid: Some(7),
            ready: Some(Ok(())),
            log: "logs/edge-1.log".into(),
        }],
        disks: vec![Disk {
            path: "/h".into(),
            free: 50 << 30,
            total: 100 << 30,
        }],
    }
}

/// Puts the first pod's parts within reach of a fault.
trait Reach {
    fn contents(&mut self) -> &mut Contents;
    fn home(&mut self) -> &mut Home;
    fn catalog(&mut self) -> &mut Catalog;
    fn server(&mut self, index: usize) -> &mut ServerState;
    fn set(&mut self, index: usize, variable: &str, value: &str);
    fn replica(&mut self) -> &mut Replica;
}

impl Reach for Facts {
    fn contents(&mut self) -> &mut Contents {
        self.pods
            .get_mut(&pod_id(1))
            .unwrap()
            .contents
            .as_mut()
            .unwrap()
    }
    fn home(&mut self) -> &mut Home {
        self.contents().homes.get_mut(&shop_id(1)).unwrap()
    }
    fn catalog(&mut self) -> &mut Catalog {
        self.catalog.as_mut().unwrap()
    }
    fn server(&mut self, index: usize) -> &mut ServerState {
        self.pods.get_mut(&pod_id(1)).unwrap().servers[index]
            .state
            .as_mut()
            .unwrap()
    }
    fn set(&mut self, index: usize, variable: &str, value: &str) {
        self.server(index)
            .variables
            .insert(variable.into(), value.into());
    }
    fn replica(&mut self) -> &mut Replica {
        self.server(1).replica.as_mut().unwrap()
    }
}

/// A fault, and the one finding it must have: severity, check, subject, a part of what is wrong.
struct Case {
    severity: Severity,
    check: &'static str,
    subject: &'static str,
    wrong: &'static str,
    break_it: fn(&mut Facts),
}

const fn error(
    check: &'static str,
    subject: &'static str,
    wrong: &'static str,
    break_it: fn(&mut Facts),
) -> Case {
    Case {
        severity: Severity::Error,
        check,
        subject,
        wrong,
        break_it,
    }
}

const fn warning(
    check: &'static str,
    subject: &'static str,
    wrong: &'static str,
    break_it: fn(&mut Facts),
) -> Case {
    Case {
        severity: Severity::Warning,
        check,
        subject,
        wrong,
        break_it,
    }
}

const PLACEMENTS: &[Case] = &[
    error("placement", "milk", "no home", |f| {
        f.contents().homes.clear()
    }),
    warning("placement", "milk", "no home", |f| {
        f.contents().homes.clear();
        f.catalog()
            .operations
            .push(operation("shop-create", "milk", Duration::ZERO));
    }),
    error("placement", "milk", "epoch 2, its placement 3", |f| {
        f.home().epoch = epoch(2)
    }),
    error(
        "placement",
        "milk",
        "is frozen, its placement serving",
        |f| {
            f.home().state = HomeState::Frozen;
        },
    ),
    error(
        "placement",
        "milk",
        "is serving, its placement offline",
        |f| {
            f.catalog().shops[0].state = PlacementState::Offline;
        },
    ),
    error("placement", "bread", "pod 1 has a home for it", |f| {
        let home = *f.home();
        f.contents().homes.insert(shop_id(2), home);
    }),
    error("host", "milk", "first host is not milk.localhost", |f| {
        f.catalog().shops[0].hosts.remove(0);
    }),
    error("host", "milk.example", "two shops, milk and bread", |f| {
        f.catalog().shops[1].hosts.push("milk.example".into());
    }),
    error("bucket", "bucket_placement", "1023 rows", |f| {
        f.catalog().status.buckets[0].live = 511
    }),
    warning("bucket", "p2", "it is offline", |f| {
        f.catalog().pods[1].status = PodStatus::Offline
    }),
    error("bucket", "pod 9", "no such pod", |f| {
        f.catalog().status.buckets[1].pod = Some(pod_id(9));
    }),
    warning("operation", "shop-create old", "at home", |f| {
        f.catalog()
            .operations
            .push(operation("shop-create", "old", Duration::minutes(2)));
    }),
    error("control", "control server", "nobody there", |f| {
        f.catalog = Err("nobody there".into())
    }),
];

const CONTENTS: &[Case] = &[
    error("identity", "p1", "nobody's", |f| {
        f.contents().identity = None
    }),
    error("identity", "p1", "that of pod 2", |f| {
        f.contents().identity.as_mut().unwrap().pod = 2
    }),
    error("identity", "p1", "not reconciled", |f| {
        f.contents().identity.as_mut().unwrap().reconciled = false;
    }),
    error("identity", "p1", "seen term 2", |f| {
        f.contents().identity.as_mut().unwrap().term = 2
    }),
    warning("identity", "p1", "not opened under term 1", |f| {
        f.contents().identity.as_mut().unwrap().term = 0;
    }),
    error("identity", "p1", "cannot be read: refused", |f| {
        f.pods.get_mut(&pod_id(1)).unwrap().contents = Err("refused".into());
    }),
    error("schema", "p1", "is missing", |f| {
        f.contents().ledger.pop();
    }),
    error("schema", "p1", "half applied", |f| {
        f.contents().ledger[0].finished = false
    }),
    error("schema", "p1", "another text", |f| {
        f.contents().ledger[0].checksum = "0".into()
    }),
    error("schema", "p1", "99 is unknown", |f| {
        let row = LedgerRow {
            version: 99,
            checksum: String::new(),
            finished: true,
        };
        f.contents().ledger.push(row);
    }),
    error("table", "p1: note", "no shop_id", |f| {
        f.contents().tables.push(Table {
            has_shop: false,
            ..table("note")
        });
    }),
    error("table", "p1: note", "begins with id", |f| {
        f.contents().tables.push(Table {
            primary_first: Some("id".into()),
            ..table("note")
        });
    }),
    error("table", "p1: note", "no primary key", |f| {
        f.contents().tables.push(Table {
            primary_first: None,
            ..table("note")
        });
    }),
    error("table", "p1: note", "by_mail", |f| {
        f.contents().tables.push(Table {
            unique_elsewhere: vec!["by_mail".into()],
            ..table("note")
        });
    }),
];

const SERVERS: &[Case] = &[
    error(
        "setting",
        "replica 127.0.0.1:2 sync_relay_log",
        "is 10000, not 1",
        |f| {
            f.set(1, "sync_relay_log", "10000");
        },
    ),
    error(
        "setting",
        "primary 127.0.0.1:1 rpl_semi_sync_source_timeout",
        "is 10000, not at least",
        |f| {
            f.set(0, "rpl_semi_sync_source_timeout", "10000");
        },
    ),
    error(
        "setting",
        "primary 127.0.0.1:1 gtid_mode",
        "not there",
        |f| {
            f.server(0).variables.remove("gtid_mode");
        },
    ),
    error("replica", "primary 127.0.0.1:1", "read only", |f| {
        f.set(0, "super_read_only", "ON")
    }),
    error("replica", "primary 127.0.0.1:1", "commits are off", |f| {
        f.set(0, "rpl_semi_sync_source_enabled", "OFF");
    }),
    error("replica", "primary 127.0.0.1:1", "itself follows", |f| {
        f.server(0).replica = Some(Replica::default());
    }),
    error("replica", "replica 127.0.0.1:2", "can be written to", |f| {
        f.set(1, "super_read_only", "OFF");
    }),
    error("replica", "replica 127.0.0.1:2", "source side", |f| {
        f.set(1, "rpl_semi_sync_source_enabled", "ON");
    }),
    error(
        "replica",
        "replica 127.0.0.1:2",
        "does not acknowledge",
        |f| {
            f.set(1, "rpl_semi_sync_replica_enabled", "0");
        },
    ),
    error(
        "replica",
        "replica 127.0.0.1:2",
        "primary lacks: uuid:7",
        |f| {
            f.server(1).errant = Some("uuid:7".into());
        },
    ),
    error("replica", "replica 127.0.0.1:2", "follows nobody", |f| {
        f.server(1).replica = None
    }),
    error("replica", "replica 127.0.0.1:2", "not the primary", |f| {
        f.replica().source = C.into()
    }),
    error(
        "replica",
        "replica 127.0.0.1:2",
        "applier No: duplicate",
        |f| {
            f.replica().applier = "No".into();
            f.replica().fault = "duplicate".into();
        },
    ),
    error(
        "replica",
        "replica 127.0.0.1:2",
        "receiver Connecting",
        |f| {
            f.replica().receiver = "Connecting".into();
        },
    ),
    error(
        "replica",
        "replica 127.0.0.1:3",
        "cannot be asked: refused",
        |f| {
            f.pods.get_mut(&pod_id(1)).unwrap().servers[2].state = Err("refused".into());
        },
    ),
    warning("replica", "pod 1", "1 replicas", |f| {
        f.pods.get_mut(&pod_id(1)).unwrap().servers.pop();
    }),
];

const MACHINE: &[Case] = &[
    error("process", "edge-1", "does not run", |f| {
        f.units[0].pid = None
    }),
    warning("process", "edge-1", "operator stopped", |f| {
        f.units[0].wanted = false;
        f.units[0].pid = None;
    }),
    error("process", "edge-1", "not ready: 503", |f| {
        f.units[0].ready = Some(Err("503".into()))
    }),
    warning("disk", "/h", "(9 %)", |f| f.disks[0].free = 9 << 30),
    error("disk", "/h", "(1 %)", |f| f.disks[0].free = 1 << 30),
];

#[test]
fn a_sound_fleet_has_no_findings() {
    assert_eq!(judge(&sound()), []);
}

#[test]
fn each_fault_has_its_finding_and_no_other() {
    for case in [PLACEMENTS, CONTENTS, SERVERS, MACHINE]
        .into_iter()
        .flatten()
    {
        let mut facts = sound();
        (case.break_it)(&mut facts);
        let findings = judge(&facts);
        let name = format!("{} {}: {}", case.check, case.subject, case.wrong);
        assert_eq!(findings.len(), 1, "{name}: {findings:#?}");
        let finding = &findings[0];
        assert_eq!(finding.severity, case.severity, "{name}");
        assert_eq!(
            (finding.check, finding.subject.as_str()),
            (case.check, case.subject),
            "{name}"
        );
        assert!(
            finding.wrong.contains(case.wrong),
            "{name}: {}",
            finding.wrong
        );
        assert!(!finding.fix.is_empty(), "{name}");
    }
}

#[test]
fn a_home_that_the_catalog_does_not_know_matters_more_when_nothing_is_being_made() {
    let home = Home {
        epoch: epoch(1),
        state: HomeState::Serving,
        in_move: false,
    };
    let mut facts = sound();
    facts.contents().homes.insert(shop_id(8), home);
    assert_eq!(judge(&facts)[0].severity, Severity::Warning);
    facts.catalog().operations.clear();
    assert_eq!(judge(&facts)[0].severity, Severity::Error);
}

#[test]
fn what_a_move_does_is_no_fault() {
    let mut facts = sound();
    let incoming = Home {
        epoch: epoch(4),
        state: HomeState::Incoming,
        in_move: true,
    };
    let moved = Home {
        epoch: epoch(2),
        state: HomeState::Moved,
        in_move: false,
    };
    facts.contents().homes.insert(shop_id(2), incoming);
    facts
        .pods
        .get_mut(&pod_id(2))
        .unwrap()
        .contents
        .as_mut()
        .unwrap()
        .homes
        .insert(shop_id(1), moved);
    *facts.home() = Home {
        state: HomeState::Fenced,
        in_move: true,
        ..*facts.home()
    };
    assert_eq!(judge(&facts), []);
}

#[test]
fn only_what_two_looks_show_is_told() {
    let look = |break_it: fn(&mut Facts)| {
        let mut facts = sound();
        break_it(&mut facts);
        Diagnosis::of(judge(&facts))
    };
    let first = look(|f| {
        f.units[0].pid = None;
        f.home().state = HomeState::Frozen;
    });
    let second = look(|f| {
        f.units[0].ready = Some(Err("503".into()));
        f.server(1).replica = None;
    });
    let lasting = first.clone().lasting(second);
    let told: Vec<_> = lasting
        .findings
        .iter()
        .map(|f| (f.check, f.wrong.as_str()))
        .collect();
    assert_eq!(told, [("process", "it runs and is not ready: 503")]);
    assert!(first.lasting(look(|_| {})).healthy);
}
