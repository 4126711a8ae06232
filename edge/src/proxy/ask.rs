//! Asking a pod whether it lets a request in, before a body goes there that is too large to be kept: a refusal would cost the
//! client all of it. It costs a small request for each such upload.

use std::time::{Duration, Instant};

use pingora_error::Result;
use pingora_proxy::Session;
use reqwest::Client;
use reqwest::redirect::Policy;
use shared::pause;
use shared::wire::{self, Fence};

use super::{Edge, parked, rewrite};
use crate::context::{Again, Context, Route, unix_ms};
use crate::upstream::Process;

/// The pod waits for the home's lock as a write does.
const ANSWER_MAX: Duration = pause::TRANSACTION.saturating_add(Duration::from_secs(1));

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
    /// request had been sent; nothing was, so nothing of its body is lost. A pod that gives no answer, or another one, is
    /// to give it to the request.
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
        let Ok(Some(fence)) = self.ask(route, context, process).await else {
            return Ok(true);
        };
        context.forwards += 1;
        context.forwarded = Some(asked);
        let refused = self.misdirected(session, context, fence);
        if context.again == Again::No {
            return Err(refused);
        }
        Ok(false)
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
