//! A source that is lost for good after its shop was handed over, and comes back all the same.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};
use shared::moves::{MoveId, MoveState};
use shared::{Epoch, PodId, ShopId};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, rows_left};
use tests::suite::Test;
use tests::{Call, Fleet, Server, Shop, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: inv1_inv3_a_move_ends_without_its_source_which_comes_back_as_nobodys_home;
    ]
}

/// All of pod 1.
const SOURCE: [&str; 6] = [
    "mysql-1-1",
    "mysql-1-2",
    "mysql-1-3",
    "pod-1-1",
    "pod-1-2",
    "redis-1",
];

/// What a control server does at a source that came back, as the binary names it.
pub(crate) const STEPS: [&str; 5] = [
    "gone-mark",
    "gone-dump",
    "gone-delete",
    "gone-release",
    "gone-done",
];

/// Where the control server is killed on its way without the source, by the number of the shop.
const ON_THE_WAY: [(usize, &str); 6] = [
    (0, "handed-over.after"),
    (0, "finish.after"),
    (1, "release-target.after"),
    (2, "take-over-target.after"),
    (3, "retired.before"),
    (4, "forget-target-marks.after"),
];

/// The shop whose move waits for an operator's word on a stray when its source is lost.
const STRAY: usize = 5;

/// A control server that is killed for every shop's sake, beside a pod of dead servers.
const ENDS_MAX: Duration = Duration::from_secs(180);
/// The longest look for a source that was gone is ten seconds apart; then a handful of kills.
const CLEARED_MAX: Duration = Duration::from_secs(240);

struct Moved {
    shop: Shop,
    id: MoveId,
    orders: usize,
}

/// A shop whose hand-over is held before its source is told, one that is observed, one whose copy is about to be deleted, and
/// some more. All servers of the source are lost; each move is ended without it, killed on the way; the shops sell. Then the
/// servers come back: their homes are marked before anything else, the rows are deleted, killed at each step of that; and a
/// shop can go home.
async fn inv1_inv3_a_move_ends_without_its_source_which_comes_back_as_nobodys_home(
    fleet: &Fleet,
) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    let control = ControlDoor::of(fleet).await?;
    refused_too_early(fleet, &points, &control).await?;
    let mut moved = Vec::new();
    for number in 0..2 * STEPS.len() {
        moved.push(handed_over(fleet, &points, &control, number).await?);
    }
    let [held, observed, retiring, ..] = moved.as_slice() else {
        unreachable!("there are ten of them");
    };
    for it in [held, observed, retiring] {
        let answer = gone(&control, it.id).await?;
        let text = answer.wants(409)?.text();
        ensure!(text.contains("is not gone"), "{text}");
    }
    let source = fleet.primary(1).await?;
    try_join_all(SOURCE.map(|unit| fleet.kill_and_hold_down(unit))).await?;
    points.go_on(held.shop.id, "serving.after");
    points.go_on(retiring.shop.id, "dump.before");
    for (number, place) in ON_THE_WAY {
        points.set(moved[number].shop.id, place, "kill")?;
    }
    sells(&held.shop, "beside a dead source").await?;
    end_all(&control, &moved).await?;
    for (number, place) in ON_THE_WAY {
        let happened = points.go_on(moved[number].shop.id, place);
        ensure!(happened, "{place} was never reached");
    }
    for it in &moved {
        let (owner, _) = fleet.owner(&it.shop).await?;
        ensure!(owner == 2, "pod {owner} owns shop {}", it.shop.id);
        sells(&it.shop, "after the end").await?;
        ensure!(leftover_since(&control, it.id).await?.is_some());
    }
    let back = control.order(observed.shop.id, 1).await?;
    let text = back.wants(409)?.text();
    ensure!(text.contains("tells of no leftover"), "{text}");
    for (number, it) in moved.iter().enumerate() {
        let step = STEPS[number % STEPS.len()];
        let (before, after) = if number < STEPS.len() {
            ("kill", "kill")
        } else {
            ("error", "twice")
        };
        points.set(it.shop.id, &format!("{step}.before"), before)?;
        points.set(it.shop.id, &format!("{step}.after"), after)?;
    }
    fleet.restore().await.context("the source is back")?;
    for (number, it) in moved.iter().enumerate() {
        is_nobodys(fleet, &control, &source, it)
            .await
            .with_context(|| format!("shop {}, {}", it.shop.id, STEPS[number % STEPS.len()]))?;
        for when in ["before", "after"] {
            let place = format!("{}.{when}", STEPS[number % STEPS.len()]);
            ensure!(
                points.go_on(it.shop.id, &place),
                "{place} was never reached"
            );
        }
    }
    goes_home(fleet, &control, observed).await?;
    fleet.without_own_failpoints(points).await
}

