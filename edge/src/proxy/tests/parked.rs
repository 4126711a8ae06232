//! Requests that wait for their shop's pod.

use super::*;
use crate::park::Reason;

fn fenced() -> Deed {
    Deed::Fence("fenced".into())
}

/// Returns when so many requests hold a seat.
async fn parked(rig: &Rig, count: usize) {
    let begun = Instant::now();
    while rig.parking.seats() != count {
        let seats = rig.parking.seats();
        assert!(begun.elapsed().as_secs() < 5, "{seats} seats, not {count}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn nap(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_shop_is_waited_for_and_one_request_asks_for_all() {
    for reason in [Reason::Fenced, Reason::Unready] {
        let pod = FakePod::start([Deed::Fence(reason.as_str().into())]).await;
        let rig = Rig::start(&[(1, &[pod.address])]);
        let wait = async {
            parked(&rig, 10).await;
            nap(500).await;
            let asked = pod.seen().len();
            assert!((5..=16).contains(&asked), "asked {asked} times");
            pod.does(Deed::Answer("done"));
        };
        let first = rig.post(10);
        let others = async {
            parked(&rig, 1).await;
            futures::future::join_all((0..9).map(|_| rig.post(60_000))).await
        };
        let (answer, others, ()) = tokio::join!(first, others, wait);
        for answer in others.iter().chain([&answer]) {
            assert!(
                status(answer) == "200" && answer.ends_with("done"),
                "{answer}"
            );
            assert!(!answer.contains("podhost-"), "{answer}");
        }
        parked(&rig, 0).await;
        let bodies = pod.seen().iter().filter(|seen| seen.body == 60_000).count();
        assert!(bodies >= 9);
        assert!(pod.seen().iter().all(|seen| rig.is_signed(seen, 1, 1)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_route_wakes_at_once_whom_a_probe_would_not() {
    let from = FakePod::start([fenced()]).await;
    let to = FakePod::start([Deed::Answer("there")]).await;
    let rig = Rig::start(&[(1, &[from.address]), (2, &[to.address])]);
    let cut = async {
        parked(&rig, 2).await;
        rig.places(2, 2);
        Instant::now()
    };
    let (one, two, at) = tokio::join!(rig.post(10), rig.get("/"), cut);
    let took = at.elapsed();
    assert!(
        one.ends_with("there") && two.ends_with("there"),
        "{one}{two}"
    );
    assert!(took < Duration::from_millis(60), "{took:?}");
    assert!(to.seen().iter().all(|seen| rig.is_signed(seen, 2, 2)));
    parked(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_parked_when_the_edge_stops_is_told_so_at_once() {
    let pod = FakePod::start([fenced()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let stop = async {
        parked(&rig, 3).await;
        rig.stop.send_replace(true);
        Instant::now()
    };
    let clients = futures::future::join_all((0..3).map(|_| rig.post(10)));
    let (answers, at) = tokio::join!(clients, stop);
    assert!(at.elapsed() < Duration::from_millis(200));
    for answer in answers {
        assert_eq!(status(&answer), "503", "{answer}");
        assert!(
            answer.contains("retry-after: 1") && answer.contains("stops"),
            "{answer}"
        );
    }
    parked(&rig, 0).await;
}
