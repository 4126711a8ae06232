//! A transaction of a shop that is open when the fence closes: its client works on, is frozen, is gone, or ends in time.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use shared::moves::MoveState;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor};
use tests::mysql::secret;
use tests::own_pod::OwnPod;
use tests::tap::{Moment, Tap};
use tests::{Answer, Call, Fleet, Server, Shop, wait_until};
use tokio::task::JoinHandle;

use super::lanes::{ARRIVES_MAX, Held, Lane, Lanes, on_lanes};

/// The title of what the open transaction makes.
const TITLE: &str = "Held open";

/// A client that works on for ever: for longer than all fences that a guard which does not end it would try in this test.
const LIVE_MAX: Duration = Duration::from_secs(100);

/// How long a transaction of the test's own processes may take: as long as a write with all its reruns, so that none begins
/// anew where the process is frozen late. (When a fence ends it these processes are not told: it is earlier.)
const OWN_TRANSACTION: &str = "4s";
const OWN_KILLED_AFTER: &str = "5s";

/// How long a fence that the replicas' silence holds up may take to be given up: its bound, the pause's, and the machine.
const MISSED_MAX: Duration = Duration::from_secs(60);

/// Who holds the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// Commits while the fence waits.
    Ends,
    /// A session of the pod's account that works on, past every deadline.
    Live,
    /// A process of the pod that is stopped.
    Frozen,
    /// A process whose machine is gone: its server hears nothing of its end.
    Vanished,
}

const CLIENTS: [Client; 4] = [Client::Ends, Client::Live, Client::Frozen, Client::Vanished];

/// Four shops are held just before their fence, and a transaction of each takes its lock on the home; then the fence comes.
/// It waits for the one that ends, whose row is then at the target; it ends the one that works on, whose client is told;
/// what the frozen and the vanished one began is nowhere. Each fence closes at its first try, within its bound, and no
/// other client notices anything.
pub(super) async fn inv1_inv3_a_transaction_open_across_the_fence_is_before_it_or_undone(
    fleet: &Fleet,
) -> Result<()> {
    on_lanes(fleet, &[Held::Verifying; 4], false, open_across).await
}

async fn open_across(lanes: &mut Lanes<'_>) -> Result<()> {
    let fleet = lanes.fleet;
    let source = fleet.primary(1).await?;
    let own = [Own::start(fleet).await?, Own::start(fleet).await?];
    for (lane, client) in lanes.lanes.iter().zip(CLIENTS) {
        if client == Client::Ends {
            // Whenever its commit comes, it comes in time.
            lanes.points.have_patience(lane.shop.id)?;
        }
    }
    lanes.hold(2).await?;
    let [frozen, vanished] = own;
    let mut own = [None, None, Some(frozen), Some(vanished)].into_iter();
    let cases = lanes.lanes.iter().zip(CLIENTS);
    let cases = cases.map(|(lane, client)| (lane, client, own.next().flatten()));
    let all = &*lanes;
    let (from, target) = (&source, &fleet.primary(2).await?);
    futures::future::try_join_all(cases.map(|(lane, client, own)| async move {
        let ended = Box::pin(across(all, lane, client, own, from, target)).await;
        ended.with_context(|| format!("{client:?}, shop {}", lane.shop.id))
    }))
    .await?;
    lanes.arrive(2, |_| true).await
}

/// The replicas of the source answer nothing while its fence closes: neither a write's commit nor the fence's own can end
/// in time. The fence is lifted and tried again; when the replicas are back the shop arrives, and nothing acknowledged is
/// missing.
pub(super) async fn inv1_inv3_a_fence_without_acknowledgements_is_lifted_and_tried_again()
-> Result<()> {
    let fleet = Fleet::start().await?;
    on_lanes(&fleet, &[Held::Verifying], true, unacknowledged).await?;
    fleet.stop().await
}

