//! The edge's own answers: a page for browsers, `problem+json` for everybody else (RFC 9457).

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use pingora_error::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use shared::error::{Kind, PROBLEM_JSON, Problem};
use shared::wire::REQUEST_ID;
use tokio::time::{Duration, timeout};
use uuid::Uuid;

/// An answer that the edge gives by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    /// What happened: status, title, whether to come back.
    pub(crate) kind: Kind,
    /// What the client reads beyond the kind's sentence.
    pub(crate) detail: Option<&'static str>,
}

impl From<Kind> for Reply {
    fn from(kind: Kind) -> Self {
        Self { kind, detail: None }
    }
}

impl Reply {
    pub(crate) const fn new(kind: Kind, detail: &'static str) -> Self {
        Self {
            kind,
            detail: Some(detail),
        }
    }

    /// The answer in place of Pingora's to a request that it could not read, which has status and nothing else.
    pub(crate) fn unread(pingoras: &[u8]) -> Self {
        if pingoras.get(..12) == Some(b"HTTP/1.1 405") {
            return Self::new(Kind::MethodNotAllowed, "The edge opens no tunnels.");
        }
        let text = "The request is not HTTP/1.1, or leaves open for whom it is or where it ends.";
        Self::new(Kind::Invalid, text)
    }

    /// The whole answer as bytes, for a client of which nothing is known.
    pub(crate) fn to_http(self, request: Uuid) -> Vec<u8> {
        let request = request.to_string();
        let body = problem(self, &request);
        let status = http::StatusCode::from_u16(self.kind.status()).unwrap_or_default();
        let mut answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\n\
             cache-control: no-store\r\n{REQUEST_ID}: {request}\r\nconnection: close\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.extend_from_slice(&body);
        answer
    }
}

/// How much of a body that nobody wants is read, so that the answer is not lost to a reset (RFC 9112 section 9.6).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    /// So many bytes at most.
    pub(crate) bytes: usize,
    /// And not longer than this.
    pub(crate) time: Duration,
}

/// Writes the answer. The connection is kept where `keep` says so and the body is read to its end within the bounds.
pub(crate) async fn send(
    session: &mut Session,
    reply: Reply,
    request: &HeaderValue,
    keep: bool,
    drain: Drain,
) -> Result<()> {
    if session
        .response_written()
        .is_some_and(|said| !said.status.is_informational())
    {
        // The answer of a pod has begun; a second one would be read as its body. (`100 Continue` is none.)
        return Ok(());
    }
    let html = wants_html(&session.req_header().headers);
    let request_text = request.to_str().unwrap_or_default();
    let body = if html {
        page(reply, request_text)
    } else {
        problem(reply, request_text)
    };
    let mut response = ResponseHeader::build_no_case(reply.kind.status(), Some(8))?;
    let content_type = if html {
        "text/html; charset=utf-8"
    } else {
        PROBLEM_JSON
    };
    response.insert_header(header::CONTENT_TYPE, content_type)?;
    // A HEAD is told the length that a GET would have (RFC 9110 section 9.3.2).
    response.insert_header(header::CONTENT_LENGTH, body.len())?;
    response.insert_header(header::CACHE_CONTROL, "no-store")?;
    response.insert_header(REQUEST_ID, request.clone())?;
    if html {
        response.insert_header(header::CONTENT_SECURITY_POLICY, PAGE_POLICY)?;
    }
    if let Some(seconds) = reply.kind.retry_after_s() {
        response.insert_header(header::RETRY_AFTER, seconds)?;
    }
    if !keep {
        session.set_keepalive(None);
    }
    let head = session.req_header().method == http::Method::HEAD;
    session
        .write_response_header(Box::new(response), head)
        .await?;
    let body = (!head).then(|| Bytes::from(body));
    session.write_response_body(body, true).await?;
    session.finish_body().await?;
    drain_body(session, drain).await;
    Ok(())
}

