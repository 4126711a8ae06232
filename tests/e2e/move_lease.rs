//! Who drives a move where one of its steps takes longer than its lease, and another control server is there that would.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use serde_json::json;
use shared::moves::{MoveId, MoveState};
use tests::moves::{ControlDoor, Moving};
use tests::own_control::OwnControl;
use tests::suite::Test;
use tests::{Call, Fleet, Product, Shop, tests, wait_until};
use toml::Value;

pub(crate) fn list() -> Vec<Test> {
    tests![alone: inv1_a_step_longer_than_its_lease_keeps_its_move_and_a_frozen_mover_loses_it;]
}

/// Of a move: the longest that may be. It is renewed three times in its time.
const LEASE: Duration = Duration::from_secs(3);
/// Whatever was left of the lease when the step began, nobody holds it any more after this who has not renewed it.
const LONG: Duration = Duration::from_secs(4);
const _: () = assert!(LONG.as_millis() > LEASE.as_millis());

/// How often it is looked whose the moves are.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Small shops' moves, on a machine that has more to do.
const ENDS_MAX: Duration = Duration::from_secs(180);

/// Steps that take as long as a shop is large or its pods are slow, each in another state.
const STEPS: [(&str, MoveState); 4] = [
    ("copy-chunk.before", MoveState::Copying),
    ("compare.before", MoveState::Verifying),
    ("follow.before", MoveState::Fenced),
    ("delete.before", MoveState::Retiring),
];

/// How both servers move.
fn moves() -> [(&'static str, Value); 3] {
    let lease = format!("{}s", LEASE.as_secs());
    [
        ("moves_per_pod", 8.into()),
        ("moves_max", 8.into()),
        ("lease", lease.into()),
    ]
}

/// A shop whose move stands in its step.
struct Standing {
    shop: Shop,
    product: Product,
    id: MoveId,
    owner: u64,
}

/// Four moves stand in a step each for longer than their lease. The other control server wants each of them, and gets none.
/// Then the first one is frozen as a whole: the other one takes all four over and ends them. What thaws finds that out by
/// itself, inside of the step that it stands in, and leaves.
async fn inv1_a_step_longer_than_its_lease_keeps_its_move_and_a_frozen_mover_loses_it(
    fleet: &Fleet,
) -> Result<()> {
    let was = fleet.share_catalog(&moves()).await?;
    let went = Box::pin(kept_and_lost(fleet)).await;
    // As it was, also for the tests that come after a failure.
    fleet.share_catalog_no_more(was).await?;
    went
}

async fn kept_and_lost(fleet: &Fleet) -> Result<()> {
    let other = ControlDoor::of(fleet).await?;
    let own = OwnControl::start(fleet).await?;
    let shops = try_join_all(STEPS.map(|_| shop(fleet))).await?;
    // Nobody else is there while they are begun.
    let frozen = fleet.freeze_control().await?;
    let begun = shops.into_iter().zip(STEPS);
    let begun = begun.map(|((shop, product), (place, _))| stands(&own, shop, product, place));
    let standing = try_join_all(begun).await?;
    frozen.thaw();
    let thawed = Instant::now();
    while thawed.elapsed() < LONG {
        are_kept(&other, &standing).await?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    are_kept(&other, &standing).await?;

    let loser = own.freeze().await?;
    try_join_all(standing.iter().map(|it| is_taken_over(&other, it))).await?;
    let since = own.log().len();
    loser.thaw();
    try_join_all(standing.iter().map(|it| leaves(&own, since, it))).await?;
    for (it, (place, _)) in standing.iter().zip(STEPS) {
        ensure!(own.go_on(it.shop.id, place), "{place} went on by itself");
        it.shop.buy("after", &[(&it.product, 1)]).await?;
        let orders = it.shop.order_ids().await?.len();
        ensure!(orders == 2, "{place}: {orders} orders");
    }
    Ok(())
}

async fn shop(fleet: &Fleet) -> Result<(Shop, Product)> {
    let shop = fleet.shop(1).await?;
    let product = shop.product("Lamp", "10.00", 9).await?;
    shop.buy("before", &[(&product, 1)]).await?;
    Ok((shop, product))
}

/// Begins a move and waits until it stands in its step.
async fn stands(own: &OwnControl, shop: Shop, product: Product, place: &str) -> Result<Standing> {
    // A fence has bounds of its own, which are shorter.
    own.have_patience(shop.id)?;
    own.set(shop.id, place, "stop")?;
    let body = json!({"shop": shop.id.to_string(), "to": "2", "observe_ms": 0});
    let begun = own.door.send(Call::post("/v1/moves").json(&body)).await?;
    let id = begun.wants(201)?.json::<Moving>()?.id;
    wait_until(&format!("it stands at {place}"), ENDS_MAX, async || {
        let stands = own.happened(shop.id, place);
        ensure!(stands, "{}", own.door.show(id).await?.words());
        Ok(())
    })
    .await?;
    let owner = own.door.show(id).await?.owner;
    Ok(Standing {
        shop,
        product,
        id,
        owner,
    })
}

/// Each is where it was, and the same mover's.
async fn are_kept(other: &ControlDoor, standing: &[Standing]) -> Result<()> {
    for (it, (place, state)) in standing.iter().zip(STEPS) {
        let now = other.show(it.id).await?;
        let same = now.owner == it.owner && now.state == state && now.error.is_none();
        ensure!(same, "{place}, owner {}: {}", it.owner, now.words());
    }
    Ok(())
}

async fn is_taken_over(other: &ControlDoor, it: &Standing) -> Result<()> {
    let done = other.reaches(it.id, &[MoveState::Done], ENDS_MAX).await?;
    ensure!(done.owner > it.owner, "{}", done.words());
    Ok(())
}

/// Waits until the loser's log says that it does not go on with a move: it heard so, or something refused it.
async fn leaves(own: &OwnControl, since: usize, it: &Standing) -> Result<()> {
    let id = it.id.to_string();
    wait_until("the loser leaves", ENDS_MAX, async || {
        let log = own.log();
        let mut late = log.get(since..).unwrap_or_default().lines();
        let left = |line: &str| {
            line.contains("move left to another control server")
                || line.contains("verdict=TakeAnew")
        };
        let left = late.any(|line| line.contains(&id) && left(line));
        ensure!(left, "its log says nothing of move {id}");
        Ok(())
    })
    .await
}
