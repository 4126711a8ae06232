//! Bodies that do not say their length: kept as far as they can be, and asked for where they cannot.

use super::fake_pod::sum;
use super::parked::{fenced, nap, parked};
use super::parked_bodies::{Client, head, pattern};
use super::*;

/// A body in chunks of that size.
pub(super) fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let chunk = |part: &[u8]| [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
    let mut sent: Vec<u8> = body.chunks(size).flat_map(chunk).collect();
    sent.extend_from_slice(b"0\r\n\r\n");
    sent
}

pub(super) const CHUNKED: &str = "transfer-encoding: chunked\r\nconnection: close\r\n";

/// How often a pod was asked, and the bodies that it was sent.
pub(super) fn asked_and_sent(pod: &FakePod) -> (usize, Vec<(usize, u64)>) {
    let (asked, sent): (Vec<_>, Vec<_>) = pod
        .seen()
        .into_iter()
        .partition(|it| it.target == wire::LETS_IN);
    (
        asked.len(),
        sent.iter().map(|it| (it.body, it.sum)).collect(),
    )
}

/// In chunks or not: what can be kept is parked and sent again, without a question.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_body_of_unknown_length_is_kept_and_asks_nothing() {
    for (length, size) in [(0, 1), (10, 3), (10, 10), (60_000, 7_000)] {
        let pod = FakePod::start([fenced()]).await;
        let rig = Rig::start(&[(1, &[pod.address])]);
        let body = pattern(length);
        let request = [head("POST", CHUNKED).as_bytes(), &chunked(&body, size)].concat();
        let opens = async {
            parked(&rig, 1).await;
            pod.does(Deed::Answer("done"));
        };
        let (answer, ()) = tokio::join!(rig.send(&request), opens);
        assert_eq!(status(&answer), "200", "{length}: {answer}");
        let (asked, sent) = asked_and_sent(&pod);
        assert_eq!(asked, 0, "{length}");
        assert!(sent.len() >= 2, "{length}");
        assert!(
            sent.iter().all(|it| *it == (length, sum(&body))),
            "{sent:?}"
        );
        parked(&rig, 0).await;
    }
}

/// Just below and above of what is kept, in chunks of all sizes, nothing of it is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_unknown_length_arrives_whole_whether_or_not_it_can_be_kept() {
    let pod = FakePod::start([Deed::Answer("done")]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    for length in [
        1, 65_000, 65_535, 65_536, 65_537, 70_000, 131_073, 1_000_000,
    ] {
        for size in [100, 4_096, 65_536, 1_000_000] {
            pod.forget();
            let body = pattern(length);
            let request = [head("POST", CHUNKED).as_bytes(), &chunked(&body, size)].concat();
            let answer = rig.send(&request).await;
            assert_eq!(status(&answer), "200", "{length} by {size}: {answer}");
            let (asked, sent) = asked_and_sent(&pod);
            assert_eq!(sent, [(length, sum(&body))], "{length} by {size}");
            // One that is just as large as what is kept may be either.
            let large = length > crate::park::BODY_MAX;
            assert!(
                asked == usize::from(large) || length == crate::park::BODY_MAX,
                "{length} by {size}: {asked}"
            );
        }
    }
}

/// A client that sends its small body slowly is not waited for: the pod is asked while the body is still to come.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_of_unknown_length_is_asked_for_and_arrives() {
    let pod = FakePod::start([Deed::Answer("done")]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let body = pattern(10_000);
    let sent = chunked(&body, 1_000);
    let mut client = Client::to(&rig, head("POST", CHUNKED).as_bytes()).await;
    client.send(&sent[..5_000]).await;
    let begun = Instant::now();
    while pod.seen().is_empty() {
        assert!(begun.elapsed().as_secs() < 20, "the pod is not asked");
        nap(5).await;
    }
    client.send(&sent[5_000..]).await;
    let answer = client.rest().await;
    assert_eq!(status(&answer), "200", "{answer}");
    assert_eq!(asked_and_sent(&pod), (1, vec![(10_000, sum(&body))]));
}
