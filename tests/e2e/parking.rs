//! Parked requests on real fleets: homes fenced by hand, a pod without its primary, and edges with small limits.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::{join, join_all};
use serde_json::json;
use shared::home::HomeState;
use shared::{Epoch, PodId};
use tests::fleet::RECOVER_MAX;
use tests::own_edge::{OwnEdge, set};
use tests::shop::checkout_body;
use tests::suite::Test;
use tests::{Answer, Call, Fleet, Product, Server, Shop, metrics, tests, wait_until};
use toml::Value;

// Bodies, of all sizes and in chunks.
mod bodies;
// Each limit, reached.
mod limits;
// Many shops of a pod without its primary.
mod shops;
// As many as an edge can hold.
mod thousands;

pub(crate) fn list() -> Vec<Test> {
    let here = tests![shares:
        a_fence_costs_a_wait_and_nothing_else,
        a_shop_that_is_handed_over_is_read_later;
    alone:
        a_parked_shop_slows_no_other,
        a_pod_without_primary_is_waited_for_but_not_twice_in_a_minute,
        a_mark_leads_to_the_new_pod_with_the_catalog_down,
    ];
    [
        here,
        bodies::list(),
        limits::list(),
        thousands::list(),
        shops::list(),
    ]
    .concat()
}

/// How long requests are parked where a test sets nothing else: for what it does meanwhile on a machine that is busy; and how
/// long a shop may be fenced then.
const WINDOW: Duration = Duration::from_secs(25);
const FENCE_MAX: &str = "40s";
/// A parked request is answered within its window, and a margin for the machine.
const ANSWERED_MAX: Duration = Duration::from_secs(40);
/// An answer that nobody waits for takes less than one that is waited for.
const AT_ONCE: Duration = Duration::from_secs(20);
const _: () = assert!(AT_ONCE.as_millis() < WINDOW.as_millis());

/// Longer than a pod's processes may find its primary one after another, as the edge has it.
const SETTLED: Duration = Duration::from_millis(2_500);

/// A shop of pod 1, behind an edge of the test's own.
struct Scene {
    shop: Shop,
    mug: Product,
    primary: Server,
    own: OwnEdge,
    /// Admin addresses of its pod's processes.
    pod: Vec<String>,
}

impl Scene {
    async fn new(fleet: &Fleet, park: &[(&str, Value)]) -> Result<Self> {
        let shop = fleet.shop(1).await?;
        let mug = shop.product("Mug", "1.00", 100_000).await?;
        let own = OwnEdge::start(fleet, |config| {
            set(config, "park", "window", seconds(WINDOW));
            set(config, "park", "fence_max", text(FENCE_MAX));
            for (key, value) in park {
                set(config, "park", key, value.clone());
            }
        })
        .await?;
        let shop = own.shows(&shop).await?;
        let status = fleet.status().await?;
        let processes = &status.pod(1)?.processes;
        Ok(Self {
            shop,
            mug,
            primary: fleet.primary(1).await?,
            own,
            pod: processes.iter().map(|p| p.admin.clone()).collect(),
        })
    }

    async fn home(&self, state: HomeState) -> Result<()> {
        let Shop { id, epoch, .. } = self.shop;
        self.primary.set_home(id, state, epoch, None).await
    }

    async fn buy(&self, key: impl std::fmt::Display) -> Result<Answer> {
        let key = format!("{}-{key}", self.shop.handle);
        self.shop.checkout(&key, &[(&self.mug, 1)], "approve").await
    }

    async fn buys(&self, keys: std::ops::Range<u32>) -> Vec<Result<Answer>> {
        join_all(keys.map(|key| self.buy(key))).await
    }

    /// New products: writes that do not wait for each other, as those of buyers of one product do.
    async fn adds(&self, count: usize) -> Vec<Result<Answer>> {
        let body = json!({"title": "New", "price": "1.00", "currency": "USD", "available": 1});
        let add = |_| self.shop.merchant_post("/api/v1/products", &body);
        join_all((0..count).map(add)).await
    }

    /// A body of that size that no pod takes.
    async fn junk(&self, bytes: usize) -> Result<Answer> {
        let body = "x".repeat(bytes);
        let call = Call::post("/api/v1/products").token(&self.shop.token);
        self.shop.send(call.body("application/json", body)).await
    }

    async fn parked(&self) -> Result<f64> {
        metrics::total(&self.own.admin, "podhost_edge_parked").await
    }

    /// Returns when so many requests hold a seat.
    async fn until_parked(&self, count: u32) -> Result<()> {
        wait_until("requests are parked", ANSWERED_MAX, async || {
            let parked = self.parked().await?;
            ensure!(
                (parked - f64::from(count)).abs() < 0.5,
                "{parked}, not {count}"
            );
            Ok(())
        })
        .await
    }

