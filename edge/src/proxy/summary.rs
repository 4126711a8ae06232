//! The end of a request: one line and the counters.

use std::time::Duration;

use http::header;
use pingora_error::{Error, ErrorSource};
use pingora_proxy::Session;

use super::Edge;
use crate::access_log::Entry;
use crate::context::Context;

/// In the log, a client that left before it got a status (nginx's number for it).
const CLIENT_GONE: u16 = 499;

impl Edge {
    pub(super) fn summarise(&self, session: &Session, error: Option<&Error>, context: &Context) {
        let took = context.started.elapsed();
        let written = session.response_written();
        let status = written.map_or(CLIENT_GONE, |response| response.status.as_u16());
        let by_client = |e: &Error| *e.esource() == ErrorSource::Downstream;
        if written.is_none() || error.is_some_and(by_client) {
            self.metrics.clients_gone.increment(1);
        }
        match &context.route {
            Some(route) => {
                route.pod.metrics.answers.count(status);
                route.pod.metrics.seconds.record(took.as_secs_f64());
            }
            None => self.metrics.podless.count(status),
        }
        if let Some(span) = &context.span {
            span.record("http.response.status_code", status);
        }
        if let Some(log) = &self.access_log {
            log.write(&entry(session, error, context, status, took));
        }
    }
}

fn entry<'a>(
    session: &'a Session,
    error: Option<&Error>,
    context: &'a Context,
    status: u16,
    took: Duration,
) -> Entry<'a> {
    let request = session.req_header();
    let route = context.route.as_ref().map(|route| {
        let (shop, pod) = (route.shop.get(), route.pod_id().get());
        (route.named.as_str(), shop, pod, route.epoch.get())
    });
    let pod_took = context
        .forwarded
        .zip(context.pod_answered)
        .map(|(forwarded, answered)| answered.saturating_duration_since(forwarded));
    // An answer of the edge's own says why by its kind.
    let error = error.filter(|_| context.reply.is_none() || context.forwards > 0);
    Entry {
        request: context.request,
        peer: context
            .connection
            .as_ref()
            .map_or(&b""[..], |c| c.peer.as_bytes()),
        method: request.method.as_str(),
        host: request
            .headers
            .get(header::HOST)
            .map_or(&b""[..], |h| h.as_bytes()),
        path: request.uri.path(),
        route,
        process: context.process.as_ref().map(|process| process.address),
        status,
        problem: context.reply.map(|reply| reply.kind.slug()),
        forwards: context.forwards,
        parked: (!context.parked.is_zero()).then_some(context.parked),
        fence: context.fence,
        bytes_in: session.body_bytes_read(),
        bytes_out: session.body_bytes_sent(),
        took,
        pod_took,
        error: error.map(ToString::to_string),
    }
}
