//! A client that sends all it has reads the answer that came before its body's end, and what is sent beyond the bounds
//! is not read.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use http::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const MIB: usize = 1 << 20;

/// A server that answers without reading.
async fn serve(bounds: Bounds) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service_fn(move |request: Request<Incoming>| async move {
            let (request, rest) = lend(request);
            drop(request);
            rest.discard(bounds);
            Ok::<_, Infallible>(Response::new("no".to_owned()))
        });
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
    address
}

/// Sends the head and so much body, and reads to the end.
async fn exchange(address: SocketAddr, more: &str, bytes: usize) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{more}Content-Length: {bytes}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    if more.is_empty() {
        stream.write_all(&vec![b'a'; bytes]).await?;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn an_answer_before_the_end_of_a_body_is_read() {
    let bounds = Bounds {
        bytes: 32 * MIB,
        time: Duration::from_secs(30),
    };
    let address = serve(bounds).await;
    let answer = exchange(address, "", 20 * MIB).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("no"),
        "{answer}"
    );
}

#[tokio::test]
async fn beyond_the_bounds_nothing_is_read() {
    let bounds = Bounds {
        bytes: MIB,
        time: Duration::from_secs(30),
    };
    let address = serve(bounds).await;
    let refused = exchange(address, "", 64 * MIB).await.unwrap_err();
    let kinds = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    assert!(kinds.contains(&refused.kind()), "{refused}");
}

#[tokio::test]
async fn nobody_who_waits_is_waited_for() {
    let bounds = Bounds {
        bytes: MIB,
        time: Duration::from_secs(60),
    };
    let address = serve(bounds).await;
    let answer = exchange(address, "Expect: 100-continue\r\n", MIB);
    let answer = timeout(Duration::from_secs(20), answer).await;
    let answer = answer.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