    /// How often the pod has refused because of a fence.
    async fn refusals(&self) -> Result<f64> {
        let mut sum = 0.0;
        for admin in &self.pod {
            let name = "podhost_stale_route_answers_total";
            sum += metrics::sum(admin, name, "reason=\"fenced\"").await?;
        }
        Ok(sum)
    }

    /// How many the edge gave up for this reason.
    async fn given_up(&self, why: &str) -> Result<f64> {
        let label = format!("reason=\"{why}\"");
        metrics::sum(&self.own.admin, "podhost_edge_give_ups_total", &label).await
    }
}

fn text(value: &str) -> Value {
    Value::String(value.into())
}

fn seconds(time: Duration) -> Value {
    text(&format!("{}s", time.as_secs()))
}

/// 503 with a time to come back, and nothing of what pod and edge say to each other.
fn told_to_come_back(answer: Answer) -> Result<()> {
    ensure!(answer.header("retry-after").is_some(), "no Retry-After");
    ensure!(answer.header("podhost-fence").is_none(), "a fence is shown");
    answer.wants_problem(503, "unavailable").map(drop)
}

/// A checkout and forty new products meet a fence of two seconds or more: all of them are made, once each; the pod was asked
/// some ten times a second; the shop was read all the while.
async fn a_fence_costs_a_wait_and_nothing_else(fleet: &Fleet) -> Result<()> {
    let scene = Scene::new(fleet, &[]).await?;
    scene.home(HomeState::Fenced).await?;
    let (before, fenced) = (scene.refusals().await?, Instant::now());
    let fence = async {
        scene.until_parked(1).await?;
        let (rest, ()) = tokio::try_join!(async { anyhow::Ok(scene.adds(40).await) }, async {
            scene.until_parked(41).await?;
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(2) {
                // The fence is lifted after it.
                scene.shop.get("/api/v1/products").await?.wants(200)?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            scene.home(HomeState::Serving).await
        })?;
        anyhow::Ok(rest)
    };
    let (first, rest) = join(scene.buy(0), fence).await;
    for answer in rest?.into_iter().chain([first]) {
        answer?.wants(201)?;
    }
    let (asked, took) = (scene.refusals().await? - before, fenced.elapsed());
    ensure!(
        asked > 1.5 && asked < 30.0 + took.as_secs_f64() * 12.0,
        "the pod was asked {asked} times in {took:?}"
    );
    assert_eq!(scene.primary.rows("shop_order", scene.shop.id).await?, 1);
    assert_eq!(scene.primary.rows("product", scene.shop.id).await?, 41);
    scene.until_parked(0).await
}

/// While a home is `handing` reads wait too, and then read.
async fn a_shop_that_is_handed_over_is_read_later(fleet: &Fleet) -> Result<()> {
    let scene = Scene::new(fleet, &[]).await?;
    let path = format!("/api/v1/products/{}/inventory", scene.mug.id);
    scene.home(HomeState::Handing).await?;
    let look = scene.shop.look(&path);
    let open = async {
        scene.until_parked(1).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        scene.home(HomeState::Serving).await
    };
    let (read, opened) = join(look, open).await;
    opened?;
    read?.wants(200)?;
    scene.until_parked(0).await
}

/// How long reads and writes of a shop take, the quickest and the slowest of some.
async fn times(shop: &Shop, mug: &Product, round: &str) -> Result<(Duration, Duration)> {
    let (mut quickest, mut slowest) = (Duration::MAX, Duration::ZERO);
    for n in 0..9 {
        let begun = Instant::now();
        shop.buy(&format!("{round}-{n}"), &[(mug, 1)]).await?;
        shop.get("/api/v1/products").await?.wants(200)?;
        let took = begun.elapsed();
        (quickest, slowest) = (quickest.min(took), slowest.max(took));
    }
    Ok((quickest, slowest))
}

/// A hundred parked requests of one shop, and its neighbours at the same pod and at the other sell as before, also while
/// the hundred go on.
async fn a_parked_shop_slows_no_other(fleet: &Fleet) -> Result<()> {
    let scene = Scene::new(fleet, &[]).await?;
    let mut others = Vec::new();
    for pod in [1, 2] {
        let shop = scene.own.shows(&fleet.shop(pod).await?).await?;
        let mug = shop.product("Mug", "1.00", 1_000).await?;
        let (usual, _) = times(&shop, &mug, "before").await?;
        others.push((shop, mug, usual));
    }
    scene.home(HomeState::Fenced).await?;
    let watch = async {
        scene.until_parked(1).await?;
        let beside = async {
            scene.until_parked(101).await?;
            for (round, open) in [("parked", false), ("drained", true)] {
                if open {
                    scene.home(HomeState::Serving).await?;
                }
                for (shop, mug, usual) in &others {
                    let (now, slowest) = times(shop, mug, round).await?;
                    // Whatever else this machine does, one in a row is as quick as usual; and none waits like the parked.
                    let bound = *usual * 3 + Duration::from_millis(250);
                    ensure!(now < bound, "{round}: {now:?}, usually {usual:?}");
                    ensure!(slowest < AT_ONCE, "{round}: one took {slowest:?}");
                }
            }
            Ok(())
        };
        let (answers, beside) = join(scene.adds(100), beside).await;
        beside?;
        anyhow::Ok(answers)
    };
    let (first, rest) = join(scene.buy(0), watch).await;
    for answer in rest?.into_iter().chain([first]) {
        answer?.wants(201)?;
    }
    assert_eq!(scene.primary.rows("product", scene.shop.id).await?, 101);
    scene.until_parked(0).await
}

/// A write that meets a pod without primary waits until it has one again, and eventual reads go on; the second time within
/// the gap (a minute, if nobody says otherwise) nobody waits.
async fn a_pod_without_primary_is_waited_for_but_not_twice_in_a_minute(
    fleet: &Fleet,
) -> Result<()> {
    // The second time comes within the gap, whatever the first one took here.
    let scene = Scene::new(fleet, &[("unready_gap", text("10m"))]).await?;
    scene.buy("before").await?.wants(201)?;
    fleet.kill_and_hold_down("mysql-1-1").await?;
    let back = async {
        scene.until_parked(3).await?;
        scene.shop.get("/api/v1/products").await?.wants(200)?;
        fleet.let_up("mysql-1-1").await
    };
    let parked = Instant::now();
    let (answers, back) = join(scene.buys(0..3), back).await;
    back?;
    // Where the machine took longer to start it than a window, nobody was promised anything.
    if parked.elapsed() < WINDOW {
        for answer in answers {
            answer?
                .wants(201)
                .context("a buyer who waited for the primary")?;
        }
    }
    scene.until_parked(0).await?;
    // Soon after it a refusal would still belong to the first time.
    tokio::time::sleep(SETTLED).await;
    fleet.kill_and_hold_down("mysql-1-1").await?;
    wait_until("nobody waits again", ANSWERED_MAX, async || {
        let begun = Instant::now();
        told_to_come_back(scene.buy("again").await?)?;
        ensure!(begun.elapsed() < AT_ONCE, "took {:?}", begun.elapsed());
        Ok(())
    })
    .await?;
    ensure!(scene.given_up("gap").await? > 0.5, "gap is not counted");
    fleet.let_up("mysql-1-1").await?;
    wait_until("pod 1 sells again", RECOVER_MAX, async || {
        scene.buy("again").await?.wants(201)
    })
    .await
    .map(drop)
}

/// The catalog is down, and the edge's table is from before the shop moved: parked writes and reads go where the mark of the
/// old pod says.
async fn a_mark_leads_to_the_new_pod_with_the_catalog_down(fleet: &Fleet) -> Result<()> {
    let scene = Scene::new(fleet, &[]).await?;
    let Shop { id, epoch, .. } = scene.shop;
    let next = Epoch::try_from(epoch.get() + 1).context("an epoch")?;
    let there = fleet.primary(2).await?;
    fleet.kill_and_hold_down("control").await?;
    scene.home(HomeState::Fenced).await?;
    let cut = async {
        scene.until_parked(4).await?;
        let row = format!(
            "insert into shop_home (shop_id, epoch, state) values ({id}, {}, 'serving')",
            next.get()
        );
        there.run(&row).await?;
        let mark = Some((PodId::try_from(2_u64).context("a pod")?, next));
        scene
            .primary
            .set_home(id, HomeState::Moved, epoch, mark)
            .await
    };
    let body = checkout_body(&[(&scene.mug, 1)], "approve");
    let call = |n: u32| {
        Call::post("/api/v1/checkouts")
            .key(format!("{id}-{n}"))
            .json(&body)
    };
    let writes = join_all((0..4).map(|n| scene.shop.send(call(n))));
    let (answers, cut) = join(writes, cut).await;
    cut?;
    for answer in answers {
        // The shop's rows were left behind: the new pod does not know the product, and says so.
        let answer = answer?;
        ensure!(
            [404, 409, 422].contains(&answer.status),
            "{}: {}",
            answer.status,
            answer.text()
        );
    }
    // A process of the old pod may go by what it knew of the home for a second.
    wait_until("reads come from the new pod", ANSWERED_MAX, async || {
        let list = scene.shop.get("/api/v1/products").await?.wants(200)?;
        ensure!(!list.text().contains("Mug"), "{}", list.text());
        Ok(())
    })
    .await?;
    scene.until_parked(0).await?;
    there
        .run(&format!("delete from shop_home where shop_id = {id}"))
        .await?;
    scene.home(HomeState::Serving).await?;
    fleet.let_up("control").await
}
