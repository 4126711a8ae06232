//! What a move makes sure of: that nobody changes the target behind its back, whatever the state; that rows which differ
//! without a trace are found and put in order, or end the move; that values which change hands, and rows that go, arrive
//! as they are, also when the control server is killed; and that a large table is the same to the byte.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use shared::ShopId;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::moves::{
    ControlDoor, MOVED_MAX, Written, differences, rows_left, rows_of, write_until_fenced,
};
use tests::suite::Test;
use tests::{Fleet, Server, Shop, tests, wait_until};

// A table of every type with many rows.
mod large;
use large::Size;
// Statements that take too long.
mod late;
use late::{
    a_question_that_takes_too_long_ends_the_move_and_leaves_nothing,
    a_reference_table_that_cannot_be_compared_in_time_is_named,
};
// Questions of an application about its rows.
mod questions;
use questions::{
    an_answer_that_takes_minutes_loses_no_session,
    what_contradicts_at_both_sides_is_no_difference_however_much,
};

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: a_change_at_the_target_is_found_in_every_state,
            a_difference_without_a_trace_is_put_in_order_or_ends_the_move,
            values_change_hands_and_rows_go_while_control_servers_are_killed,
            what_contradicts_at_both_sides_is_no_difference_however_much,
            a_question_that_takes_too_long_ends_the_move_and_leaves_nothing,
            a_reference_table_that_cannot_be_compared_in_time_is_named,
            a_large_table_under_writes_is_the_same_to_the_byte;
        long: an_answer_that_takes_minutes_loses_no_session,
            two_million_rows_under_writes_are_the_same_to_the_byte;
    ]
}

/// Between two changes of a writer.
const PAUSE: Duration = Duration::from_millis(2);

/// Shops that move at once.
const LANES: usize = 6;

/// Where somebody changes the target's rows: all states, and also after every chunk has compared equal, and after every
/// key has.
const PLACES: [&str; 11] = [
    "copy.after",
    "copied.after",
    "catch-up.after",
    "caught-up.after",
    "compare.after",
    "verified.after",
    "fence.after",
    "follow.after",
    "compare-keys.after",
    "followed.after",
    "handing.after",
];

/// What is done to them.
const CHANGES: [&str; 3] = [
    "update product set title = concat(title, '!') where shop_id = {shop} limit 1",
    "delete from product where shop_id = {shop} limit 1",
    "insert into product (shop_id, product_id, title, price, currency) values ({shop}, x'00112233445566778899AABBCCDDEEFF', 'smuggled', 1, 'EUR')",
];

/// The same with a mover that is killed before it can see it: who takes the move up looks where that one had come to.
const KILLED: [(&str, &str); 3] = [
    ("copied.before", CHANGES[0]),
    ("copied.after", CHANGES[2]),
    ("verified.after", CHANGES[1]),
];

/// What happens to the mover after somebody changed the target's rows.
#[derive(Clone, Copy)]
enum Then<'f> {
    GoesOn,
    IsKilled(&'f Fleet),
}

/// A shop at pod 1 that is moved to pod 2 again and again, in vain.
struct Lane<'f> {
    points: &'f OwnFailPoints,
    control: ControlDoor,
    source: Server,
    target: Server,
    shop: Shop,
}

impl<'f> Lane<'f> {
    async fn new(fleet: &'f Fleet, points: &'f OwnFailPoints) -> Result<Self> {
        let shop = fleet.shop(1).await?;
        for title in ["One", "Two", "Three"] {
            shop.product(title, "10.00", 50).await?;
        }
        Ok(Self {
            points,
            control: ControlDoor::of(fleet).await?,
            source: fleet.primary(1).await?,
            target: fleet.primary(2).await?,
            shop,
        })
    }

    async fn order(&self) -> Result<MoveId> {
        let answer = self.control.order(self.shop.id, 2).await?;
        Ok(answer.wants(201)?.json::<tests::moves::Moving>()?.id)
    }

