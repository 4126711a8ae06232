//! What a pod is sent, and what is left of its answer.

use std::time::Instant;

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use pingora_error::{Error, ErrorType, OrErr as _, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::Session;
use shared::telemetry::{self, TraceParent};
use shared::wire::{self, Fence};

use super::Edge;
use crate::context::{Context, unix_ms};
use crate::identify::Named;
use crate::{cookie, headers};

const REQUEST_ID: HeaderName = HeaderName::from_static(wire::REQUEST_ID);
const PREFIX: HeaderName = HeaderName::from_static(wire::FORWARDED_PREFIX);
const FORWARDED_FOR: HeaderName = HeaderName::from_static(headers::FORWARDED_FOR);
const FORWARDED_PROTO: HeaderName = HeaderName::from_static(headers::FORWARDED_PROTO);
const FORWARDED_HOST: HeaderName = HeaderName::from_static(headers::FORWARDED_HOST);
const TRACEPARENT: HeaderName = HeaderName::from_static(telemetry::TRACEPARENT);

impl Edge {
    /// Makes the request for a pod of the one of a client: called anew for each attempt, with the client's.
    pub(super) fn rewrite_request(
        &self,
        session: &Session,
        request: &mut RequestHeader,
        context: &mut Context,
    ) -> Result<()> {
        let (Some(route), Some(connection)) = (&context.route, &context.connection) else {
            return Error::e_explain(ErrorType::InternalError, "a request without route or peer");
        };
        let client = &session.req_header().headers;
        for name in headers::to_strip(&request.headers, connection.trusted) {
            request.remove_header(&name);
        }
        let chain = headers::forwarded_for(client, &connection.peer, connection.trusted);
        request.insert_header(FORWARDED_FOR, chain)?;
        if !(connection.trusted && client.contains_key(FORWARDED_PROTO)) {
            // Clients speak plain HTTP to this edge.
            request.insert_header(FORWARDED_PROTO, HeaderValue::from_static("http"))?;
        }
        if !(connection.trusted && client.contains_key(FORWARDED_HOST))
            && let Some(host) = client.get(header::HOST)
        {
            request.insert_header(FORWARDED_HOST, host.clone())?;
        }
        let trace = trace_of(client, connection.trusted, context);
        request.insert_header(TRACEPARENT, field(trace.to_string())?)?;
        origin_form(request, route.named)?;
        if let Named::Path(cut) = route.named {
            let path = session.req_header().uri.path().as_bytes();
            let prefix = HeaderValue::from_bytes(&path[..cut.get()]);
            request.insert_header(PREFIX, prefix.or_err(BAD, "prefix")?)?;
        }
        let signed = wire::Route {
            shop: route.shop,
            pod: route.pod_id(),
            epoch: route.epoch,
            request: context.request,
        };
        let target = request.uri.path_and_query().map_or("/", |p| p.as_str());
        let method = request.method.as_str();
        let fields = signed.headers(&route.pod.keys, unix_ms(), method, target);
        for (name, value) in fields {
            request.insert_header(HeaderName::from_static(name), field(value)?)?;
        }
        context.forwards += 1;
        context.forwarded = Some(Instant::now());
        Ok(())
    }

    /// Makes the answer for a client of the one of a pod.
    pub(super) fn rewrite_response(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        context: &mut Context,
    ) -> Result<()> {
        for name in headers::to_strip_from_answer(&response.headers, response.status) {
            response.remove_header(&name);
        }
        let interim = response.status.is_informational()
            && response.status != http::StatusCode::SWITCHING_PROTOCOLS;
        if interim {
            return Ok(());
        }
        context.pod_answered = Some(Instant::now());
        self.not_refused(context, response.status.as_u16());
        response.insert_header(REQUEST_ID, context.request_value.clone())?;
        if let Some(route) = &context.route {
            route.pod.metrics.answered.increment(1);
            if context.set_cookie {
                let keys = self.routes.keys.now();
                let now_s = unix_ms() / 1000;
                let cookie = cookie::set(&keys, route.shop, now_s, self.shop_cookie_age);
                response.append_header(header::SET_COOKIE, field(cookie)?)?;
            }
        }
        if session.is_process_shutting_down() {
            session.set_keepalive(None);
        }
        Ok(())
    }
}

const BAD: ErrorType = ErrorType::InvalidHTTPHeader;

fn field(text: String) -> Result<HeaderValue> {
    HeaderValue::try_from(text).or_err(BAD, "a value of the edge's own")
}

/// The fence of an answer "not here": `Some(None)` for one that cannot be read.
pub(super) fn fence(status: StatusCode, fields: &HeaderMap) -> Option<Option<Fence>> {
    if status != StatusCode::MISDIRECTED_REQUEST {
        return None;
    }
    let value = headers::fence(fields)?;
    Some(std::str::from_utf8(value).ok().and_then(Fence::from_header))
}

/// The target that a pod gets: path and query, without the prefix that named the shop (RFC 9112 section 3.2.1).
fn origin_form(request: &mut RequestHeader, named: Named) -> Result<()> {
    let target = request.uri.path_and_query().map_or("/", |p| p.as_str());
    let Named::Path(cut) = named else {
        if request.raw_path() == target.as_bytes() {
            return Ok(());
        }
        let target = target.to_owned();
        return request.set_raw_path(target.as_bytes());
    };
    let rest = &target[cut.get()..];
    let rest = if rest.starts_with('/') {
        rest.to_owned()
    } else {
        format!("/{rest}")
    };
    request.set_raw_path(rest.as_bytes())
}

/// The trace that the pod continues: a trusted peer's, or one that begins here.
fn trace_of(client: &http::HeaderMap, trusted: bool, context: &Context) -> TraceParent {
    if let Some(trace) = context.span.as_ref().and_then(TraceParent::of) {
        return trace;
    }
    let mut rng = rand::rng();
    match headers::trace(client, trusted) {
        Some(trace) => trace.child(&mut rng),
        None => TraceParent::random(&mut rng),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    #[test]
    fn a_pod_gets_path_and_query_without_the_prefix() {
        let cut = Named::Path(NonZeroUsize::new("/s/rain".len()).unwrap());
        for (target, named, expected) in [
            ("/a?b=c", Named::Host, "/a?b=c"),
            ("http://shop.example/a?b", Named::Host, "/a?b"),
            ("*", Named::Host, "*"),
            ("/s/rain", cut, "/"),
            ("/s/rain/", cut, "/"),
            ("/s/rain?x=/s/rain", cut, "/?x=/s/rain"),
            ("/s/rain/a/?b", cut, "/a/?b"),
            ("http://shop.example/s/rain/a", cut, "/a"),
        ] {
            let mut request = RequestHeader::build("GET", target.as_bytes(), None).unwrap();
            origin_form(&mut request, named).unwrap();
            assert_eq!(request.raw_path(), expected.as_bytes(), "{target}");
            assert_eq!(
                request.uri.path_and_query().unwrap().as_str(),
                expected,
                "what is signed is what is sent"
            );
        }
    }

    #[test]
    fn only_a_421_with_a_fence_is_one() {
        let answered = |status: u16, value: Option<&'static str>| {
            let fields = value.map(|value| {
                (
                    wire::FENCE.parse().unwrap(),
                    HeaderValue::from_static(value),
                )
            });
            fence(
                StatusCode::from_u16(status).unwrap(),
                &fields.into_iter().collect(),
            )
        };
        assert_eq!(answered(421, Some("fenced")), Some(Some(Fence::Fenced)));
        assert_eq!(answered(421, Some("what")), Some(None));
        assert_eq!(answered(421, None), None, "the application's own");
        assert_eq!(answered(200, Some("fenced")), None);
    }
}
