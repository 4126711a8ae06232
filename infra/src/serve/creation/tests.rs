//! Shops are made, or not made at all, whatever stops their making: each step fails, each step is the last before a
//! crash. The catalog is a real file, opened anew after each crash; the pod's side is a list of homes.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use shared::{Epoch, Handle, PlacementState, PodId};

use super::*;
use crate::catalog::now_ms;
use crate::catalog::tests::{catalog, new_shop, open};

/// What the next step at a pod does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Works,
    /// Refused before anything happened.
    Unreachable,
    /// Done, but the answer is lost.
    Lost,
}

/// Homes at pods, in memory, with a fate for each step to come; after those, all work.
#[derive(Debug, Default)]
struct Pods {
    homes: Mutex<BTreeMap<ShopId, PlacementState>>,
    fates: Mutex<Vec<Fate>>,
}

impl Pods {
    fn with(fates: &[Fate]) -> Self {
        let fates = fates.iter().rev().copied().collect();
        Self {
            fates: Mutex::new(fates),
            ..Self::default()
        }
    }

    fn step(
        &self,
        pod: PodId,
        act: impl FnOnce(&mut BTreeMap<ShopId, PlacementState>),
    ) -> Result<(), PodStoreError> {
        let fate = self.fates.lock().pop().unwrap_or(Fate::Works);
        let address = "127.0.0.1:1".to_owned();
        if fate == Fate::Unreachable {
            return Err(PodStoreError::Unreachable {
                pod,
                address,
                source: None,
            });
        }
        act(&mut self.homes.lock());
        if fate == Fate::Lost {
            Err(PodStoreError::Timeout { pod, address })
        } else {
            Ok(())
        }
    }
}

impl Homes for Pods {
    async fn create(
        &self,
        pod: PodId,
        shop: ShopId,
        _: &Handle,
        _: &str,
    ) -> Result<(), PodStoreError> {
        self.step(pod, |homes| {
            homes.insert(shop, PlacementState::Serving);
        })
    }

    async fn remove(&self, pod: PodId, shop: ShopId) -> Result<(), PodStoreError> {
        self.step(pod, |homes| {
            homes.remove(&shop);
        })
    }

    async fn set_state(
        &self,
        pod: PodId,
        shop: ShopId,
        _: Epoch,
        to: PlacementState,
    ) -> Result<(), PodStoreError> {
        self.step(pod, |homes| {
            homes.insert(shop, to);
        })
    }
}

/// Ends whatever is open, as a server that starts does, after its patience.
async fn settle(catalog: &Catalog, pods: &Pods) {
    for creation in catalog.open_creations().await.unwrap() {
        let late = now_ms() + PATIENCE_MS + 1;
        let _ = resume(catalog, pods, &creation, late).await;
    }
}

/// Either a shop with its home, or neither, and the name is free.
async fn assert_whole(catalog: &Catalog, pods: &Pods, handle: &str) -> Option<Shop> {
    assert_eq!(
        catalog.open_operations().await.unwrap(),
        0,
        "nothing is left open"
    );
    let reference = ShopRef::Handle(handle.parse().unwrap());
    let shop = catalog.shop(&reference).await.ok();
    let homes: Vec<ShopId> = pods.homes.lock().keys().copied().collect();
    assert_eq!(homes, shop.iter().map(|s| s.id).collect::<Vec<_>>());
    if shop.is_none() {
        let again = catalog
            .begin_creation("test", &new_shop(handle), None)
            .await
            .unwrap();
        assert!(matches!(again, Begun::Open(creation) if creation.fresh));
    }
    shop
}

