//! A bare hyper handler: what a pod's read could cost at least.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::process::{Measured, free_address};

/// The handler in a process of its own.
pub(crate) struct Bare {
    pub(crate) at: SocketAddr,
    pub(crate) process: Measured,
    _log: tempfile::TempDir,
}

/// Starts `bench handler ADDRESS BODY`.
pub(crate) fn start(body: &str) -> Result<Bare> {
    let at = free_address()?;
    let log = tempfile::tempdir().context("make a folder")?;
    let me = std::env::current_exe().context("find this program")?;
    let words = [&me.to_string_lossy(), "handler", &at.to_string(), body];
    let words = words.map(str::to_owned);
    let process = Measured::start_anywhere(&words, &log.path().join("log"), at)?;
    Ok(Bare {
        at,
        process,
        _log: log,
    })
}

/// Answers everything with the body, for ever.
pub(crate) async fn serve(at: &str, body: &str) -> Result<()> {
    let listener = TcpListener::bind(at).await.context("bind the handler")?;
    let body = Bytes::from(body.to_owned());
    loop {
        let (stream, _) = listener.accept().await.context("accept")?;
        stream.set_nodelay(true).context("accept")?;
        let body = body.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |_| {
                let body = axum::body::Body::from(body.clone());
                let answer = http::Response::builder().header("content-type", "application/json");
                std::future::ready(answer.body(body))
            });
            let http = hyper::server::conn::http1::Builder::new();
            // A client that leaves is the end of its connection and nothing else.
            let _ = http.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}