async fn unacknowledged(lanes: &mut Lanes<'_>) -> Result<()> {
    let fleet = lanes.fleet;
    lanes.hold(2).await?;
    let id = lanes.lanes[0].id()?;
    let before = lanes.control.show(id).await?.owner;
    let frozen = [
        fleet.unit("mysql-1-2")?.freeze()?,
        fleet.unit("mysql-1-3")?.freeze()?,
    ];
    lanes.go_on();
    wait_until("the fence is given up", MISSED_MAX, async || {
        let moving = lanes.control.show(id).await?;
        let missed = moving.took("fence_tries") >= Some(1) && moving.owner > before;
        ensure!(missed, "{}", moving.words());
        Ok(())
    })
    .await?;
    drop(frozen);
    lanes.arrive(2, |_| true).await?;
    let moving = lanes.control.show(id).await?;
    let tries = moving.took("fence_tries");
    ensure!(tries >= Some(2), "{tries:?} fences; {}", moving.words());
    // Who was in the way an operator reads, and not only that it took too long.
    let notes = lanes.notes(&lanes.lanes[0]).await?;
    ensure!(notes.iter().any(|note| names_the_home(note)), "{notes:?}");
    Ok(())
}

/// Whether it is said where a fence stood at its end, and what it had waited for.
fn names_the_home(note: &str) -> bool {
    let stood = [
        "the home stayed locked",
        "the change of the home did not commit",
    ];
    note.contains("pod 1: ")
        && stood.iter().any(|text| note.contains(text))
        && note.contains(" in flight, ")
        && note.contains(" ended)")
}

/// A process of pod 1 behind a wire.
struct Own {
    pod: OwnPod,
    tap: Tap,
}

impl Own {
    async fn start(fleet: &Fleet) -> Result<Self> {
        let one = shared::PodId::new(1).context("a pod")?;
        let port = OwnPod::primary_port(&OwnPod::config_of(fleet, one)?)?;
        let tap = Tap::to(SocketAddr::from(([127, 0, 0, 1], port))).await?;
        let through = tap.address().port();
        let pod = OwnPod::start(fleet, one, |config| {
            OwnPod::primary_at(config, through);
            let limits = config.entry("limits");
            let limits = limits.or_insert_with(|| toml::Table::new().into());
            if let Some(limits) = limits.as_table_mut() {
                limits.insert("transaction".into(), OWN_TRANSACTION.into());
                limits.insert("fence_kill_after".into(), OWN_KILLED_AFTER.into());
            }
        })
        .await?;
        Ok(Self { pod, tap })
    }

    /// Sends a write, which stops inside of its transaction. Its server would keep that for ever.
    async fn write(&self, shop: &Shop) -> Result<JoinHandle<Result<Answer>>> {
        self.tap.set("into product", Moment::Vanished);
        let body = json!({"title": TITLE, "price": "1.00", "currency": "USD", "available": 1});
        let call = Call::post("/api/v1/products")
            .token(&shop.token)
            .json(&body);
        let (door, id, epoch) = (self.pod.door.clone(), shop.id, shop.epoch);
        let write = tokio::spawn(async move { door.send(id, epoch, &call).await });
        self.tap.sprung(ARRIVES_MAX).await?;
        Ok(write)
    }
}

async fn across(
    lanes: &Lanes<'_>,
    lane: &Lane,
    client: Client,
    own: Option<Own>,
    source: &Server,
    target: &Server,
) -> Result<()> {
    let shop = &lane.shop;
    match client {
        Client::Ends => {
            let mut session = open(lanes.fleet, source, shop).await?;
            fence_comes(lanes, lane)?;
            fence_waits(lane, source).await?;
            session.execute("commit").await.context("the commit")?;
            let waited = closed(lanes, lane).await?;
            ensure!(waited.drain > 0 && waited.killed == 0, "{waited:?}");
            made(source, target, shop, 1).await
        }
        Client::Live => {
            let session = open(lanes.fleet, source, shop).await?;
            let works = tokio::spawn(works_on(session, shop.clone()));
            fence_comes(lanes, lane)?;
            ended_by_the_guard(lanes, lane).await?;
            let told = works.await.context("a client")?;
            ensure!(told.is_err(), "the client was never told");
            made(source, target, shop, 0).await
        }
        Client::Frozen => {
            let own = own.context("a process")?;
            let write = own.write(shop).await?;
            let frozen = own.pod.process()?.freeze()?;
            fence_comes(lanes, lane)?;
            ended_by_the_guard(lanes, lane).await?;
            made(source, target, shop, 0).await?;
            frozen.thaw();
            // A client that has given up meanwhile was told nothing.
            if let Ok(answer) = write.await.context("the write")? {
                ensure!(answer.status >= 400, "it was told {}", answer.status);
            }
            made(source, target, shop, 0).await
        }
        Client::Vanished => {
            let own = own.context("a process")?;
            let write = own.write(shop).await?;
            own.pod.process()?.kill().await?;
            fence_comes(lanes, lane)?;
            ended_by_the_guard(lanes, lane).await?;
            let answer = write.await.context("the write")?;
            ensure!(answer.is_err(), "a killed process answered");
            made(source, target, shop, 0).await
        }
    }
}

