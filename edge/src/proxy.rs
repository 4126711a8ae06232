//! A request's way through the edge, as Pingora's phases: admit, choose a process, sign, look at the answer, log.
//!
//! This is the only file that knows when Pingora calls what. What is decided is decided in `identify`, `retry`,
//! `headers` and `limits`.

use std::any::Any;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::modules::http::HttpModules;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_error::{Error, ErrorSource, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use shared::error::Kind;
use shared::wire::Fence;
use tokio::sync::watch;

use crate::access_log::AccessLog;
use crate::connection::Connection;
use crate::context::{Again, Context};
use crate::identify::Domains;
use crate::limits::ShopsInFlight;
use crate::metrics::Metrics;
use crate::park::{Parking, Reason};
use crate::reply::{self, Drain, Reply};
use crate::retry::{Next, Sent, Why, after_fence};
use crate::routes::Routes;
use crate::upstream::{Health, Process};

// Asking before a large body is sent.
pub(crate) mod ask;
// Reading a body of unknown length, as far as it can be kept.
mod early;
// Taking a request in: whose it is, and whether there is room.
mod admit;
// Waiting until the shop's pod takes requests.
mod parked;
use parked::Stuck;
// Where a request goes after a pod said "not here".
mod reroute;
// What a pod is sent, and what is left of its answer.
mod rewrite;
// One line and the counters, at the end.
mod summary;

/// Processes of a pod that a request tries to connect to, or to ask, before it gives up: with two, both and the one that
/// came back.
const CONNECTS_MAX: usize = 3;

/// The edge as Pingora runs it.
pub(crate) struct Edge {
    pub(crate) routes: Arc<Routes>,
    pub(crate) domains: Domains,
    pub(crate) shops: Arc<ShopsInFlight>,
    pub(crate) parking: Arc<Parking>,
    /// Says when the edge stops.
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access_log: Option<Arc<AccessLog>>,
    pub(crate) header_bytes_max: usize,
    pub(crate) header_fields_max: usize,
    pub(crate) shop_cookie_age: Duration,
    /// Between two pieces from or to a client.
    pub(crate) client_timeout: Duration,
    pub(crate) refresh_max: Duration,
    pub(crate) drain: Drain,
    /// Asks pods before a large body is sent.
    pub(crate) asks: reqwest::Client,
    /// Whether spans are exported.
    pub(crate) traces: bool,
}

#[async_trait]
impl ProxyHttp for Edge {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        Context::new()
    }

    /// No modules: the edge compresses nothing.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    /// Called for every request: the listener hands each one the connection that it came over.
    fn on_connection_reuse(
        &self,
        _session: &mut Session,
        context: &mut Context,
        connection: Box<dyn Any + Send + Sync>,
    ) {
        if let Ok(connection) = connection.downcast::<Arc<Connection>>() {
            connection.begin_request();
            context.connection = Some(*connection);
        }
    }

    async fn request_filter(&self, session: &mut Session, context: &mut Context) -> Result<bool> {
        session.set_read_timeout(Some(self.client_timeout));
        session.set_write_timeout(Some(self.client_timeout));
        match self.admit(session, context) {
            Ok(()) => early::read(session).await.map(|()| false),
            Err(reply) => {
                self.reply(session, context, reply, true).await?;
                Ok(true)
            }
        }
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        context: &mut Context,
    ) -> Result<Box<HttpPeer>> {
        loop {
            let process = self.choose(session, context).await?;
            if self.ask_first(session, context, &process).await? {
                return Ok(Box::new(process.peer.clone()));
            }
        }
    }

    /// Nothing was sent: the next process may be asked, whatever the method.
    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        context: &mut Context,
        mut error: Box<Error>,
    ) -> Box<Error> {
        unconnected(context, &error);
        context.reply = Some(admit::UNREACHABLE);
        let again = context.tried.len() < CONNECTS_MAX;
        if !again && context.place.is_some() {
            context.again = Again::Park(Some(Reason::Unready));
        }
        error.set_retry(again || context.again != Again::No);
        error
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        context: &mut Context,
    ) -> Result<()> {
        context.reply = None;
        self.rewrite_request(session, request, context)
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        context: &mut Context,
    ) -> Result<()> {
        if let Some(fence) = rewrite::fence(response.status, &response.headers) {
            return Err(self.misdirected(session, context, fence));
        }
        self.rewrite_response(session, response, context)
    }

    /// Only what [`Self::misdirected`] has judged is sent again: anything else a pod may have begun (invariant 4).
    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        _session: &mut Session,
        mut error: Box<Error>,
        context: &mut Context,
        _reused: bool,
    ) -> Box<Error> {
        error.set_retry(context.again != Again::No);
        if context.again == Again::No
            && let (ErrorSource::Upstream, Some(route)) = (&error.esource, &context.route)
        {
            route.pod.metrics.broken.increment(1);
        }
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        context: &mut Context,
    ) -> FailToProxy {
        let reply = context.reply.or_else(|| reply_to(error));
        let error_code = reply.map_or(0, |reply| reply.kind.status());
        if let Some(reply) = reply {
            // The client may be gone by now; the log line says so.
            let _ = self.reply(session, context, reply, false).await;
        }
        FailToProxy {
            error_code,
            can_reuse_downstream: false,
        }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, context: &mut Context) {
        self.summarise(session, error, context);
    }

    /// The access log has it.
    fn suppress_error_log(&self, _: &Session, _: &Context, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &Context,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}

