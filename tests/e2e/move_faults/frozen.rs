//! Shops that an operator freezes or takes offline while they move.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use http::Method;
use serde_json::json;
use shared::moves::MoveState;
use tests::fleet::RECOVER_MAX;
use tests::{Answer, Call, Fleet, Server, Shop, wait_until};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lanes::{ARRIVES_MAX, Held, Lane, Lanes, on_lanes_told};

/// What is done to the shop while its move is held, and how it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Freeze,
    Offline,
    /// Frozen, and given back before the move goes on.
    Thawed,
    /// Refused at this moment.
    Refused,
}

const fn order(held: Held) -> Order {
    match held {
        Held::Preparing | Held::Verifying | Held::Observing => Order::Freeze,
        Held::Copying | Held::Retiring => Order::Offline,
        Held::CatchingUp => Order::Thawed,
        Held::Fenced | Held::Cutover | Held::Switched => Order::Refused,
    }
}

impl Order {
    /// The state wanted.
    const fn state(self) -> &'static str {
        match self {
            Self::Freeze | Self::Thawed | Self::Refused => "frozen",
            Self::Offline => "offline",
        }
    }
}

/// Between two writes of a merchant.
const PAUSE: Duration = Duration::from_millis(80);

/// So many writes that were sent from some moment on show what the shop says from then on.
const SOME: usize = 3;

/// In each state of its move a shop is frozen or taken offline; inside of the fence that is refused. No write that is sent
/// after the order succeeds before the order back, at neither pod and in no moment of the hand-over; the shop arrives as it
/// was ordered, and sells at the target once it is given back. One that was given back under way sells, then and there.
pub(super) async fn a_shop_frozen_under_way_sells_nothing_and_arrives_frozen(
    fleet: &Fleet,
) -> Result<()> {
    // Who is refused the order has clients that notice nothing; those of a shop that is closed are told so (503).
    let told = |held| order(held) != Order::Refused;
    on_lanes_told(fleet, &Held::ALL, told, frozen_under_way).await
}

async fn frozen_under_way(lanes: &mut Lanes<'_>) -> Result<()> {
    let fleet = lanes.fleet;
    let servers = &[fleet.primary(1).await?, fleet.primary(2).await?];
    for lane in &lanes.lanes {
        if lane.held == Held::Verifying {
            // It is looked at inside of its fence.
            lanes.points.have_patience(lane.shop.id)?;
        }
    }
    lanes.hold(2).await?;
    let all = &*lanes;
    let ready_point = "ready.after";
    let refused = lanes
        .lanes
        .iter()
        .filter(|lane| order(lane.held) == Order::Refused);
    try_join_all(refused.map(|lane| is_refused(all, &lane.shop))).await?;
    let frozen = lanes
        .lanes
        .iter()
        .filter(|lane| order(lane.held) != Order::Refused);
    let writers = try_join_all(frozen.map(|lane| async move {
        if lane.held == Held::Verifying {
            all.points.set(lane.shop.id, ready_point, "stop")?;
        }
        let writer = Writer::start(lane.shop.clone());
        let wanted = order(lane.held).state();
        ordered(all, &lane.shop, wanted).await?.wants(200)?;
        let since = Instant::now();
        if order(lane.held) == Order::Thawed {
            writer.sells_nothing_since(since).await?;
            ordered(all, &lane.shop, "serving").await?.wants(200)?;
            lane.trade.goes_on(4, ARRIVES_MAX).await?;
        }
        anyhow::Ok((lane, writer, since))
    }))
    .await?;
    lanes.go_on();
    try_join_all(writers.into_iter().map(|(lane, writer, since)| async move {
        let ended = Box::pin(arrives_as_ordered(all, lane, servers, writer, since)).await;
        ended.with_context(|| format!("held {:?}, shop {}", lane.held, lane.shop.id))
    }))
    .await?;
    lanes.arrive(2, |held| held != Held::Retiring).await
}

