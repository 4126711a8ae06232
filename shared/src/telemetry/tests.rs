//! Trace context, and telemetry running for real against a collector made of one socket.

use std::io::{Read, Write};
use std::net::TcpListener;

use proptest::prelude::*;

use super::*;
use crate::config;

#[test]
fn headers_of_the_specification_are_read() {
    let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let parent = TraceParent::parse(good).unwrap();
    assert_eq!(parent.to_string(), good);
    assert!(parent.sampled());
    assert_eq!(parent.trace_id(), "0af7651916cd43dd8448eb211c80319c");
    let newer = good.replacen("00-", "01-", 1) + "-what-the-future-brings";
    assert_eq!(TraceParent::parse(&newer), Some(parent));
    for bad in [
        "",
        "00",
        &good.to_uppercase(),
        &good.replacen("00-", "ff-", 1),
        &(good.to_owned() + "-x"),
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319cb7ad6b7169203331-01--",
        "00-0af7651916cd43dd8448eb211c8031\u{e9}-b7ad6b7169203331-01",
    ] {
        assert_eq!(TraceParent::parse(bad), None, "{bad}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(seed: u64) {
        use rand::SeedableRng;
        let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
        let parent = TraceParent::random(&mut rng);
        prop_assert_eq!(TraceParent::parse(&parent.to_string()), Some(parent));
        let child = parent.child(&mut rng);
        prop_assert_eq!(child.trace_id(), parent.trace_id());
        prop_assert_ne!(child, parent);
    }

    #[test]
    fn no_header_makes_the_parser_panic(text in "\\PC{0,80}") {
        let _ = TraceParent::parse(&text);
    }
}

#[test]
fn metric_names_follow_the_rules() {
    let names: Vec<_> = metric::all().map(|(name, _)| name).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), names.len());
    assert!(names.iter().all(|name| name.starts_with("podhost_")));
}

#[test]
fn wrong_settings_are_all_named() {
    let text = "[telemetry]\nformat = 'xml'\nfilter = 'a=b=c'\notlp_endpoint = 'https://x'\ntrace_ratio = 2.0\n";
    let read = |s: &mut Section<'_>| Some(s.section("telemetry", Settings::read));
    let faults = config::parse("f.toml".as_ref(), text, read).unwrap_err();
    assert_eq!(faults.list().len(), 4, "{faults}");
    let none = config::parse("f.toml".as_ref(), "", read).unwrap();
    assert_eq!(none, Settings::default());
}

/// A collector that takes one request and says what its path was and how long its body is.
fn collector() -> (String, std::thread::JoinHandle<(String, usize)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let n = stream.read(&mut chunk).unwrap();
            request.extend_from_slice(&chunk[..n]);
            let Some(end) = request.windows(4).position(|w| w == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
            if request.len() >= end + 4 + length {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    .unwrap();
                return (head.lines().next().unwrap().to_owned(), length);
            }
        }
    });
    (url, served)
}

/// Started and ended from within a runtime of one thread, where a blocking client on that thread would panic or hang.
#[tokio::test]
async fn spans_reach_a_collector_and_metrics_are_rendered() {
    let (url, served) = collector();
    let settings = Settings {
        otlp_endpoint: Some(url),
        trace_ratio: 0.0,
        // The other tests of this process log too.
        filter: "warn,shared::telemetry=info".into(),
        ..Settings::default()
    };
    let telemetry = init("test", &settings).unwrap();
    assert!(telemetry.traces());
    let span = tracing::info_span!("request");
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    // The caller keeps this trace, so it is kept here too although the ratio is 0.
    let parent = TraceParent::parse(parent).unwrap();
    parent.adopt(&span);
    let sent = TraceParent::of(&span).unwrap();
    assert_eq!(sent.trace_id(), parent.trace_id());
    assert!(sent.sampled() && sent != parent);
    drop(span);

    metrics::counter!(metric::STALE_ROUTE_ANSWERS, metric::REASON => "moved").increment(2);
    metrics::histogram!(metric::COMMIT_SECONDS).record(0.003);
    let text = telemetry.metrics().render();
    for line in [
        "# TYPE podhost_stale_route_answers_total counter",
        r#"podhost_stale_route_answers_total{reason="moved"} 2"#,
        r#"podhost_commit_seconds_bucket{le="0.005"} 1"#,
        r#"podhost_build_info{service="test","#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(init("again", &Settings::default()).is_err());

    tokio::task::spawn_blocking(move || telemetry.shutdown(Duration::from_secs(5)))
        .await
        .unwrap();
    let (line, length) = served.join().unwrap();
    assert_eq!(line, "post /v1/traces http/1.1");
    assert!(length > 0);
}
