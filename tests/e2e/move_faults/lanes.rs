//! Shops that move side by side on one fleet, each held in another state of its move, while they trade.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use serde::Deserialize;
use serde_json::json;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::fleet::say;
use tests::moves::{ControlDoor, Moving, rows_left};
use tests::own_edge::OwnEdge;
use tests::trade::{Crew, Trade};
use tests::{Call, Fleet, Server, Shop, wait_until};
use toml::Value;

/// A move of some that go on at once, some of them after a fault, on a machine that has more to do.
pub(super) const ARRIVES_MAX: Duration = Duration::from_secs(300);

/// Words of `control.toml` with which all lanes may be where they are held at the same time, and fences have as much time as
/// may be.
fn moves() -> [(&'static str, Value); 5] {
    [
        ("moves_per_pod", 32.into()),
        ("moves_max", 32.into()),
        ("fences_max", 16.into()),
        ("fence_bound", "6s".into()),
        ("pause_bound", "7s".into()),
    ]
}

/// A buyer and a clerk of each shop, slow ones: with nine shops that leaves a small machine room for the moves.
const CREW: Crew = Crew {
    buyers: 1,
    clerk: true,
    readers: 0,
    pause: Duration::from_millis(400),
};

/// Where a move waits that is to be held inside of its fence, until all others are held.
const DOOR: &str = "verified.before";

/// Where a lane's move is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Preparing,
    Copying,
    CatchingUp,
    Verifying,
    Fenced,
    Cutover,
    /// In `cutover` too, but the target owns the shop.
    Switched,
    Observing,
    Retiring,
}

impl Held {
    pub(super) const ALL: [Self; 9] = [
        Self::Preparing,
        Self::Copying,
        Self::CatchingUp,
        Self::Verifying,
        Self::Fenced,
        Self::Cutover,
        Self::Switched,
        Self::Observing,
        Self::Retiring,
    ];

    /// The fail point that holds it; a state that lasts needs none.
    pub(super) const fn place(self) -> Option<&'static str> {
        match self {
            Self::Preparing => Some("incoming.before"),
            Self::Copying => Some("copied.before"),
            Self::CatchingUp => Some("caught-up.before"),
            Self::Verifying => Some(DOOR),
            Self::Fenced => Some("followed.before"),
            // Between this and the catalog's step both pods are needed once more.
            Self::Cutover => Some("ready.before"),
            Self::Switched => Some("serving.before"),
            Self::Observing => None,
            Self::Retiring => Some("delete.before"),
        }
    }

    pub(super) const fn state(self) -> MoveState {
        match self {
            Self::Preparing => MoveState::Preparing,
            Self::Copying => MoveState::Copying,
            Self::CatchingUp => MoveState::CatchingUp,
            Self::Verifying => MoveState::Verifying,
            Self::Fenced => MoveState::Fenced,
            Self::Cutover | Self::Switched => MoveState::Cutover,
            Self::Observing => MoveState::Observing,
            Self::Retiring => MoveState::Retiring,
        }
    }

    /// Whether its writes wait, and it has patience only until all are held: so a slow machine has them inside at once.
    const fn inside(self) -> bool {
        matches!(self, Self::Fenced | Self::Cutover | Self::Switched)
    }

    /// Whether the target owns the shop.
    pub(super) const fn switched(self) -> bool {
        matches!(self, Self::Switched | Self::Observing | Self::Retiring)
    }
}

/// A shop with its trade and its move.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) held: Held,
    pub(super) shop: Shop,
    pub(super) trade: Trade,
    id: Option<MoveId>,
}

impl Lane {
    pub(super) fn id(&self) -> Result<MoveId> {
        self.id.context("no move was begun")
    }

    /// Its first stop on the way to where it is held.
    const fn first(&self) -> Option<&'static str> {
        if self.held.inside() {
            Some(DOOR)
        } else {
            self.held.place()
        }
    }
}

/// All lanes.
#[derive(Debug)]
pub(super) struct Lanes<'f> {
    pub(super) fleet: &'f Fleet,
    pub(super) control: ControlDoor,
    pub(super) points: OwnFailPoints,
    pub(super) lanes: Vec<Lane>,
    /// For those whose clients are to notice nothing.
    _edge: Option<OwnEdge>,
}

