//! Names are one shop's, the history can only grow, a file is one server's, and a full disk changes nothing.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_name_is_one_shops_however_many_want_it() {
    let (_dir, catalog) = catalog().await;
    let (snow, ice) = (make(&catalog, "snow").await, make(&catalog, "ice").await);
    let host = |text: &str| text.parse::<Host>().unwrap();
    let wanted = host("wanted.example");
    let tasks: Vec<_> = [snow.id, ice.id]
        .into_iter()
        .cycle()
        .take(8)
        .map(|shop| {
            let (catalog, wanted) = (Arc::clone(&catalog), wanted.clone());
            tokio::spawn(async move {
                catalog
                    .add_host("test", &ShopRef::Id(shop), &wanted)
                    .await
                    .map(|s| s.id)
            })
        })
        .collect();
    let mut winners = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(shop) => winners.push(shop),
            Err(error) => assert_eq!(error.field(), Some("host")),
        }
    }
    winners.dedup();
    assert_eq!(winners.len(), 1);
    let winner = ShopRef::Id(winners[0]);
    assert_eq!(
        catalog
            .shop(&ShopRef::Host(wanted.clone()))
            .await
            .unwrap()
            .id,
        winners[0]
    );
    catalog.remove_host("test", &winner, &wanted).await.unwrap();
    let error = catalog
        .remove_host("test", &winner, &wanted)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    let taken = catalog
        .begin_creation("test", &new_shop("snow"), None)
        .await
        .unwrap_err();
    assert_eq!(taken.field(), Some("handle"));
    let mut other = new_shop("other");
    other.hosts = vec![host("ice.example")];
    let taken = catalog
        .begin_creation("test", &other, None)
        .await
        .unwrap_err();
    assert_eq!(
        (taken.field(), taken.kind()),
        (Some("hosts"), Kind::Conflict)
    );
}

#[tokio::test]
async fn who_owned_a_shop_at_an_instant_has_one_answer() {
    let (_dir, catalog) = catalog().await;
    let shop = make(&catalog, "snow").await;
    let placed = catalog.placement(shop.id).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let frozen = PlacementState::Frozen;
    catalog
        .swap_state("test", &placed, frozen, Some("why"))
        .await
        .unwrap();
    let reference = ShopRef::Id(shop.id);
    let events = catalog.history(&reference).await.unwrap();
    let at = |at| {
        let (catalog, reference) = (&catalog, &reference);
        async move { catalog.placement_at(reference, at).await }
    };
    let ms = time::Duration::milliseconds(1);
    assert_eq!(
        at(events[0].at).await.unwrap().state,
        PlacementState::Serving
    );
    assert_eq!(
        at(events[1].at - ms).await.unwrap().state,
        PlacementState::Serving
    );
    assert_eq!(
        at(events[1].at).await.unwrap().state,
        PlacementState::Frozen
    );
    assert_eq!(
        at(events[0].at - ms).await.unwrap_err().kind(),
        Kind::NotFound
    );
    assert_eq!(events[1].reason.as_deref(), Some("why"));
}

#[tokio::test]
async fn the_history_can_only_grow() {
    let (_dir, catalog) = catalog().await;
    make(&catalog, "snow").await;
    for statement in [
        "delete from placement_event",
        "update placement_event set actor = 'nobody'",
    ] {
        let error = sqlx::query(statement)
            .execute(&catalog.write)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("append only"), "{error}");
    }
}

#[tokio::test]
async fn a_catalog_is_one_servers() {
    let (dir, catalog) = catalog().await;
    let domains = catalog.domains().clone();
    let path = dir.path().join("catalog.sqlite");
    let error = Catalog::open(&path, domains.clone()).await.unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }));
    let position = catalog.position().await.unwrap();
    drop(catalog);
    let again = Catalog::open(&path, domains).await.unwrap();
    assert_eq!(again.position().await.unwrap(), position);
}

/// A full disk: a clear sentence, nothing half done, and everything goes on once there is room.
#[tokio::test]
async fn a_full_disk_changes_nothing() {
    let (_dir, catalog) = catalog().await;
    sqlx::raw_sql("pragma max_page_count = 1")
        .execute(&catalog.write)
        .await
        .unwrap();
    let mut failed = None;
    for n in 0..200 {
        let new = new_shop(&format!("s{n}"));
        if let Err(error) = catalog.begin_creation("test", &new, None).await {
            failed = Some((new, error));
            break;
        }
    }
    let (new, error) = failed.unwrap();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.client_text().unwrap().contains("disk is full"));
    sqlx::raw_sql("pragma max_page_count = 1000000")
        .execute(&catalog.write)
        .await
        .unwrap();
    let begun = catalog.begin_creation("test", &new, None).await.unwrap();
    assert!(
        matches!(begun, Begun::Open(creation) if creation.fresh),
        "no claim was left"
    );
}

#[tokio::test]
async fn a_restored_catalog_makes_no_shops() {
    let (_dir, catalog) = catalog().await;
    sqlx::query("update catalog_meta set incarnation = incarnation + 1")
        .execute(&catalog.write)
        .await
        .unwrap();
    let error = catalog
        .begin_creation("test", &new_shop("snow"), None)
        .await
        .unwrap_err();
    assert!(matches!(error, CatalogError::Unreconciled));
}

#[tokio::test]
async fn a_pod_that_is_full_or_drained_gets_no_shop() {
    let (_dir, catalog) = catalog().await;
    let full = PodPut {
        max_shops: 1,
        ..pod_put("one", 1)
    };
    catalog.put_pod("test", pod(1), &full).await.unwrap();
    let wish = |handle: &str, pod: &str| NewShop {
        pod: Some(pod.into()),
        ..new_shop(handle)
    };
    let first = catalog
        .begin_creation("test", &wish("a", "one"), None)
        .await
        .unwrap();
    assert!(matches!(first, Begun::Open(_)));
    // The room is taken although that shop is not made yet.
    let error = catalog
        .begin_creation("test", &wish("b", "one"), None)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert_eq!(make(&catalog, "c").await.pod.id, pod(2));
    catalog
        .set_pod_status("test", "two", PodStatus::Draining, None)
        .await
        .unwrap();
    let error = catalog
        .begin_creation("test", &new_shop("d"), None)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("podctl pod add"), "{error}");
}
