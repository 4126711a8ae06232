//! The table against a model: whatever changes come, it answers like one that was built anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::wire::{Change, Changes, Counts, Header, Line, Now, Pod, PodStatus, Shop, TableReader};
use super::*;
use crate::{Epoch, PlacementState};

fn header(incarnation: u64, version: u64) -> Header {
    Header {
        incarnation,
        version,
        base_domain: "localhost".parse().unwrap(),
        platform_domain: "localhost".parse().unwrap(),
    }
}

fn pod(id: u64) -> Pod {
    Pod {
        id: PodId::new(id).unwrap(),
        name: format!("pod-{id}"),
        status: PodStatus::Active,
        http: vec![format!("127.0.0.1:{}", 9000 + id).parse().unwrap()],
    }
}

fn shop(id: u64, handle: &str, hosts: &[&str], pod: u64, epoch: u64) -> Shop {
    Shop {
        id: ShopId::new(id).unwrap(),
        handle: handle.parse().unwrap(),
        hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
        pod: PodId::new(pod).unwrap(),
        epoch: Epoch::try_from(epoch).unwrap(),
        state: PlacementState::Serving,
    }
}

fn table(shops: impl IntoIterator<Item = Shop>) -> RouteTable {
    let pods = (1..=3).map(|id| Line::Pod(pod(id)));
    RouteTable::build(header(1, 1), pods.chain(shops.into_iter().map(Line::Shop))).unwrap()
}

fn host_owner(table: &RouteTable, host: &str) -> Option<u64> {
    let found = table.lookup_host(&host.parse().unwrap());
    found.map(|placement| placement.shop.get())
}

fn change(version: u64, now: Now) -> Change {
    Change { version, now }
}

#[test]
fn the_wire_is_as_in_the_interface() {
    let line = Line::Shop(shop(7, "snow", &["a.example"], 1, 3));
    let text = r#"{"shop":{"id":7,"handle":"snow","hosts":["a.example"],"pod":1,"epoch":3,"state":"serving"}}"#;
    assert_eq!(wire::to_line(&line).unwrap().trim_end(), text);
    assert_eq!(serde_json::from_str::<Line>(text).unwrap(), line);
    let text = r#"{"incarnation":1,"version":45,"changes":[
        {"version":44,"pod":{"id":2,"name":"pod-2","status":"active","http":["127.0.0.1:9002"]}},
        {"version":45,"shop_removed":7}]}"#;
    let changes = Changes {
        incarnation: 1,
        version: 45,
        changes: vec![
            change(44, Now::Pod(pod(2))),
            change(45, Now::ShopRemoved(ShopId::new(7).unwrap())),
        ],
    };
    assert_eq!(serde_json::from_str::<Changes>(text).unwrap(), changes);
    let again = serde_json::to_string(&changes).unwrap();
    assert_eq!(serde_json::from_str::<Changes>(&again).unwrap(), changes);
}

fn read(lines: &[&str]) -> Result<RouteTable, Faults> {
    let mut reader = TableReader::default();
    for line in lines {
        reader.line(line.as_bytes());
    }
    reader.finish()
}

const HEADER: &str =
    r#"{"incarnation":1,"version":1,"base_domain":"localhost","platform_domain":"localhost"}"#;
const POD: &str = r#"{"pod":{"id":1,"name":"one","status":"active","http":["127.0.0.1:9001"]}}"#;
const SHOP: &str = r#"{"shop":{"id":7,"handle":"snow","pod":1,"epoch":3,"state":"serving"}}"#;

