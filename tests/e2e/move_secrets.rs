//! Moves whose control server can no longer read the password of one of their pods: a vault is closed, a file is gone.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, rows_left};
use tests::suite::Test;
use tests::{Call, Fleet, Product, Server, Shop, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![alone: inv3_a_move_ends_or_waits_without_the_password_of_a_pod;]
}

/// A secret that cannot be read for as long as this lives.
struct Hidden {
    file: PathBuf,
    away: PathBuf,
}

impl Hidden {
    /// The operator's password at the servers of a pod.
    fn of_pod(fleet: &Fleet, pod: u32) -> Result<Self> {
        let name = format!("pod-{pod}-mysql-podhost_operator");
        let file = fleet.home().join("secrets").join(&name);
        let away = file.with_file_name(format!("{name}.away"));
        fs::rename(&file, &away).with_context(|| name)?;
        Ok(Self { file, away })
    }

    /// It can be read again.
    fn back(self) {}

    /// It is what a move's words name.
    fn is_told(&self, pod: u32, words: &[Option<String>]) -> Result<()> {
        let name = self.file.file_name().context("a name")?.to_string_lossy();
        let pod = format!("pod {pod}");
        let told = |text: &String| text.contains(&pod) && text.contains(&*name);
        ensure!(
            words.iter().flatten().any(told),
            "neither {pod} nor {name} in {words:?}"
        );
        Ok(())
    }
}

/// A test that fails leaves the fleet its secret.
impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = fs::rename(&self.away, &self.file);
    }
}

/// A small shop's move, on a machine that has more to do.
const ENDS_MAX: Duration = Duration::from_secs(180);

/// Of a move: its keeper looks at the pods' primaries three times in it.
const LEASE: Duration = Duration::from_secs(2);

/// What happens to a move while its target's password is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// It is undone while it compares.
    Undone,
    /// It is undone inside of its fence.
    UndoneInside,
    /// It is paused, and goes on before the password is back.
    Paused,
    /// Its fence misses.
    Missed,
}

impl Order {
    /// Where the move stands when the password goes.
    const fn place(self) -> &'static str {
        match self {
            Self::Undone | Self::Paused => "compare.before",
            Self::UndoneInside => "follow.before",
            Self::Missed => "verified.before",
        }
    }
}

/// A shop and its move.
struct Lane {
    order: Order,
    shop: Shop,
    product: Product,
    id: MoveId,
    owner: u64,
}

/// Without its target's password a move can be undone, inside of its fence too, or rest; its fence is lifted; and one that has
/// to go on says what it lacks. Without its source's it waits before it deletes anything, and nobody can declare that pod to
/// be gone. Each goes on as soon as the password can be read.
async fn inv3_a_move_ends_or_waits_without_the_password_of_a_pod(fleet: &Fleet) -> Result<()> {
    let lease = format!("{}s", LEASE.as_secs());
    let moves = [
        ("lease", toml::Value::from(lease)),
        ("moves_per_pod", 8.into()),
    ];
    let points = fleet.with_own_failpoints_and_moves(&moves).await?;
    let ended = Box::pin(without(fleet, &points)).await;
    fleet.without_own_failpoints(points).await?;
    ended
}

async fn without(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let control = ControlDoor::of(fleet).await?;
    let (source, target) = (fleet.primary(1).await?, fleet.primary(2).await?);
    let orders = [
        Order::Undone,
        Order::UndoneInside,
        Order::Paused,
        Order::Missed,
    ];
    let mut lanes = Vec::new();
    for order in orders {
        lanes.push(begin(fleet, points, &control, order).await?);
    }
    let hidden = Hidden::of_pod(fleet, 2)?;
    for lane in &lanes {
        let ended = Box::pin(without_target(points, &control, lane, &source, &hidden)).await;
        ended.with_context(|| format!("{:?}, shop {}", lane.order, lane.shop.id))?;
    }
    hidden.back();
    for lane in &lanes {
        let ended = goes_on(&control, lane, &target).await;
        ended.with_context(|| format!("{:?}, shop {}", lane.order, lane.shop.id))?;
    }
    let arrived = lanes.iter().find(|lane| lane.order == Order::Paused);
    without_source(
        fleet,
        &control,
        arrived.context("one that arrived")?,
        &source,
    )
    .await
}

/// A shop whose move stands where its target's password is lost.
async fn begin(
    fleet: &Fleet,
    points: &OwnFailPoints,
    control: &ControlDoor,
    order: Order,
) -> Result<Lane> {
    let shop = fleet.shop(1).await?;
    let product = shop.product("Lamp", "10.00", 9).await?;
    shop.buy("before", &[(&product, 1)]).await?;
    if order == Order::UndoneInside {
        points.have_patience(shop.id)?;
    }
    points.set(shop.id, order.place(), "stop")?;
    if order == Order::Missed {
        points.set(shop.id, "follow.before", "error")?;
    }
    let id = fleet.order_move(&shop, 2).await?;
    points.happens(shop.id, order.place(), ENDS_MAX).await?;
    let owner = control.show(id).await?.owner;
    Ok(Lane {
        order,
        shop,
        product,
        id,
        owner,
    })
}

