//! So many rows change at once that a move does not note any more which.

use anyhow::{Result, ensure};
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX};
use tests::{Fleet, Server, wait_until};
use toml::Value;

use super::{COPIED_MAX, shop_with_rows, tidy_up};

/// Changed keys that are noted, at most.
const TOUCHED_MAX: i64 = 500;
/// Rows of a burst: some times as many.
const BURST: u32 = 2_000;
/// What a control server says when it begins again with the first row.
const ANEW: &str = "changed before they could be compared: the comparison begins anew";

/// One burst comes while all is compared, the next when all was compared and the fence is about to close: it is found inside.
/// Both times everything is applied and compared again from the first row, and the move arrives with all that was written.
pub(super) async fn a_burst_of_changes_costs_a_comparison_and_not_the_move(
    fleet: &Fleet,
) -> Result<()> {
    let points = fleet
        .with_own_failpoints_and_moves(&[
            ("touched_keys_max", Value::from(TOUCHED_MAX)),
            ("fence_keys_max", Value::from(TOUCHED_MAX)),
            ("note_every", Value::from("100ms")),
            ("fence_retry", Value::from("100ms")),
            ("nice_ratio", Value::from(0)),
        ])
        .await?;
    let moved = moved(fleet, &points).await;
    tidy_up(fleet, points).await?;
    moved
}

async fn moved(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let (source, target) = (fleet.primary(1).await?, fleet.primary(2).await?);
    let shop = shop_with_rows(fleet).await?;
    let control = ControlDoor::of(fleet).await?;
    let burst = format!(
        "update x_pace set n = n + 1 where shop_id = {} and id <= {BURST}",
        shop.id
    );
    // However slow the machine is: no fence misses for another reason.
    points.have_patience(shop.id)?;
    let (comparing, compared) = ("note-compared.before", "verified.before");
    points.set(shop.id, comparing, "stop")?;
    points.set(shop.id, compared, "stop")?;
    let id = fleet.order_move(&shop, 2).await?;
    points.happens(shop.id, comparing, MOVED_MAX).await?;
    source.run(&burst).await?;
    wait_until("the comparison begins anew", COPIED_MAX, async || {
        let times = begun_anew(fleet, id)?;
        ensure!(times == 1, "{times} times");
        Ok(())
    })
    .await?;
    points.go_on(shop.id, comparing);
    points.happens(shop.id, compared, COPIED_MAX).await?;
    source.run(&burst).await?;
    points.go_on(shop.id, compared);
    let moved = control
        .reaches(id, &[MoveState::Observing], COPIED_MAX)
        .await?;
    let (times, tries) = (begun_anew(fleet, id)?, moved.took("fence_tries"));
    ensure!(
        times == 2 && tries == Some(2),
        "begun anew {times} times, {tries:?} fences: {}",
        moved.words()
    );
    let (was, is) = tokio::try_join!(written(&source, &shop), written(&target, &shop))?;
    ensure!(was == is, "{was} was written, {is} is there");
    fleet.finish_move(id).await.map(drop)
}

/// How often the log says so of a move.
fn begun_anew(fleet: &Fleet, id: MoveId) -> Result<usize> {
    let log = std::fs::read_to_string(fleet.home().join("logs/control.log"))?;
    let id = id.to_string();
    let lines = log.lines().filter(|line| line.contains(ANEW));
    Ok(lines.filter(|line| line.contains(&id)).count())
}

async fn written(server: &Server, shop: &tests::Shop) -> Result<String> {
    let sql = format!(
        "select concat(count(*), ' rows, ', sum(n), ' changes, ', \
         hex(bit_xor(unhex(sha2(concat_ws(',', id, n, pad), 256))))) from x_pace where shop_id = {}",
        shop.id
    );
    server.text(&sql).await
}