/// Reads what the client still sends, within bounds. Pingora said `connection: close` if there was anything.
async fn drain_body(session: &mut Session, bounds: Drain) {
    // A client that waits for `100 Continue` sends nothing after another answer.
    let waits = session.req_header().headers.contains_key(header::EXPECT);
    if waits || session.is_body_done() {
        return;
    }
    let read = async {
        let mut bytes = 0;
        while let Ok(Some(part)) = session.read_request_body().await {
            bytes += part.len();
            if bytes > bounds.bytes {
                break;
            }
        }
    };
    // Whoever sends on after that gets the reset.
    let _ = timeout(bounds.time, read).await;
}

fn problem(reply: Reply, request: &str) -> Vec<u8> {
    let problem = Problem {
        detail: reply.detail.map(str::to_owned),
        request: Some(request.to_owned()),
        ..Problem::new(reply.kind)
    };
    // A problem is strings and a number: it always serialises.
    serde_json::to_vec(&problem).unwrap_or_default()
}

const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

const PAGE_STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1rem;\
color:#222;background:#fff}h1{font-size:1.4rem}small{color:#666}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}small{color:#999}}";

/// Title, detail and request id are ours and hold nothing to escape: the first two are constants, the last is a UUID.
fn page(reply: Reply, request: &str) -> Vec<u8> {
    let title = reply.kind.title();
    let detail = reply.detail.map(|text| format!("<p>{text}</p>"));
    let detail = detail.unwrap_or_default();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{PAGE_STYLE}</style></head>\
         <body><h1>{title}</h1>{detail}<p><small>{status} &middot; request {request}</small></p></body></html>\n",
        status = reply.kind.status(),
    )
    .into_bytes()
}

/// Whether the client would rather read a page: `Accept` names `text/html`, and no JSON with a higher quality.
fn wants_html(headers: &HeaderMap) -> bool {
    let mut html = 0_u16;
    let mut json = 0_u16;
    for value in headers.get_all(header::ACCEPT) {
        let Ok(value) = value.to_str() else { continue };
        for range in value.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let quality = parts
                .find_map(|p| p.strip_prefix("q="))
                .map_or(1000, thousandths);
            if kind.eq_ignore_ascii_case("text/html") {
                html = html.max(quality);
            } else if kind.eq_ignore_ascii_case("application/json")
                || kind.eq_ignore_ascii_case(PROBLEM_JSON)
            {
                json = json.max(quality);
            }
        }
    }
    html > 0 && html >= json
}

/// A quality (RFC 9110 section 12.4.2) in thousandths; what is none counts as zero.
fn thousandths(text: &str) -> u16 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = part.len() <= 3 && part.bytes().all(|b| b.is_ascii_digit());
    match (whole, digits) {
        ("1", true) => 1000,
        ("0", true) => format!("{part:0<3}").parse().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_a_page_and_programs_a_problem() {
        let wants = |accept: &'static str| {
            let map = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            wants_html(&map)
        };
        assert!(wants(
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
        ));
        assert!(wants("application/json;q=0.5, text/html;q=0.7"));
        assert!(wants("Text/HTML"));
        for program in [
            "",
            "*/*",
            "application/json",
            "text/html;q=0",
            "text/html;q=0.5, application/json",
            "text/html; q=0.1, application/problem+json; q=0.25",
            "text/html;q=x",
        ] {
            assert!(!wants(program), "{program}");
        }
        assert!(!wants_html(&HeaderMap::new()));
    }

    #[test]
    fn a_problem_names_its_kind_and_the_request() {
        let reply = Reply::new(Kind::Offline, "Come back.");
        let problem: Problem = serde_json::from_slice(&problem(reply, "r-1")).unwrap();
        assert_eq!(problem.r#type, "urn:podhost:problem:offline");
        assert_eq!(problem.status, 503);
        assert_eq!(problem.detail.as_deref(), Some("Come back."));
        assert_eq!(problem.request.as_deref(), Some("r-1"));
        let page = String::from_utf8(page(reply, "r-1")).unwrap();
        assert!(page.contains("Come back.") && page.contains("request r-1"));
    }
}
