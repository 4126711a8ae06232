//! What a home allows: every state of the design's table written by hand, reads and writes, also while another
//! session holds or waits for the row. The pod is asked directly, since an edge hides a 421.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use serde_json::json;
use shared::home::{Access, Claim, Home, HomeState, Mark, Verdict, decide};
use shared::wire::Fence;
use shared::{Epoch, PodId};
use tests::chaos::{Chaos, Wire};
use tests::mysql::HomeLock;
use tests::own_pod::OwnPod;
use tests::shop::checkout_body;
use tests::suite::Test;
use tests::{Answer, Call, Fleet, PodDoor, Product, Shop, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        inv1_each_state_of_a_home_gets_the_answer_of_the_table,
        inv1_a_request_for_another_pod_or_a_shop_without_home_is_stale,
        inv1_a_mover_that_holds_or_waits_for_the_row_fences_writes_at_once,
        inv1_writers_do_not_fence_each_other,
        inv1_a_mover_waits_for_the_writes_in_flight,
    ]
}

const HERE: u64 = 1;
/// A pod's cached home is at most one second old; the rest is for the machine.
const CACHED_HOME_MAX: Duration = Duration::from_millis(1_800);
/// An answer that waited for a lock would take the deadline of a transaction (2 s).
const AT_ONCE: Duration = Duration::from_millis(1_000);

struct Asked<'a> {
    shop: &'a Shop,
    door: PodDoor,
    product: Product,
    path: String,
}

impl<'a> Asked<'a> {
    async fn of(fleet: &Fleet, shop: &'a Shop) -> Result<Self> {
        let product = shop.product("Mug", "1.00", 1_000).await?;
        let path = format!("/api/v1/products/{}/inventory", product.id);
        Ok(Self {
            shop,
            door: fleet.pod_door(shop.pod).await?,
            product,
            path,
        })
    }

    async fn write(&self, epoch: Epoch) -> Result<Answer> {
        let body = json!({"title": "New", "price": "1.00", "currency": "USD", "available": 1});
        let call = Call::post("/api/v1/products")
            .token(&self.shop.token)
            .json(&body);
        self.door.send(self.shop.id, epoch, &call).await
    }

    /// A write of anyone: a merchant's begins with a read, which may be refused first.
    async fn checkout(&self, epoch: Epoch) -> Result<Answer> {
        let body = checkout_body(&[(&self.product, 1)], "approve");
        let call = Call::post("/api/v1/checkouts")
            .key(uuid::Uuid::now_v7())
            .json(&body);
        self.door.send(self.shop.id, epoch, &call).await
    }

    async fn strong_read(&self, epoch: Epoch) -> Result<Answer> {
        let call = Call::get(self.path.as_str()).token(&self.shop.token);
        self.door.send(self.shop.id, epoch, &call).await
    }

    async fn eventual_read(&self, epoch: Epoch) -> Result<Answer> {
        self.door
            .send(self.shop.id, epoch, &Call::get("/api/v1/products"))
            .await
    }
}

/// The answer says what the table says.
fn agrees(answer: &Answer, verdict: Verdict, ran: u16) -> Result<()> {
    let got = (answer.status, answer.fence(), answer.text());
    let agrees = match verdict {
        Verdict::Run => answer.status == ran,
        Verdict::Misdirected(fence) => answer.status == 421 && answer.fence() == Some(fence),
        Verdict::Frozen => answer.clone().wants_problem(503, "frozen").is_ok(),
        Verdict::Offline => answer.clone().wants_problem(503, "offline").is_ok(),
    };
    ensure!(agrees, "the table says {verdict:?}, the pod {got:?}");
    Ok(())
}

fn epoch(n: u64) -> Result<Epoch> {
    Epoch::try_from(n).context("an epoch")
}

fn pod(n: u64) -> Result<PodId> {
    PodId::try_from(n).context("a pod id")
}

