//! Waiting until the shop's pod takes requests, or the shop is elsewhere.

use std::time::Instant;

use http::{Method, header};
use pingora_error::{Error, ErrorType, Result};
use pingora_proxy::Session;
use shared::error::Kind;
use shared::{Epoch, PodId};
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use super::early::stream;
use super::reroute::NoWay;
use super::{Edge, admit, refused};
use crate::context::{Again, Context};
use crate::park::{Arrival, BODY_MAX, Body, Guest, Reason, Refused, Row, Turn};
use crate::reply::Reply;
use crate::retry::{Refreshed, Why, after_refresh, shows_open};

/// A newer place than the one that refused.
type Hint = Option<(PodId, Epoch)>;

/// Why a request cannot go on.
pub(super) enum Stuck {
    /// Nothing is in the way for ever: one that has a seat goes back to it.
    Later(Why),
    /// The client is told.
    Reply(Reply),
}

/// Why a request whose turn it is does not go.
enum Stays {
    /// As many requests of its shop, or of its pod, are running as may. That says nothing of the pod.
    Busy,
    /// Its shop is at a pod that the edge does not know yet.
    Unknown,
    /// The edge knows no process of its pod that could take it.
    Unreachable,
    /// The client is told.
    Reply(Reply),
}

impl Edge {
    /// Whether a new request may go to its pod; where its shop is known to refuse it, it is parked before anything is sent.
    pub(super) fn arrive(&self, session: &Session, context: &mut Context) -> Result<(), Reply> {
        let Some(route) = &context.route else {
            return Ok(());
        };
        match self.parking.arrive(route.shop, may_write(session)) {
            Ok(Arrival::Go) => Ok(()),
            Ok(Arrival::Scout) => {
                context.scout = true;
                Ok(())
            }
            Ok(Arrival::Wait) => {
                context.again = Again::Park(None);
                Ok(())
            }
            Err(why) => Err(self.give_up(why)),
        }
    }

    /// Parks the request until its turn comes, and says where it goes then.
    pub(super) async fn park(
        &self,
        session: &mut Session,
        context: &mut Context,
        reason: Option<Reason>,
    ) -> Result<()> {
        let begun = Instant::now();
        let done = self.turns(session, context, reason).await;
        context.parked += begun.elapsed();
        if done.is_err()
            && let Some(place) = context.place.take()
            && context.reply.is_some()
        {
            place.refuse();
        }
        done
    }

    async fn turns(
        &self,
        session: &mut Session,
        context: &mut Context,
        reason: Option<Reason>,
    ) -> Result<()> {
        let mut by_pod = reason.map(|reason| (reason, context.forwarded));
        loop {
            context.shop_permit = None;
            context.pod_permit = None;
            context.process = None;
            context.tried.clear();
            context.reply = None;
            if usize::from(context.forwards) >= self.parking.settings.tries_max() {
                return Err(refused(context, self.give_up(Why::Tries)));
            }
            let turn = match self.sit(session, context, by_pod) {
                Ok(turn) => turn,
                Err(why) => return Err(refused(context, self.give_up(why))),
            };
            let (hint, probe) = match self.wait(session, context, turn).await? {
                Turn::Probe(hint) => (hint, true),
                Turn::Follow(hint) => (hint, false),
                Turn::Refused(why) => return Err(refused(context, self.give_up(why))),
            };
            match self.go(context, hint) {
                Ok(()) => {
                    self.parking.count_sent(probe);
                    return Ok(());
                }
                Err(Stays::Busy) => by_pod = None,
                // A pod that this edge does not know yet is the shop's affair, not that of the pod which it left.
                Err(Stays::Unknown) => by_pod = Some((Reason::Fenced, Some(Instant::now()))),
                Err(Stays::Unreachable) => by_pod = Some((Reason::Unready, Some(Instant::now()))),
                Err(Stays::Reply(reply)) => return Err(refused(context, reply)),
            }
        }
    }

    /// Takes a seat, or goes back to it.
    fn sit(
        &self,
        session: &mut Session,
        context: &mut Context,
        by_pod: Option<(Reason, Option<Instant>)>,
    ) -> Result<oneshot::Receiver<Turn>, Why> {
        let Some(route) = &context.route else {
            return Err(Why::Unchanged);
        };
        let refused = Refused {
            shop: route.shop,
            place: Row {
                pod: route.pod_id(),
                epoch: route.epoch,
                offline: false,
            },
            by_pod: by_pod.map(|(reason, sent)| (reason, sent.unwrap_or(context.started))),
        };
        if let Some(place) = &context.place {
            return place.back(refused);
        }
        let guest = Guest {
            write: may_write(session),
            body: if is_unkept(session) {
                Body::There
            } else if session.is_body_done() {
                Body::Here
            } else {
                Body::Comes
            },
            bytes: kept_bytes(session),
        };
        let (place, turn) = self.parking.sit(refused, guest)?;
        context.place = Some(place);
        Ok(turn)
    }

