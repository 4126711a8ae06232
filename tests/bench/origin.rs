//! What stands behind a router that is measured: answers everything with the same few bytes, as cheaply as it can.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const BODY: &str = r#"{"id":"0198","title":"Mug","price":"12.00","available":5}  "#;

/// Health checks close their connection.
const CLOSE: &[u8] = b"connection: close";

/// Starts it; it ends with the process.
pub(crate) async fn start() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .context("bind the origin")?;
    let address = listener.local_addr().context("bind the origin")?;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answer.clone().into_bytes()));
        }
    });
    Ok(address)
}

/// Requests have no body here, so each ends with the empty line.
async fn serve(mut stream: TcpStream, answer: Vec<u8>) {
    let _ = stream.set_nodelay(true);
    let mut buffer = vec![0; 16 * 1024];
    let mut filled = 0;
    loop {
        let Ok(n) = stream.read(&mut buffer[filled..]).await else {
            return;
        };
        filled += n;
        if n == 0 || filled == buffer.len() {
            return;
        }
        if buffer[..filled].ends_with(b"\r\n\r\n") {
            let last = buffer[..filled].windows(CLOSE.len()).any(|w| w == CLOSE);
            filled = 0;
            if stream.write_all(&answer).await.is_err() || last {
                return;
            }
        }
    }
}
