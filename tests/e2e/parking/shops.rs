//! Thousands of requests for many shops of one pod that has no primary: they ask for it together, and are all answered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{StreamExt as _, TryStreamExt as _, iter};
use serde::Deserialize;
use serde_json::json;
use shared::home::HomeState;
use tests::moves::ControlDoor;
use tests::suite::Test;
use tests::{Call, Fleet, Product, metrics, tests, wait_until};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::thousands::{OPENING, PARKED_MAX, buys, client, nothing_is_left, parks, scene};
use super::{ANSWERED_MAX, Scene};

pub(super) fn list() -> Vec<Test> {
    tests![alone: many_shops_of_a_pod_without_primary_ask_it_together]
}

/// As many as are made in some seconds.
const SHOPS: u32 = 250;
/// Checkouts of each of them. They want what it does not have.
const EACH: u32 = 8;
const NOT_THERE: u16 = 404;
/// Buyers of one more shop.
const BUYERS: u32 = 40;
const SOLD: u16 = 201;
const ALL: u32 = SHOPS * EACH + BUYERS;
/// They come in so many at a time, each of them once the others are parked: a pod that is asked by hundreds at once is busy.
const AT_A_TIME: usize = 50;
/// What a pod says whose machine has so much to do that it cannot even look whether it has a primary, or not end a checkout of
/// what all buy at once; few may be told so.
const BUSY: u16 = 503;
/// Shops that are made at a time.
const MAKING: usize = 8;

/// Between two that ask one pod for its primary, as the edge has it, and how many may ask at a time.
const GAP: Duration = Duration::from_millis(20);
const ASK_MAX: f64 = 4.0;
/// So many are looked at, if each shop's requests asked for themselves they would be there in a tenth of a second.
const ASKED: f64 = 100.0;

/// The shops' requests park. However many shops they are of, the pod is asked as often as the edge says for a pod, not for a
/// shop. When the primary is back all are answered, nobody twice, and what they held is free again.
async fn many_shops_of_a_pod_without_primary_ask_it_together(fleet: &Fleet) -> Result<()> {
    let scene = scene(fleet).await?;
    let hosts = shops(fleet, &scene).await?;
    let crowd = Crowd {
        address: scene.shop.edge.address(),
        room: Arc::new(Semaphore::new(OPENING)),
    };
    fleet.kill_and_hold_down("mysql-1-1").await?;
    let (before, begun) = (unready(&scene).await?, Instant::now());
    let nothing = Product {
        id: uuid::Uuid::now_v7().to_string(),
        ..scene.mug.clone()
    };
    let mut clients = Vec::new();
    let bought = (0..BUYERS).map(|n| (buys(&scene.shop.host, &scene.mug, n), SOLD));
    let others = (0..EACH).flat_map(|n| hosts.iter().map(move |host| (host, n)));
    let others = others.map(|(host, n)| (buys(host, &nothing, n), NOT_THERE));
    let requests: Vec<_> = bought.chain(others).collect();
    for some in requests.chunks(AT_A_TIME) {
        clients.extend(
            some.iter()
                .map(|(request, wanted)| (crowd.send(request.clone()), *wanted)),
        );
        come_in(&scene, &clients).await?;
    }
    // Each of them may have asked once before it was parked.
    let (asked, took) = (unready(&scene).await? - before, begun.elapsed());
    ensure!(
        asked <= f64::from(ALL) + probes(took),
        "{ALL} requests asked {asked} times in {took:?}"
    );
    ask_together(&scene).await?;

    fleet.let_up("mysql-1-1").await?;
    let mut told: BTreeMap<u16, i64> = BTreeMap::new();
    for (client, wanted) in clients {
        let status = client.await.context("a client")??;
        ensure!(status == wanted || status == BUSY, "{status}, not {wanted}");
        *told.entry(status).or_default() += 1;
    }
    let of = |status| told.get(&status).copied().unwrap_or(0);
    ensure!(of(BUSY) * 4 < i64::from(ALL), "{told:?}");
    let orders = scene.primary.rows("shop_order", scene.shop.id).await?;
    let made = of(SOLD)..=i64::from(BUYERS);
    ensure!(made.contains(&orders), "{orders} orders; {told:?}");
    nothing_is_left(&scene).await?;
    goes_on(&scene, &crowd, &nothing).await
}