/// Eight states, with and without a mark, asked at the home's epoch, an older and a newer one: write, strong read and
/// eventual read each get what the table says, and only a write that ran left something.
async fn inv1_each_state_of_a_home_gets_the_answer_of_the_table(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let asked = Asked::of(fleet, &shop).await?;
    let primary = fleet.primary(1).await?;
    let mut ran = primary.rows("shop_order", shop.id).await?;
    for state in HomeState::ALL {
        for mark in [
            None,
            Some(Mark {
                pod: pod(2)?,
                epoch: epoch(6)?,
            }),
        ] {
            let home = Home {
                epoch: epoch(5)?,
                state,
                mark,
            };
            primary
                .set_home(shop.id, state, home.epoch, mark.map(|m| (m.pod, m.epoch)))
                .await?;
            for at in [5, 4, 6] {
                let at = epoch(at)?;
                let claim = Claim {
                    pod: pod(HERE)?,
                    epoch: at,
                    token_epoch: None,
                };
                let verdict = |access| decide(shop.pod, Some(&home), claim, access);
                let row = || format!("home {home:?}, request at {at:?}");
                let (write, read) = (verdict(Access::Write), verdict(Access::Read));
                agrees(&asked.checkout(at).await?, write, 201)
                    .with_context(row)
                    .context("write")?;
                ran += i64::from(write == Verdict::Run);
                agrees(&asked.strong_read(at).await?, read, 200)
                    .with_context(row)
                    .context("strong read")?;
                wait_until("an eventual read agrees", CACHED_HOME_MAX, async || {
                    agrees(&asked.eventual_read(at).await?, read, 200)
                })
                .await
                .with_context(row)?;
            }
        }
    }
    assert_eq!(
        primary.rows("shop_order", shop.id).await?,
        ran,
        "only writes that ran left something"
    );
    primary
        .set_home(shop.id, HomeState::Serving, shop.epoch, None)
        .await?;
    asked
        .write(shop.epoch)
        .await?
        .wants(201)
        .context("serving again")?;
    Ok(())
}

/// Two more rows: `podhost-pod` is another pod, and there is no home at all.
async fn inv1_a_request_for_another_pod_or_a_shop_without_home_is_stale(
    fleet: &Fleet,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let asked = Asked::of(fleet, &shop).await?;
    let meant = Asked {
        shop: &shop,
        door: asked.door.meant_for(pod(2)?),
        product: asked.product.clone(),
        path: asked.path.clone(),
    };
    let here = Verdict::Misdirected(Fence::Stale {
        epoch: Some(shop.epoch),
    });
    agrees(&meant.write(shop.epoch).await?, here, 0)?;
    agrees(&meant.strong_read(shop.epoch).await?, here, 0)?;
    agrees(&meant.eventual_read(shop.epoch).await?, here, 0)?;

    let elsewhere = fleet.shop(2).await?;
    let call = Call::get("/api/v1/products");
    let nowhere = Verdict::Misdirected(Fence::Stale { epoch: None });
    agrees(
        &asked
            .door
            .send(elsewhere.id, elsewhere.epoch, &call)
            .await?,
        nowhere,
        0,
    )?;
    let write = Call::post("/api/v1/checkouts").key("k").json(&json!({
        "email": "a@example.com", "lines": [], "payment": {"method": "bogus", "outcome": "approve"}
    }));
    let answer = asked
        .door
        .send(elsewhere.id, elsewhere.epoch, &write)
        .await?;
    assert_ne!(answer.status, 201, "a write for a shop that is elsewhere");
    Ok(())
}

/// While a mover has the row locked, or only waits for it, a write is refused as `fenced` at once and reads go on;
/// when the mover is gone, writes run.
async fn inv1_a_mover_that_holds_or_waits_for_the_row_fences_writes_at_once(
    fleet: &Fleet,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let asked = Asked::of(fleet, &shop).await?;
    let primary = fleet.primary(1).await?;
    let fenced = Verdict::Misdirected(Fence::Fenced);
    let look = async |what: &str| -> Result<()> {
        let started = Instant::now();
        agrees(&asked.write(shop.epoch).await?, fenced, 0)
            .with_context(|| format!("write, {what}"))?;
        asked
            .strong_read(shop.epoch)
            .await?
            .wants(200)
            .with_context(|| format!("strong, {what}"))?;
        asked
            .eventual_read(shop.epoch)
            .await?
            .wants(200)
            .with_context(|| format!("eventual, {what}"))?;
        ensure!(
            started.elapsed() < AT_ONCE,
            "{what}: took {:?}",
            started.elapsed()
        );
        Ok(())
    };
    let held = HomeLock::exclusive(&primary, shop.id).await?;
    look("a mover holds the row").await?;
    held.release().await?;
    asked
        .write(shop.epoch)
        .await?
        .wants(201)
        .context("after the mover")?;

    let in_flight = HomeLock::shared(&primary, shop.id).await?;
    asked
        .write(shop.epoch)
        .await?
        .wants(201)
        .context("beside another write")?;
    let waiter = in_flight.queue_behind(&primary).await?;
    look("a mover waits for the row").await?;
    in_flight.release().await?;
    waiter.await.context("the waiting mover")??;
    asked
        .write(shop.epoch)
        .await?
        .wants(201)
        .context("after the waiting mover")?;
    Ok(())
}