/// Does something with a lane for each of these, and checks their histories. The control server runs as before afterwards,
/// whatever happened: other tests come on the same fleet.
pub(super) async fn on_lanes<'f>(
    fleet: &'f Fleet,
    held: &[Held],
    kills: bool,
    body: impl AsyncFnOnce(&mut Lanes<'f>) -> Result<()>,
) -> Result<()> {
    on_lanes_told(fleet, held, |_| kills, body).await
}

/// The same where it depends on the lane whether its clients may be told of an outage. Those who may not trade through an
/// edge that parks their requests for as long as the lanes are held.
pub(super) async fn on_lanes_told<'f>(
    fleet: &'f Fleet,
    held: &[Held],
    told: impl Fn(Held) -> bool,
    body: impl AsyncFnOnce(&mut Lanes<'f>) -> Result<()>,
) -> Result<()> {
    let mut lanes = Lanes::start(fleet, held, &told).await?;
    let ended = body(&mut lanes).await;
    let Lanes {
        points,
        lanes,
        _edge,
        ..
    } = lanes;
    let ended = match ended {
        Ok(()) => close(lanes, told).await,
        Err(error) => Err(error),
    };
    // A control server that a failed test left down does not hide why it failed.
    let restored = fleet.without_own_failpoints(points).await;
    ended.and(restored)
}

/// Ends the trades; their histories must be sound.
async fn close(lanes: Vec<Lane>, told: impl Fn(Held) -> bool) -> Result<()> {
    let told = &told;
    let closed = try_join_all(lanes.into_iter().map(|lane| async move {
        let closed = lane.trade.stop().await?;
        say(&format!("  {:?}: {}", lane.held, closed.figures()));
        let sound = closed.must_be_sound(told(lane.held));
        sound.with_context(|| format!("held {:?}", lane.held))
    }));
    closed.await.map(drop)
}

impl<'f> Lanes<'f> {
    /// Makes the shops at pod 1; they trade from now on.
    async fn start(fleet: &'f Fleet, held: &[Held], told: &impl Fn(Held) -> bool) -> Result<Self> {
        let points = fleet.with_own_failpoints_and_moves(&moves()).await?;
        let edge = if held.iter().all(|held| told(*held)) {
            None
        } else {
            Some(OwnEdge::start_patient(fleet).await?)
        };
        let mut lanes = Vec::new();
        for held in held {
            let mut shop = fleet.shop(1).await?;
            if let Some(edge) = edge.as_ref().filter(|_| !told(*held)) {
                shop = edge.shows(&shop).await?;
            }
            lanes.push(Lane {
                held: *held,
                // Nothing is broken yet: its first writes succeed at the first try.
                trade: Trade::start(&shop, CREW).await?,
                shop,
                id: None,
            });
        }
        Ok(Self {
            fleet,
            control: ControlDoor::of(fleet).await?,
            points,
            lanes,
            _edge: edge,
        })
    }

    /// Begins a move of each shop and waits until each is held where it shall be.
    pub(super) async fn hold(&mut self, to: u32) -> Result<()> {
        for lane in &mut self.lanes {
            if let Some(place) = lane.first() {
                self.points.set(lane.shop.id, place, "stop")?;
            }
            if lane.held.inside() {
                self.points.have_patience(lane.shop.id)?;
            }
            let observe_ms = if lane.held == Held::Retiring {
                0
            } else {
                3_600_000
            };
            let body = json!({"shop": lane.shop.id.to_string(), "to": to.to_string(), "observe_ms": observe_ms});
            let answer = self.control.send(Call::post("/v1/moves").json(&body));
            lane.id = Some(answer.await?.wants(201)?.json::<Moving>()?.id);
        }
        for lane in &self.lanes {
            match lane.first() {
                Some(place) => {
                    let happens = self.points.happens(lane.shop.id, place, ARRIVES_MAX);
                    happens.await.with_context(|| format!("{:?}", lane.held))?;
                }
                None => drop(self.reaches(lane, MoveState::Observing).await?),
            }
        }
        self.are_there(|held| !held.inside()).await?;
        self.go_inside().await?;
        self.are_there(Held::inside).await
    }

    async fn are_there(&self, which: impl Fn(Held) -> bool) -> Result<()> {
        for lane in self.lanes.iter().filter(|lane| which(lane.held)) {
            let moving = self.control.show(lane.id()?).await?;
            ensure!(
                moving.state == lane.held.state(),
                "{:?}: {}",
                lane.held,
                moving.words()
            );
        }
        Ok(())
    }

