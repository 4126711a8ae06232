//! The question before a large body: who is asked, who gets the body then, and how long an answer is waited for.

use super::chunked::asked_and_sent;
use super::parked::{fenced, nap, parked};
use super::parked_bodies::{Client, head};
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_body_too_large_to_keep_is_sent_once_to_whom_lets_it_in() {
    let moved = || Deed::Fence("moved; pod=2; epoch=2".into());
    let from = FakePod::start([moved()]).await;
    let to = FakePod::start([Deed::Answer("here")]).await;
    let rig = Rig::start(&[(1, &[from.address]), (2, &[to.address])]);
    let answer = rig.post(200_000).await;
    assert_eq!(status(&answer), "200", "{answer}");
    for (pod, number, epoch) in [(&from, 1, 1), (&to, 2, 2)] {
        let asked = pod.seen()[0].clone();
        assert_eq!((asked.target.as_str(), asked.body), (wire::LETS_IN, 0));
        assert!(rig.is_signed(&asked, number, epoch));
    }
    let bodies = |pod: &FakePod| pod.seen().iter().map(|it| it.body).collect::<Vec<_>>();
    assert_eq!(bodies(&from), [0]);
    assert_eq!(bodies(&to), [0, 200_000]);
    // It moved between the question and the body.
    from.script([Deed::Answer(""), moved()]);
    rig.places(1, 3);
    let answer = rig.post(200_000).await;
    assert_eq!(status(&answer), "503", "{answer}");
    assert!(answer.contains("send it again"), "{answer}");
    assert_eq!(bodies(&to).len(), 2);
}

/// A pod that is busy, silent or does not know the question says nothing: the request goes there as any other.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_be_asked_is_sent_the_body() {
    let pod = FakePod::start([Deed::Close, Deed::Answer("done")]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    assert_eq!(status(&rig.post(200_000).await), "200");
}

/// Nothing but the question was sent to it: the body goes to one that answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_says_nothing_when_it_is_asked_gets_no_body() {
    for deed in [Deed::Close, Deed::Silence] {
        let silent = FakePod::start([deed.clone()]).await;
        let well = FakePod::start([Deed::Answer("done")]).await;
        let rig = Rig::start(&[(1, &[silent.address, well.address])]);
        // One of them at least chooses the silent one first.
        let (one, two) = tokio::join!(rig.post(200_000), rig.post(200_000));
        for answer in [one, two] {
            assert_eq!(status(&answer), "200", "{deed:?}: {answer}");
        }
        let asked = silent.seen();
        assert!(!asked.is_empty(), "{deed:?}");
        assert!(asked.iter().all(|it| it.target == wire::LETS_IN));
        let whole = well.seen().iter().filter(|it| it.body == 200_000).count();
        assert_eq!(whole, 2, "{deed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_cannot_be_asked_since_it_is_gone_is_passed_over() {
    let pod = FakePod::start([Deed::Answer("")]).await;
    let dead = FakePod::dead().await;
    let rig = Rig::start(&[(1, &[dead, pod.address])]);
    for _ in 0..2 {
        assert_eq!(status(&rig.post(200_000).await), "200");
    }
    let one = rig.routes.pods.get(PodId::new(1).unwrap()).unwrap();
    let health: Vec<_> = one.processes().iter().map(|it| it.health()).collect();
    assert_eq!(health, [Health::Down, Health::Serving]);
    let rig = Rig::start(&[(1, &[dead])]);
    assert_eq!(status(&rig.post(200_000).await), "503");
}

/// A process that is asked from a seat and says nothing gets no body; the window ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_without_an_answer_ends_with_the_window() {
    let pod = FakePod::start([fenced(), Deed::Silence]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let answer = rig.post(200_000).await;
    assert_eq!(status(&answer), "503", "{answer}");
    assert_eq!(asked_and_sent(&pod).1, []);
    parked(&rig, 0).await;
}

/// A client that leaves while its pod is asked is not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_while_its_pod_is_asked_is_gone() {
    let silent = FakePod::start([Deed::Silence]).await;
    let well = FakePod::start([Deed::Answer("done")]).await;
    let rig = Rig::start(&[(1, &[silent.address, well.address])]);
    let fields = "content-length: 200000\r\nconnection: close\r\n";
    let client = Client::to(&rig, head("POST", fields).as_bytes()).await;
    let begun = Instant::now();
    while silent.seen().is_empty() {
        assert!(begun.elapsed().as_secs() < 20, "the process is not asked");
        nap(5).await;
    }
    drop(client);
    // Its permit is free again, and the other process was never asked.
    let pod = rig.routes.pods.get(PodId::new(1).unwrap()).unwrap();
    while pod.in_flight.now() > 0 {
        assert!(begun.elapsed().as_secs() < 20, "it still runs");
        nap(5).await;
    }
    assert_eq!(well.seen().len(), 0);
}
