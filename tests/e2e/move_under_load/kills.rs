//! The same with kills: of the control server in each state of a move, and of anything at any moment.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use shared::moves::{MoveId, MoveState};
use tests::fleet::{RECOVER_MAX, say};
use tests::killer::{self, Killer, SEED};
use tests::moves::{ControlDoor, MOVED_MAX, Moving};
use tests::own_edge::OwnEdge;
use tests::trade::{CREW, Crew, Trade};
use tests::{Fleet, Shop, wait_until};

use super::{MOVED_WITH_KILLS_MAX, SOME, close, ended, has_no_strays, other, settled};

/// A time in which anything is killed while shops move.
#[derive(Clone, Copy)]
struct Kills {
    how_long: Duration,
    /// Between two kills, from and to.
    pauses: (Duration, Duration),
    /// Who trades at each shop.
    crew: Crew,
    /// What a move may take.
    moved_max: Duration,
}

/// The short test: after it moves end in peace.
const SHORT: Kills = Kills {
    how_long: Duration::from_secs(30),
    pauses: (Duration::from_millis(1_500), Duration::from_secs(6)),
    crew: Crew { buyers: 4, ..CREW },
    moved_max: MOVED_WITH_KILLS_MAX,
};

/// The long one, for as long as [`SOAK`] says if it is set. Moves must arrive between its kills. All that its shops sell in an
/// hour is copied, compared and deleted again and again, with rests beside shops that sell: so they trade slower, and a move
/// may take longer in the end.
const LONG: Kills = Kills {
    how_long: Duration::from_secs(3_600),
    pauses: (Duration::from_secs(2), Duration::from_secs(14)),
    crew: Crew {
        buyers: 4,
        pause: Duration::from_millis(150),
        ..CREW
    },
    moved_max: Duration::from_secs(900),
};

/// Seconds for which the long one kills.
const SOAK: &str = "PODHOST_TEST_SOAK";

/// States in which the control server is killed, and where a move is held for that: a quick one would be in the next by the
/// time that the signal comes.
const KILLED_IN: [(MoveState, &str); 7] = [
    (MoveState::Preparing, "prepared.before"),
    (MoveState::Copying, "copied.before"),
    (MoveState::CatchingUp, "caught-up.before"),
    (MoveState::Verifying, "verified.before"),
    (MoveState::Fenced, "followed.before"),
    (MoveState::Cutover, "ready.before"),
    (MoveState::Observing, "handed-over.after"),
];

/// How long the control server stays away: longer than its supervisor needs. Not where requests are parked.
const AWAY: Duration = Duration::from_millis(1_500);

/// The control server, which is the mover and the catalog, is killed while a move is in each state, and stays away for some
/// time: shops sell meanwhile, and the one that takes up the move brings it to its end. No client notices. (The shop's edge
/// waits for as long as this machine needs to kill and to start; the window of others is not what is tested.)
pub(super) async fn inv3_a_control_server_killed_in_each_state_of_a_move_is_not_noticed(
    fleet: &Fleet,
) -> Result<()> {
    let own = OwnEdge::start_patient(fleet).await?;
    let shop = own.shows(&fleet.shop(1).await?).await?;
    let near = fleet.shop(2).await?;
    let points = fleet.with_own_failpoints().await?;
    points.have_patience(shop.id)?;
    let control = ControlDoor::of(fleet).await?;
    let trades = [
        Trade::start(&shop, CREW).await?,
        Trade::start(&near, CREW).await?,
    ];
    let mut pod = 1;
    for (state, place) in KILLED_IN {
        trades[0].goes_on(SOME, MOVED_MAX).await?;
        pod = other(pod);
        points.set(shop.id, place, "stop")?;
        let id = begun(&control, &shop, pod).await?;
        points.happens(shop.id, place, MOVED_MAX).await?;
        let held = control.show(id).await?;
        ensure!(held.state == state, "held at {place}: {}", held.words());
        fleet.kill_and_hold_down("control").await?;
        // A shop that was caught inside of its fence waits at the edge until somebody takes up its move.
        let waits = matches!(state, MoveState::Fenced | MoveState::Cutover);
        if !waits {
            for trade in &trades {
                trade
                    .goes_on(10, RECOVER_MAX)
                    .await
                    .context("without the catalog")?;
            }
            tokio::time::sleep(AWAY).await;
        }
        fleet.let_up("control").await?;
        if waits {
            let neighbour = trades[1].goes_on(10, RECOVER_MAX).await;
            neighbour.context("beside a shop that waits")?;
        }
        let moved = control.reaches(id, &[MoveState::Observing], MOVED_MAX);
        has_no_strays(
            &moved
                .await
                .with_context(|| format!("killed in {}", state.as_str()))?,
        )?;
        points.go_on(shop.id, place);
        if state != MoveState::Copying {
            fleet.finish_move(id).await?;
        }
    }
    fleet.without_own_failpoints(points).await?;
    close(trades, false).await.map(drop)
}

/// Orders a move at the control server, without a process of `podctl` that would take longer than the move's first state.
async fn begun(control: &ControlDoor, shop: &Shop, to: u32) -> Result<MoveId> {
    let answer = control.order(shop.id, to).await?;
    ensure!(
        [200, 201, 202].contains(&answer.status),
        "{} {}",
        answer.status,
        answer.text()
    );
    Ok(answer.json::<Moving>()?.id)
}

