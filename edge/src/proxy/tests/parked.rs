//! Requests that wait for their shop's pod.

use super::*;
use crate::park::Reason;

pub(super) fn fenced() -> Deed {
    Deed::Fence("fenced".into())
}

/// Returns when so many requests hold a seat.
pub(super) async fn parked(rig: &Rig, count: usize) {
    let begun = Instant::now();
    while rig.parking.seats() != count {
        let seats = rig.parking.seats();
        assert!(begun.elapsed().as_secs() < 5, "{seats} seats, not {count}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(super) async fn nap(ms: u64) {
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
    let rarely = Settings {
        probe_every: Duration::from_secs(2),
        ..settings()
    };
    let mut rig = Rig::parking(&[(1, &[from.address]), (2, &[to.address])], rarely);
    let cut = async {
        parked(&rig, 2).await;
        // Now a probe is due after another half of a second.
        nap(800).await;
        rig.places(2, 2);
        Instant::now()
    };
    let (one, two, at) = tokio::join!(rig.post(10), rig.get("/"), cut);
    let took = at.elapsed();
    assert!(
        one.ends_with("there") && two.ends_with("there"),
        "{one}{two}"
    );
    assert!(took < Duration::from_millis(300), "{took:?}");
    assert!(to.seen().iter().all(|seen| rig.is_signed(seen, 2, 2)));
    parked(&rig, 0).await;
    let report = rig.reported.fence().await.unwrap();
    assert_eq!(
        (report.shop.get(), report.epoch.get(), report.parked),
        (1, 2, 2)
    );
    assert!((800..1_500).contains(&report.longest_ms));
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

fn settings() -> Settings {
    park_settings()
}

/// An answer for those who are not waited for, with the text that says why.
fn is_refused(answer: &str, text: &str) {
    assert_eq!(status(answer), "503", "{answer}");
    let told = answer.contains("retry-after: 1") && answer.contains("problem:unavailable");
    assert!(told && answer.contains(text), "{answer}");
    assert!(!answer.contains("podhost-fence"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waited_for_a_window_is_told_to_come_back() {
    let pod = FakePod::start([fenced()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let begun = Instant::now();
    let (one, two) = tokio::join!(rig.post(10), rig.get("/"));
    let took = begun.elapsed();
    is_refused(&one, "takes long");
    is_refused(&two, "takes long");
    assert!((2_000..2_400).contains(&took.as_millis()), "{took:?}");
    parked(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_of_a_shop_and_bodies_too_large_for_all_are_refused() {
    let pod = FakePod::start([fenced()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let full = async {
        parked(&rig, 10).await;
        is_refused(&rig.post(10).await, "too many");
        pod.does(Deed::Answer("done"));
    };
    let ten = futures::future::join_all((0..10).map(|_| rig.post(10)));
    let (answers, ()) = tokio::join!(ten, full);
    assert!(answers.iter().all(|answer| status(answer) == "200"));
    parked(&rig, 0).await;

    let pod = FakePod::start([fenced()]).await;
    let little = Settings {
        bytes_max: 100_000,
        ..settings()
    };
    let rig = Rig::parking(&[(1, &[pod.address])], little);
    let full = async {
        parked(&rig, 1).await;
        is_refused(&rig.post(60_000).await, "too many");
        pod.does(Deed::Answer("done"));
    };
    let (answer, ()) = tokio::join!(rig.post(60_000), full);
    assert_eq!(status(&answer), "200");
    parked(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shop_that_is_fenced_for_too_long_is_refused_at_once_until_it_opens() {
    let pod = FakePod::start([fenced()]).await;
    let short = Settings {
        fence_max: Duration::from_millis(700),
        ..settings()
    };
    let rig = Rig::parking(&[(1, &[pod.address])], short);
    is_refused(&rig.post(10).await, "takes long");
    let begun = Instant::now();
    for _ in 0..20 {
        is_refused(&rig.post(10).await, "takes long");
    }
    assert!(begun.elapsed() < Duration::from_millis(500));
    let asked = pod.seen().len();
    pod.does(Deed::Answer("done"));
    nap(150).await;
    assert_eq!(
        status(&rig.post(10).await),
        "200",
        "one asks, and saw it open"
    );
    assert_eq!(status(&rig.post(10).await), "200");
    assert_eq!(pod.seen().len(), asked + 2);
    assert!(asked < 20, "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_primary_again_soon_is_not_waited_for() {
    let pod = FakePod::start([Deed::Fence("unready".into())]).await;
    let gap = Settings {
        unready_gap: Duration::from_secs(60),
        ..settings()
    };
    let rig = Rig::parking(&[(1, &[pod.address])], gap);
    let open = async {
        parked(&rig, 1).await;
        pod.does(Deed::Answer("done"));
    };
    let (answer, ()) = tokio::join!(rig.post(10), open);
    assert_eq!(status(&answer), "200");
    pod.does(Deed::Fence("unready".into()));
    tokio::time::sleep(gap.settle()).await;
    let begun = Instant::now();
    is_refused(&rig.post(10).await, "takes long");
    assert!(begun.elapsed() < Duration::from_millis(100));
    pod.does(fenced());
    let open = async {
        parked(&rig, 1).await;
        pod.does(Deed::Answer("done"));
    };
    let (answer, ()) = tokio::join!(rig.post(10), open);
    assert_eq!(status(&answer), "200", "a fence is waited for");
}

/// Sent again only after a refusal: a probe whose pod broke off is answered, and the others go on waiting.
#[tokio::test(flavor = "multi_thread")]
async fn inv4_a_parked_request_that_a_pod_may_have_begun_is_never_sent_again() {
    let pod = FakePod::start([fenced()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let breaks = async {
        parked(&rig, 3).await;
        nap(200).await;
        pod.does(Deed::Close);
        pod.seen().len()
    };
    let three = futures::future::join_all((0..3).map(|_| rig.post(10)));
    let (answers, refused) = tokio::join!(three, breaks);
    let broken = answers.iter().filter(|answer| status(answer) == "502");
    assert_eq!(broken.count(), 3, "{answers:?}");
    let sent: Vec<_> = pod.seen().split_off(refused);
    let ids: std::collections::HashSet<_> =
        sent.iter().map(|s| &s.headers[wire::REQUEST]).collect();
    assert_eq!((sent.len(), ids.len()), (3, 3), "each once");
    assert!(refused >= 4, "they were sent after a refusal");
    parked(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_dies_while_its_requests_are_parked_is_waited_for() {
    let from = FakePod::start([fenced()]).await;
    let to = FakePod::start([Deed::Answer("there")]).await;
    let rig = Rig::start(&[(1, &[from.address]), (2, &[to.address])]);
    let kill = async {
        parked(&rig, 3).await;
        from.kill();
        nap(400).await;
        rig.places(2, 2);
    };
    let three = futures::future::join_all((0..3).map(|_| rig.post(10)));
    let (answers, ()) = tokio::join!(three, kill);
    for answer in &answers {
        // The one that asked when it died was perhaps begun.
        assert!(["200", "502"].contains(&status(answer)), "{answer}");
    }
    let ran = answers
        .iter()
        .filter(|answer| status(answer) == "200")
        .count();
    assert!(ran >= 2, "{answers:?}");
    parked(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_lead_to_a_shop_that_moved_twice_without_the_catalog() {
    let moved = |pod: u64, epoch: u64| Deed::Fence(format!("moved; pod={pod}; epoch={epoch}"));
    let one = FakePod::start([moved(2, 2), Deed::Answer("there")]).await;
    let two = FakePod::start([moved(3, 3)]).await;
    let three = FakePod::start([fenced()]).await;
    let pods: [(u64, &[SocketAddr]); 3] = [
        (1, &[one.address]),
        (2, &[two.address]),
        (3, &[three.address]),
    ];
    let rig = Rig::start(&pods);
    let on = async {
        parked(&rig, 1).await;
        nap(300).await;
        // And a third time: what a park cost does not count among the four.
        three.does(moved(1, 4));
    };
    let (answer, ()) = tokio::join!(rig.post(60_000), on);
    assert!(answer.ends_with("there"), "{answer}");
    assert!(rig.is_signed(one.seen().last().unwrap(), 1, 4));
    assert_eq!((one.seen().len(), two.seen().len()), (2, 1));
    assert!(three.seen().len() > 4);
}

/// The first one that asks is told where the shop is; the others go there at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_one_is_told_leads_them_all() {
    let from = FakePod::start([fenced()]).await;
    let to = FakePod::start([Deed::Answer("there")]).await;
    let rig = Rig::start(&[(1, &[from.address]), (2, &[to.address])]);
    let asked = async {
        parked(&rig, 8).await;
        let asked = from.seen().len();
        from.does(Deed::Fence("moved; pod=2; epoch=2".into()));
        asked
    };
    let eight = futures::future::join_all((0..8).map(|_| rig.post(10)));
    let (answers, asked) = tokio::join!(eight, asked);
    assert!(answers.iter().all(|answer| answer.ends_with("there")));
    assert!(
        from.seen().len() <= asked + 2,
        "{} {asked}",
        from.seen().len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_paced() {
    let pod = FakePod::start([fenced()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let open = async {
        parked(&rig, 10).await;
        // It takes the first and is silent to the others: four hold the slots until they are late.
        let asked = pod.seen().len();
        pod.script([Deed::Answer("done"), Deed::Silence]);
        nap(200).await;
        (asked, pod.seen().len())
    };
    let ten = futures::future::join_all((0..10).map(|_| rig.post(10)));
    let (answers, (before, after)) = tokio::join!(ten, open);
    assert!((1..=6).contains(&(after - before)), "{before} {after}");
    let late = answers
        .iter()
        .filter(|answer| status(answer) == "504")
        .count();
    assert_eq!(late, 9, "{answers:?}");
}
