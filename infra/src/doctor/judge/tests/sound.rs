//! The facts of a fleet with nothing wrong, and ways to get at their parts.

use std::collections::{BTreeMap, HashMap};

use migrations::POD;
use serde_json::json;
use shared::home::HomeState;
use shared::moves::{MoveId, MoveState};
use shared::mysql::{EVERY, Wanted};
use shared::{Epoch, PlacementState, PodId, ShopId};
use time::{Duration, OffsetDateTime};

use crate::api::{self, OperationState, PodStatus};
use crate::doctor::facts::*;

const A: &str = "127.0.0.1:1";
const B: &str = "127.0.0.1:2";
pub(super) const C: &str = "127.0.0.1:3";

pub(super) fn pod_id(id: u64) -> PodId {
    PodId::new(id).unwrap()
}

pub(super) fn shop_id(id: u64) -> ShopId {
    ShopId::new(id).unwrap()
}

pub(super) fn epoch(n: u64) -> Epoch {
    Epoch::try_from(n).unwrap()
}

fn server(address: &str, primary: bool) -> Server {
    let mut variables: HashMap<String, String> = EVERY
        .iter()
        .map(|setting| {
            let value = match setting.wanted {
                Wanted::Is(words) => words[0].to_owned(),
                Wanted::AtLeast(least) => least.to_string(),
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

pub(super) fn table(name: &str) -> Table {
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
        move_id: None,
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
        move_id: None,
        pinned: None,
        pin_reason: None,
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

pub(super) fn operation(kind: &str, subject: &str, age: Duration) -> api::Operation {
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

/// A move of milk from p1 to p2, changed just now.
pub(super) fn a_move(state: MoveState) -> api::Move {
    let name = |id| api::PodName {
        id: pod_id(id),
        name: format!("p{id}"),
    };
    api::Move {
        id: MoveId::random(),
        shop: api::ShopName {
            id: shop_id(1),
            handle: "milk".parse().unwrap(),
        },
        source: name(1),
        target: name(2),
        source_epoch: epoch(3),
        epoch: epoch(4),
        state,
        open: state.is_open(),
        owner: 1,
        reason: None,
        observe_ms: 900_000,
        back_of: None,
        taken_back_by: None,
        waits: None,
        error: None,
        record: api::MoveRecord::default(),
        strays: Vec::new(),
        strays_total: 0,
        source_gone: false,
        clears: false,
        leftover_since: None,
        actor: "operator".into(),
        created_at: now(),
        changed_at: now(),
        state_since: now(),
        events_left_out: 0,
        progress: None,
    }
}

pub(super) fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
}

pub(super) fn sound() -> Facts {
    let share = |pod| api::BucketShare {
        pod: Some(pod_id(pod)),
        live: 512,
        planned: 512,
    };
    let primary = api::PrimaryStatus {
        pod: pod_id(1),
        address: Some(A.into()),
        term: 1,
        state: api::PrimaryState::Open,
        reason: None,
        since: now(),
    };
    let status = api::Status {
        incarnation: 1,
        version: 10,
        routes_version: 9,
        base_domain: "localhost".into(),
        pods: 2,
        shops: 2,
        open_operations: 0,
        buckets: vec![share(1), share(2)],
        reconciled: true,
        primaries: vec![primary],
    };
    Facts {
        at: now(),
        catalog: Ok(Catalog {
            status,
            pods: vec![listed(1), listed(2)],
            shops: vec![shop(1, "milk", 1), shop(2, "bread", 2)],
            operations: vec![operation("shop-create", "new", Duration::seconds(2))],
            moves: Vec::new(),
        }),
        pods: BTreeMap::from([(pod_id(1), pod(1, 1)), (pod_id(2), pod(2, 2))]),
        plan: Some(Ok(Vec::new())),
        supervised: Some(true),
        units: vec![Unit {
            name: "edge-1".into(),
            wanted: true,
            pid: Some(7),
            ready: Some(Ok(())),
            route_version: Some(9),
            log: "logs/edge-1.log".into(),
        }],
        disks: vec![
            Disk {
                path: "/h".into(),
                free: 50 << 30,
                total: 100 << 30,
            },
            Disk {
                path: "/large".into(),
                // Eight percent, and yet plenty.
                free: 25 << 30,
                total: 300 << 30,
            },
        ],
    }
}

/// Puts the first pod's parts within reach of a fault.
pub(super) trait Reach {
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