#[test]
fn every_fault_of_a_table_is_named() {
    let faults = read(&[
        HEADER,
        POD,
        SHOP,
        r#"{"shop":{"id":8,"handle":"snow","pod":1,"epoch":1,"state":"serving"}}"#,
        r#"{"shop":{"id":9,"handle":"ice","pod":4,"epoch":1,"state":"serving"}}"#,
        r#"{"shop":{"id":10,"handle":"Ice","pod":1,"epoch":1,"state":"serving"}}"#,
        r#"{"shop":{"id":11,"handle":"fog","hosts":["x.example","x.example"],"pod":1,"epoch":1,"state":"serving"}}"#,
        r#"{"pod":{"id":2,"name":"two","status":"active","http":["127.0.0.1:9001","0.0.0.0:1"]}}"#,
        r#"{"pod":{"id":3,"name":"three","status":"active","http":["pod-3:80"]}}"#,
        r#"{"planet":{}}"#,
        r#"{"end":{"pods":3,"shops":5}}"#,
    ])
    .unwrap_err();
    let text = faults.to_string();
    for part in [
        "handle snow is of shop 7 and of shop 8",
        "shop 9 is on pod 4, which is not in the table",
        "line 6: handle \"Ice\" is not valid",
        "host x.example is of shop 11 and of shop 11",
        "pods 1 and 2 both have the address 127.0.0.1:9001",
        "pod 2 has the address 0.0.0.0:1",
        "line 9: invalid socket address",
        "line 10: unknown variant `planet`",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(faults.total(), 8, "{text}");
}

#[test]
fn a_cut_off_table_is_refused() {
    let cut = read(&[HEADER, POD, SHOP]).unwrap_err();
    assert_eq!(cut.kept(), [Fault::NoEnd { lines: 3 }]);
    let fewer = read(&[HEADER, POD, r#"{"end":{"pods":1,"shops":1}}"#]).unwrap_err();
    let counts = |pods, shops| Counts { pods, shops };
    assert_eq!(
        fewer.kept(),
        [Fault::Counts {
            said: counts(1, 1),
            seen: counts(1, 0)
        }]
    );
    assert!(read(&[]).is_err());
    assert!(read(&[POD, SHOP, r#"{"end":{"pods":1,"shops":1}}"#]).is_err());
    assert!(read(&[HEADER, POD, SHOP, r#"{"end":{"pods":1,"shops":1}}"#]).is_ok());
}

#[test]
fn the_list_of_faults_is_bounded_and_says_so() {
    let unknown = (1..=500).map(|id| Line::Shop(shop(id, &format!("s{id}"), &[], 1, 1)));
    let faults = RouteTable::build(header(1, 1), unknown).unwrap_err();
    assert_eq!(
        (faults.total(), faults.kept().len()),
        (500, FAULTS_KEPT_MAX)
    );
    assert!(faults.to_string().ends_with("and 400 more"));
}

#[test]
fn inv2_an_epoch_never_goes_down_and_has_one_owner() {
    let table = table([shop(1, "a", &[], 1, 5)]);
    let apply = |version, pod, epoch| {
        table.apply(&change(version, Now::Shop(shop(1, "a", &[], pod, epoch))))
    };
    assert!(matches!(apply(2, 1, 4), Err(Fault::EpochBack { .. })));
    assert!(matches!(apply(2, 2, 5), Err(Fault::TwoOwners { .. })));
    assert!(matches!(apply(2, 9, 6), Err(Fault::UnknownPod { .. })));
    assert_eq!(table.version(), 1, "a refused change is no change");
    assert_eq!(apply(2, 2, 6), Ok(true));
    assert_eq!(apply(2, 2, 6), Ok(false), "twice does no harm");
    let placement = table.lookup_shop(ShopId::new(1).unwrap()).unwrap();
    assert_eq!((placement.pod.get(), placement.epoch.get()), (2, 6));
}

#[test]
fn a_feed_of_another_history_or_out_of_order_is_refused() {
    let table = table([]);
    let answer = |incarnation, version, versions: &[u64]| Changes {
        incarnation,
        version,
        changes: versions
            .iter()
            .map(|v| change(*v, Now::Pod(pod(2))))
            .collect(),
    };
    let refused = |answer| table.apply_all(&answer).is_err();
    assert!(refused(answer(2, 5, &[2])));
    assert!(refused(answer(1, 5, &[3, 2])));
    assert!(refused(answer(1, 5, &[6])));
    assert_eq!(table.version(), 1);
    assert_eq!(table.apply_all(&answer(1, 5, &[2, 4])), Ok(2));
    assert_eq!(table.version(), 5);
    assert_eq!(table.apply_all(&answer(1, 5, &[4])), Ok(0));
}

#[test]
fn a_table_that_went_back_or_shrank_does_not_replace() {
    let of = |incarnation, version, shops: u64| {
        let lines = (1..=shops).map(|id| Line::Shop(shop(id, &format!("s{id}"), &[], 1, 1)));
        let pods = std::iter::once(Line::Pod(pod(1)));
        RouteTable::build(header(incarnation, version), pods.chain(lines)).unwrap()
    };
    let held = of(1, 10, 10);
    assert_eq!(check_replacement(&held, &of(1, 10, 10)), Ok(()));
    assert_eq!(check_replacement(&held, &of(1, 11, 6)), Ok(()));
    let reason = |new| check_replacement(&held, &new).map_err(|r| r.reason());
    assert_eq!(reason(of(1, 9, 10)), Err("backwards"));
    assert_eq!(reason(of(1, 11, 5)), Err("shrunk"));
    assert_eq!(reason(of(1, 11, 0)), Err("shrunk"));
    assert_eq!(
        reason(of(2, 1, 1)),
        Ok(()),
        "a restored catalog is accepted"
    );
    assert_eq!(
        reason(of(2, 1, 0)),
        Err("emptied"),
        "a catalog that was lost"
    );
    assert_eq!(check_replacement(&of(1, 1, 0), &of(2, 1, 0)), Ok(()));
}

/// A host goes to and fro between two shops; readers never find it with neither.
#[test]
fn a_host_moves_without_a_gap() {
    let table = table([shop(1, "a", &["x.example"], 1, 1), shop(2, "b", &[], 2, 1)]);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let reader = || {
            while !done.load(Ordering::Relaxed) {
                let owner = host_owner(&table, "x.example");
                assert!(matches!(owner, Some(1 | 2)), "nobody has it");
            }
        };
        let readers = [threads.spawn(reader), threads.spawn(reader)];
        for round in 0..5_000 {
            let (to, from) = if round % 2 == 0 { (2, 1) } else { (1, 2) };
            let name = |id| if id == 1 { "a" } else { "b" };
            let gains = shop(to, name(to), &["x.example"], to, 1);
            let loses = shop(from, name(from), &[], from, 1);
            let version = 2 + round * 2;
            table.apply(&change(version, Now::Shop(gains))).unwrap();
            table.apply(&change(version + 1, Now::Shop(loses))).unwrap();
            assert_eq!(host_owner(&table, "x.example"), Some(to));
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

const HANDLES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const HOSTS: [&str; 6] = [
    "a",
    "b.example",
    "c.example",
    "d.example",
    "e.example",
    "f.example",
];

#[derive(Debug, Clone)]
enum Step {
    Put {
        id: u64,
        handle: usize,
        hosts: BTreeSet<usize>,
        pod: u64,
        moves: bool,
    },
    Remove(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let hosts = prop::collection::btree_set(0..HOSTS.len(), 0..4);
    let put = (1..6_u64, 0..HANDLES.len(), hosts, 1..=3_u64, any::<bool>());
    prop_oneof![
        4 => put.prop_map(|(id, handle, hosts, pod, moves)| Step::Put { id, handle, hosts, pod, moves }),
        1 => (1..6_u64).prop_map(Step::Remove),
    ]
}

/// What the catalog would hold: a host goes to the last who claimed it, a handle must be free.
fn model_step(model: &mut BTreeMap<u64, Shop>, step: &Step) -> Option<Now> {
    match step {
        Step::Remove(id) => {
            model.remove(id)?;
            Some(Now::ShopRemoved(ShopId::new(*id).unwrap()))
        }
        Step::Put {
            id,
            handle,
            hosts,
            pod,
            moves,
        } => {
            let held = model.get(id);
            let (pod, epoch) = match held {
                Some(held) if *moves => (*pod, held.epoch.get() + 1),
                Some(held) => (u64::from(held.pod), held.epoch.get()),
                None => (*pod, 1),
            };
            let hosts: Vec<_> = hosts.iter().map(|host| HOSTS[*host]).collect();
            let new = shop(*id, HANDLES[*handle], &hosts, pod, epoch);
            if model
                .values()
                .any(|other| other.id != new.id && other.handle == new.handle)
            {
                return None;
            }
            for other in model.values_mut().filter(|other| other.id != new.id) {
                other.hosts.retain(|host| !new.hosts.contains(host));
            }
            model.insert(*id, new.clone());
            Some(Now::Shop(new))
        }
    }
}

fn assert_same(changed: &RouteTable, built: &RouteTable) {
    assert_eq!(changed.len(), built.len());
    for host in HOSTS {
        let host = host.parse().unwrap();
        assert_eq!(
            changed.lookup_host(&host),
            built.lookup_host(&host),
            "{host}"
        );
    }
    for handle in HANDLES {
        let handle = handle.parse().unwrap();
        assert_eq!(
            changed.lookup_handle(&handle),
            built.lookup_handle(&handle),
            "{handle}"
        );
    }
    for id in 1..6 {
        let id = ShopId::new(id).unwrap();
        assert_eq!(changed.shop(id), built.shop(id), "{id}");
    }
}

proptest! {
    #[test]
    fn applying_changes_gives_the_table_that_is_built_anew(steps in prop::collection::vec(step(), 1..60)) {
        let changed = table([]);
        let mut model = BTreeMap::new();
        for (version, step) in (2..).zip(&steps) {
            if let Some(now) = model_step(&mut model, step) {
                prop_assert_eq!(changed.apply(&change(version, now)), Ok(true));
            }
            assert_same(&changed, &table(model.values().cloned()));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("routes.bin");
        prop_assert_eq!(disk::save(&changed, &path).unwrap(), changed.version());
        let read = disk::load(&path).unwrap();
        prop_assert_eq!(read.version(), changed.version());
        prop_assert_eq!(read.pods(), changed.pods());
        assert_same(&read, &changed);
    }
}
