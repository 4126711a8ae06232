//! Ten thousand parked requests at one edge: some leave, a process of their pod dies, the fence is lifted and comes back,
//! and in the end nothing of them is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use shared::home::HomeState;
use tests::own_edge::{OwnEdge, set};
use tests::suite::Test;
use tests::{Fleet, Product, metrics, tests, wait_until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use toml::Value;

use super::{ANSWERED_MAX, Scene};

pub(super) fn list() -> Vec<Test> {
    tests![alone: ten_thousand_parked_requests_leave_nothing_behind]
}

const ALL: u32 = 10_000;
/// Of them, so many buy something; the others ask for what no pod has, which costs it nothing.
const BUYERS: u32 = 150;
/// So many do not wait for their answer.
const LEAVE: u32 = 3_000;
/// Connections that are opened at a time.
pub(super) const OPENING: usize = 100;
/// A debug build parks some thousand requests a second, if it has the machine for itself; it need not have it.
pub(super) const PARKED_MAX: Duration = Duration::from_secs(120);
/// How long they are parked: none of them may come to its end by that.
const WINDOW: &str = "15m";

/// Sends a request and reads until the edge closes; the status.
pub(super) async fn client(
    address: std::net::SocketAddr,
    request: String,
    room: Arc<Semaphore>,
) -> Result<u16> {
    let turn = room.acquire().await.context("a turn")?;
    let mut stream = TcpStream::connect(address).await.context("connect")?;
    stream.write_all(request.as_bytes()).await.context("send")?;
    drop(turn);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.context("read")?;
    let status = answer.get(9..12).and_then(|s| std::str::from_utf8(s).ok());
    status.and_then(|s| s.parse().ok()).context("no status")
}

fn request(scene: &Scene, n: u32) -> String {
    if n < BUYERS {
        buys(&scene.shop.host, &scene.mug, n)
    } else {
        asks(&scene.shop.host)
    }
}

/// A checkout, the same for the same number.
pub(super) fn buys(host: &str, product: &Product, n: u32) -> String {
    let body = tests::shop::checkout_body(&[(product, 1)], "approve").to_string();
    format!(
        "POST /api/v1/checkouts HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nidempotency-key: many-{n}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A write that no pod has.
fn asks(host: &str) -> String {
    format!(
        "POST /api/v1/nothing HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    )
}

/// An edge that parks ten thousand for as long as the test takes.
pub(super) async fn scene(fleet: &Fleet) -> Result<Scene> {
    let room = [
        ("all_max", Value::Integer(ALL.into())),
        ("shop_max", Value::Integer(ALL.into())),
        ("window", super::text(WINDOW)),
        ("fence_max", super::text(WINDOW)),
    ];
    let scene = Scene::new(fleet, &[]).await?;
    let own = OwnEdge::start(fleet, |config| {
        for (key, value) in &room {
            set(config, "park", key, value.clone());
        }
        set(config, "limits", "connections_max", Value::Integer(12_000));
        set(config, "timeouts", "answer", super::text("20m"));
    })
    .await?;
    let shop = own.shows(&scene.shop).await?;
    Ok(Scene { own, shop, ..scene })
}

/// Waits until so many are parked.
pub(super) async fn parks(scene: &Scene, count: u32) -> Result<()> {
    wait_until("all are parked", PARKED_MAX, async || {
        let parked = scene.parked().await?;
        ensure!(
            (parked - f64::from(count)).abs() < 0.5,
            "{parked}, not {count}"
        );
        Ok(())
    })
    .await
}

async fn ten_thousand_parked_requests_leave_nothing_behind(fleet: &Fleet) -> Result<()> {
    let scene = scene(fleet).await?;
    let address = scene.shop.edge.address();
    let room = Arc::new(Semaphore::new(OPENING));
    let start = |n: u32| tokio::spawn(client(address, request(&scene, n), Arc::clone(&room)));
    scene.home(HomeState::Fenced).await?;
    let before = scene.refusals().await?;
    let begun = Instant::now();
    let mut clients: Vec<JoinHandle<Result<u16>>> = vec![start(0)];
    parks(&scene, 1).await?;
    clients.extend((1..ALL).map(start));
    parks(&scene, ALL).await?;
    let (asked, took) = (scene.refusals().await? - before, begun.elapsed());
    ensure!(
        asked < 30.0 + took.as_secs_f64() * 12.0,
        "{ALL} parked requests asked {asked} times in {took:?}"
    );

    for client in clients.drain(usize::try_from(ALL - LEAVE)?..) {
        client.abort();
    }
    // Their seats are free long before their window ends.
    parks(&scene, ALL - LEAVE).await?;

    fleet.unit("pod-1-1")?.kill().await?;
    scene.home(HomeState::Serving).await?;
    wait_until("some are served", PARKED_MAX, async || {
        ensure!(
            scene.parked().await? < f64::from(ALL - LEAVE) - 50.0,
            "none is"
        );
        Ok(())
    })
    .await?;
    // The process that died may have left a transaction that holds the home for some seconds.
    wait_until("the home is fenced again", ANSWERED_MAX, async || {
        scene.home(HomeState::Fenced).await
    })
    .await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    scene.home(HomeState::Serving).await?;

    all_were_answered(&scene, clients).await?;
    nothing_is_left(&scene).await?;

    scene.home(HomeState::Fenced).await?;
    let last = tokio::spawn(client(address, request(&scene, 0), room));
    parks(&scene, 1).await?;
    scene.home(HomeState::Serving).await?;
    assert_eq!(
        last.await.context("the last one")??,
        201,
        "the same key, the same order"
    );
    nothing_is_left(&scene).await
}

/// What the clients were told who stayed agrees with the orders that there are.
async fn all_were_answered(scene: &Scene, clients: Vec<JoinHandle<Result<u16>>>) -> Result<()> {
    let mut answers: BTreeMap<u16, i64> = BTreeMap::new();
    for client in clients {
        *answers
            .entry(client.await.context("a client")??)
            .or_default() += 1;
    }
    // A process that dies takes the answers with it that it was about to give.
    let broken: i64 = answers
        .iter()
        .filter(|(s, _)| **s >= 500)
        .map(|(_, n)| *n)
        .sum();
    ensure!(broken <= 40, "{answers:?}");
    let sold = answers.get(&201).copied().unwrap_or(0);
    ensure!(sold + broken >= i64::from(BUYERS), "{answers:?}");
    let orders = scene.primary.rows("shop_order", scene.shop.id).await?;
    ensure!(
        (sold..=i64::from(BUYERS)).contains(&orders),
        "{orders} orders, {sold} sold"
    );
    let served: i64 = answers.values().sum();
    assert_eq!(served, i64::from(ALL - LEAVE), "all were answered");
    Ok(())
}

/// No seat, no byte, and each that was parked was once sent, refused or left.
pub(super) async fn nothing_is_left(scene: &Scene) -> Result<()> {
    parks(scene, 0).await?;
    let admin = &scene.own.admin;
    let bytes = metrics::total(admin, "podhost_edge_parked_bytes").await?;
    let parked = metrics::total(admin, "podhost_edge_parked_total").await?;
    let ended = metrics::total(admin, "podhost_fence_wait_seconds_count").await?;
    ensure!(bytes < 0.5, "{bytes} bytes are kept for nobody");
    ensure!(
        (parked - ended).abs() < 0.5,
        "{parked} were parked, {ended} ended"
    );
    Ok(())
}
