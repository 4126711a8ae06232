//! The catalog on a real SQLite file: races, versions, tombstones, names, and what a full disk leaves.

use std::sync::Arc;

use shared::routes::RouteTable;
use shared::routes::wire::TableReader as TableParser;
use tempfile::TempDir;
use time::OffsetDateTime;

use super::*;
use crate::api::{Endpoint, EndpointKind, EndpointRole, PodPut, PodStatus, Shop};
use shared::PlacementState;
use shared::error::{Classify as _, Kind};

/// A catalog in a folder of its own, with pods `one` and `two`.
pub(crate) async fn catalog() -> (TempDir, Arc<Catalog>) {
    let dir = tempfile::tempdir().unwrap();
    let catalog = open(&dir).await;
    for (id, name) in [(1, "one"), (2, "two")] {
        catalog
            .put_pod("test", pod(id), &pod_put(name, id))
            .await
            .unwrap();
    }
    (dir, Arc::new(catalog))
}

pub(crate) async fn open(dir: &TempDir) -> Catalog {
    let domains = Domains {
        base: "localhost".parse().unwrap(),
        platform: "localhost".parse().unwrap(),
    };
    Catalog::open(&dir.path().join("catalog.sqlite"), domains)
        .await
        .unwrap()
}

pub(crate) fn pod(id: u64) -> PodId {
    PodId::new(id).unwrap()
}

fn pod_put(name: &str, id: u64) -> PodPut {
    let endpoint = |kind, role, port| Endpoint {
        kind,
        role,
        address: format!("127.0.0.{id}:{port}"),
        socket: None,
        secret: None,
    };
    PodPut {
        name: name.into(),
        region: "local".into(),
        pool: "shared".into(),
        class: "small".into(),
        max_shops: 100,
        status: PodStatus::Active,
        endpoints: vec![
            endpoint(EndpointKind::Http, EndpointRole::Process, 80),
            endpoint(EndpointKind::Mysql, EndpointRole::Primary, 3306),
            endpoint(EndpointKind::Mysql, EndpointRole::Replica, 3307),
            endpoint(EndpointKind::Mysql, EndpointRole::Replica, 3308),
        ],
    }
}

pub(crate) fn new_shop(handle: &str) -> NewShop {
    NewShop {
        handle: handle.parse().unwrap(),
        plan: "standard".into(),
        currency: "USD".into(),
        region: None,
        pod: None,
        hosts: vec![format!("{handle}.example").parse().unwrap()],
    }
}

/// Makes a shop as if its home had been written.
pub(crate) async fn make(catalog: &Catalog, handle: &str) -> Shop {
    match catalog
        .begin_creation("test", &new_shop(handle), None)
        .await
        .unwrap()
    {
        Begun::Open(creation) => catalog.finish_creation(&creation).await.unwrap(),
        Begun::Done(shop) => *shop,
    }
}

async fn table(catalog: &Catalog) -> RouteTable {
    let mut reader = catalog.table().await.unwrap();
    let mut parser = TableParser::default();
    while let Some(text) = reader.next_lines().await.unwrap() {
        for line in text.lines() {
            parser.line(line.as_bytes());
        }
    }
    parser.finish().unwrap()
}

/// Follows changes in pages of one until the catalog has nothing newer.
async fn follow(catalog: &Catalog, table: &RouteTable, page: u32) {
    loop {
        let answer = catalog
            .changes(table.incarnation(), table.version(), page)
            .await
            .unwrap();
        let before = table.version();
        table.apply_all(&answer).unwrap();
        if table.version() == before {
            return;
        }
    }
}