/// An operator's order, as `podctl shop freeze`, `offline`, `unfreeze` and `online` give it.
async fn ordered(lanes: &Lanes<'_>, shop: &Shop, state: &str) -> Result<Answer> {
    let call = Call::new(Method::PUT, format!("/v1/shops/{}/state", shop.id));
    lanes
        .control
        .send(call.json(&json!({"state": state})))
        .await
}

/// With what is to be done instead.
async fn is_refused(lanes: &Lanes<'_>, shop: &Shop) -> Result<()> {
    for state in ["frozen", "offline"] {
        let answer = ordered(lanes, shop, state).await?;
        let text = answer.text();
        ensure!(
            answer.status == 409 && text.contains("changing hands"),
            "{state}: {} {text}",
            answer.status
        );
    }
    Ok(())
}

async fn arrives_as_ordered(
    lanes: &Lanes<'_>,
    lane: &Lane,
    servers: &[Server; 2],
    writer: Writer,
    since: Instant,
) -> Result<()> {
    let state = order(lane.held).state();
    let shop = &lane.shop;
    if order(lane.held) == Order::Thawed {
        return writer.stop().await;
    }
    if lane.held == Held::Verifying {
        // The target's home just before the catalog's step: nobody may sell by it.
        lanes
            .points
            .happens(shop.id, "ready.after", ARRIVES_MAX)
            .await?;
        let (found, _) = servers[1].home(shop.id).await?;
        ensure!(found == state, "the target is made {found}");
        lanes.points.go_on(shop.id, "ready.after");
    }
    let end = if lane.held == Held::Retiring {
        MoveState::Done
    } else {
        MoveState::Observing
    };
    let moved = lanes.reaches(lane, end).await?;
    let home = servers[1].home(shop.id).await?;
    ensure!(
        home == (state.to_owned(), moved.epoch.get()),
        "the target's home is {home:?}"
    );
    let status = lanes.fleet.status().await?;
    let told = &status.shop(&shop.handle)?.state;
    ensure!(told == state, "the catalog says {told}");
    writer.sells_nothing_since(since).await?;
    ordered(lanes, shop, "serving").await?.wants(200)?;
    writer.stop().await?;
    wait_until("it sells at the target", RECOVER_MAX, async || {
        let body = json!({"title": "Back", "price": "1.00", "currency": "USD", "available": 1});
        shop.merchant_post("/api/v1/products", &body)
            .await?
            .wants(201)
    })
    .await?;
    lane.trade.goes_on(4, ARRIVES_MAX).await
}

/// A merchant who makes products all the time.
struct Writer {
    seen: watch::Receiver<Vec<(Instant, u16)>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Writer {
    fn start(shop: Shop) -> Self {
        let (told, seen) = watch::channel(Vec::new());
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let body = json!({"title": "New", "price": "1.00", "currency": "USD", "available": 1});
            while !*stopped.borrow() {
                let sent = Instant::now();
                let answer = shop.merchant_post("/api/v1/products", &body).await;
                let status = answer.map_or(0, |answer| answer.status);
                told.send_modify(|seen: &mut Vec<_>| seen.push((sent, status)));
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { seen, stop, task }
    }

    /// Waits for some writes more, by the route that the edge has now; none that was sent after that moment was done.
    async fn sells_nothing_since(&self, since: Instant) -> Result<()> {
        let now = Instant::now();
        let after = wait_until("somebody asks", ARRIVES_MAX, async || {
            let seen = self.seen.borrow();
            let late = seen.iter().filter(|(sent, _)| *sent > now).count();
            ensure!(late >= SOME, "{late} of {SOME} have asked");
            let after = seen.iter().filter(|(sent, _)| *sent > since);
            Ok(after.map(|(_, status)| *status).collect::<Vec<_>>())
        })
        .await?;
        ensure!(
            after.iter().all(|status| *status == 503),
            "answers of a shop that may not sell: {after:?}"
        );
        Ok(())
    }

    async fn stop(mut self) -> Result<()> {
        self.stop.send_replace(true);
        (&mut self.task).await.context("a merchant")
    }
}

/// A test that fails leaves no merchant behind who writes on into the next one.
impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
