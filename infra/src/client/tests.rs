//! Addresses, paths, answers, and which server is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

#[test]
fn a_reference_cannot_leave_its_segment() {
    let base = Url::parse("http://127.0.0.1:7000").unwrap();
    let path = Path::of(&["shops", "a/../../b?x#y"]).query("limit", Some("2&3".into()));
    assert_eq!(
        path.on(&base).as_str(),
        "http://127.0.0.1:7000/v1/shops/a%2F..%2F..%2Fb%3Fx%23y?limit=2%263"
    );
}

#[test]
fn an_address_that_cannot_work_says_why() {
    for (text, part) in [
        ("https://control.example", "tunnel"),
        ("127.0.0.1:7000", "must look like"),
        ("control", "must look like"),
    ] {
        let error = parse_url(text).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(text), "{error}");
    }
}

#[test]
fn a_problem_is_kept_and_anything_else_is_nonsense() {
    let base = Url::parse("http://127.0.0.1:7000").unwrap();
    let body = br#"{"type":"urn:podhost:problem:conflict","title":"T","status":409,
        "detail":"the handle is taken","field":"handle"}"#;
    let error = refusal(&base, StatusCode::CONFLICT, body);
    assert_eq!(error.to_string(), "the handle is taken (field `handle`)");
    let error = refusal(&base, StatusCode::BAD_GATEWAY, b"<html>");
    assert!(error.to_string().contains("502"), "{error}");
}

/// A server that answers everything with the same, or takes connections and is silent: a frozen one.
async fn server(answer: Option<&'static str>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            if let Some(body) = answer {
                let _ = stream.read(&mut [0; 4096]).await;
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
            }
            open.push(stream);
        }
    });
    (url, asked)
}

/// Reading asks the next server when one is silent; an order is not given twice.
#[tokio::test]
async fn a_frozen_server_holds_up_no_reading_and_an_order_stays_with_it() {
    let (frozen, _) = server(None).await;
    let (good, asked) = server(Some("[7]")).await;
    let dead = "http://127.0.0.1:1".to_owned();
    let timeout = Duration::from_secs(3);
    let client = |urls: &[&String]| {
        let urls: Vec<_> = urls.iter().map(|url| (*url).clone()).collect();
        Control::new(&urls, "token".into(), timeout).unwrap()
    };
    let path = Path::of(&["moves"]);
    let three = client(&[&dead, &frozen, &good]);
    let begun = std::time::Instant::now();
    let read: Vec<u64> = three.get(&path).await.unwrap();
    assert_eq!((read, asked.load(Ordering::Relaxed)), (vec![7], 1));
    assert!(begun.elapsed() < timeout, "{:?}", begun.elapsed());
    let other = client(&[&dead, &frozen, &good]);
    let order = other.order(Method::POST, &path).await.unwrap_err();
    assert!(
        order
            .to_string()
            .contains("did not answer within 3s; it may")
    );
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // Who has answered once is asked first, also for an order, by every copy of the client.
    let begun = std::time::Instant::now();
    let copy = three.clone();
    copy.order(Method::POST, &path).await.unwrap();
    let _: Vec<u64> = three.get(&path).await.unwrap();
    assert!(begun.elapsed() < timeout / 3, "{:?}", begun.elapsed());
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    // An order goes on past one that takes no connection.
    let two = client(&[&dead, &good]);
    two.order(Method::POST, &path).await.unwrap();
    // Nobody else to ask: the silence is told, and is not tried again.
    let begun = std::time::Instant::now();
    let silent = client(&[&frozen, &dead]).get::<Vec<u64>>(&path).await;
    assert!(matches!(silent, Err(Error::Timeout { .. })), "{silent:?}");
    assert!(begun.elapsed() < timeout, "{:?}", begun.elapsed());
}
