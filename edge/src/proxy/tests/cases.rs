//! What comes of a request, by what pods and catalog do.

use super::*;

#[test]
fn a_silent_pod_is_504_and_a_broken_one_502() {
    let kind = |error: Box<Error>| reply_to(&error).map(|reply| reply.kind);
    let read = ErrorType::ReadTimedout;
    assert_eq!(kind(Error::new_up(read.clone())), Some(Kind::Timeout));
    let closed = ErrorType::ConnectionClosed;
    assert_eq!(kind(Error::new_up(closed.clone())), Some(Kind::BadGateway));
    let header = ErrorType::InvalidHTTPHeader;
    assert_eq!(kind(Error::new_up(header.clone())), Some(Kind::BadGateway));
    assert_eq!(kind(Error::new_down(header)), Some(Kind::Invalid));
    assert_eq!(kind(Error::new_down(closed)), None, "nobody to tell");
    assert_eq!(
        kind(Error::new_down(read)),
        None,
        "a client that stopped sending"
    );
    assert_eq!(
        kind(Error::new_in(ErrorType::InternalError)),
        Some(Kind::Internal)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn inv4_a_request_that_a_pod_may_have_begun_is_never_sent_again() {
    for (deed, expected) in [(Deed::Close, "502"), (Deed::Silence, "504")] {
        let one = FakePod::start([deed.clone()]).await;
        let two = FakePod::start([deed.clone()]).await;
        let rig = Rig::start(&[(1, &[one.address, two.address])]);
        for answer in [rig.get("/").await, rig.post(10).await] {
            assert_eq!(status(&answer), expected, "{answer}");
            assert!(answer.contains("retry-after"), "{answer}");
        }
        let seen = one.seen().len() + two.seen().len();
        assert_eq!(seen, 2, "each was sent once: {deed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_is_followed_without_the_catalog_and_signed_anew() {
    let from = FakePod::start([Deed::Fence("moved; pod=2; epoch=2".into())]).await;
    let to = FakePod::start([Deed::Answer("here")]).await;
    let rig = Rig::start(&[(1, &[from.address]), (2, &[to.address])]);
    let answer = rig.post(60_000).await;
    assert!(
        status(&answer) == "200" && answer.ends_with("here"),
        "{answer}"
    );
    assert!(!answer.contains("podhost-"), "{answer}");
    let (first, second) = (&from.seen()[0], &to.seen()[0]);
    assert!(rig.is_signed(first, 1, 1) && rig.is_signed(second, 2, 2));
    assert_eq!((first.body, second.body), (60_000, 60_000));
    assert_eq!(first.headers[wire::REQUEST], second.headers[wire::REQUEST]);
    // It came late, which is told of the move that had this epoch.
    let shop = ShopId::new(1).unwrap();
    let late = |epoch: u64| rig.reported.late(shop, Epoch::try_from(epoch).unwrap());
    assert_eq!((late(2), late(1)), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_route_is_refreshed_and_the_request_sent_where_the_catalog_says() {
    let from = FakePod::start([stale()]).await;
    let to = FakePod::start([Deed::Answer("here")]).await;
    let rig = Rig::start(&[(1, &[from.address]), (2, &[to.address])]);
    rig.catalog([(2, 2)]);
    assert_eq!(status(&rig.post(100).await), "200");
    assert_eq!((from.seen().len(), to.seen().len()), (1, 1));
    assert!(rig.is_signed(&to.seen()[0], 2, 2));
    // The next request knows the way.
    assert_eq!(status(&rig.get("/").await), "200");
    assert_eq!(from.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_route_that_nobody_can_better_is_503() {
    let pod = FakePod::start([stale()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let asked = Instant::now();
    let answer = rig.get("/").await;
    assert_eq!(status(&answer), "503", "{answer}");
    assert!(answer.contains("retry-after: 1") && answer.contains("problem:unavailable"));
    assert!(
        asked.elapsed() >= Duration::from_millis(300),
        "the catalog had its time"
    );
    rig.catalog([]);
    let asked = Instant::now();
    assert_eq!(status(&rig.get("/").await), "503");
    assert!(
        asked.elapsed() < Duration::from_millis(300),
        "a catalog that knows nothing new is not waited for"
    );
    assert_eq!(pod.seen().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_forwarded_four_times_at_most() {
    let (one, two) = (
        FakePod::start([stale()]).await,
        FakePod::start([stale()]).await,
    );
    let rig = Rig::start(&[(1, &[one.address]), (2, &[two.address])]);
    rig.catalog((2..20).map(|epoch| (1 + epoch % 2, epoch)));
    let answer = rig.get("/").await;
    assert_eq!(status(&answer), "503", "{answer}");
    assert_eq!(one.seen().len() + two.seen().len(), 4);
}

/// What edges ask of pods, no client does: not even a shop's own path.
#[tokio::test(flavor = "multi_thread")]
async fn paths_between_edges_and_pods_are_not_for_clients() {
    let pod = FakePod::start([Deed::Answer("here")]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let ask = async |method: &str, host: &str, target: &str| {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        rig.send(head.as_bytes()).await
    };
    for method in ["GET", "POST"] {
        for (host, target) in [
            ("snow.localhost", wire::LETS_IN),
            ("snow.localhost", "/-/lets-in?x=1"),
            ("snow.localhost", "/-/healthz"),
            ("snow.localhost", "http://snow.localhost/-/healthz"),
            ("localhost", "/s/snow/-/lets-in"),
        ] {
            let answer = ask(method, host, target).await;
            assert_eq!(status(&answer), "404", "{method} {target}: {answer}");
            assert!(answer.contains("problem:not-found"), "{answer}");
        }
    }
    assert_eq!(pod.seen().len(), 0);
    for target in ["/-", "/-a", "/a/-/b"] {
        assert_eq!(status(&ask("GET", "snow.localhost", target).await), "200");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_that_cannot_be_read_is_nonsense() {
    let pod = FakePod::start([Deed::Fence("what".into())]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    assert_eq!(status(&rig.get("/").await), "502");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_cannot_be_connected_to_is_passed_over() {
    let pod = FakePod::start([Deed::Answer("")]).await;
    let dead = FakePod::dead().await;
    let rig = Rig::start(&[(1, &[dead, pod.address])]);
    for _ in 0..4 {
        assert_eq!(status(&rig.post(10).await), "200");
    }
    assert_eq!(pod.seen().len(), 4);
    let rig = Rig::start(&[(1, &[dead])]);
    for _ in 0..2 {
        let answer = rig.post(10).await;
        assert_eq!(status(&answer), "503", "{answer}");
        assert!(answer.contains("retry-after"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_refused_like_everything_else() {
    let pod = FakePod::start([Deed::Answer("")]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    for (request, expected) in [
        ("HELLO\r\n\r\n", "400"),
        (
            "GET / HTTP/1.1\r\nhost: snow.localhost\r\nhost: snow.localhost\r\n\r\n",
            "400",
        ),
        ("GET / HTTP/1.1\r\nconnection: close\r\n\r\n", "400"),
        (
            "GET http://other/ HTTP/1.1\r\nhost: snow.localhost\r\n\r\n",
            "400",
        ),
        (
            "CONNECT snow.localhost:80 HTTP/1.1\r\nhost: snow.localhost:80\r\n\r\n",
            "405",
        ),
        (
            "POST / HTTP/1.1\r\nhost: snow.localhost\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n",
            "400",
        ),
    ] {
        let answer = rig.send(request.as_bytes()).await;
        assert_eq!(status(&answer), expected, "{request}{answer}");
        assert!(answer.contains("urn:podhost:problem:"), "{request}{answer}");
        assert!(
            answer.to_ascii_lowercase().contains("x-request-id: "),
            "{answer}"
        );
    }
    for (fields, expected) in [
        (40, "200"),
        (60, "431"),
        (256, "431"),
        (257, "431"),
        (5_000, "431"),
    ] {
        // One more names the host.
        let many: String = (1..fields).map(|n| format!("f{n}: {n}\r\n")).collect();
        let request =
            format!("GET / HTTP/1.1\r\nhost: snow.localhost\r\nconnection: close\r\n{many}\r\n");
        let answer = rig.send(request.as_bytes()).await;
        assert_eq!(status(&answer), expected, "{fields} fields: {answer}");
    }
    let odd = format!(
        "GET / HTTP/1.1\r\nhost snow\r\n\r\n{}",
        "\r\n".repeat(1_000)
    );
    assert_eq!(status(&rig.send(odd.as_bytes()).await), "400");
    assert_eq!(pod.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_says_https_is_not_for_an_open_connection() {
    let pod = FakePod::start([Deed::Answer("")]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    for (scheme, expected) in [
        ("http", "200"),
        ("HTTP", "200"),
        ("https", "421"),
        ("ftp", "400"),
    ] {
        let answer = rig.get(&format!("{scheme}://snow.localhost/a")).await;
        assert_eq!(status(&answer), expected, "{answer}");
    }
    assert_eq!(pod.seen().len(), 2);
}

/// A connection that is closed while bytes wait in it is reset, and the reset can overtake the answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_body_does_not_reset_the_connection() {
    let pod = FakePod::start([Deed::Answer("")]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let head = "POST / HTTP/1.1\r\nhost: nobody.localhost\r\ncontent-length: 900000\r\n\r\n";
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; 900_000]).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(status(&answer), "404", "{answer}");
    assert!(answer.contains("problem:unknown-shop"), "{answer}");
}
