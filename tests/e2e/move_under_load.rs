//! Shops that move while they sell: nobody notices, whatever is killed nothing is lost or doubled, and what a move leaves
//! behind is what it took along.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::{try_join, try_join_all};
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::fleet::{RECOVER_MAX, say};
use tests::moves::{ControlDoor, MOVED_MAX, Moving, differences, rows_left, rows_of, rows_rest};
use tests::own_edge::OwnEdge;
use tests::suite::Test;
use tests::trade::{CREW, Closed, Crew, Trade};
use tests::{Fleet, Server, Shop, metrics, tests, wait_until};

// The same through an edge that knows of none of it.
mod old_edge;
use old_edge::inv4_an_edge_with_a_table_from_before_two_moves_sends_nobody_astray;
// The same with kills.
mod kills;
use kills::{
    an_hour_of_moves_and_kills_loses_and_doubles_nothing,
    inv3_a_control_server_killed_in_each_state_of_a_move_is_not_noticed,
    inv3_kills_at_random_during_moves_lose_and_double_nothing,
};

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: inv3_inv11_a_shop_moves_back_and_forth_under_load_and_nobody_notices,
            shops_that_are_empty_idle_or_only_read_move_as_they_are,
            inv3_a_target_starts_from_what_its_source_had_at_the_fence,
            inv3_two_shops_pass_each_other_under_load,
            inv4_an_edge_with_a_table_from_before_two_moves_sends_nobody_astray,
            inv3_a_control_server_killed_in_each_state_of_a_move_is_not_noticed,
            inv3_kills_at_random_during_moves_lose_and_double_nothing;
        long: an_hour_of_moves_and_kills_loses_and_doubles_nothing;
    ]
}

/// Ten times there or back.
const TRIPS: u32 = 10;

/// Clients of shops that stay: two cores are there for the one that moves.
const NEIGHBOURS: Crew = Crew {
    pause: Duration::from_millis(150),
    ..CREW
};

/// Acts of a shop's clients between two orders of an operator: each of them has done something by then.
const SOME: usize = 12;

/// Acts of a trade that is to leave rows of every kind behind.
const MANY: usize = 100;

/// A move that meets kill after kill: each costs it a restart of what it leans on, a takeover, and what was compared.
const MOVED_WITH_KILLS_MAX: Duration = Duration::from_secs(270);

/// The pod that a shop goes to from one of two.
const fn other(pod: u32) -> u32 {
    3 - pod
}

/// Ends trades, and says what they were.
async fn close(trades: impl IntoIterator<Item = Trade>, kills: bool) -> Result<Vec<Closed>> {
    let mut closed = Vec::new();
    for trade in trades {
        closed.push(trade.stop().await?);
    }
    for one in &closed {
        say(&format!("  {}", one.figures()));
        one.must_be_sound(kills)?;
    }
    Ok(closed)
}

fn has_no_strays(moving: &Moving) -> Result<()> {
    ensure!(moving.strays.is_empty(), "strays: {:?}", moving.strays);
    Ok(())
}

/// A shop with its whole trade goes to pod 2 and comes back, ten times in all: by turns taken back while its old copy is
/// observed, and moved anew after that copy was deleted. Its clients, and those of a neighbour at either pod, get nothing
/// but 2xx and the 4xx that they asked for; no order is missing or doubled, stock is conserved, strong reads and sessions
/// are as they must be.
async fn inv3_inv11_a_shop_moves_back_and_forth_under_load_and_nobody_notices(
    fleet: &Fleet,
) -> Result<()> {
    let shops = [
        fleet.shop(1).await?,
        fleet.shop(1).await?,
        fleet.shop(2).await?,
    ];
    let [moves, near, far] = &shops;
    let trades = [
        Trade::start(moves, CREW).await?,
        Trade::start(near, NEIGHBOURS).await?,
        Trade::start(far, NEIGHBOURS).await?,
    ];
    let mut fences = Vec::new();
    let mut before: Option<Moving> = None;
    for trip in 0..TRIPS {
        trades[0].goes_on(SOME, MOVED_MAX).await?;
        let to = if trip % 2 == 0 { 2 } else { 1 };
        let moving = fleet
            .move_shop(moves, to)
            .await
            .with_context(|| format!("trip {trip} to pod {to}"))?;
        fences.push(moving.took("fence_ms"));
        ensure!(
            fleet.owner(moves).await? == (to, moving.epoch.get()),
            "trip {trip}: {:?} owns it",
            fleet.owner(moves).await?
        );
        let taken_back = before.as_ref().map(|before| before.id);
        ensure!(
            moving.back_of == taken_back,
            "trip {trip}: back of {:?}, not {taken_back:?}",
            moving.back_of
        );
        trades[0].goes_on(SOME, MOVED_MAX).await?;
        // Trips 1, 2, 5, 6, 9: the copy is deleted; the others are taken back from it.
        before = match trip % 4 {
            1 | 2 => {
                let done = fleet.finish_move(moving.id).await?;
                has_no_strays(&done)?;
                None
            }
            _ => Some(moving),
        };
    }
    if let Some(last) = before {
        fleet.finish_move(last.id).await?;
    }
    say(&format!("  fences of {TRIPS} moves, ms: {fences:?}"));
    close(trades, false).await.map(drop)
}

