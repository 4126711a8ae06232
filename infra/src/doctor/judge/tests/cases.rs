//! Single faults, each with the one finding it must have.

use shared::PlacementState;
use shared::home::HomeState;
use time::Duration;

use super::sound::{C, Reach as _, epoch, operation, pod_id, shop_id, table};
use crate::api::PodStatus;
use crate::doctor::Severity;
use crate::doctor::facts::{Facts, LedgerRow, Replica, Table};

/// A fault, and the one finding it must have: severity, check, subject, a part of what is wrong.
pub(super) struct Case {
    pub(super) severity: Severity,
    pub(super) check: &'static str,
    pub(super) subject: &'static str,
    pub(super) wrong: &'static str,
    pub(super) break_it: fn(&mut Facts),
}

pub(super) const fn error(
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

pub(super) const fn warning(
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

pub(super) const PLACEMENTS: &[Case] = &[
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
    error("control", "catalog", "not reconciled", |f| {
        f.catalog().status.reconciled = false
    }),
    error("control", "control server", "nobody there", |f| {
        f.catalog = Err("nobody there".into())
    }),
];

pub(super) const CONTENTS: &[Case] = &[
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

pub(super) const SERVERS: &[Case] = &[
    error(
        "setting",
        "replica 127.0.0.1:2 sync_relay_log",
        "is 10000, must be 1",
        |f| {
            f.set(1, "sync_relay_log", "10000");
        },
    ),
    error(
        "setting",
        "primary 127.0.0.1:1 rpl_semi_sync_source_timeout",
        "is 10000, must be at least",
        |f| {
            f.set(0, "rpl_semi_sync_source_timeout", "10000");
        },
    ),
    error(
        "setting",
        "primary 127.0.0.1:1 gtid_mode",
        "is not known to the server",
        |f| {
            f.server(0).variables.remove("gtid_mode");
        },
    ),
    error(
        "replica",
        "primary 127.0.0.1:1",
        "read only: its shops",
        |f| {
            f.set(0, "super_read_only", "ON");
        },
    ),
    error(
        "replica",
        "primary 127.0.0.1:1",
        "refused: no replica has it all",
        |f| {
            f.set(0, "super_read_only", "ON");
            // What opens it turns these on first: nobody is to do it by hand.
            f.set(0, "rpl_semi_sync_source_enabled", "OFF");
            f.catalog().status.primaries[0].reason = Some("no replica has it all".into());
        },
    ),
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

pub(super) const MACHINE: &[Case] = &[
    error("process", "edge-1", "does not run", |f| {
        f.units[0].pid = None
    }),
    error(
        "process",
        "podctl up",
        "what dies now is not started again",
        |f| f.supervised = Some(false),
    ),
    error("process", "podctl up", "the fleet does not run", |f| {
        f.supervised = Some(false);
        f.units[0].pid = None;
    }),
    warning("process", "edge-1", "operator stopped", |f| {
        f.units[0].wanted = false;
        f.units[0].pid = None;
    }),
    error("process", "edge-1", "not ready: 503", |f| {
        f.units[0].ready = Some(Err("503".into()))
    }),
    error(
        "route",
        "edge-1",
        "at version 8, routes changed at 9",
        |f| {
            f.units[0].route_version = Some(8);
        },
    ),
    warning(
        "plan",
        "fleet.toml",
        "2 steps are to be done, the first: a",
        |f| {
            f.plan = Some(Ok(vec!["a".into(), "b".into()]));
        },
    ),
    error(
        "plan",
        "fleet.toml",
        "cannot be compared with the fleet: no mysqld",
        |f| {
            f.plan = Some(Err("no mysqld".into()));
        },
    ),
    warning("disk", "/h", "(9 %)", |f| f.disks[0].free = 9 << 30),
    error("disk", "/h", "(1 %)", |f| f.disks[0].free = 1 << 30),
];