    async fn run(&self, place: &str, change: &str, then: Then<'_>) -> Result<()> {
        let shop = self.shop.id;
        self.points.set(shop, place, "stop")?;
        let id = self.order().await?;
        self.points.happens(shop, place, MOVED_MAX).await?;
        self.target
            .run(&change.replace("{shop}", &shop.to_string()))
            .await?;
        if let Then::IsKilled(fleet) = then {
            fleet.unit("control")?.kill().await?;
        }
        self.points.go_on(shop, place);
        let failed = self
            .control
            .reaches(id, &[MoveState::Failed], MOVED_MAX)
            .await?;
        let error = failed.error.clone().unwrap_or_default();
        ensure!(error.contains("product"), "it says {error:?}");
        // The source sells, and nothing is left once an operator gives it up.
        self.shop.product("One more", "1.00", 1).await?;
        self.control.tell(id, "abort").await?.wants(200)?;
        self.control
            .reaches(id, &[MoveState::Aborted], MOVED_MAX)
            .await?;
        ensure!(
            self.source.home(shop).await? == ("serving".to_owned(), 1),
            "the source's home"
        );
        wait_until("the target's rows are gone", MOVED_MAX, async || {
            let left = rows_left(&self.target, shop).await?;
            ensure!(left == 0, "{left} rows are left");
            let waits = self.control.of_shop(shop).await?;
            ensure!(waits.iter().all(|it| !it.state.is_open()), "an open move");
            Ok(())
        })
        .await
    }
}

/// A row is altered, dropped, added at the target by somebody who is not the mover, in each state until the target may
/// sell: the move fails and names the table. So it does where the mover that could have seen it is killed first.
async fn a_change_at_the_target_is_found_in_every_state(fleet: &Fleet) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    let found = found_everywhere(fleet, &points).await;
    fleet.without_own_failpoints(points).await?;
    found
}

async fn found_everywhere(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let each = |place| CHANGES.iter().map(move |change| (place, *change));
    let mut cases: Vec<(&str, &str)> = PLACES.into_iter().flat_map(each).collect();
    // There is nothing yet to alter or drop.
    cases.extend(CHANGES.last().map(|add| ("copy.before", *add)));
    let lanes = try_join_all((0..LANES).map(|_| Lane::new(fleet, points))).await?;
    let next = AtomicUsize::new(0);
    let running = lanes.iter().map(|lane| async {
        while let Some((place, change)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let ran = lane.run(place, change, Then::GoesOn).await;
            ran.with_context(|| format!("shop {}, {place}: {change}", lane.shop.id))?;
        }
        Ok::<_, anyhow::Error>(())
    });
    try_join_all(running).await?;
    // One at a time: all lanes have the same control server.
    let lane = lanes.first().context("a lane")?;
    for (place, change) in KILLED {
        let ran = lane.run(place, change, Then::IsKilled(fleet)).await;
        ran.with_context(|| format!("killed at {place}: {change}"))?;
    }
    Ok(())
}

/// Changes that are in no binlog are seen by nobody but the comparison: once they are put in order, and counted; what goes
/// on to make them ends the move, which names table, row and column.
async fn a_difference_without_a_trace_is_put_in_order_or_ends_the_move(
    fleet: &Fleet,
) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    let done = async {
        put_in_order(fleet, &points).await?;
        ends_the_move(fleet, &points).await
    };
    let done = done.await;
    fleet.without_own_failpoints(points).await?;
    done
}

/// Not a row that goes or comes: the target's replicas, which do not hear of it, would stop at its repair.
const UNSEEN: &str = "set sql_log_bin = 0; \
    update product set title = 'unseen', price = price + 1 where shop_id = {shop} order by product_id limit 2";

async fn put_in_order(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let lane = Lane::new(fleet, points).await?;
    let shop = lane.shop.id;
    points.set(shop, "compare.before", "stop")?;
    let id = fleet.order_move(&lane.shop, 2).await?;
    points.happens(shop, "compare.before", MOVED_MAX).await?;
    let unseen = UNSEEN.replace("{shop}", &shop.to_string());
    lane.target.run(&unseen).await?;
    points.go_on(shop, "compare.before");
    let moved = lane
        .control
        .reaches(id, &[MoveState::Observing], MOVED_MAX)
        .await?;
    let repaired = moved.took("repaired_rows");
    ensure!(repaired == Some(2), "{repaired:?} rows were repaired");
    same(&lane.source, &lane.target, shop).await?;
    fleet.finish_move(id).await.map(drop)
}

