//! Asking a pod whether it lets a request in, before a body goes there that is too large to be kept, or that comes slowly in
//! chunks: a refusal would cost the client all of it. It costs a small request for each such upload.

use std::time::{Duration, Instant};

use pingora_error::Result;
use pingora_proxy::Session;
use reqwest::Client;
use reqwest::redirect::Policy;
use shared::error::chain;
use shared::pause;
use shared::wire::{self, Fence};
use tokio::time::sleep_until;

use super::{CONNECTS_MAX, Edge, parked, refused, rewrite, unconnected};
use crate::context::{Again, Context, Route, unix_ms};
use crate::retry::Why;
use crate::upstream::Process;

/// The pod waits for the home's lock as a write does.
const ANSWER_MAX: Duration = pause::TRANSACTION.saturating_add(Duration::from_secs(1));

// Whoever is not parked is not held up for longer by processes that say nothing than one that is.
const _: () = assert!(CONNECTS_MAX as u128 * ANSWER_MAX.as_millis() <= pause::WINDOW.as_millis());

/// Who asks. Each question has its own connection: on one that the pod has closed meanwhile it would fail, and the body would
/// be sent without it.
pub(crate) fn client() -> reqwest::Result<Client> {
    Client::builder()
        .timeout(ANSWER_MAX)
        .pool_max_idle_per_host(0)
        .redirect(Policy::none())
        .no_proxy()
        .build()
}

impl Edge {
    /// Whether the request may be sent to this process. Where the pod says "not here" it is noted what follows, as if the
    /// request had been sent; nothing was, so nothing of its body is lost. Another answer the pod is to give to the request.
    /// One that gives none may be frozen, and would take the body with it: another one is asked. The last that is left
    /// gets it.
    pub(super) async fn ask_first(
        &self,
        session: &mut Session,
        context: &mut Context,
        process: &Process,
    ) -> Result<bool> {
        let route = context.route.as_ref();
        let asks = parked::may_write(session) && parked::is_unkept(session);
        let Some(route) = route.filter(|_| asks) else {
            return Ok(true);
        };
        let asked = Instant::now();
        let answer = tokio::select! {
            biased;
            answer = self.ask(route, context, process) => answer,
            () = parked::client_left(session) => return Err(parked::gone()),
            why = self.window_over(context) => {
                let reply = self.give_up(why);
                if let Some(place) = context.place.take() {
                    place.refuse();
                }
                return Err(refused(context, reply));
            }
        };
        let fence = match answer {
            Ok(None) => return Ok(true),
            Ok(Some(fence)) => fence,
            Err(error) => return Ok(!turns_to_another(context, process, &error)),
        };
        context.forwards += 1;
        context.forwarded = Some(asked);
        let refused = self.misdirected(session, context, fence);
        if context.again == Again::No {
            return Err(refused);
        }
        Ok(false)
    }

    /// Returns when a request that is parked has waited for as long as it may. Any other waits for [`ANSWER_MAX`], some times
    /// at most.
    async fn window_over(&self, context: &Context) -> Why {
        let Some(place) = &context.place else {
            return std::future::pending().await;
        };
        sleep_until((place.since() + self.parking.settings.window).into()).await;
        place.why_over()
    }

    /// A request of the edge's own that writes nothing, signed as the client's would be. The fence of the answer, if it is
    /// "not here".
    async fn ask(
        &self,
        route: &Route,
        context: &Context,
        process: &Process,
    ) -> reqwest::Result<Option<Option<Fence>>> {
        let signed = wire::Route {
            shop: route.shop,
            pod: route.pod_id(),
            epoch: route.epoch,
            request: context.request,
        };
        let url = format!("http://{}{}", process.address, wire::LETS_IN);
        let question = self.asks.post(url).body("");
        let fields = signed.headers(&route.pod.keys, unix_ms(), "POST", wire::LETS_IN);
        let question = fields
            .into_iter()
            .fold(question, |question, (name, value)| {
                question.header(name, value)
            });
        let answer = question.send().await?;
        Ok(rewrite::fence(answer.status(), answer.headers()))
    }
}

/// Chooses another process than this one, which gave no answer. Nothing was sent to it but the question.
fn turns_to_another(context: &mut Context, silent: &Process, error: &reqwest::Error) -> bool {
    let Some(route) = &context.route else {
        return false;
    };
    let tried = [context.tried.as_slice(), &[silent.address]].concat();
    let other = route
        .pod
        .pick(&tried)
        .filter(|_| tried.len() < CONNECTS_MAX);
    let Some(other) = other else {
        return false;
    };
    if error.is_connect() {
        unconnected(context, &chain(error));
    } else {
        route.pod.metrics.broken.increment(1);
        context.tried = tried;
    }
    context.process = Some(other);
    true
}