    /// Waits for the turn, the end of the window, or the edge's. Meanwhile a small body is read, so that it can be sent
    /// whenever the turn comes, and the connection is watched.
    async fn wait(
        &self,
        session: &mut Session,
        context: &Context,
        turn: oneshot::Receiver<Turn>,
    ) -> Result<Turn> {
        let Some(place) = &context.place else {
            return Ok(Turn::Refused(Why::Unchanged));
        };
        let deadline = place.since() + self.parking.settings.window;
        let mut stop = self.stop.clone();
        let told = async move {
            tokio::select! {
                biased;
                told = turn => told.unwrap_or(Turn::Refused(Why::All)),
                _ = stop.wait_for(|stop| *stop) => Turn::Refused(Why::Stopping),
                () = sleep_until(deadline.into()) => Turn::Refused(place.why_over()),
            }
        };
        tokio::pin!(told);
        if reads_body(session) {
            session.enable_retry_buffering();
            while !session.is_body_done() {
                tokio::select! {
                    biased;
                    told = &mut told => return Ok(told),
                    part = session.read_request_body() => part.map_err(|e| e.into_down())?,
                };
            }
            place.whole();
        }
        tokio::select! {
            biased;
            told = &mut told => Ok(told),
            () = client_left(session) => Err(gone()),
        }
    }

    /// Sends the request where table or mark now say, or once more to the pod that refused it.
    fn go(&self, context: &mut Context, hint: Hint) -> Result<(), Stays> {
        let Some(route) = &context.route else {
            return Err(Stays::Reply(admit::UNREACHABLE));
        };
        let (shop, was) = (route.shop, (route.pod_id(), route.epoch));
        let by_table = match after_refresh(was, self.routes.placed(shop)) {
            Refreshed::Send { pod, epoch } => (pod, epoch),
            Refreshed::GiveUp(_) => was,
            Refreshed::Gone => return Err(Stays::Reply(Kind::UnknownShop.into())),
            Refreshed::Offline => return Err(Stays::Reply(Kind::Offline.into())),
        };
        let newer = hint.filter(|(_, epoch)| *epoch > by_table.1);
        let (pod, epoch) = newer.unwrap_or(by_table);
        // It had its permits when it came; the place of others, it does not take.
        context.shop_permit = Some(self.shops.enter(shop).ok_or(Stays::Busy)?);
        self.turn_to(context, pod, epoch).map_err(|no| match no {
            NoWay::Unknown => Stays::Unknown,
            NoWay::Busy => Stays::Busy,
        })?;
        let route = context.route.as_ref();
        let process = route.and_then(|route| route.pod.pick(&[]));
        context.process = Some(process.ok_or(Stays::Unreachable)?);
        Ok(())
    }

    /// A pod answered with this status, and did not refuse.
    pub(super) fn not_refused(&self, context: &mut Context, status: u16) {
        let open = shows_open(status);
        if let Some(place) = context.place.take() {
            place.passed(open);
        }
        if std::mem::take(&mut context.scout)
            && open
            && let Some(route) = &context.route
        {
            self.parking.scouted(route.shop);
        }
    }
}

/// Whether a request may change something, as far as its method says (RFC 9110 section 9.2.1).
pub(super) fn may_write(session: &Session) -> bool {
    let method = &session.req_header().method;
    ![Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(method)
}

/// The length of the body, if it says one.
pub(super) fn length(session: &Session) -> Option<usize> {
    let length = session.req_header().headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Whether the client waits to be told to send its body.
pub(super) fn waits_to_send(session: &Session) -> bool {
    session.req_header().headers.contains_key(header::EXPECT)
}

/// Whether the body is read while its request is parked. Not one that is more than can be kept to be sent again, or of unknown
/// length and not yet here (`early.rs`); nor one whose client waits to be told to send it. They wait where they are, unread.
fn reads_body(session: &mut Session) -> bool {
    let small = length(session).is_some_and(|length| length <= BODY_MAX);
    small && !waits_to_send(session) && !session.is_body_done()
}

/// Whether there is a body that stays with its client until it is sent, once.
pub(super) fn is_unkept(session: &mut Session) -> bool {
    !session.is_body_done() && !reads_body(session)
}

/// What of the body is kept, or will be.
fn kept_bytes(session: &mut Session) -> usize {
    if reads_body(session) {
        length(session).unwrap_or(0)
    } else {
        session.body_bytes_read().min(BODY_MAX)
    }
}

/// The client left while its request waited.
pub(super) fn gone() -> Box<Error> {
    let left = "the client left while its request waited";
    Error::explain(ErrorType::ConnectionClosed, left).into_down()
}

/// Returns when the client has gone. Nothing is read, so that nothing that it sends is lost.
pub(super) async fn client_left(session: &Session) {
    match stream(session) {
        Some(stream) => stream.hung_up().await,
        None => std::future::pending().await,
    }
}