/// A trigger that was made behind the mover's back spoils each row that is written, its repair too.
const SPOILS: &str = "set sql_log_bin = 0; \
    create trigger spoils before {event} on product for each row set new.title = if(new.shop_id = {shop}, uuid(), new.title)";

async fn ends_the_move(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let lane = Lane::new(fleet, points).await?;
    let shop = lane.shop.id;
    points.set(shop, "compare.before", "stop")?;
    let id = fleet.order_move(&lane.shop, 2).await?;
    points.happens(shop, "compare.before", MOVED_MAX).await?;
    for event in ["insert", "update"] {
        let spoils = SPOILS.replace("spoils", &format!("spoils_{event}"));
        let spoils = spoils.replace("{event}", event);
        let spoils = spoils.replace("{shop}", &shop.to_string());
        lane.target.run(&spoils).await?;
    }
    let unseen = UNSEEN.replace("{shop}", &shop.to_string());
    lane.target.run(&unseen).await?;
    points.go_on(shop, "compare.before");
    let failed = lane
        .control
        .reaches(id, &[MoveState::Failed], MOVED_MAX)
        .await?;
    let unspoilt = "set sql_log_bin = 0; drop trigger spoils_insert; drop trigger spoils_update";
    lane.target.run(unspoilt).await?;
    let error = failed.error.clone().unwrap_or_default();
    for part in ["verification", "product", "title"] {
        ensure!(error.contains(part), "{part} is not in {error:?}");
    }
    lane.control.tell(id, "abort").await?.wants(200)?;
    lane.control
        .reaches(id, &[MoveState::Aborted], MOVED_MAX)
        .await
        .map(drop)
}

/// The rows of a shop are the same at both servers.
async fn same(one: &Server, other: &Server, shop: ShopId) -> Result<()> {
    let found = differences(&rows_of(one, shop).await?, &rows_of(other, shop).await?);
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
}

const SWAP: &str = "create table if not exists x_swap (shop_id bigint unsigned not null, id int not null, code varchar(9) null, n int not null, \
    primary key (shop_id, id), unique key code (shop_id, code))";
/// What happens to its rows; each is one transaction.
const SWAPS: [&str; 6] = [
    // Two rows change values; three pass them on.
    "set @a = floor(rand() * 200), @b = floor(rand() * 200); \
     set @x = (select code from x_swap where shop_id = {shop} and id = @a), @y = (select code from x_swap where shop_id = {shop} and id = @b); \
     update x_swap set code = null where shop_id = {shop} and id in (@a, @b); \
     update x_swap set code = @y where shop_id = {shop} and id = @a; \
     update ignore x_swap set code = @x, n = n + 1 where shop_id = {shop} and id = @b",
    "update x_swap set code = null where shop_id = {shop} and id between 10 and 12; \
     update ignore x_swap set code = concat('c', 10 + mod(id - 9, 3)), n = n + 1 where shop_id = {shop} and id between 10 and 12",
    "delete from x_swap where shop_id = {shop} and id = floor(20 + rand() * 180) limit 1",
    "insert ignore into x_swap values ({shop}, floor(20 + rand() * 180), concat('c', floor(rand() * 200)), 0)",
    // Every other one of the upper rows: the rest is there at the end, however many rounds there are.
    "delete from x_swap where shop_id = {shop} and id >= 1000 and mod(id, 2) = 0 order by id limit 3",
    "update ignore x_swap set id = id + 1, n = n + 1 where shop_id = {shop} and id between 150 and 160 order by id desc",
];