impl Edge {
    /// The process that is asked next; a request that cannot go waits for it here.
    async fn choose(&self, session: &mut Session, context: &mut Context) -> Result<Arc<Process>> {
        match std::mem::replace(&mut context.again, Again::No) {
            Again::No | Again::Send => {}
            Again::Refresh => match self.reroute(context).await {
                Ok(()) => {}
                Err(Stuck::Later(_)) if context.place.is_some() => {
                    context.parks += 1;
                    self.park(session, context, Some(Reason::Fenced)).await?;
                }
                Err(Stuck::Later(why)) => return Err(refused(context, self.give_up(why))),
                Err(Stuck::Reply(reply)) => return Err(refused(context, reply)),
            },
            Again::Park(reason) => self.park(session, context, reason).await?,
        }
        if context.process.is_none() {
            let route = context.route.as_ref();
            context.process = route.and_then(|route| route.pod.pick(&context.tried));
        }
        if context.process.is_none() && context.place.is_some() {
            // It waits on, for the pod or for another one.
            self.park(session, context, Some(Reason::Unready)).await?;
        }
        match &context.process {
            Some(process) => Ok(Arc::clone(process)),
            None => Err(refused(context, admit::UNREACHABLE)),
        }
    }

    async fn reply(
        &self,
        session: &mut Session,
        context: &mut Context,
        reply: Reply,
        keep: bool,
    ) -> Result<()> {
        context.reply = Some(reply);
        self.metrics.error(reply.kind);
        reply::send(session, reply, &context.request_value, keep, self.drain).await
    }

    /// A pod said "not here": notes whether and where the request is sent again.
    fn misdirected(
        &self,
        session: &Session,
        context: &mut Context,
        fence: Option<Fence>,
    ) -> Box<Error> {
        let (Some(fence), Some(route)) = (fence, &context.route) else {
            let nonsense = "The shop's pod gave an answer that cannot be understood.";
            return refused(context, Reply::new(Kind::BadGateway, nonsense));
        };
        self.metrics.fence(fence);
        route.pod.metrics.misdirected.increment(1);
        if let Fence::Moved { epoch, .. } = fence {
            self.parking.came_late(route.shop, epoch);
        }
        context.fence = Some(fence.reason());
        let sent = Sent {
            pod: route.pod_id(),
            epoch: route.epoch,
            forwards: context.forwards - context.parks,
            replayable: !session.retry_buffer_truncated(),
        };
        context.again = match after_fence(fence, sent) {
            Next::Follow { pod, epoch } => self.follow(context, pod, epoch),
            Next::Refresh => Again::Refresh,
            Next::Park(reason) => {
                context.parks += 1;
                Again::Park(Some(reason))
            }
            Next::GiveUp(why) => return refused(context, self.give_up(why)),
        };
        context.process = None;
        Error::new_up(MISDIRECTED)
    }

    fn give_up(&self, why: Why) -> Reply {
        self.metrics.give_up(why);
        Reply::new(Kind::Unavailable, why.client_text())
    }
}

/// The process that was chosen cannot be connected to; the health check brings it back.
fn unconnected(context: &mut Context, error: &dyn Display) {
    if let Some(route) = &context.route {
        route.pod.metrics.unconnected.increment(1);
    }
    if let Some(process) = context.process.take() {
        context.tried.push(process.address);
        if process.set_health(Health::Down) != Health::Down {
            let address = process.address;
            tracing::warn!(%address, "pod process {address} cannot be connected to: {error}");
        }
    }
}

const MISDIRECTED: ErrorType = ErrorType::Custom("misdirected");

/// An error that ends in this reply.
fn refused(context: &mut Context, reply: Reply) -> Box<Error> {
    context.reply = Some(reply);
    Error::new_in(ErrorType::Custom(reply.kind.slug()))
}

/// What a client is told of an error of Pingora's; `None` where nobody is left to be told.
fn reply_to(error: &Error) -> Option<Reply> {
    use ErrorType::{ConnectionClosed, ReadError, ReadTimedout, WriteError, WriteTimedout};
    let kind = error.etype();
    match error.esource() {
        ErrorSource::Upstream if [ReadTimedout, WriteTimedout].contains(kind) => {
            Some(Kind::Timeout.into())
        }
        ErrorSource::Upstream => Some(Kind::BadGateway.into()),
        ErrorSource::Downstream => {
            let gone = [
                ConnectionClosed,
                ReadError,
                WriteError,
                ReadTimedout,
                WriteTimedout,
            ];
            (!gone.contains(kind)).then_some(Kind::Invalid.into())
        }
        ErrorSource::Internal | ErrorSource::Unset => Some(Kind::Internal.into()),
    }
}

#[cfg(test)]
mod tests;