/// Sixty writes of one shop, many at a time, and no mover: none of them is told `fenced`.
async fn inv1_writers_do_not_fence_each_other(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let asked = Asked::of(fleet, &shop).await?;
    for _ in 0..5 {
        for answer in join_all((0..12).map(|_| asked.write(shop.epoch))).await {
            answer?.wants(201)?;
        }
    }
    Ok(())
}

/// Answers of the primary take this long, so that a write is in flight for some hundred milliseconds.
const WIRE: Duration = Duration::from_millis(20);
/// Ten slow writes begin by then.
const BEGUN_MAX: Duration = Duration::from_secs(3);

/// A mover's update of the home waits until a write in flight has committed, and writes that come after it find what
/// it wrote: no write is between.
async fn inv1_a_mover_waits_for_the_writes_in_flight(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let port = OwnPod::primary_port(&OwnPod::config_of(fleet, shop.pod)?)?;
    let chaos = Chaos::to(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    let slow = chaos.address().port();
    let own = OwnPod::start(fleet, shop.pod, |config| OwnPod::primary_at(config, slow)).await?;
    let asked = Asked {
        door: own.door.clone(),
        ..Asked::of(fleet, &shop).await?
    };
    let primary = fleet.primary(1).await?;
    let holders = format!(
        "select count(*) from performance_schema.data_locks \
         where object_name = 'shop_home' and lock_mode like 'S%' and lock_data = '{}'",
        shop.id
    );
    chaos.set(Wire::Slow(WIRE));
    let mut ran = primary.rows("product", shop.id).await?;
    let (mut landed, mut late) = (0, 0);
    for round in 0..5 {
        let (state, other) = if round % 2 == 0 {
            (HomeState::Fenced, Verdict::Misdirected(Fence::Fenced))
        } else {
            (HomeState::Frozen, Verdict::Frozen)
        };
        let writes = join_all((0..10).map(|_| asked.write(shop.epoch)));
        let fence = async {
            wait_until("a write holds the home", BEGUN_MAX, async || {
                ensure!(primary.number(&holders).await? > 0, "none holds it");
                Ok(())
            })
            .await?;
            primary.set_home(shop.id, state, shop.epoch, None).await?;
            primary.rows("product", shop.id).await
        };
        let (answers, after) = tokio::join!(writes, fence);
        let after = after?;
        let mut made = 0_i64;
        for answer in answers {
            let answer = answer?;
            // Before the mover, while it waited, or after it. One that held the home may have missed its own deadline.
            if answer.status == 201 {
                made += 1;
            } else if answer.status == 503 && answer.text().contains("Nothing was changed") {
                late += 1;
            } else {
                agrees(&answer, other, 201)
                    .or_else(|_| agrees(&answer, Verdict::Misdirected(Fence::Fenced), 201))?;
            }
        }
        agrees(&asked.write(shop.epoch).await?, other, 201)?;
        let now = primary.rows("product", shop.id).await?;
        assert_eq!(now, after, "a write landed after the fence");
        ensure!(
            now == ran + made,
            "{made} writes were told of, {ran} rows are now {now}"
        );
        landed += made;
        ran = now;
        primary
            .set_home(shop.id, HomeState::Serving, shop.epoch, None)
            .await?;
    }
    ensure!(
        landed > 0,
        "no write that held the home landed, {late} were late"
    );
    Ok(())
}