/// Two writers swap unique values, delete rows and bring others, while the control server is killed after the copy, after
/// catching up and after the comparison: each next one goes on where the target's mark stands. What was deleted stays
/// deleted.
async fn values_change_hands_and_rows_go_while_control_servers_are_killed(
    fleet: &Fleet,
) -> Result<()> {
    let (source, target) = (fleet.primary(1).await?, fleet.primary(2).await?);
    fleet.on_both(SWAP).await?;
    let points = fleet.with_own_failpoints().await?;
    let moved = swapped(fleet, &points, &source, &target).await;
    fleet.without_own_failpoints(points).await?;
    fleet.on_both("drop table x_swap").await?;
    moved
}

async fn swapped(
    fleet: &Fleet,
    points: &OwnFailPoints,
    source: &Server,
    target: &Server,
) -> Result<()> {
    /// Some rounds of both writers.
    const CHANGES: u64 = 60;
    let shop = fleet
        .shop_with_rows(
            "set cte_max_recursion_depth = 10000; insert into x_swap with recursive n as (select 0 i union all select i + 1 from n where i < 3000) \
             select {shop}, i, concat('c', i), 0 from n where i < 200 or i >= 1000",
        )
        .await?;
    for place in ["copy.after", "catch-up.after", "compare.after"] {
        points.set(shop.id, place, "kill")?;
    }
    points.set(shop.id, "compare.before", "stop")?;
    let written = Written::default();
    let moving = async {
        let control = ControlDoor::of(fleet).await?;
        let id = fleet.order_move(&shop, 2).await?;
        points.happens(shop.id, "compare.before", MOVED_MAX).await?;
        written.reaches(CHANGES, MOVED_MAX).await?;
        points.go_on(shop.id, "compare.before");
        control
            .reaches(id, &[MoveState::Observing], MOVED_MAX)
            .await
    };
    let write = || write_until_fenced(source, shop.id, &SWAPS, PAUSE, &written);
    let ((), (), moving) = tokio::try_join!(write(), write(), moving)?;
    for place in ["copy.after", "catch-up.after", "compare.after"] {
        ensure!(points.go_on(shop.id, place), "{place} was not reached");
    }
    ensure!(
        moving.owner >= 4,
        "taken up by {} movers only",
        moving.owner
    );
    let rows = source.rows("x_swap", shop.id).await?;
    ensure!(rows >= 1_000, "{rows} rows are left to look at");
    same(source, target, shop.id).await?;
    fleet.finish_move(moving.id).await.map(drop)
}

async fn a_large_table_under_writes_is_the_same_to_the_byte(fleet: &Fleet) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    let size = Size {
        rows: 20_000,
        pause: PAUSE,
        moved_max: MOVED_MAX,
    };
    let moved = Box::pin(large::run(fleet, &points, size)).await;
    fleet.without_own_failpoints(points).await?;
    moved
}

async fn two_million_rows_under_writes_are_the_same_to_the_byte() -> Result<()> {
    /// A machine that does other things too copies some thousand rows a second.
    const HOURS: Duration = Duration::from_secs(80 * 60);
    /// Three writers that go as fast as they can change more of such rows than two cores also bring over: that no such move
    /// ends is another test's.
    const SLOW: Duration = Duration::from_millis(50);
    let fleet = Fleet::start().await?;
    // Rows come in a thousand places of each tree at once: a pool of 64 MiB does not hold them, and the disk would be
    // measured.
    for pod in [1, 2] {
        for server in fleet
            .replicas(pod)
            .await?
            .iter()
            .chain([&fleet.primary(pod).await?])
        {
            server
                .run("set global innodb_buffer_pool_size = 512 * 1024 * 1024")
                .await?;
        }
    }
    // Six copies of some gigabytes, with their binlogs, are what a small disk just holds; and the writers shall not slow the
    // move down, which is another test's.
    let points = fleet
        .with_own_failpoints_and_moves(&[("disk_free_min_percent", 1), ("nice_ratio", 0)])
        .await?;
    let size = Size {
        rows: 2_000_000,
        pause: SLOW,
        moved_max: HOURS,
    };
    let moved = Box::pin(large::run(&fleet, &points, size)).await;
    fleet.without_own_failpoints(points).await?;
    fleet.stop().await?;
    moved
}