#[tokio::test]
async fn a_step_that_fails_undoes_the_whole() {
    use Fate::{Lost, Unreachable, Works};
    for fates in [
        &[Unreachable][..],
        &[Lost],
        &[Lost, Unreachable],
        &[Lost, Lost],
        &[Lost, Unreachable, Unreachable, Lost],
        &[Unreachable, Works],
    ] {
        let (_dir, catalog) = catalog().await;
        let pods = Pods::with(fates);
        let turns = Turns::default();
        let answer = create(&catalog, &pods, &turns, "test", &new_shop("snow"), None).await;
        let failure = answer.unwrap_err();
        assert!(matches!(failure.kind, Kind::Unavailable), "{failure:?}");
        let detail = failure.detail.unwrap();
        assert!(detail.contains("names are free"), "{detail}");
        for _ in 0..4 {
            settle(&catalog, &pods).await;
        }
        assert!(
            assert_whole(&catalog, &pods, "snow").await.is_none(),
            "{fates:?}"
        );
    }
}

/// The server is killed after each step in turn; the next start ends what was begun.
#[tokio::test]
async fn a_crash_after_any_step_is_ended_by_the_next_start() {
    for crash_after in 0..=3 {
        let (dir, catalog) = catalog().await;
        let pods = Pods::default();
        let begun = catalog
            .begin_creation("test", &new_shop("snow"), None)
            .await
            .unwrap();
        let Begun::Open(creation) = begun else {
            panic!("just begun")
        };
        if crash_after >= 1 {
            let (handle, currency) = (&creation.new.handle, &creation.new.currency);
            pods.create(creation.pod, creation.shop, handle, currency)
                .await
                .unwrap();
        }
        if crash_after == 2 {
            catalog.finish_creation(&creation).await.unwrap();
        }
        if crash_after == 3 {
            catalog.undo_creation(&creation, "given up").await.unwrap();
        }
        drop(catalog);
        let catalog = open(&dir).await;
        settle(&catalog, &pods).await;
        let shop = assert_whole(&catalog, &pods, "snow").await;
        assert_eq!(shop.is_some(), crash_after != 3, "after {crash_after}");
    }
}

#[tokio::test]
async fn the_same_request_again_goes_on_with_the_first_and_another_is_refused() {
    let (_dir, catalog) = catalog().await;
    let (pods, turns) = (Pods::default(), Turns::default());
    let new = new_shop("snow");
    let begun = catalog.begin_creation("test", &new, None).await.unwrap();
    let Begun::Open(first) = begun else {
        panic!("just begun")
    };
    let other = NewShop {
        plan: "large".into(),
        ..new.clone()
    };
    let refused = create(&catalog, &pods, &turns, "test", &other, None)
        .await
        .unwrap_err();
    assert_eq!(refused.field.as_deref(), Some("handle"));
    let shop = create(&catalog, &pods, &turns, "test", &new, None)
        .await
        .unwrap();
    assert_eq!(shop.id, first.shop);
    let done = create(&catalog, &pods, &turns, "test", &new, None)
        .await
        .unwrap_err();
    assert_eq!(done.kind, Kind::Conflict, "made: the name is taken");
}

#[tokio::test]
async fn a_key_makes_the_request_repeatable_for_ever() {
    let (_dir, catalog) = catalog().await;
    let (pods, turns) = (Pods::default(), Turns::default());
    let (new, key) = (new_shop("snow"), Some(Uuid::now_v7()));
    let first = create(&catalog, &pods, &turns, "test", &new, key)
        .await
        .unwrap();
    let again = create(&catalog, &pods, &turns, "test", &new, key)
        .await
        .unwrap();
    assert_eq!(first, again);
    let other = new_shop("ice");
    let refused = create(&catalog, &pods, &turns, "test", &other, key)
        .await
        .unwrap_err();
    assert_eq!(refused.kind, Kind::Conflict);
}