    /// The rest of the way, at once for all that may stay there for a moment only.
    async fn go_inside(&self) -> Result<()> {
        let inside = self.lanes.iter().filter(|lane| lane.held.inside());
        try_join_all(inside.map(|lane| async {
            let place = lane.held.place().context("a place")?;
            self.points.set(lane.shop.id, place, "stop")?;
            self.points.go_on(lane.shop.id, DOOR);
            self.points
                .happens(lane.shop.id, place, ARRIVES_MAX)
                .await?;
            // The run that stands there has it; those after the fault have their bounds.
            self.points.lose_patience(lane.shop.id)
        }))
        .await
        .map(drop)
    }

    /// Lets all of them go on.
    pub(super) fn go_on(&self) {
        for lane in &self.lanes {
            if let Some(place) = lane.held.place() {
                self.points.go_on(lane.shop.id, place);
            }
        }
    }

    pub(super) async fn reaches(&self, lane: &Lane, state: MoveState) -> Result<Moving> {
        self.control
            .reaches(lane.id()?, &[state], ARRIVES_MAX)
            .await
            .with_context(|| format!("held {:?}", lane.held))
    }

    /// Waits until each of these moves is over, with the source's copy deleted: the shop is whole at the target, sells
    /// there, and its source keeps a mark and nothing else.
    pub(super) async fn arrive(&self, to: u32, which: impl Fn(Held) -> bool) -> Result<()> {
        let servers = [self.fleet.primary(1).await?, self.fleet.primary(2).await?];
        let (source, target) = match to {
            1 => (&servers[1], &servers[0]),
            _ => (&servers[0], &servers[1]),
        };
        let lanes = self.lanes.iter().filter(|lane| which(lane.held));
        try_join_all(lanes.map(|lane| async {
            let ended = self.arrives(lane, source, target).await;
            ended.with_context(|| format!("held {:?}, shop {}", lane.held, lane.shop.id))
        }))
        .await
        .map(drop)
    }

    async fn arrives(&self, lane: &Lane, source: &Server, target: &Server) -> Result<()> {
        if lane.held != Held::Retiring {
            self.reaches(lane, MoveState::Observing).await?;
            lane.trade.goes_on(4, ARRIVES_MAX).await?;
            self.control.tell(lane.id()?, "finish").await?.wants(200)?;
        }
        let done = self.reaches(lane, MoveState::Done).await?;
        ensure!(done.strays.is_empty(), "strays: {:?}", done.strays);
        let home = target.home(lane.shop.id).await?;
        ensure!(home == ("serving".to_owned(), done.epoch.get()), "{home:?}");
        let (mark, _) = source.home(lane.shop.id).await?;
        ensure!(mark == "moved", "the source's home is {mark}");
        let left = rows_left(source, lane.shop.id).await?;
        ensure!(left == 0, "{left} rows are left at the source");
        lane.trade.goes_on(4, ARRIVES_MAX).await
    }

    /// What the moves' events say.
    pub(super) async fn notes(&self, lane: &Lane) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Event {
            state: MoveState,
            note: Option<String>,
        }
        #[derive(Deserialize)]
        struct Events {
            events: Vec<Event>,
        }
        let call = Call::get(format!("/v1/moves/{}/events?wait_ms=0", lane.id()?));
        let events: Events = self.control.send(call).await?.wants(200)?.json()?;
        let events = events.events.into_iter();
        Ok(events
            .map(|it| format!("{}: {}", it.state, it.note.unwrap_or_default()))
            .collect())
    }

    /// How often a mover took the move up. (The same one again in the same state is no event.)
    pub(super) async fn takeovers(&self, lane: &Lane) -> Result<u64> {
        let id = lane.id()?;
        let call = Call::get(format!("/v1/moves/{id}/events?wait_ms=0"));
        let told: serde_json::Value = self.control.send(call).await?.wants(200)?.json()?;
        let begun = told["events"][0]["owner"].as_u64();
        Ok(self.control.show(id).await?.owner - begun.context("the first event's owner")?)
    }
}

/// Waits until a shop's home at a server is in a state.
pub(super) async fn home_is(server: &Server, shop: &Shop, state: &str) -> Result<()> {
    let what = format!("the home of {} is {state}", shop.handle);
    wait_until(&what, ARRIVES_MAX, async || {
        let (found, epoch) = server.home(shop.id).await?;
        ensure!(found == state, "it is {found} at epoch {epoch}");
        Ok(())
    })
    .await
}
