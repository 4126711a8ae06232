//! Somebody who writes on and on where rows are cleared.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shared::ShopId;
use shared::moves::MoveId;
use tests::failpoint::OwnFailPoints;
use tests::moves::ControlDoor;
use tests::{Fleet, Server, Shop, wait_until};
use tokio::task::JoinSet;

use super::{ENDS_MAX, PAST, TABLE, clear, dumped, gone, of};

/// As many as may delete at that pod at once (`moves_per_pod`).
const NOISY: usize = 2;
const WRITES_EVERY: Duration = Duration::from_millis(100);
/// Of the first one nothing went, so that at most one is there beside the one that is being written.
const DUMPS_MAX: usize = 2;

/// Orders that wait until nobody writes say so, keep no turn and fill no disk: another shop's rows are cleared meanwhile. When the
/// writers have stopped all is dumped and cleared.
pub(super) async fn inv9_orders_whose_rows_somebody_writes_keep_nobody_waiting(
    fleet: &Fleet,
) -> Result<()> {
    fleet.announce_error("strays at a pod that is not the shop's")?;
    fleet.on_both(TABLE).await?;
    let points = fleet.with_own_failpoints().await?;
    let control = ControlDoor::of(fleet).await?;
    let other = fleet.primary(2).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    let mut noisy = Vec::new();
    for _ in 0..NOISY {
        let shop = fleet.shop(1).await?;
        let id = written_to(fleet, &points, &other, &shop, &stop, &mut writers).await?;
        noisy.push((shop, id));
    }
    for (shop, id) in &noisy {
        waits(&control, *id, shop).await?;
    }
    let quiet = fleet.shop(1).await?;
    other.run(&of(PAST, quiet.id)).await?;
    let cleared = clear(fleet, &quiet).await?;
    gone(&control, cleared).await?;
    for (shop, id) in &noisy {
        waits(&control, *id, shop).await?;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = writers.join_next().await {
        ended.context("a writer")??;
    }
    for (shop, id) in &noisy {
        let told = gone(&control, *id).await?;
        let dump = told.record["dump"].as_str().context("a dump")?;
        let last = dumped(Path::new(dump))?;
        ensure!(last.contains("\t3\tlast\n"), "{dump}: {last}");
        let dumps = dumps_of(Path::new(dump), shop.id)?;
        ensure!(dumps <= DUMPS_MAX, "{dumps} dumps of shop {}", shop.id);
    }
    fleet.without_own_failpoints(points).await?;
    fleet.on_both("drop table x_past").await
}

/// Orders to clear a shop's rows, and has somebody write there from before its first row goes.
async fn written_to(
    fleet: &Fleet,
    points: &OwnFailPoints,
    other: &Server,
    shop: &Shop,
    stop: &Arc<AtomicBool>,
    writers: &mut JoinSet<Result<()>>,
) -> Result<MoveId> {
    other.run(&of(PAST, shop.id)).await?;
    let place = "clear-note.after";
    points.set(shop.id, place, "stop")?;
    let id = clear(fleet, shop).await?;
    points.happens(shop.id, place, ENDS_MAX).await?;
    write(other, shop.id, "first").await?;
    writers.spawn(writes(other.clone(), shop.id, Arc::clone(stop)));
    points.go_on(shop.id, place);
    Ok(id)
}

async fn writes(other: Server, shop: ShopId, stop: Arc<AtomicBool>) -> Result<()> {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        write(&other, shop, &number.to_string()).await?;
        tokio::time::sleep(WRITES_EVERY).await;
    }
    write(&other, shop, "last").await
}

async fn write(other: &Server, shop: ShopId, text: &str) -> Result<()> {
    let sql = format!("replace into x_past (shop_id, id, text) values ({shop}, 3, '{text}')");
    other.run(&sql).await
}

/// The order is not done, and says why.
async fn waits(control: &ControlDoor, id: MoveId, shop: &Shop) -> Result<()> {
    let what = format!("shop {} waits until nobody writes", shop.id);
    wait_until(&what, ENDS_MAX, async || {
        let told = control.show(id).await?;
        let waits = told.waits.as_deref().unwrap_or_default();
        ensure!(waits.contains("somebody writes rows"), "{}", told.words());
        Ok(())
    })
    .await
}

/// How many whole dumps of a shop are beside this one.
fn dumps_of(dump: &Path, shop: ShopId) -> Result<usize> {
    let mut dumps = 0;
    for entry in dump.parent().context("a folder")?.read_dir()? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let of_shop = name.starts_with(&format!("shop-{shop}-pod-2-"));
        dumps += usize::from(of_shop && name.ends_with(".dump"));
    }
    Ok(dumps)
}
