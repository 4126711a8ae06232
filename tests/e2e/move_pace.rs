//! How fast a move goes: not at all where a pod has enough to do, and it says why; no longer than its bound where a shop's
//! writers are faster; and when its target stands still, no buyer waits longer than a fence may last.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;
use shared::moves::{MoveId, MoveState};
use sqlx::Executor;
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX};
use tests::suite::Test;
use tests::{Fleet, Shop, tests, wait_until};
use toml::Value;

// Others at the same pods.
mod beside;
use beside::{
    a_copy_rests_beside_shops_that_sell, a_pod_with_enough_observed_moves_lets_the_next_one_wait,
};
// Many changes at once.
mod bursts;
use bursts::a_burst_of_changes_costs_a_comparison_and_not_the_move;
// Writers who are faster.
mod flood;
use flood::a_shop_that_is_never_caught_up_with_stays_and_sells;
// A target that stands still.
mod still;
use still::a_target_that_stands_still_holds_up_moves_and_no_buyer;

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: a_shop_that_is_never_caught_up_with_stays_and_sells,
            a_burst_of_changes_costs_a_comparison_and_not_the_move,
            a_replica_that_lags_holds_a_copy_back_and_is_told,
            a_disk_without_room_holds_a_copy_back_and_no_deletion,
            a_target_that_stands_still_holds_up_moves_and_no_buyer,
            a_copy_rests_beside_shops_that_sell,
            a_pod_with_enough_observed_moves_lets_the_next_one_wait;
    ]
}

/// The tests' own table of a shop.
const TABLE: &str = "create table if not exists x_pace (shop_id bigint unsigned not null, id int not null, n int not null, \
    pad varchar(200) not null, primary key (shop_id, id))";
/// Enough for hundreds of the smallest chunks.
const ROWS: u32 = 10_000;

/// All of them in the smallest chunks, on a machine that has more to do.
const COPIED_MAX: Duration = Duration::from_secs(180);
/// The share of a disk that no disk has free, in percent.
const ALL_PERCENT: i64 = 100;
/// How long a copy may be held back until that is noted with the move.
const NOTED_AFTER: &str = "2s";

/// A shop of pod 1 with rows in the tests' table.
async fn shop_with_rows(fleet: &Fleet) -> Result<Shop> {
    fleet.on_both(TABLE).await?;
    let fill = format!(
        "set cte_max_recursion_depth = {ROWS}; insert into x_pace \
         with recursive n as (select 1 n union all select n + 1 from n where n < {ROWS}) \
         select {{shop}}, n, 0, repeat('pad ', 25) from n"
    );
    fleet.shop_with_rows(&fill).await
}

/// Ends a test: the fleet is as it was.
async fn tidy_up(fleet: &Fleet, points: OwnFailPoints) -> Result<()> {
    fleet.without_own_failpoints(points).await?;
    fleet.on_both("drop table if exists x_pace").await
}

/// What an operator sees of a move.
async fn shown(fleet: &Fleet, id: MoveId) -> Result<String> {
    fleet.podctl.ok(&["move", "show", &id.to_string()]).await
}

async fn says(fleet: &Fleet, id: MoveId, words: &[&str]) -> Result<()> {
    wait_until("podctl move show says why", MOVED_MAX, async || {
        let text = shown(fleet, id).await?;
        let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
        ensure!(missing.is_empty(), "{missing:?} is not in {text}");
        Ok(())
    })
    .await
}

/// Rows that a move has copied by now.
async fn copied(fleet: &Fleet, id: MoveId) -> Result<u64> {
    let shown: Json = fleet
        .podctl
        .json(&["move", "show", &id.to_string()])
        .await?;
    let copied = shown["progress"]["rows_copied"].as_u64();
    copied.with_context(|| format!("no rows copied in {shown}"))
}

/// A copy that is held back brings no row. (A server that is too busy to be looked at holds nothing back for a moment.)
async fn stands_still(fleet: &Fleet, id: MoveId) -> Result<()> {
    wait_until("no row is copied for a second", MOVED_MAX, async || {
        let before = copied(fleet, id).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = copied(fleet, id).await?;
        ensure!(before == after, "{before} rows, then {after}");
        ensure!(after < u64::from(ROWS), "all of them are there");
        Ok(())
    })
    .await
}

/// Orders a move that is held before its first row until both pods have been looked at, and something is done.
async fn order_watched(
    fleet: &Fleet,
    points: &OwnFailPoints,
    shop: &Shop,
    meanwhile: impl AsyncFnOnce(MoveId) -> Result<()>,
) -> Result<MoveId> {
    let place = "copy.before";
    points.set(shop.id, place, "stop")?;
    let id = fleet.order_move(shop, 2).await?;
    points.happens(shop.id, place, MOVED_MAX).await?;
    meanwhile(id).await?;
    points.go_on(shop.id, place);
    Ok(id)
}

