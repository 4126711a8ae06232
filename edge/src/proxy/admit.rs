//! Taking a request in: whose it is, and whether there is room for it.

use std::sync::Arc;

use pingora_proxy::Session;
use shared::PlacementState;
use shared::error::Kind;

use super::Edge;
use crate::context::{Again, Context, Route, unix_ms};
use crate::cookie::{self, Remembered};
use crate::identify::{self, BadHost, Named};
use crate::reply::Reply;
use crate::routes::Standing;
use crate::{headers, upstream::Pod};

pub(super) const UNREACHABLE: Reply = Reply::new(
    Kind::Unavailable,
    "The shop's pod cannot be reached just now. Try again in a moment.",
);
const NO_TABLE: Reply = Reply::new(
    Kind::Unavailable,
    "The edge does not know its shops yet. Try again in a moment.",
);
const STALE_TABLE: Reply = Reply::new(
    Kind::Unavailable,
    "The edge has not heard of its shops for too long. Try again later.",
);
const UNKNOWN_SHOP: Reply = Reply::new(
    Kind::UnknownShop,
    "A shop has a host name of its own, and the path /s/its-name/ on the platform's host name.",
);
const BAD_TARGET: Reply = Reply::new(
    Kind::Invalid,
    "The target is not a path in ASCII; percent-encode what is not.",
);
const NOT_SECURE: Reply = Reply::new(
    Kind::Misdirected,
    "The target says https, and this connection is not secure.",
);
const TWO_LENGTHS: Reply = Reply::new(
    Kind::Invalid,
    "The request has both Content-Length and Transfer-Encoding: it leaves open where it ends.",
);
const BAD_LENGTH: Reply = Reply::new(
    Kind::Invalid,
    "The Content-Length is not one number of bytes that a body can have.",
);
const BETWEEN: Reply = Reply::new(Kind::NotFound, "No shop has anything below /-/.");
const SHOP_BUSY: Reply = Reply::new(
    Kind::Limited,
    "Too many requests of this shop are running. Try again in a moment.",
);
const POD_BUSY: Reply = Reply::new(
    Kind::Limited,
    "Too many requests are running where this shop lives. Try again in a moment.",
);

impl Edge {
    /// Identifies the shop, takes the permits and chooses a process, or says why not.
    pub(super) fn admit(&self, session: &Session, context: &mut Context) -> Result<(), Reply> {
        let header = session.req_header();
        let (fields, bytes) = headers::size(&header.headers);
        let line = header.method.as_str().len() + header.raw_path().len();
        if fields > self.header_fields_max || bytes + line > self.header_bytes_max {
            return Err(Kind::HeadersTooLarge.into());
        }
        let target_ok = header.raw_path().is_ascii() && header.uri.path_and_query().is_some();
        if !target_ok {
            return Err(BAD_TARGET);
        }
        let trusted = context.connection.as_ref().is_some_and(|c| c.trusted);
        match scheme(header.raw_path()) {
            None | Some(Scheme::Http) => {}
            // Only who ends TLS in front of the edge can have heard this from a client.
            Some(Scheme::Https) if trusted => {}
            Some(Scheme::Https) => return Err(NOT_SECURE),
            Some(Scheme::Other) => return Err(BAD_TARGET),
        }
        if two_lengths(session) {
            return Err(TWO_LENGTHS);
        }
        if !headers::length_is_one_number(&header.headers) {
            return Err(BAD_LENGTH);
        }
        let host = identify::host(&header.headers).map_err(bad_host)?;
        match self.routes.standing() {
            Standing::Good => {}
            Standing::Empty => return Err(NO_TABLE),
            Standing::Stale => return Err(STALE_TABLE),
        }
        let table = self.routes.table();
        let table = table.as_ref().ok_or(NO_TABLE)?;
        let cookie = || self.cookie(session);
        let Some((placement, named)) =
            identify::shop(table, &self.domains, &host, header.uri.path(), cookie)
        else {
            self.metrics.route_misses.increment(1);
            return Err(UNKNOWN_SHOP);
        };
        self.metrics.route_hits.increment(1);
        let pod = self.routes.pods.get(placement.pod).ok_or(UNREACHABLE)?;
        context.set_cookie = match named {
            Named::Path(_) => !self.is_remembered(self.cookie(session), placement.shop),
            Named::Host | Named::Handle | Named::Cookie => false,
        };
        if self.traces {
            let span = span(session, placement.shop);
            if let Some(trace) = headers::trace(&header.headers, trusted) {
                trace.adopt(&span);
            }
            context.span = Some(span);
        }
        context.route = Some(Route {
            shop: placement.shop,
            epoch: placement.epoch,
            named,
            pod: Arc::clone(&pod),
        });
        if identify::is_between(header.uri.path(), named) {
            return Err(BETWEEN);
        }
        match placement.state {
            // What a frozen shop may do its pod knows best.
            PlacementState::Serving | PlacementState::Frozen => {}
            PlacementState::Offline => return Err(Kind::Offline.into()),
        }
        self.arrive(session, context)?;
        if context.again == Again::No {
            self.enter(context, placement.shop, &pod)?;
        }
        Ok(())
    }

