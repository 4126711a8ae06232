//! Parked requests whose turn comes while as many of their shop, or of their pod, are running as may.

use super::parked::{fenced, nap, parked};
use super::*;
use crate::limits::{PodPermit, ShopPermit};

/// All that may run, taken by others.
struct Others(Vec<ShopPermit>, Vec<PodPermit>);

impl Others {
    fn of_shop(rig: &Rig) -> Self {
        let permits = std::iter::from_fn(|| rig.shops.enter(ShopId::new(1).unwrap()));
        Self(permits.collect(), Vec::new())
    }

    fn of_pod(rig: &Rig) -> Self {
        let pod = rig.routes.pods.get(PodId::new(2).unwrap()).unwrap();
        let permits = std::iter::from_fn(|| pod.in_flight.enter());
        Self(Vec::new(), permits.collect())
    }

    fn end(self) {
        assert_eq!(self.0.len() + self.1.len(), 10);
    }
}

/// An edge whose shop is fenced at pod 1; pod 2 takes all.
async fn scene() -> (Rig, [FakePod; 2]) {
    let from = FakePod::start([fenced()]).await;
    let to = FakePod::start([Deed::Answer("there")]).await;
    let rig = Rig::start(&[(1, &[from.address]), (2, &[to.address])]);
    (rig, [from, to])
}

#[tokio::test(flavor = "multi_thread")]
async fn one_without_a_permit_keeps_its_seat_and_its_shop_is_open() {
    for full in [Others::of_shop, Others::of_pod] {
        let (rig, [_from, to]) = scene().await;
        let later = async {
            parked(&rig, 2).await;
            let others = full(&rig);
            rig.places(2, 2);
            nap(300).await;
            // The gate is open: a new one is told of the limit at once, and does not wait for a primary.
            let begun = Instant::now();
            let new = rig.post(10).await;
            assert_eq!(status(&new), "429", "{new}");
            assert!(begun.elapsed() < Duration::from_millis(100));
            assert_eq!((rig.parking.seats(), to.seen().len()), (2, 0));
            others.end();
            Instant::now()
        };
        let (one, two, free) = tokio::join!(rig.post(10), rig.post(60_000), later);
        assert!(free.elapsed() < Duration::from_millis(300));
        assert!(one.ends_with("there"), "{one}");
        assert!(two.ends_with("there"), "{two}");
        parked(&rig, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_without_a_permit_for_a_whole_window_is_told_so() {
    for full in [Others::of_shop, Others::of_pod] {
        let (rig, [_from, to]) = scene().await;
        let later = async {
            parked(&rig, 1).await;
            let others = full(&rig);
            rig.places(2, 2);
            others
        };
        let (one, others) = tokio::join!(rig.post(10), later);
        assert_eq!(status(&one), "503", "{one}");
        assert!(one.contains("retry-after: 1"), "{one}");
        assert!(one.contains("too many requests of this shop"), "{one}");
        assert!(!one.contains("takes long"), "{one}");
        assert_eq!(to.seen().len(), 0);
        others.end();
        parked(&rig, 0).await;
    }
}