/// Chunks so small that a copy of the tests' table takes some seconds.
fn small_chunks() -> [(&'static str, Value); 4] {
    [
        ("chunk_rows_min", Value::from(20)),
        ("chunk_rows_max", Value::from(20)),
        ("streams", Value::from(1)),
        ("replica_lag_max", Value::from("300ms")),
    ]
}

/// A replica of each pod does not apply: the copy waits, `podctl move show` says for which, notes it with the move when that
/// lasts, and goes on when both have caught up: where it was, in the same run.
async fn a_replica_that_lags_holds_a_copy_back_and_is_told(fleet: &Fleet) -> Result<()> {
    let mut moves = small_chunks().to_vec();
    moves.push(("throttle_bound", NOTED_AFTER.into()));
    moves.push(("note_every", "500ms".into()));
    let points = fleet.with_own_failpoints_and_moves(&moves).await?;
    let done = lagging(fleet, &points).await;
    tidy_up(fleet, points).await?;
    done
}

async fn lagging(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let shop = shop_with_rows(fleet).await?;
    let control = ControlDoor::of(fleet).await?;
    let mut replicas = Vec::new();
    for pod in [1, 2] {
        let of_pod = fleet.replicas(pod).await?;
        let replica = of_pod.into_iter().next().context("a replica")?;
        // It receives and acknowledges, and applies nothing while this session lasts. (One that is stopped is started
        // again by the control server.)
        let mut lock = replica.connect().await?;
        lock.execute("flush tables with read lock").await?;
        replicas.push((pod, replica, lock));
    }
    let id = order_watched(fleet, points, &shop, async |_| {
        // A lag is seen once it is there for longer than it may be.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    })
    .await?;
    let begun = control.show(id).await?;
    let mut before = 0;
    // The source's is told first.
    for (pod, replica, lock) in replicas {
        let (name, of_pod) = (format!(":{}", replica.port), format!("of pod {pod} is"));
        let words = [
            "copying",
            "held back: the replica",
            &name,
            &of_pod,
            "ms behind",
        ];
        says(fleet, id, &words).await?;
        stands_still(fleet, id).await?;
        shop.product("Sold meanwhile", "1.00", 1).await?;
        waits_for(&control, id, &[&name, &of_pod, "held back for"]).await?;
        let there = copied(fleet, id).await?;
        ensure!(there >= before, "{before} rows were copied, then {there}");
        before = there;
        let moving = control.show(id).await?;
        ensure!(
            moving.error.is_none() && moving.owner == begun.owner,
            "being held back is no fault, and ends no run: {}",
            moving.words()
        );
        drop(lock);
    }
    let moved = control
        .reaches(id, &[MoveState::Observing], COPIED_MAX)
        .await?;
    ensure!(moved.owner == begun.owner, "begun anew: {}", moved.words());
    ensure!(moved.waits.is_none(), "it goes on: {}", moved.words());
    fleet.finish_move(id).await.map(drop)
}

/// What the move waits for is noted with it.
async fn waits_for(control: &ControlDoor, id: MoveId, words: &[&str]) -> Result<()> {
    wait_until("the reason is noted with the move", MOVED_MAX, async || {
        let moving = control.show(id).await?;
        let waits = moving.waits.as_deref().unwrap_or_default();
        let all = words.iter().all(|word| waits.contains(word));
        ensure!(all, "{waits:?} is not {words:?}; {}", moving.words());
        Ok(())
    })
    .await
}

/// With disks that count as full a copy waits, and what is deleted is deleted all the same: that makes room.
async fn a_disk_without_room_holds_a_copy_back_and_no_deletion(fleet: &Fleet) -> Result<()> {
    let control = ControlDoor::of(fleet).await?;
    let points = fleet.with_own_failpoints_and_moves(&small_chunks()).await?;
    let begun = async {
        let shop = shop_with_rows(fleet).await?;
        let id = order_watched(fleet, &points, &shop, async |id| {
            // A move that begins is refused by a full disk; this one has begun.
            control.tell(id, "pause").await?.wants(200).map(drop)
        })
        .await?;
        let paused = [MoveState::Paused];
        control.reaches(id, &paused, MOVED_MAX).await?;
        Ok(id)
    };
    let begun: Result<MoveId> = begun.await;
    fleet.without_own_failpoints(points).await?;
    let id = begun?;

    let mut settings = small_chunks().to_vec();
    settings.push(("disk_free_min_percent", Value::from(ALL_PERCENT)));
    let points = fleet.with_own_failpoints_and_moves(&settings).await?;
    let held = async {
        control.tell(id, "resume").await?.wants(200)?;
        let words = ["copying", "held back: the disk of pod", "% left"];
        says(fleet, id, &words).await?;
        stands_still(fleet, id).await
    };
    let held = held.await;
    fleet.without_own_failpoints(points).await?;
    held?;
    control
        .reaches(id, &[MoveState::Observing], COPIED_MAX)
        .await?;

    let points = fleet.with_own_failpoints_and_moves(&settings).await?;
    let finished = fleet.finish_move(id).await;
    tidy_up(fleet, points).await?;
    let deleted = finished?.took("deleted_rows").unwrap_or_default();
    ensure!(deleted >= u64::from(ROWS), "{deleted} rows were deleted");
    Ok(())
}