/// Invariant 2: of many that saw the same placement, one changes it; the others are told that it has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn inv2_one_compare_and_swap_wins() {
    let (_dir, catalog) = catalog().await;
    let shop = make(&catalog, "snow").await;
    let placed = catalog.placement(shop.id).await.unwrap();
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let catalog = Arc::clone(&catalog);
            let state = PlacementState::ALL[n % 3];
            tokio::spawn(async move { catalog.swap_state("test", &placed, state, None).await })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => won += 1,
            Err(CatalogError::Stale(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(won, 1);
    let events = catalog.history(&ShopRef::Id(shop.id)).await.unwrap();
    assert_eq!(events.len(), 2, "made, and changed once");
    assert!(events.iter().all(|e| e.new_epoch == Some(Epoch::FIRST)));
}

/// Invariant 2, for primaries: of many that saw the same term, one names the next primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_term_has_one_primary_and_apply_does_not_bring_the_old_one_back() {
    let (_dir, catalog) = catalog().await;
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let catalog = Arc::clone(&catalog);
            let address = format!("127.0.0.1:{}", 3307 + n % 2);
            tokio::spawn(async move { catalog.set_primary("test", "one", &address, 1).await })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        won += usize::from(task.await.unwrap().is_ok());
    }
    assert_eq!(won, 1);
    let topology = catalog.topology("one").await.unwrap();
    assert_eq!((topology.term, topology.replicas.len()), (2, 2));
    let primary = topology.primary.clone().unwrap();
    assert_ne!(primary.port, 3306);
    let put = catalog
        .put_pod("test", pod(1), &pod_put("one", 1))
        .await
        .unwrap();
    assert_eq!(put.term, 2);
    assert_eq!(
        catalog.topology("one").await.unwrap(),
        topology,
        "nothing changed"
    );
    let mut without = pod_put("one", 1);
    without
        .endpoints
        .retain(|e| e.address != primary.to_string());
    let error = catalog.put_pod("test", pod(1), &without).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
}

