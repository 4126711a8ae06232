//! The access log: one line a request on standard error.
//!
//! A line through the tracing subscriber would cost some microseconds and a system call for each request. Lines are
//! put into a buffer here, which a thread writes out every [`FLUSH`]; a reader that does not take them in time costs
//! lines (counted), never requests.

use std::io::Write as _;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::Counter;
use parking_lot::{Condvar, Mutex};
use shared::telemetry::Format;
use time::OffsetDateTime;
use time::macros::format_description;
use uuid::Uuid;

use crate::metrics::log_lines_dropped;

/// How late a line may be.
const FLUSH: Duration = Duration::from_millis(100);
/// Some thousand lines: what a second of full load writes.
const BUFFER_MAX: usize = 1024 * 1024;

/// What is said of a request. The query is left out: it may hold tokens.
pub(crate) struct Entry<'a> {
    pub(crate) request: Uuid,
    pub(crate) peer: &'a [u8],
    pub(crate) method: &'a str,
    pub(crate) host: &'a [u8],
    pub(crate) path: &'a str,
    /// How the shop was named, its id, its pod's id, its epoch.
    pub(crate) route: Option<(&'static str, u64, u32, u64)>,
    /// The process that was asked last.
    pub(crate) process: Option<std::net::SocketAddr>,
    pub(crate) status: u16,
    /// The kind of an answer of the edge's own.
    pub(crate) problem: Option<&'static str>,
    pub(crate) forwards: u16,
    /// How long it was parked.
    pub(crate) parked: Option<Duration>,
    /// The last reason of a pod that said "not here".
    pub(crate) fence: Option<&'static str>,
    pub(crate) bytes_in: usize,
    pub(crate) bytes_out: usize,
    pub(crate) took: Duration,
    /// From the last forwarding to the pod's header.
    pub(crate) pod_took: Option<Duration>,
    /// What went wrong, for engineers.
    pub(crate) error: Option<String>,
}

struct Buffer {
    text: Vec<u8>,
    /// The second that `stamp` says.
    second: u64,
    stamp: String,
    stopping: bool,
}

struct Shared {
    buffer: Mutex<Buffer>,
    wake: Condvar,
    dropped: Counter,
    format: Format,
}

/// The running access log.
pub(crate) struct AccessLog {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl AccessLog {
    pub(crate) fn start(format: Format) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            buffer: Mutex::new(Buffer {
                text: Vec::new(),
                second: 0,
                stamp: String::new(),
                stopping: false,
            }),
            wake: Condvar::new(),
            dropped: log_lines_dropped(),
            format,
        });
        let for_thread = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_out(&for_thread))?;
        Ok(Self {
            shared,
            writer: Mutex::new(Some(writer)),
        })
    }

    pub(crate) fn write(&self, entry: &Entry<'_>) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut buffer = self.shared.buffer.lock();
        if buffer.text.len() > BUFFER_MAX {
            drop(buffer);
            self.shared.dropped.increment(1);
            return;
        }
        if buffer.second != now.as_secs() {
            buffer.second = now.as_secs();
            buffer.stamp = stamp(now.as_secs());
        }
        let Buffer { text, stamp, .. } = &mut *buffer;
        match self.shared.format {
            Format::Json => json(text, stamp, now.subsec_millis(), entry),
            Format::Text => plain(text, stamp, now.subsec_millis(), entry),
        }
    }

    /// Writes out what is left.
    pub(crate) fn stop(&self) {
        self.shared.buffer.lock().stopping = true;
        self.shared.wake.notify_one();
        if let Some(writer) = self.writer.lock().take() {
            // It panics only if a lock was poisoned; there is nothing left to write then.
            let _ = writer.join();
        }
    }
}

fn write_out(shared: &Shared) {
    let mut spare = Vec::new();
    loop {
        let stopping = {
            let mut buffer = shared.buffer.lock();
            if !buffer.stopping {
                let _ = shared.wake.wait_for(&mut buffer, FLUSH);
            }
            std::mem::swap(&mut buffer.text, &mut spare);
            buffer.stopping
        };
        if !spare.is_empty() {
            // Whole lines under the lock that other writers of standard error take too.
            let _ = std::io::stderr().lock().write_all(&spare);
            spare.clear();
        }
        if stopping {
            return;
        }
    }
}

/// `2026-11-30T05:04:25`
fn stamp(unix_s: u64) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");
    i64::try_from(unix_s)
        .ok()
        .and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok())
        .and_then(|t| t.format(format).ok())
        .unwrap_or_default()
}

/// Writing to a vector does not fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{ let _ = write!($out, $($arg)*); }};
}