/// A shop without a product, one with orders and no traffic, and one that is only read: each goes to the other pod, where
/// it has the rows that it had, to the byte, which its source keeps; comes back; and leaves no row behind when that is over.
async fn shops_that_are_empty_idle_or_only_read_move_as_they_are(fleet: &Fleet) -> Result<()> {
    let (empty, idle, read) = (
        fleet.shop(1).await?,
        fleet.shop(1).await?,
        fleet.shop(1).await?,
    );
    let traded = async |shop: &Shop| {
        let trade = Trade::start(shop, CREW).await?;
        trade.goes_on(MANY, MOVED_MAX).await?;
        close([trade], false).await
    };
    try_join(traded(&idle), traded(&read)).await?;
    let readers = Crew {
        buyers: 0,
        clerk: false,
        readers: 3,
        ..CREW
    };
    let reading = Trade::start(&read, readers).await?;
    let servers = [fleet.primary(1).await?, fleet.primary(2).await?];
    let trips = [&empty, &idle, &read].map(|shop| there_and_back(fleet, shop, &servers));
    try_join_all(trips).await?;
    reading.goes_on(SOME, MOVED_MAX).await?;
    close([reading], false).await.map(drop)
}

/// A shop whose rows nobody changes goes to the other pod and comes back.
async fn there_and_back(fleet: &Fleet, shop: &Shop, servers: &[Server; 2]) -> Result<()> {
    let [source, target] = servers;
    rows_rest(source, shop.id, RECOVER_MAX).await?;
    let before = rows_of(source, shop.id).await?;
    let there = fleet.move_shop(shop, 2).await?;
    for (what, server) in [
        ("kept at the source", source),
        ("brought to the target", target),
    ] {
        let found = differences(&before, &rows_of(server, shop.id).await?);
        ensure!(found.is_empty(), "{}: {what}: {found:?}", shop.handle);
    }
    let back = fleet.move_shop(shop, 1).await?;
    ensure!(back.back_of == Some(there.id), "it is not a move back");
    fleet.finish_move(back.id).await?;
    let found = differences(&before, &rows_of(source, shop.id).await?);
    ensure!(
        found.is_empty(),
        "{}: after its return: {found:?}",
        shop.handle
    );
    let left = rows_left(target, shop.id).await?;
    ensure!(left == 0, "{}: {left} rows are left behind", shop.handle);
    Ok(())
}

/// Under load a move is stopped for a moment when its target is ready and nobody sells there yet: both pods have the same
/// rows, to the byte. The source keeps them as they were, whatever is sold at the target. Nobody notices the stop but by
/// waiting, and for how long is in the move's record. (The edge here is one that waits for the reader of all rows.)
async fn inv3_a_target_starts_from_what_its_source_had_at_the_fence(fleet: &Fleet) -> Result<()> {
    let own = OwnEdge::start_patient(fleet).await?;
    let shop = own.shows(&fleet.shop(1).await?).await?;
    let trade = Trade::start(&shop, CREW).await?;
    let points = fleet.with_own_failpoints().await?;
    let trips = async {
        points.have_patience(shop.id)?;
        // There, back, and there again.
        for to in [2, 1, 2] {
            let stopped = stopped_when_ready(fleet, &points, &own, &trade, (&shop, to)).await;
            stopped.with_context(|| format!("to pod {to}"))?;
        }
        Ok(())
    };
    let trips: Result<()> = trips.await;
    fleet.without_own_failpoints(points).await?;
    trips?;
    close([trade], false).await?;
    settled(&ControlDoor::of(fleet).await?, &shop, MOVED_WITH_KILLS_MAX).await
}

