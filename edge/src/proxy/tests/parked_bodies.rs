//! What becomes of the bodies of parked requests, of clients that leave, and of what they sent early.

use super::chunked::{CHUNKED, chunked};
use super::fake_pod::sum;
use super::parked::{fenced, nap, parked};
use super::*;

pub(super) fn pattern(length: usize) -> Vec<u8> {
    let byte = |i: usize| u8::try_from(i % 251).unwrap();
    (0..length).map(byte).collect()
}

pub(super) fn head(method: &str, fields: &str) -> String {
    format!("{method} /buy HTTP/1.1\r\nhost: snow.localhost\r\n{fields}\r\n")
}

/// A client that sends piece by piece.
pub(super) struct Client(TcpStream);

impl Client {
    pub(super) async fn to(rig: &Rig, first: &[u8]) -> Self {
        let mut stream = TcpStream::connect(rig.address).await.unwrap();
        stream.write_all(first).await.unwrap();
        Self(stream)
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// All that comes until the edge closes.
    pub(super) async fn rest(&mut self) -> String {
        let mut answer = Vec::new();
        let _ = self.0.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    /// What comes until this has come.
    async fn until(&mut self, end: &str) -> String {
        let mut answer = Vec::new();
        while !answer.ends_with(end.as_bytes()) {
            let read = self.0.read_buf(&mut answer).await.unwrap();
            assert_ne!(read, 0, "{}", String::from_utf8_lossy(&answer));
        }
        String::from_utf8(answer).unwrap()
    }
}

/// A shop whose gate is closed by a request that stays parked.
async fn closed(rig: &Rig) -> Client {
    let holder = Client::to(rig, head("POST", "content-length: 0\r\n").as_bytes()).await;
    parked(rig, 1).await;
    holder
}

/// Bodies with a length, small and large, and in chunks, that come before, while and after their request is parked.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_arrives_whole_however_it_is_sent() {
    for (length, in_chunks) in [
        (10, false),
        (60_000, false),
        (1_000_000, false),
        (300_000, true),
    ] {
        let pod = FakePod::start([fenced()]).await;
        let rig = Rig::start(&[(1, &[pod.address])]);
        let mut holder = closed(&rig).await;
        let body = pattern(length);
        let (fields, sent) = if in_chunks {
            (CHUNKED.to_owned(), chunked(&body, 7_000))
        } else {
            let fields = format!("content-length: {length}\r\nconnection: close\r\n");
            (fields, body.clone())
        };
        let mut client = Client::to(&rig, head("POST", &fields).as_bytes()).await;
        let (first, rest) = sent.split_at(sent.len() / 2);
        client.send(&first[..first.len().min(5_000)]).await;
        parked(&rig, 2).await;
        nap(50).await;
        pod.does(Deed::Answer("done"));
        let rest = async {
            nap(150).await;
            client.send(&first[first.len().min(5_000)..]).await;
            client.send(rest).await;
            client.rest().await
        };
        let answer = rest.await;
        assert!(
            status(&answer) == "200" && answer.ends_with("done"),
            "{length}: {answer}"
        );
        holder.until("done").await;
        let seen = pod.seen();
        let last = seen
            .iter()
            .find(|seen| seen.body > 0 && seen.sum == sum(&body));
        assert_eq!(
            last.map(|seen| seen.body),
            Some(length),
            "chunked: {in_chunks}"
        );
        parked(&rig, 0).await;
    }
}

/// A pod that refuses a large upload at its header: the rest waits, unread.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_that_was_not_sent_yet_is_sent_later() {
    let pod = FakePod::start([Deed::FenceEarly]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let body = pattern(1_000_000);
    let fields = "content-length: 1000000\r\nconnection: close\r\n";
    let mut client = Client::to(&rig, head("POST", fields).as_bytes()).await;
    client.send(&body[..20_000]).await;
    parked(&rig, 1).await;
    pod.does(Deed::Answer("done"));
    client.send(&body[20_000..]).await;
    let answer = client.rest().await;
    assert_eq!(status(&answer), "200", "{answer}");
    assert_eq!(pod.seen().last().map(|seen| seen.sum), Some(sum(&body)));
    parked(&rig, 0).await;
}

/// Alone at a fence it asks for itself, again and again, without its body; that is sent once.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_alone_at_a_fence_waits_and_is_sent_once() {
    let pod = FakePod::start([fenced()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let opens = async {
        parked(&rig, 1).await;
        nap(300).await;
        assert!(pod.seen().len() > 2, "{}", pod.seen().len());
        pod.does(Deed::Answer("done"));
    };
    let (answer, ()) = tokio::join!(rig.post(200_000), opens);
    assert_eq!(status(&answer), "200", "{answer}");
    let seen = pod.seen();
    let (last, asked) = seen.split_last().unwrap();
    assert_eq!((last.target.as_str(), last.body), ("/buy", 200_000));
    for question in asked {
        assert_eq!(
            (question.target.as_str(), question.body),
            (wire::LETS_IN, 0)
        );
    }
    parked(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_drips_ends_with_the_window_and_asks_for_nobody() {
    let pod = FakePod::start([fenced()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let holder = closed(&rig).await;
    let begun = Instant::now();
    let fields = "content-length: 100\r\nconnection: close\r\n";
    let mut client = Client::to(&rig, head("POST", fields).as_bytes()).await;
    client.send(b"x").await;
    parked(&rig, 2).await;
    drop(holder);
    parked(&rig, 1).await;
    let asked = pod.seen().len();
    let answer = client.rest().await;
    assert_eq!(status(&answer), "503", "{answer}");
    let took = begun.elapsed();
    assert!((1_900..2_600).contains(&took.as_millis()), "{took:?}");
    assert!(pod.seen().len() <= asked + 1);
    parked(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_seat_within_a_second() {
    let pod = FakePod::start([fenced()]).await;
    let patient = Settings {
        window: Duration::from_secs(60),
        ..park_settings()
    };
    let rig = Rig::parking(&[(1, &[pod.address])], patient);
    let holder = closed(&rig).await;
    let unread = [
        head("POST", "content-length: 3\r\n") + "abc",
        head("POST", "content-length: 3\r\n") + "a",
        head("POST", "content-length: 1000000\r\n") + &"x".repeat(5_000),
        head("POST", "transfer-encoding: chunked\r\n") + "3\r\nabc\r\n",
        head("POST", "content-length: 0\r\n") + &head("GET", ""),
        head("POST", "content-length: 10\r\nexpect: 100-continue\r\n"),
    ];
    for request in unread {
        let client = Client::to(&rig, request.as_bytes()).await;
        parked(&rig, 2).await;
        nap(300).await;
        let left = Instant::now();
        drop(client);
        parked(&rig, 1).await;
        let took = left.elapsed();
        assert!(took < Duration::from_millis(900), "{took:?}: {request:.80}");
    }
    drop(holder);
    parked(&rig, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_came_early_is_answered_after_the_parked_one() {
    let pod = FakePod::start([fenced()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let mut client = Client::to(
        &rig,
        (head("POST", "content-length: 3\r\n") + "abc").as_bytes(),
    )
    .await;
    parked(&rig, 1).await;
    client.send(head("GET", "").as_bytes()).await;
    nap(100).await;
    client
        .send(head("PUT", "content-length: 2\r\nconnection: close\r\n").as_bytes())
        .await;
    client.send(b"xy").await;
    nap(100).await;
    pod.does(Deed::Answer("done"));
    let answers = client.rest().await;
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 3, "{answers}");
    let methods: Vec<_> = pod
        .seen()
        .iter()
        .rev()
        .take(3)
        .map(|s| s.method.clone())
        .collect();
    assert_eq!(methods, ["PUT", "GET", "POST"]);
}

/// A client that waits for `100 Continue` gets it when its request is let through, not before.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_to_be_told_to_send_is_told_when_a_pod_wants_it() {
    let pod = FakePod::start([fenced()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let holder = closed(&rig).await;
    let fields = "content-length: 10\r\nexpect: 100-continue\r\nconnection: close\r\n";
    let mut client = Client::to(&rig, head("POST", fields).as_bytes()).await;
    parked(&rig, 2).await;
    // With nobody else it asks for itself, without its body.
    pod.does(Deed::FenceEarly);
    drop(holder);
    parked(&rig, 1).await;
    let early = tokio::time::timeout(Duration::from_millis(200), client.until("\r\n\r\n"));
    early.await.unwrap_err();
    pod.does(Deed::Continue("done"));
    let hundred = client.until("\r\n\r\n").await;
    assert!(hundred.starts_with("HTTP/1.1 100"), "{hundred}");
    client.send(b"0123456789").await;
    let answer = client.rest().await;
    assert!(
        answer.contains("HTTP/1.1 200") && answer.ends_with("done"),
        "{answer}"
    );
}

/// A pod that asked for the body and then refused: the client still gets a status.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_after_continue_is_parked_and_answered() {
    for opens in [true, false] {
        // It is let in when it is asked for, and refused when it comes.
        let pod = FakePod::start([Deed::Answer(""), Deed::ContinueFence]).await;
        let rig = Rig::start(&[(1, &[pod.address])]);
        let fields = "content-length: 10\r\nexpect: 100-continue\r\nconnection: close\r\n";
        let mut client = Client::to(&rig, head("POST", fields).as_bytes()).await;
        client.until("\r\n\r\n").await;
        client.send(b"0123456789").await;
        parked(&rig, 1).await;
        if opens {
            pod.does(Deed::Answer("done"));
        }
        let answer = client.rest().await;
        let last = answer.rsplit("HTTP/1.1 ").next().unwrap();
        assert!(
            last.starts_with(if opens { "200" } else { "503" }),
            "{answer}"
        );
        parked(&rig, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_and_a_websocket_wait_like_others() {
    let pod = FakePod::start([fenced()]).await;
    let rig = Rig::start(&[(1, &[pod.address])]);
    let mut asks = Client::to(&rig, head("HEAD", "connection: close\r\n").as_bytes()).await;
    let fields = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    parked(&rig, 1).await;
    pod.does(Deed::Answer("done"));
    let answer = asks.rest().await;
    assert!(
        status(&answer) == "200" && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
    pod.does(fenced());
    let mut socket = Client::to(&rig, head("GET", fields).as_bytes()).await;
    parked(&rig, 1).await;
    pod.does(Deed::Tunnel);
    let switched = socket.until("\r\n\r\n").await;
    assert!(switched.starts_with("HTTP/1.1 101"), "{switched}");
    parked(&rig, 0).await;
    socket.send(b"hello").await;
    assert_eq!(socket.until("hello").await, "hello");
}