async fn without_target(
    points: &OwnFailPoints,
    control: &ControlDoor,
    lane: &Lane,
    source: &Server,
    hidden: &Hidden,
) -> Result<()> {
    let id = lane.id;
    match lane.order {
        Order::Undone | Order::UndoneInside => {
            control.tell(id, "abort").await?.wants(200)?;
            let undone = [MoveState::Aborted];
            control.reaches(id, &undone, ENDS_MAX).await?;
            wait_until("what it left says what it lacks", ENDS_MAX, async || {
                let now = control.show(id).await?;
                hidden.is_told(2, &[now.waits])
            })
            .await?;
        }
        Order::Paused => {
            control.tell(id, "pause").await?.wants(200)?;
            let rests = wait_until("it rests", ENDS_MAX, async || {
                let now = control.show(id).await?;
                let rests = now.state == MoveState::Paused && now.owner > lane.owner;
                ensure!(rests, "{}", now.words());
                Ok(now)
            })
            .await?;
            // Whoever took the pod that it cannot ask for one with another primary says so within this.
            tokio::time::sleep(LEASE).await;
            let now = control.show(id).await?;
            let quiet = now.owner == rests.owner && now.error.is_none();
            ensure!(quiet, "it does not rest: {}", now.words());
            control.tell(id, "resume").await?.wants(200)?;
            lacks(control, id, hidden).await?;
        }
        Order::Missed => {
            points.go_on(lane.shop.id, lane.order.place());
            points
                .happens(lane.shop.id, "follow.before", ENDS_MAX)
                .await?;
            lacks(control, id, hidden).await?;
        }
    }
    points.go_on(lane.shop.id, lane.order.place());
    let (home, _) = source.home(lane.shop.id).await?;
    ensure!(home == "serving", "the home at the source is {home}");
    let bought = lane.shop.buy("without", &[(&lane.product, 1)]).await;
    bought.map(drop)
}

/// It goes on with its changed keys, and says what it lacks for that.
async fn lacks(control: &ControlDoor, id: MoveId, hidden: &Hidden) -> Result<()> {
    wait_until("it says what it lacks", ENDS_MAX, async || {
        let now = control.show(id).await?;
        ensure!(now.state == MoveState::CatchingUp, "{}", now.words());
        hidden.is_told(2, &[now.error])
    })
    .await
}

/// Once the password is there again: what is undone is cleared away, the others arrive.
async fn goes_on(control: &ControlDoor, lane: &Lane, target: &Server) -> Result<()> {
    let shop = &lane.shop;
    match lane.order {
        Order::Undone | Order::UndoneInside => {
            wait_until("what it left is deleted", ENDS_MAX, async || {
                let left = rows_left(target, shop.id).await?;
                ensure!(left == 0, "{left} rows");
                Ok(())
            })
            .await?;
        }
        Order::Paused | Order::Missed => {
            let seen = [MoveState::Observing];
            control.reaches(lane.id, &seen, ENDS_MAX).await?;
        }
    }
    shop.buy("after", &[(&lane.product, 1)]).await?;
    let orders = shop.order_ids().await?.len();
    ensure!(orders == 3, "{orders} orders");
    Ok(())
}

/// The end of a move whose source's password is away: nothing is deleted, and the pod is not gone.
async fn without_source(
    fleet: &Fleet,
    control: &ControlDoor,
    lane: &Lane,
    source: &Server,
) -> Result<()> {
    let id = lane.id;
    let rows = rows_left(source, lane.shop.id).await?;
    let hidden = Hidden::of_pod(fleet, 1)?;
    control.tell(id, "finish").await?.wants(200)?;
    wait_until("it says what it lacks", ENDS_MAX, async || {
        let now = control.show(id).await?;
        ensure!(now.state == MoveState::Retiring, "{}", now.words());
        hidden.is_told(1, &[now.error])
    })
    .await?;
    let gone = Call::new(Method::POST, format!("/v1/moves/{id}/finish"));
    let gone = control
        .send(gone.json(&json!({"source_gone": true})))
        .await?;
    let text = gone.wants(409)?.text();
    ensure!(text.contains("is not gone"), "{text}");
    let left = rows_left(source, lane.shop.id).await?;
    ensure!(left == rows, "{left} rows at the source, not {rows}");
    lane.shop.buy("retiring", &[(&lane.product, 1)]).await?;
    hidden.back();
    control.reaches(id, &[MoveState::Done], ENDS_MAX).await?;
    let left = rows_left(source, lane.shop.id).await?;
    ensure!(left == 0, "{left} rows are left at the source");
    Ok(())
}