async fn stopped_when_ready(
    fleet: &Fleet,
    points: &OwnFailPoints,
    own: &OwnEdge,
    trade: &Trade,
    (shop, to): (&Shop, u32),
) -> Result<()> {
    const PLACE: &str = "ready.after";
    let (source, target) = (fleet.primary(other(to)).await?, fleet.primary(to).await?);
    let control = ControlDoor::of(fleet).await?;
    trade.goes_on(SOME, MOVED_MAX).await?;
    points.set(shop.id, PLACE, "stop")?;
    let id = fleet.order_move(shop, to).await?;
    points.happens(shop.id, PLACE, MOVED_MAX).await?;
    wait_until("somebody waits", MOVED_MAX, async || {
        let parked = metrics::total(&own.admin, "podhost_edge_parked").await?;
        ensure!(parked > 0.5, "nobody is parked");
        Ok(())
    })
    .await?;
    let since = Instant::now();
    let (kept, arrived) = try_join(rows_of(&source, shop.id), rows_of(&target, shop.id)).await?;
    let held = since.elapsed();
    points.go_on(shop.id, PLACE);
    let moved = control
        .reaches(id, &[MoveState::Observing], MOVED_MAX)
        .await?;
    has_no_strays(&moved)?;
    let tries = moved.took("fence_tries");
    ensure!(tries == Some(1), "{tries:?} fences: {}", moved.words());
    let found = differences(&kept, &arrived);
    ensure!(found.is_empty(), "{found:?}");
    parks_are_told(&control, id, held).await?;
    trade.goes_on(SOME, MOVED_MAX).await?;
    let found = differences(&kept, &rows_of(&source, shop.id).await?);
    ensure!(found.is_empty(), "the source's copy has changed: {found:?}");
    Ok(())
}

/// What the edge parked stands in the move's record: it tells it once the requests have gone on.
async fn parks_are_told(control: &ControlDoor, id: MoveId, held: Duration) -> Result<()> {
    let what = "the edge has told what it parked";
    wait_until(what, RECOVER_MAX, async || {
        let moving = control.show(id).await?;
        let parked = moving.took("requests_parked");
        ensure!(parked >= Some(1), "{parked:?} were parked");
        let longest = moving.took("longest_park_ms").map(Duration::from_millis);
        // One was parked before, and all the while.
        ensure!(longest >= Some(held), "{longest:?} of {held:?}");
        Ok(())
    })
    .await
}

/// Two shops change places, at once, and back: each pod is source and target at the same time.
async fn inv3_two_shops_pass_each_other_under_load(fleet: &Fleet) -> Result<()> {
    let (a, b) = (fleet.shop(1).await?, fleet.shop(2).await?);
    let trades = [Trade::start(&a, CREW).await?, Trade::start(&b, CREW).await?];
    for (a_to, b_to) in [(2, 1), (1, 2)] {
        for trade in &trades {
            trade.goes_on(SOME, MOVED_MAX).await?;
        }
        let (a_moved, b_moved) = tokio::join!(fleet.move_shop(&a, a_to), fleet.move_shop(&b, b_to));
        has_no_strays(&a_moved?)?;
        has_no_strays(&b_moved?)?;
        ensure!(fleet.owner(&a).await?.0 == a_to && fleet.owner(&b).await?.0 == b_to);
    }
    close(trades, false).await?;
    let control = ControlDoor::of(fleet).await?;
    let settle = |shop| settled(&control, shop, MOVED_WITH_KILLS_MAX);
    try_join(settle(&a), settle(&b)).await.map(drop)
}

/// Finishes a move, however often the control server is killed meanwhile.
async fn ended(control: &ControlDoor, id: MoveId, deadline: Duration) -> Result<()> {
    wait_until("a move is over", deadline, async || {
        let now = control.show(id).await?;
        match now.state {
            MoveState::Done => return Ok(()),
            MoveState::Observing => drop(control.tell(id, "finish").await),
            MoveState::Failed => drop(control.tell(id, "resume").await),
            MoveState::Preparing
            | MoveState::Copying
            | MoveState::CatchingUp
            | MoveState::Verifying
            | MoveState::Fenced
            | MoveState::Cutover
            | MoveState::Retiring
            | MoveState::Paused
            | MoveState::Aborting
            | MoveState::Aborted => {}
        }
        bail!("{}", now.words())
    })
    .await
}

/// No move of a shop is left that holds anything: for tests that come after on the same fleet.
async fn settled(control: &ControlDoor, shop: &Shop, deadline: Duration) -> Result<()> {
    for moving in control.of_shop(shop.id).await? {
        match moving.state {
            MoveState::Observing | MoveState::Retiring => {
                ended(control, moving.id, deadline).await?
            }
            MoveState::Done | MoveState::Aborted => {}
            MoveState::Preparing
            | MoveState::Copying
            | MoveState::CatchingUp
            | MoveState::Verifying
            | MoveState::Fenced
            | MoveState::Cutover
            | MoveState::Paused
            | MoveState::Aborting
            | MoveState::Failed => bail!("left behind: {}", moving.words()),
        }
    }
    Ok(())
}