/// A transaction as a pod's write makes it, under the pod's own account.
async fn open(fleet: &Fleet, source: &Server, shop: &Shop) -> Result<MySqlConnection> {
    let password = secret(&fleet.home().join("secrets/pod-1-mysql-podhost_app"))?;
    let pod = Server::account(
        "127.0.0.1",
        source.port,
        "podhost_app",
        &password,
        "podhost",
    );
    let mut session = pod.connect().await?;
    let statements = [
        "begin".to_owned(),
        format!(
            "select state from shop_home where shop_id = {} for share nowait",
            shop.id
        ),
        format!(
            "insert into product (shop_id, product_id, title, price, currency) \
             values ({}, {}, '{TITLE}', 1, 'USD')",
            shop.id,
            product_of(shop)
        ),
    ];
    for sql in statements {
        let done = session.execute(AssertSqlSafe(sql.clone())).await;
        done.with_context(|| sql)?;
    }
    Ok(session)
}

/// The key of the row that a shop's open transaction makes.
fn product_of(shop: &Shop) -> String {
    format!("x'{:032x}'", shop.id.get())
}

/// Statement after statement, never silent and never at its end; the error that stops it. By the row's key: a look through
/// the shop's rows would lock the gaps beside them, which the next shop's transaction may insert into.
async fn works_on(mut session: MySqlConnection, shop: Shop) -> Result<()> {
    let sql = format!(
        "update product set price = price + 1 where shop_id = {} and product_id = {}",
        shop.id,
        product_of(&shop)
    );
    let until = std::time::Instant::now() + LIVE_MAX;
    while std::time::Instant::now() < until {
        session.execute(AssertSqlSafe(sql.clone())).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Lets the move go into its fence.
fn fence_comes(lanes: &Lanes<'_>, lane: &Lane) -> Result<()> {
    let place = lane.held.place().context("a place")?;
    ensure!(lanes.points.go_on(lane.shop.id, place), "it was not held");
    Ok(())
}

/// Returns when the fence waits for the open transaction.
async fn fence_waits(lane: &Lane, source: &Server) -> Result<()> {
    let waits = format!(
        "select count(*) from performance_schema.data_lock_waits w join performance_schema.data_locks l \
         on l.engine_lock_id = w.requesting_engine_lock_id \
         where l.object_name = 'shop_home' and l.lock_data = '{}'",
        lane.shop.id
    );
    wait_until("the fence waits", ARRIVES_MAX, async || {
        ensure!(source.number(&waits).await? > 0, "it does not");
        Ok(())
    })
    .await
}

/// How long a fence waited, in ms, and how many sessions it ended for that.
#[derive(Debug)]
struct Waited {
    drain: u64,
    killed: u64,
}

/// The fence closed at its first try.
async fn closed(lanes: &Lanes<'_>, lane: &Lane) -> Result<Waited> {
    let moving = lanes.reaches(lane, MoveState::Observing).await?;
    let took = |what| moving.took(what).unwrap_or_default();
    let (tries, drain, killed) = (took("fence_tries"), took("drain_ms"), took("writes_ended"));
    ensure!(tries == 1, "{tries} fences; {}", moving.words());
    tests::fleet::say(&format!(
        "  the fence waited for {drain} ms, {killed} sessions ended"
    ));
    Ok(Waited { drain, killed })
}

/// The same, and its guard has ended a session: nothing else would have ended the one that holds the home.
async fn ended_by_the_guard(lanes: &Lanes<'_>, lane: &Lane) -> Result<()> {
    let waited = closed(lanes, lane).await?;
    ensure!(waited.killed > 0, "{waited:?}");
    Ok(())
}

/// So many rows of the transaction are at the target, and at the source, whose copy is as it was at the fence.
async fn made(source: &Server, target: &Server, shop: &Shop, wanted: i64) -> Result<()> {
    let count = format!(
        "select count(*) from product where shop_id = {} and title = '{TITLE}'",
        shop.id
    );
    let found = (source.number(&count).await?, target.number(&count).await?);
    ensure!(
        found == (wanted, wanted),
        "at source and target: {found:?}, not {wanted}"
    );
    Ok(())
}