/// Waits until each client is parked, or was told something.
async fn come_in(scene: &Scene, clients: &[Client]) -> Result<()> {
    wait_until("they are parked", PARKED_MAX, async || {
        let told = clients.iter().filter(|it| it.0.is_finished()).count();
        let (parked, all) = (scene.parked().await?, u32::try_from(clients.len())?);
        let held = parked + f64::from(u32::try_from(told)?);
        ensure!(
            held > f64::from(all) - 0.5,
            "{parked}, and {told} told, of {all}"
        );
        Ok(())
    })
    .await
}

/// Asks at the pod for the primary that the edge may have sent in that time.
fn probes(took: Duration) -> f64 {
    took.as_secs_f64() / GAP.as_secs_f64() + ASK_MAX + 1.0
}

/// How often the pod has refused because it has no primary.
async fn unready(scene: &Scene) -> Result<f64> {
    let mut sum = 0.0;
    for admin in &scene.pod {
        let name = "podhost_stale_route_answers_total";
        sum += metrics::sum(admin, name, "reason=\"unready\"").await?;
    }
    Ok(sum)
}

/// Those that are parked go on asking, at the pace of one pod.
async fn ask_together(scene: &Scene) -> Result<()> {
    let begun = Instant::now();
    let before = unready(scene).await?;
    wait_until("they ask", ANSWERED_MAX, async || {
        let asked = unready(scene).await? - before;
        let took = begun.elapsed();
        ensure!(asked >= ASKED, "{asked} times in {took:?}");
        Ok((asked, took))
    })
    .await
    .and_then(|(asked, took)| {
        ensure!(
            asked <= probes(took),
            "{SHOPS} shops asked {asked} times in {took:?}"
        );
        Ok(())
    })
}

/// A slot that was not given back would be missing now: more than a pod has of them park once more, and follow.
async fn goes_on(scene: &Scene, crowd: &Crowd, nothing: &Product) -> Result<()> {
    scene.home(HomeState::Fenced).await?;
    // They look at the home itself: a process may know of no fence for a second.
    let ask = |n| crowd.send(buys(&scene.shop.host, nothing, ALL + n));
    let mut again = vec![ask(0)];
    parks(scene, 1).await?;
    again.extend((1..BUYERS).map(ask));
    parks(scene, BUYERS).await?;
    scene.home(HomeState::Serving).await?;
    for client in again {
        let status = client.await.context("a client")??;
        ensure!(status == NOT_THERE, "a client was told {status}");
    }
    nothing_is_left(scene).await
}

/// One, and what it is to be told.
type Client = (JoinHandle<Result<u16>>, u16);

/// Clients with a connection each, of which some are opened at a time.
struct Crowd {
    address: SocketAddr,
    room: Arc<Semaphore>,
}

impl Crowd {
    fn send(&self, request: String) -> JoinHandle<Result<u16>> {
        tokio::spawn(client(self.address, request, Arc::clone(&self.room)))
    }
}

/// Makes shops of pod 1 that nobody has asked for anything; their hosts, once the edge knows them all.
async fn shops(fleet: &Fleet, scene: &Scene) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Made {
        hosts: Vec<String>,
    }
    let control = ControlDoor::of(fleet).await?;
    let made = iter(0..SHOPS).map(|n| {
        let (control, handle) = (&control, format!("{}-of-many-{n}", scene.shop.handle));
        async move {
            let new = Call::post("/v1/shops").json(&json!({"handle": handle, "pod": "1"}));
            let made: Made = control.send(new).await?.wants(201)?.json()?;
            made.hosts.into_iter().next().context("a host")
        }
    });
    let hosts: Vec<String> = made.buffered(MAKING).try_collect().await?;
    // The edge hears of shops in the order in which they were made.
    scene.own.shows(&fleet.shop(1).await?).await?;
    Ok(hosts)
}