/// Before the target owns the shop the source is the shop, however dead it is.
async fn refused_too_early(
    fleet: &Fleet,
    points: &OwnFailPoints,
    control: &ControlDoor,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    points.have_patience(shop.id)?;
    for place in ["copied.before", "switch.before"] {
        points.set(shop.id, place, "stop")?;
        let id = fleet.order_move(&shop, 2).await?;
        points.happens(shop.id, place, ENDS_MAX).await?;
        let text = gone(control, id).await?.wants(409)?.text();
        ensure!(text.contains("still owns the shop"), "{text}");
        control.tell(id, "abort").await?.wants(200)?;
        points.go_on(shop.id, place);
        control.reaches(id, &[MoveState::Aborted], ENDS_MAX).await?;
        let left = "the copy of an undone move is deleted";
        wait_until(left, ENDS_MAX, async || {
            ensure!(leftover_since(control, id).await?.is_none());
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// A shop with an order, as far on its way as its number says.
async fn handed_over(
    fleet: &Fleet,
    points: &OwnFailPoints,
    control: &ControlDoor,
    number: usize,
) -> Result<Moved> {
    let shop = fleet.shop(1).await?;
    let product = shop.product("Lamp", "10.00", 5).await?;
    shop.buy("before", &[(&product, 1)]).await?;
    let (place, wanted) = match number {
        0 => (Some("serving.after"), MoveState::Cutover),
        2 => (Some("dump.before"), MoveState::Retiring),
        STRAY => (Some("delete.before"), MoveState::Retiring),
        _ => (None, MoveState::Observing),
    };
    if let Some(place) = place {
        points.set(shop.id, place, "stop")?;
    }
    let id = fleet.order_move(&shop, 2).await?;
    if wanted == MoveState::Retiring {
        let observing = [MoveState::Observing];
        control.reaches(id, &observing, ENDS_MAX).await?;
        control.tell(id, "finish").await?.wants(200)?;
    }
    if let Some(place) = place {
        points.happens(shop.id, place, ENDS_MAX).await?;
    }
    control.reaches(id, &[wanted], ENDS_MAX).await?;
    if number == STRAY {
        stray(fleet, points, control, shop.id, id).await?;
    }
    let orders = shop.order_ids().await?.len();
    Ok(Moved { shop, id, orders })
}

/// A change at the source that nobody ordered: the move waits for an operator's word on it from then on.
async fn stray(
    fleet: &Fleet,
    points: &OwnFailPoints,
    control: &ControlDoor,
    shop: ShopId,
    id: MoveId,
) -> Result<()> {
    fleet.announce_error("strays at the source")?;
    let change = format!("update product set title = 'Stray' where shop_id = {shop}");
    fleet.primary(1).await?.run(&change).await?;
    wait_until("the move waits for a word", ENDS_MAX, async || {
        let moving = control.show(id).await?;
        ensure!(moving.strays.len() == 1, "{}", moving.words());
        Ok(())
    })
    .await?;
    points.go_on(shop, "delete.before");
    Ok(())
}

async fn gone(control: &ControlDoor, id: MoveId) -> Result<tests::Answer> {
    let call = Call::new(Method::POST, format!("/v1/moves/{id}/finish"));
    control.send(call.json(&json!({"source_gone": true}))).await
}

/// Each is ordered until it is answered, since the control server is killed meanwhile, and once more when it is over.
async fn end_all(control: &ControlDoor, moved: &[Moved]) -> Result<()> {
    for it in moved {
        let what = "the end without the source is answered";
        wait_until(what, ENDS_MAX, async || {
            gone(control, it.id).await?.wants(200).map(drop)
        })
        .await?;
    }
    for it in moved {
        let ended = control.reaches(it.id, &[MoveState::Done], ENDS_MAX).await;
        ended.with_context(|| format!("shop {}", it.shop.id))?;
    }
    let what = "the same order again is answered";
    wait_until(what, ENDS_MAX, async || {
        gone(control, moved[0].id).await?.wants(200).map(drop)
    })
    .await
}

async fn leftover_since(control: &ControlDoor, id: MoveId) -> Result<Option<String>> {
    let it: Value = control
        .send(Call::get(format!("/v1/moves/{id}")))
        .await?
        .wants(200)?
        .json()?;
    Ok(it["leftover_since"].as_str().map(str::to_owned))
}

async fn sells(shop: &Shop, key: &str) -> Result<()> {
    let product = shop.product("Lamp", "10.00", 5).await?;
    shop.buy(key, &[(&product, 1)]).await.map(drop)
}

/// The pod that came back has a home that sends everybody on, no row of the shop, and no move; the shop has all its orders.
async fn is_nobodys(
    fleet: &Fleet,
    control: &ControlDoor,
    source: &Server,
    it: &Moved,
) -> Result<()> {
    let shop = &it.shop;
    wait_until("what the source has is deleted", CLEARED_MAX, async || {
        ensure!(leftover_since(control, it.id).await?.is_none());
        Ok(())
    })
    .await?;
    let left = rows_left(source, shop.id).await?;
    ensure!(left == 0, "{left} rows are left");
    let (owner, epoch) = fleet.owner(shop).await?;
    let told = format!(
        "select concat(state, ' ', ifnull(mark_pod, 0), ' ', ifnull(mark_epoch, 0), ' ', ifnull(move_id, 'nobody')) \
         from shop_home where shop_id = {}",
        shop.id
    );
    let home = source.text(&told).await?;
    ensure!(home == format!("moved {owner} {epoch} nobody"), "{home}");
    let door = fleet.pod_door(PodId::new(1)?).await?;
    let old = Epoch::try_from(epoch - 1)?;
    let list = Call::get("/api/v1/products");
    let answer = door.send(shop.id, old, &list).await?;
    ensure!(answer.status == 421, "{}: {}", answer.status, answer.text());
    let orders = shop.order_ids().await?.len();
    ensure!(
        orders == it.orders + 1 || orders == it.orders + 2,
        "{orders} orders"
    );
    Ok(())
}

/// Nothing of it stands in the way of the next move.
async fn goes_home(fleet: &Fleet, control: &ControlDoor, it: &Moved) -> Result<()> {
    let id = fleet.order_move(&it.shop, 1).await?;
    control
        .reaches(id, &[MoveState::Observing], ENDS_MAX)
        .await?;
    control.tell(id, "finish").await?.wants(200)?;
    control.reaches(id, &[MoveState::Done], ENDS_MAX).await?;
    sells(&it.shop, "at home").await
}
