//! Limits on parked requests: who is over one is told so, is counted by its name, and the others are served.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::join;
use serde_json::json;
use shared::home::HomeState;
use tests::suite::Test;
use tests::{Fleet, metrics, tests, wait_until};
use toml::Value;

use super::{ANSWERED_MAX, AT_ONCE, Scene, text, told_to_come_back};

pub(super) fn list() -> Vec<Test> {
    tests![shares:
        each_limit_on_parked_requests_is_reached_and_named,
        two_shops_share_the_room_for_parked_requests,
        a_shop_that_is_fenced_for_too_long_is_refused_at_once,
        an_edge_that_stops_answers_whom_it_parked,
    ]
}

/// Each limit on an edge of its own: who is over it is told so at once, is counted by its name, and the others are served.
async fn each_limit_on_parked_requests_is_reached_and_named(fleet: &Fleet) -> Result<()> {
    let short = [
        ("window", text("1s")),
        ("pause_bound", text("500ms")),
        ("lease", text("500ms")),
    ];
    let scene = Scene::new(fleet, &short).await?;
    scene.home(HomeState::Fenced).await?;
    let begun = Instant::now();
    told_to_come_back(scene.buy("late").await?).context("window")?;
    let took = begun.elapsed();
    ensure!(
        took >= Duration::from_secs(1) && took < AT_ONCE,
        "a window of {took:?}"
    );
    ensure!(
        scene.given_up("window").await? > 0.5,
        "window is not counted"
    );
    scene.until_parked(0).await?;

    for (why, park) in [
        ("shop", ("shop_max", Value::Integer(3))),
        ("bytes", ("bytes_max", text("100KiB"))),
    ] {
        let scene = Scene::new(fleet, &[park]).await?;
        scene.home(HomeState::Fenced).await?;
        let over = async {
            scene.until_parked(1).await?;
            let many = join(scene.buys(1..3), scene.junk(60_000));
            let over = async {
                scene
                    .until_parked(if why == "bytes" { 4 } else { 3 })
                    .await?;
                let begun = Instant::now();
                told_to_come_back(scene.junk(60_000).await?).context(why)?;
                ensure!(begun.elapsed() < AT_ONCE, "{why} was waited for");
                scene.home(HomeState::Serving).await
            };
            let ((bought, _), over) = join(many, over).await;
            over?;
            anyhow::Ok(bought)
        };
        let (first, over) = join(scene.buy(0), over).await;
        let sold = over?.into_iter().chain([first]).flatten();
        let sold = sold.filter(|answer| answer.status == 201).count();
        ensure!(sold >= 2, "{why}: {sold} of those who waited were served");
        ensure!(scene.given_up(why).await? > 0.5, "{why} is not counted");
        scene.until_parked(0).await?;
        let bytes = metrics::total(&scene.own.admin, "podhost_edge_parked_bytes").await?;
        ensure!(bytes < 0.5, "{bytes} bytes are kept for nobody");
    }
    Ok(())
}

/// Room for three: one shop has taken two seats, the other gets the third, and no fourth.
async fn two_shops_share_the_room_for_parked_requests(fleet: &Fleet) -> Result<()> {
    let park = [
        ("all_max", Value::Integer(3)),
        ("shop_max", Value::Integer(2)),
    ];
    let one = Scene::new(fleet, &park).await?;
    let other = fleet.shop(1).await?;
    let list = "/api/v1/products";
    let two = one.own.shows(&other).await?;
    one.home(HomeState::Fenced).await?;
    let fence = |state| one.primary.set_home(two.id, state, two.epoch, None);
    fence(HomeState::Fenced).await?;
    let body = json!({"title": "New", "price": "1.00", "currency": "USD", "available": 1});
    let over = async {
        one.until_parked(2).await?;
        let third = two.merchant_post(list, &body);
        let fourth = async {
            one.until_parked(3).await?;
            told_to_come_back(two.merchant_post(list, &body).await?)?;
            ensure!(one.given_up("all").await? > 0.5, "all is not counted");
            fence(HomeState::Serving).await?;
            one.home(HomeState::Serving).await
        };
        let (third, fourth) = join(third, fourth).await;
        fourth?;
        third?.wants(201)
    };
    let (answers, over) = join(one.adds(2), over).await;
    over?;
    for answer in answers {
        answer?.wants(201)?;
    }
    one.until_parked(0).await
}

/// Past the longest fence nobody waits; one request in a while asks; when it saw the shop open it sells again.
async fn a_shop_that_is_fenced_for_too_long_is_refused_at_once(fleet: &Fleet) -> Result<()> {
    let park = [
        ("window", text("1500ms")),
        ("pause_bound", text("500ms")),
        ("lease", text("500ms")),
        ("fence_max", text("2s")),
    ];
    let scene = Scene::new(fleet, &park).await?;
    scene.home(HomeState::Fenced).await?;
    let mut buyers = 0..;
    wait_until("nobody waits any more", ANSWERED_MAX, async || {
        let key = format!("b{}", buyers.next().unwrap_or(0));
        told_to_come_back(scene.buy(key).await?)?;
        let refused = scene.given_up("fence").await?;
        ensure!(refused > 0.5, "nobody was refused");
        Ok(())
    })
    .await?;
    let (before, refused) = (scene.refusals().await?, scene.given_up("fence").await?);
    let begun = Instant::now();
    for n in 0..30 {
        told_to_come_back(scene.buy(format!("c{n}")).await?)?;
    }
    let took = begun.elapsed();
    // Each of them would have waited for a second and a half.
    ensure!(
        took < Duration::from_secs(40),
        "thirty refusals took {took:?}"
    );
    let asked = scene.refusals().await? - before;
    ensure!(
        asked <= 2.0 + took.as_secs_f64() * 10.0,
        "asked {asked} times in {took:?}"
    );
    let refused = scene.given_up("fence").await? - refused;
    ensure!(refused > 29.5, "fence is counted {refused} times");
    scene.shop.get("/api/v1/products").await?.wants(200)?;
    scene.home(HomeState::Serving).await?;
    wait_until("the shop sells again", AT_ONCE, async || {
        scene.buy("d").await?.wants(201)
    })
    .await?;
    scene.buy("e").await?.wants(201).context("and goes on")?;
    scene.until_parked(0).await
}

async fn an_edge_that_stops_answers_whom_it_parked(fleet: &Fleet) -> Result<()> {
    let scene = Scene::new(fleet, &[]).await?;
    scene.home(HomeState::Fenced).await?;
    let stop = async {
        scene.until_parked(5).await?;
        scene.own.terminate()?;
        anyhow::Ok(Instant::now())
    };
    let (answers, stopped) = join(scene.buys(0..5), stop).await;
    let took = stopped?.elapsed();
    for answer in answers {
        told_to_come_back(answer?)?;
    }
    ensure!(took < AT_ONCE, "they waited for {took:?}");
    scene.home(HomeState::Serving).await?;
    scene.own.ended(ANSWERED_MAX).await
}
