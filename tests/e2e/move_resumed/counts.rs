//! What an operator reads of a copy before and after its control server is killed.

use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX, rows_left, rows_rest};
use tests::{Fleet, Shop, wait_until};
use toml::Value;

use super::{CHUNK, TABLE, rows};

/// Enough for some chunks on both sides of the kill.
const ROWS: u32 = 1_000;
/// So many of them are there when it comes, or a chunk more.
const BEFORE: u64 = 400;

/// The control server is killed between a chunk and its count. What is told of the copy by the next one is no less than what
/// the one before told, also before it has seen how far the copy is; what was there is not its speed; and in the end each row
/// was counted once.
pub(super) async fn a_copy_that_goes_on_is_counted_on(fleet: &Fleet) -> Result<()> {
    fleet.on_both(TABLE).await?;
    let moves = [
        ("note_every", Value::from("100ms")),
        ("chunk_rows_min", Value::from(1)),
        ("chunk_rows_max", Value::from(CHUNK)),
        // With more of them a chunk may be counted while an older one is on its way, which a kill makes undone.
        ("streams", Value::from(1)),
        ("nice_ratio", Value::from(0)),
    ];
    let points = fleet.with_own_failpoints_and_moves(&moves).await?;
    let counted = counted_on(fleet, &points).await;
    fleet.without_own_failpoints(points).await?;
    counted?;
    fleet.on_both("drop table x_long").await
}

async fn counted_on(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let source = fleet.primary(1).await?;
    let control = ControlDoor::of(fleet).await?;
    let shop = fleet.shop_with_rows(&rows(ROWS)).await?;
    rows_rest(&source, shop.id, MOVED_MAX).await?;
    let all = u64::try_from(rows_left(&source, shop.id).await?)?;
    let (id, before) = held_in_the_midst(fleet, points, &shop).await?;
    ensure!(before.rows < all, "nothing is left: {before:?} of {all}");

    points.set(shop.id, "copy-chunk.after", "kill")?;
    points.set(shop.id, "copy.before", "stop")?;
    points.go_on(shop.id, "copy-chunk.after");
    points.happens(shop.id, "copy.before", MOVED_MAX).await?;
    let killed = points.go_on(shop.id, "copy-chunk.after");
    ensure!(killed, "the control server was not killed");
    let noted = told(fleet, id).await?;
    noted.goes_on_after(&before, all)?;

    points.set(shop.id, "copy-chunk.before", "stop")?;
    points.go_on(shop.id, "copy.before");
    points
        .happens(shop.id, "copy-chunk.before", MOVED_MAX)
        .await?;
    let found = told(fleet, id).await?;
    // The chunk that was counted last is there for certain: the next one's mark says so.
    found.goes_on_after(&noted, all)?;

    points.go_on(shop.id, "copy-chunk.before");
    let moved = control.reaches(id, &[MoveState::Observing], MOVED_MAX);
    let copied = moved.await?.took("copied_rows");
    ensure!(copied == Some(all), "{copied:?} rows were copied of {all}");
    fleet.finish_move(id).await.map(drop)
}

/// Copies chunk by chunk until some are there; held after another one, when all before it is told and noted.
async fn held_in_the_midst(
    fleet: &Fleet,
    points: &OwnFailPoints,
    shop: &Shop,
) -> Result<(MoveId, Told)> {
    let place = "copy-chunk.after";
    points.set(shop.id, place, "stop")?;
    let id = fleet.order_move(shop, 2).await?;
    loop {
        points.happens(shop.id, place, MOVED_MAX).await?;
        let now = told(fleet, id).await?;
        if now.rows >= BEFORE {
            break;
        }
        points.set(shop.id, place, "stop")?;
        points.go_on(shop.id, place);
    }
    let before = wait_until("what is told is noted", MOVED_MAX, async || {
        let now = told(fleet, id).await?;
        ensure!((now.rows, now.bytes) == now.noted, "{now:?}");
        Ok(now)
    });
    Ok((id, before.await?))
}

/// What `podctl move show` tells of a copy.
#[derive(Debug)]
struct Told {
    rows: u64,
    bytes: u64,
    expected: u64,
    /// Rows and bytes in the move's record.
    noted: (u64, u64),
    rows_per_s: u64,
    bytes_per_s: u64,
    seconds_left: Option<u64>,
}

async fn told(fleet: &Fleet, id: MoveId) -> Result<Told> {
    wait_until("it is told how far the copy is", MOVED_MAX, async || {
        let args = ["move", "show", &id.to_string()];
        let shown: Json = fleet.podctl.json(&args).await?;
        ensure!(shown["state"] == "copying", "{shown}");
        let number = |part: &str, name: &str| {
            let number = shown[part][name].as_u64();
            number.with_context(|| format!("no {name} of {part} in {shown}"))
        };
        Ok(Told {
            rows: number("progress", "rows_copied")?,
            bytes: number("progress", "bytes_copied")?,
            expected: number("progress", "rows_expected")?,
            noted: (
                number("record", "copied_rows")?,
                number("record", "copied_bytes")?,
            ),
            rows_per_s: number("progress", "rows_per_s")?,
            bytes_per_s: number("progress", "bytes_per_s")?,
            seconds_left: shown["progress"]["seconds_left"].as_u64(),
        })
    })
    .await
}

impl Told {
    /// Of a run that has copied nothing yet.
    fn goes_on_after(&self, before: &Self, all: u64) -> Result<()> {
        let counts = |it: &Self| [it.rows, it.bytes, it.noted.0, it.noted.1];
        let mut pairs = counts(self).into_iter().zip(counts(before));
        ensure!(
            pairs.all(|(now, then)| now >= then),
            "it went back: {before:?}, then {self:?}"
        );
        ensure!(
            self.rows <= all && self.expected == before.expected,
            "{before:?}, then {self:?}, of {all} rows"
        );
        let speed = (self.rows_per_s, self.bytes_per_s, self.seconds_left);
        ensure!(
            speed == (0, 0, None),
            "nothing was copied since the kill: {self:?}"
        );
        Ok(())
    }
}