fn json(out: &mut Vec<u8>, stamp: &str, ms: u32, entry: &Entry<'_>) {
    put!(
        out,
        r#"{{"timestamp":"{stamp}.{ms:03}Z","level":"INFO","target":"access","request":"{}","peer":"#,
        entry.request
    );
    string(out, entry.peer);
    out.extend_from_slice(br#","method":"#);
    string(out, entry.method.as_bytes());
    out.extend_from_slice(br#","host":"#);
    string(out, entry.host);
    out.extend_from_slice(br#","path":"#);
    string(out, entry.path.as_bytes());
    if let Some((named, shop, pod, epoch)) = entry.route {
        put!(
            out,
            r#","named":"{named}","shop":{shop},"pod":{pod},"epoch":{epoch}"#
        );
    }
    if let Some(process) = entry.process {
        put!(out, r#","process":"{process}""#);
    }
    put!(
        out,
        r#","status":{},"forwards":{}"#,
        entry.status,
        entry.forwards
    );
    if let Some(problem) = entry.problem {
        put!(out, r#","problem":"{problem}""#);
    }
    if let Some(fence) = entry.fence {
        put!(out, r#","fence":"{fence}""#);
    }
    if let Some(parked) = entry.parked {
        put!(out, r#","parked_us":{}"#, parked.as_micros());
    }
    put!(
        out,
        r#","bytes_in":{},"bytes_out":{},"took_us":{}"#,
        entry.bytes_in,
        entry.bytes_out,
        entry.took.as_micros()
    );
    if let Some(took) = entry.pod_took {
        put!(out, r#","pod_took_us":{}"#, took.as_micros());
    }
    if let Some(error) = &entry.error {
        out.extend_from_slice(br#","error":"#);
        string(out, error.as_bytes());
    }
    out.extend_from_slice(b"}\n");
}

fn plain(out: &mut Vec<u8>, stamp: &str, ms: u32, entry: &Entry<'_>) {
    put!(out, "{stamp}.{ms:03}Z  INFO access: ");
    token(out, entry.method.as_bytes());
    out.push(b' ');
    token(out, entry.host);
    token(out, entry.path.as_bytes());
    put!(out, " {} request={} peer=", entry.status, entry.request);
    token(out, entry.peer);
    if let Some((named, shop, pod, epoch)) = entry.route {
        put!(out, " named={named} shop={shop} pod={pod} epoch={epoch}");
    }
    if let Some(process) = entry.process {
        put!(out, " process={process}");
    }
    put!(out, " forwards={}", entry.forwards);
    if let Some(problem) = entry.problem {
        put!(out, " problem={problem}");
    }
    if let Some(fence) = entry.fence {
        put!(out, " fence={fence}");
    }
    if let Some(parked) = entry.parked {
        put!(out, " parked_us={}", parked.as_micros());
    }
    put!(
        out,
        " bytes_in={} bytes_out={} took_us={}",
        entry.bytes_in,
        entry.bytes_out,
        entry.took.as_micros()
    );
    if let Some(took) = entry.pod_took {
        put!(out, " pod_took_us={}", took.as_micros());
    }
    if let Some(error) = &entry.error {
        out.extend_from_slice(b" error=");
        string(out, error.as_bytes());
    }
    out.push(b'\n');
}

/// A JSON string. What is not UTF-8 becomes `?`: only a hostile client sends it.
fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    let utf8 = std::str::from_utf8(bytes).is_ok();
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => put!(out, "\\u{byte:04x}"),
            0x80.. if !utf8 => out.push(b'?'),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// A word of a text line: nothing in it may look like the end of it.
fn token(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(bytes.iter().map(|byte| match byte {
        0x21..=0x7e => *byte,
        _ => b'?',
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(host: &'a [u8], path: &'a str) -> Entry<'a> {
        Entry {
            request: Uuid::nil(),
            peer: b"192.0.2.1",
            method: "GET",
            host,
            path,
            route: Some(("host", 7, 2, 3)),
            process: Some("127.0.0.1:9".parse().unwrap()),
            status: 200,
            problem: None,
            forwards: 1,
            parked: Some(Duration::from_micros(7)),
            fence: None,
            bytes_in: 0,
            bytes_out: 12,
            took: Duration::from_micros(1500),
            pod_took: Some(Duration::from_micros(1200)),
            error: None,
        }
    }

    #[test]
    fn a_line_is_one_json_object_whatever_a_client_sends() {
        for (host, path) in [
            (&b"shop.example"[..], "/a"),
            (b"a\"b\\c", "/\u{1}\n\"}"),
            (b"\xff\xfe", "/b\u{fc}cher"),
        ] {
            let mut out = Vec::new();
            json(&mut out, "2026-11-30T05:04:25", 7, &entry(host, path));
            assert_eq!(out.iter().filter(|b| **b == b'\n').count(), 1);
            let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
            assert_eq!(line["path"], path);
            assert_eq!(line["timestamp"], "2026-11-30T05:04:25.007Z");
            assert_eq!(line["shop"], 7);
            assert_eq!(line["took_us"], 1500);
        }
    }

    #[test]
    fn a_text_line_is_one_line_whatever_a_client_sends() {
        let mut out = Vec::new();
        let mut odd = entry(b"a b\r\n", "/x y");
        odd.error = Some("two\nlines".into());
        plain(&mut out, "2026-11-30T05:04:25", 7, &odd);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.starts_with("2026-11-30T05:04:25.007Z  INFO access: GET a?b??/x?y 200 "));
    }

    #[test]
    fn stamps_are_utc() {
        assert_eq!(stamp(1_796_015_065), "2026-11-30T05:04:25");
    }
}