    fn enter(
        &self,
        context: &mut Context,
        shop: shared::ShopId,
        pod: &Arc<Pod>,
    ) -> Result<(), Reply> {
        context.process = pod.pick(&[]);
        if context.process.is_none() {
            return Err(UNREACHABLE);
        }
        let Some(permit) = self.shops.enter(shop) else {
            self.metrics.limited_shop.increment(1);
            return Err(SHOP_BUSY);
        };
        context.shop_permit = Some(permit);
        let permit = pod.in_flight.enter();
        context.pod_permit = Some(permit.ok_or_else(|| self.pod_busy())?);
        Ok(())
    }

    /// As many requests are running at a pod as may.
    pub(super) fn pod_busy(&self) -> Reply {
        self.metrics.limited_pod.increment(1);
        POD_BUSY
    }

    fn cookie(&self, session: &Session) -> Option<Remembered> {
        let headers = &session.req_header().headers;
        let fields = headers.get_all(http::header::COOKIE).into_iter();
        let fields = fields.map(http::HeaderValue::as_bytes);
        let keys = self.routes.keys.now();
        cookie::get(&keys, fields, unix_ms() / 1000, self.shop_cookie_age)
    }

    /// Whether the client has this shop's cookie and will have it for at least half of its age.
    fn is_remembered(&self, cookie: Option<Remembered>, shop: shared::ShopId) -> bool {
        let half = self.shop_cookie_age.as_secs() / 2;
        cookie.is_some_and(|c| c.shop == shop && unix_ms() / 1000 < c.set_s + half)
    }
}

enum Scheme {
    Http,
    Https,
    Other,
}

/// The scheme of a target in absolute form (RFC 9112 section 3.2.2).
fn scheme(target: &[u8]) -> Option<Scheme> {
    if target.starts_with(b"/") {
        return None;
    }
    let end = target.windows(3).position(|w| w == b"://")?;
    Some(match target[..end].to_ascii_lowercase().as_slice() {
        b"http" => Scheme::Http,
        b"https" => Scheme::Https,
        _ => Scheme::Other,
    })
}

/// Whether the request came with a length and in chunks. Pingora takes the chunks and drops the length, which RFC 9112
/// section 6.1 allows; refusing it is safer, and no client that means well sends both.
fn two_lengths(session: &Session) -> bool {
    let chunked = session
        .req_header()
        .headers
        .contains_key(http::header::TRANSFER_ENCODING);
    let raw = session.as_http1().filter(|_| chunked);
    raw.is_some_and(|http| {
        http.get_headers_raw_bytes()
            .split(|b| *b == b'\n')
            .any(|line| {
                let name = line.split(|b| *b == b':').next().unwrap_or_default();
                name.trim_ascii().eq_ignore_ascii_case(b"content-length")
            })
    })
}

/// A span for the collector; its status comes at the end.
fn span(session: &Session, shop: shared::ShopId) -> tracing::Span {
    let header = session.req_header();
    tracing::info_span!(
        "request",
        otel.kind = "server",
        http.request.method = header.method.as_str(),
        url.path = header.uri.path(),
        http.response.status_code = tracing::field::Empty,
        shop = shop.get(),
    )
}

fn bad_host(bad: BadHost) -> Reply {
    let text = match bad {
        BadHost::Missing => "The request has no Host field.",
        BadHost::Several => "The request has more than one Host field.",
        BadHost::Malformed => {
            "The Host field is not a host name: ASCII letters, digits, hyphens and dots, and perhaps a port."
        }
    };
    Reply::new(Kind::Invalid, text)
}