/// Readers of changes get every one: a table that follows page by page beside many writers ends as a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_reader_of_changes_skips_one() {
    let (_dir, catalog) = catalog().await;
    let followed = table(&catalog).await;
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let catalog = Arc::clone(&catalog);
            tokio::spawn(async move {
                for n in 0..8 {
                    let shop = make(&catalog, &format!("s{writer}-{n}")).await;
                    let host = format!("h{writer}-{n}.example").parse().unwrap();
                    let reference = ShopRef::Id(shop.id);
                    catalog.add_host("test", &reference, &host).await.unwrap();
                    let placed = catalog.placement(shop.id).await.unwrap();
                    if n % 3 == 0 {
                        catalog.remove_shop("test", &placed, None).await.unwrap();
                    } else {
                        let frozen = PlacementState::Frozen;
                        catalog
                            .swap_state("test", &placed, frozen, None)
                            .await
                            .unwrap();
                    }
                    let status = [PodStatus::Draining, PodStatus::Active][n % 2];
                    catalog
                        .set_pod_status("test", "two", status, None)
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    while writers.iter().any(|w| !w.is_finished()) {
        follow(&catalog, &followed, 1).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    follow(&catalog, &followed, 3).await;
    let whole = table(&catalog).await;
    assert_eq!(
        (followed.version(), followed.len()),
        (whole.version(), whole.len())
    );
    assert_eq!(followed.pods(), whole.pods());
    for id in 1..=32 {
        let id = ShopId::new(id).unwrap();
        assert_eq!(followed.shop(id), whole.shop(id), "shop {id}");
    }
}

/// An edge that knows no pods yet is told of each before its shops, however late the pod changed again.
#[tokio::test]
async fn a_pod_is_told_before_its_shops() {
    let (_dir, catalog) = catalog().await;
    make(&catalog, "snow").await;
    let put = PodPut {
        name: "renamed".into(),
        ..pod_put("one", 1)
    };
    catalog.put_pod("test", pod(1), &put).await.unwrap();
    let incarnation = catalog.position().await.unwrap().incarnation;
    let header = shared::routes::wire::Header {
        incarnation,
        version: 0,
        base_domain: catalog.domains().base.clone(),
        platform_domain: catalog.domains().platform.clone(),
    };
    let followed = RouteTable::build(header, []).unwrap();
    follow(&catalog, &followed, 1).await;
    assert_eq!(followed.len(), 1);
    assert_eq!(&*followed.pod(pod(1)).unwrap().name, "renamed");
}

/// What no edge has to hear of does not make one late: its long poll ends when it ends.
#[tokio::test]
async fn the_version_of_routes_is_that_of_their_last_change() {
    let (_dir, catalog) = catalog().await;
    let versions = async || {
        let position = catalog.position().await.unwrap();
        (catalog.routes_version().await.unwrap(), position.version)
    };
    make(&catalog, "snow").await;
    let (routes, whole) = versions().await;
    assert_eq!(routes, whole);
    let larger = PodPut {
        max_shops: 101,
        ..pod_put("one", 1)
    };
    catalog.put_pod("test", pod(1), &larger).await.unwrap();
    assert_eq!(versions().await, (routes, whole + 1));
    let renamed = PodPut {
        name: "first".into(),
        ..larger
    };
    catalog.put_pod("test", pod(1), &renamed).await.unwrap();
    assert_eq!(versions().await, (whole + 2, whole + 2));
    let shop = ShopRef::Handle("snow".parse().unwrap());
    let host = "other.example".parse().unwrap();
    catalog.add_host("test", &shop, &host).await.unwrap();
    assert_eq!(versions().await, (whole + 3, whole + 3));
    let placed = catalog.shop(&shop).await.unwrap();
    let placed = catalog.placement(placed.id).await.unwrap();
    catalog.remove_shop("test", &placed, None).await.unwrap();
    assert_eq!(versions().await, (whole + 4, whole + 4));
}

#[tokio::test]
async fn a_removed_shop_leaves_a_tombstone_and_its_history_and_frees_its_names() {
    let (_dir, catalog) = catalog().await;
    let before = catalog.position().await.unwrap();
    let shop = make(&catalog, "snow").await;
    let placed = catalog.placement(shop.id).await.unwrap();
    catalog
        .remove_shop("test", &placed, Some("closed"))
        .await
        .unwrap();
    let stale = catalog
        .remove_shop("test", &placed, None)
        .await
        .unwrap_err();
    assert!(matches!(stale, CatalogError::Stale(_)));
    let reference = ShopRef::Id(shop.id);
    assert_eq!(
        catalog.shop(&reference).await.unwrap_err().kind(),
        Kind::NotFound
    );
    assert_eq!(catalog.history(&reference).await.unwrap().len(), 1);
    let now = OffsetDateTime::now_utc();
    assert_eq!(
        catalog
            .placement_at(&reference, now)
            .await
            .unwrap_err()
            .kind(),
        Kind::NotFound
    );
    let again = make(&catalog, "snow").await;
    assert_ne!(again.id, shop.id, "an id is never given out twice");

    let changes = catalog
        .changes(before.incarnation, before.version, 100)
        .await
        .unwrap();
    assert_eq!(changes.changes.len(), 2, "gone, and the new one");
    assert_eq!(catalog.prune_tombstones(now_ms() + 1).await.unwrap(), 1);
    let gone = catalog
        .changes(before.incarnation, before.version, 100)
        .await
        .unwrap_err();
    assert_eq!(gone.kind(), Kind::Gone);
    let now = catalog.position().await.unwrap();
    for (incarnation, after) in [
        (now.incarnation + 1, now.version),
        (now.incarnation, now.version + 1),
    ] {
        let error = catalog.changes(incarnation, after, 100).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Gone);
    }
    assert!(
        catalog
            .changes(now.incarnation, now.version, 100)
            .await
            .unwrap()
            .changes
            .is_empty()
    );
}

// Names, history, and what the file itself refuses.
mod whole;

// Rows that no move made, and what a move back would undo.
mod move_clear;
// What is told of moves.
mod move_events;
// Fences that stand, or were lifted.
mod move_fences;
// Orders beside the steps of a driver.
mod move_order_races;
// What is ordered of moves, and what is refused.
mod move_orders;
// Moves as their drivers see them.
mod moves;
