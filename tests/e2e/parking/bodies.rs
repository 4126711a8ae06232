//! Bodies that are kept while their request is parked, and those before which the pod is asked.

use anyhow::{Result, ensure};
use futures::future::{join, join_all};
use serde_json::json;
use shared::home::HomeState;
use tests::suite::Test;
use tests::{Call, Fleet, metrics, tests, wait_until};

use super::{ANSWERED_MAX, Scene};

pub(super) fn list() -> Vec<Test> {
    tests![shares:
        a_large_upload_alone_at_a_fence_waits_and_is_sent_once;
    alone:
        a_small_body_in_chunks_is_parked_and_asks_nothing,
        a_large_upload_passes_by_a_process_that_says_nothing,
    ]
}

const PRODUCTS: &str = "/api/v1/products";
/// More than an edge keeps of a body, less than a pod takes.
const UPLOAD_BYTES: usize = 200 * 1024;

/// The only writer of a fenced shop sends more than is kept: the edge asks for it until the fence is lifted, then it is sent.
async fn a_large_upload_alone_at_a_fence_waits_and_is_sent_once(fleet: &Fleet) -> Result<()> {
    let scene = Scene::new(fleet, &[]).await?;
    scene.home(HomeState::Fenced).await?;
    let before = scene.refusals().await?;
    let upload = scene.shop.send(upload(&scene));
    let lifted = async {
        scene.until_parked(1).await?;
        wait_until("the pod is asked again", ANSWERED_MAX, async || {
            let asked = scene.refusals().await? - before;
            ensure!(asked > 4.5, "{asked} times");
            Ok(())
        })
        .await?;
        scene.home(HomeState::Serving).await
    };
    let (answer, lifted) = join(upload, lifted).await;
    lifted?;
    answer?.wants(201)?;
    // And the mug.
    assert_eq!(scene.primary.rows("product", scene.shop.id).await?, 2);
    ensure!(scene.given_up("body").await? < 0.5, "a body was lost");
    scene.until_parked(0).await
}

/// A new product, with more behind it than is kept.
fn upload(scene: &Scene) -> Call {
    let body = format!("{}{}", product(), " ".repeat(UPLOAD_BYTES));
    let call = Call::post(PRODUCTS).token(&scene.shop.token);
    call.body("application/json", body)
}

fn product() -> String {
    json!({"title": "New", "price": "1.00", "currency": "USD", "available": 1}).to_string()
}

/// A small body of unknown length meets a fence: it is parked and sent again like one with a length, and the pod is not asked
/// for it.
async fn a_small_body_in_chunks_is_parked_and_asks_nothing(fleet: &Fleet) -> Result<()> {
    let scene = Scene::new(fleet, &[]).await?;
    scene.home(HomeState::Fenced).await?;
    let (before, asked) = (scene.refusals().await?, questions(&scene).await?);
    let body = product();
    let (first, rest) = body.split_at(body.len() / 2);
    let request = format!(
        "POST {PRODUCTS} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\n\r\n",
        scene.shop.host,
        scene.shop.token,
        first.len(),
        rest.len(),
    );
    let lifted = async {
        scene.until_parked(1).await?;
        wait_until("the request is sent again", ANSWERED_MAX, async || {
            let sent = scene.refusals().await? - before;
            ensure!(sent > 2.5, "{sent} times");
            Ok(())
        })
        .await?;
        scene.home(HomeState::Serving).await
    };
    let (answer, lifted) = join(scene.own.edge.raw(request.as_bytes()), lifted).await;
    lifted?;
    let answer = answer?;
    ensure!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let asked = questions(&scene).await? - asked;
    ensure!(asked < 0.5, "the pod was asked {asked} times");
    // And the mug.
    assert_eq!(scene.primary.rows("product", scene.shop.id).await?, 2);
    scene.until_parked(0).await
}

/// What its pod was asked that belongs to no route.
async fn questions(scene: &Scene) -> Result<f64> {
    let mut sum = 0.0;
    for admin in &scene.pod {
        sum += metrics::sum(admin, "podhost_requests_total", "route=\"none\"").await?;
    }
    Ok(sum)
}

/// One of a pod's two processes is frozen: it takes the question before a large body, and says nothing. The body goes to the
/// other one, whichever was chosen first.
async fn a_large_upload_passes_by_a_process_that_says_nothing(fleet: &Fleet) -> Result<()> {
    let scene = Scene::new(fleet, &[]).await?;
    let frozen = fleet.unit("pod-1-1")?.freeze()?;
    let uploads = (0..4).map(|_| scene.shop.send(upload(&scene)));
    let answers = join_all(uploads).await;
    frozen.thaw();
    for answer in answers {
        answer?.wants(201)?;
    }
    fleet.processes_ready(1).await?;
    // And the mug.
    assert_eq!(scene.primary.rows("product", scene.shop.id).await?, 5);
    Ok(())
}