/// Two requests for one shop: the first fails and cannot undo, the pod comes back, the second goes on with what it read
/// before. Nothing may come of it: the names may be another shop's by then.
#[tokio::test]
async fn an_undone_creation_is_not_finished_by_who_waited_for_it() {
    let (_dir, catalog) = catalog().await;
    let (pods, turns) = (Pods::default(), Turns::default());
    let begun = catalog
        .begin_creation("test", &new_shop("snow"), None)
        .await
        .unwrap();
    let Begun::Open(before) = begun else {
        panic!("just begun")
    };
    catalog.undo_creation(&before, "given up").await.unwrap();
    let stale = catalog.finish_creation(&before).await;
    assert!(matches!(stale, Err(CatalogError::Stale(_))), "{stale:?}");
    let now = as_it_stands(&catalog, &before).await.unwrap().unwrap();
    assert!(now.undo, "{now:?}");
    let other = create(&catalog, &pods, &turns, "test", &new_shop("snow"), None)
        .await
        .unwrap();
    assert_ne!(other.id, before.shop, "the name was free");
    settle(&catalog, &pods).await;
    assert_eq!(as_it_stands(&catalog, &before).await.unwrap(), None);
    let failure = ended(&catalog, &before).await.unwrap_err();
    assert_eq!(failure.kind, Kind::Conflict);
    let shop = assert_whole(&catalog, &pods, "snow").await;
    assert_eq!(shop.map(|s| s.id), Some(other.id));
}

/// After a restart of everything the primaries open a little later than the control server starts.
#[tokio::test]
async fn a_resumed_creation_has_patience() {
    let (_dir, catalog) = catalog().await;
    let pods = Pods::with(&[Fate::Unreachable]);
    catalog
        .begin_creation("test", &new_shop("snow"), None)
        .await
        .unwrap();
    for _ in 0..2 {
        for creation in catalog.open_creations().await.unwrap() {
            let _ = resume(&catalog, &pods, &creation, now_ms()).await;
        }
    }
    assert!(assert_whole(&catalog, &pods, "snow").await.is_some());
}

mod orders {
    //! Freezing and going offline, by the same double of the pods.

    use super::*;
    use crate::serve::state_order::{drive, order};

    async fn state_of(
        catalog: &Catalog,
        pods: &Pods,
        shop: ShopId,
    ) -> (PlacementState, PlacementState) {
        let placed = catalog.placement(shop).await.unwrap().state;
        (placed, pods.homes.lock()[&shop])
    }

    #[tokio::test]
    async fn an_order_that_meets_a_dead_pod_goes_on_by_itself() {
        use PlacementState::{Frozen, Offline, Serving};
        for (to, meanwhile) in [(Frozen, Serving), (Offline, Offline)] {
            let (_dir, catalog) = catalog().await;
            let (pods, turns) = (Pods::default(), Turns::default());
            let shop = create(&catalog, &pods, &turns, "test", &new_shop("snow"), None)
                .await
                .unwrap();
            pods.fates.lock().push(Fate::Unreachable);
            let reference = ShopRef::Id(shop.id);
            let answer = order(&catalog, &pods, &turns, "test", &reference, to, None).await;
            assert_eq!(answer.unwrap_err().kind, Kind::Unavailable);
            assert_eq!(
                state_of(&catalog, &pods, shop.id).await,
                (meanwhile, Serving)
            );
            for open in catalog.open_states().await.unwrap() {
                drive(&catalog, &pods, &open).await.unwrap();
            }
            assert_eq!(state_of(&catalog, &pods, shop.id).await, (to, to));
            assert_eq!(catalog.open_operations().await.unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn the_last_order_counts() {
        let (_dir, catalog) = catalog().await;
        let (pods, turns) = (Pods::default(), Turns::default());
        let shop = create(&catalog, &pods, &turns, "test", &new_shop("snow"), None)
            .await
            .unwrap();
        let reference = ShopRef::Id(shop.id);
        let begin = |to| catalog.begin_state("test", &reference, to, None);
        let first = begin(PlacementState::Offline).await.unwrap();
        let second = begin(PlacementState::Frozen).await.unwrap();
        let stale = drive(&catalog, &pods, &first).await.unwrap_err();
        assert_eq!(stale.kind, Kind::Conflict);
        drive(&catalog, &pods, &second).await.unwrap();
        let frozen = PlacementState::Frozen;
        assert_eq!(state_of(&catalog, &pods, shop.id).await, (frozen, frozen));
        assert_eq!(catalog.history(&reference).await.unwrap().len(), 2);
    }
}