/// Half a minute in which anything that moves lean on is killed at random, again and again, while a shop goes back and forth
/// under load and its neighbours trade: no acknowledged order is missing or doubled, and nobody gets anything but answers
/// and 503 with `Retry-After`, or finds the connection cut.
pub(super) async fn inv3_kills_at_random_during_moves_lose_and_double_nothing(
    fleet: &Fleet,
) -> Result<()> {
    kills_at_random(fleet, SHORT).await
}

/// The same for an hour, with a fleet of its own.
pub(super) async fn an_hour_of_moves_and_kills_loses_and_doubles_nothing() -> Result<()> {
    let how_long = match std::env::var(SOAK) {
        Ok(text) => Duration::from_secs(text.parse().with_context(|| format!("{SOAK}={text}"))?),
        Err(_) => LONG.how_long,
    };
    let fleet = Fleet::start().await?;
    kills_at_random(&fleet, Kills { how_long, ..LONG }).await?;
    fleet.stop().await
}

async fn kills_at_random(fleet: &Fleet, kills: Kills) -> Result<()> {
    let seed = killer::seed()?;
    let killed = kills_with(fleet, kills, seed).await;
    killed.with_context(|| format!("the same kills again: {SEED}={seed}"))
}

async fn kills_with(fleet: &Fleet, kills: Kills, seed: u64) -> Result<()> {
    let shops = [
        fleet.shop(1).await?,
        fleet.shop(2).await?,
        fleet.shop(1).await?,
        fleet.shop(2).await?,
    ];
    let control = ControlDoor::of(fleet).await?;
    let mut trades = Vec::new();
    for shop in &shops {
        trades.push(Trade::start(shop, kills.crew).await?);
    }
    let until = Instant::now() + kills.how_long;
    let wander = async {
        // Two shops, as a rule in opposite directions; the other two are their neighbours.
        let (one, two) = tokio::join!(
            wander(&control, &shops[0], 1, (until, kills.moved_max), seed),
            wander(&control, &shops[1], 2, (until, kills.moved_max), !seed)
        );
        Ok((one?, two?))
    };
    let killer = Killer::of_everything(seed, kills.pauses, until);
    let ((one, two), killed) = killer.during(fleet, wander).await?;
    say(&format!(
        "  {} kills; moves: {one:?} and {two:?}",
        killed.len()
    ));
    fleet.restore().await?;
    for shop in &shops[..2] {
        settled(&control, shop, kills.moved_max).await?;
    }
    for trade in &trades {
        trade
            .goes_on(SOME, RECOVER_MAX)
            .await
            .context("after the kills")?;
    }
    close(trades, true).await.map(drop)
}

/// How the moves of a shop that met kills ended.
#[derive(Debug, Default)]
struct Trips {
    arrived: u32,
    aborted: u32,
    resumed: u32,
}

/// Moves a shop to the other pod again and again. A move may fail for what was killed: then its operator resumes or aborts it.
async fn wander(
    control: &ControlDoor,
    shop: &Shop,
    pod: u32,
    (until, moved_max): (Instant, Duration),
    seed: u64,
) -> Result<Trips> {
    let (mut pod, mut trips) = (pod, Trips::default());
    let mut dice = StdRng::seed_from_u64(seed);
    while Instant::now() < until {
        let deadline = Instant::now() + moved_max;
        let id = wait_until("a move is begun", moved_max, async || {
            begun_or_open(control, shop, other(pod)).await
        })
        .await?;
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            ensure!(
                Instant::now() < deadline,
                "no end in sight: {}",
                control
                    .show(id)
                    .await
                    .map_or_else(|e| format!("{e:#}"), |it| it.words())
            );
            let Ok(now) = control.show(id).await else {
                continue;
            };
            match now.state {
                MoveState::Observing => {
                    has_no_strays(&now)?;
                    pod = other(pod);
                    trips.arrived += 1;
                    if dice.random_bool(0.5) {
                        ended(control, id, moved_max).await?;
                    }
                    break;
                }
                MoveState::Aborted => {
                    trips.aborted += 1;
                    break;
                }
                MoveState::Failed | MoveState::Paused => {
                    let order = if dice.random_bool(0.7) {
                        "resume"
                    } else {
                        "abort"
                    };
                    // Whatever it says; the next look shows what became of it.
                    drop(control.tell(id, order).await);
                    trips.resumed += u32::from(order == "resume");
                }
                MoveState::Done => bail!("ended by whom? {}", now.words()),
                MoveState::Preparing
                | MoveState::Copying
                | MoveState::CatchingUp
                | MoveState::Verifying
                | MoveState::Fenced
                | MoveState::Cutover
                | MoveState::Retiring
                | MoveState::Aborting => {}
            }
        }
    }
    Ok(trips)
}

/// Begins a move; an order whose answer was lost has begun one that is there.
async fn begun_or_open(control: &ControlDoor, shop: &Shop, to: u32) -> Result<MoveId> {
    let going = |moving: &&Moving| {
        moving.state.is_open()
            && moving.target.id == u64::from(to)
            && !matches!(moving.state, MoveState::Observing | MoveState::Retiring)
    };
    if let Some(open) = control.of_shop(shop.id).await?.iter().find(going) {
        return Ok(open.id);
    }
    begun(control, shop, to).await
}
