//! What a run notes for the next one: how far a copy, a comparison and a dump are, and what an operator reads of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shared::ShopId;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX};
use tests::suite::Test;
use tests::trade::{CREW, Trade};
use tests::{Fleet, Server, tests, wait_until};
use toml::Value;

// What is told of a copy.
mod counts;
use counts::a_copy_that_goes_on_is_counted_on;

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: a_copy_that_goes_on_is_counted_on,
            inv3_a_comparison_goes_on_where_it_was,
            a_comparison_that_is_over_is_noted_on_until_the_fence,
            a_dump_goes_on_where_it_was;
    ]
}

const TABLE: &str = "create table if not exists x_long (shop_id bigint unsigned not null, id int not null, \
    word varchar(60) not null, primary key (shop_id, id))";
/// Enough for several notes of a comparison, in chunks as small as the test's.
const ROWS: u32 = 30_000;
const CHUNK: i64 = 50;

/// Changes that no binlog shows: at the beginning, which the first control server compares, and at the end, which it does
/// not get to.
const UNSEEN: &str = "set sql_log_bin = 0; update x_long set word = 'unseen' where shop_id = {shop} and id in (1, {last})";

/// What a control server says when it goes on with another one's comparison.
const GOES_ON: &str = "the comparison goes on after what an earlier run compared";

/// The control server is killed once it has noted how far it compared. The next one compares the rest, and nothing escapes
/// the two of them: what was altered behind their backs is put in order, and counted, on both sides of the kill.
async fn inv3_a_comparison_goes_on_where_it_was(fleet: &Fleet) -> Result<()> {
    let (source, target) = (fleet.primary(1).await?, fleet.primary(2).await?);
    fleet.on_both(TABLE).await?;
    let points = in_small_chunks(fleet).await?;
    let moved = moved(fleet, &points, (&source, &target)).await;
    fleet.without_own_failpoints(points).await?;
    moved?;
    fleet.on_both("drop table x_long").await
}

/// A control server that notes often and goes in small pieces.
async fn in_small_chunks(fleet: &Fleet) -> Result<OwnFailPoints> {
    let moves = [
        ("note_every", Value::from("100ms")),
        ("chunk_rows_min", Value::from(1)),
        ("chunk_rows_max", Value::from(CHUNK)),
        ("nice_ratio", Value::from(0)),
    ];
    fleet.with_own_failpoints_and_moves(&moves).await
}

/// So many rows of a shop.
fn rows(number: u32) -> String {
    format!(
        "set cte_max_recursion_depth = {number}; insert into x_long with recursive n as \
         (select 1 i union all select i + 1 from n where i < {number}) select {{shop}}, i, sha2(i, 224) from n"
    )
}

async fn moved(
    fleet: &Fleet,
    points: &OwnFailPoints,
    (source, target): (&Server, &Server),
) -> Result<()> {
    let shop = fleet.shop_with_rows(&rows(ROWS)).await?;
    let trade = Trade::start(&shop, CREW).await?;
    let control = ControlDoor::of(fleet).await?;
    points.set(shop.id, "compare.before", "stop")?;
    points.set(shop.id, "note-compared.after", "kill")?;
    let id = fleet.order_move(&shop, 2).await?;
    points.happens(shop.id, "compare.before", MOVED_MAX).await?;
    let unseen = UNSEEN.replace("{shop}", &shop.id.to_string());
    target
        .run(&unseen.replace("{last}", &ROWS.to_string()))
        .await?;
    points.go_on(shop.id, "compare.before");
    let moved = control
        .reaches(id, &[MoveState::Observing], MOVED_MAX)
        .await?;
    ensure!(
        points.go_on(shop.id, "note-compared.after"),
        "nobody noted how far the comparison was"
    );
    let went_on = went_on_after(fleet, shop.id)?;
    let compared = moved.took("compared_rows").unwrap_or_default();
    ensure!(
        0 < went_on && went_on < u64::from(ROWS) && compared > u64::from(ROWS),
        "gone on after {went_on} rows of {compared}"
    );
    let repaired = moved.took("repaired_rows");
    ensure!(repaired == Some(2), "{repaired:?} rows were repaired");
    let (there_was, there_is) = tokio::try_join!(digest(source, shop.id), digest(target, shop.id))?;
    ensure!(
        there_was == there_is,
        "{there_was} there was, {there_is} there is"
    );
    trade.stop().await?.must_be_sound(false)?;
    fleet.finish_move(id).await.map(drop)
}

/// After how many rows the last one went on.
fn went_on_after(fleet: &Fleet, shop: ShopId) -> Result<u64> {
    let log = std::fs::read_to_string(fleet.home().join("logs/control.log"))?;
    let line = log.lines().rfind(|line| line.contains(GOES_ON));
    let line = line.with_context(|| format!("shop {shop}: all was compared from the beginning"))?;
    let rows = line.split("rows=").nth(1).context("without a number")?;
    let digits = rows.split(|c: char| !c.is_ascii_digit()).next();
    Ok(digits.unwrap_or_default().parse()?)
}

async fn digest(server: &Server, shop: ShopId) -> Result<String> {
    let sql = format!(
        "select concat(count(*), ' rows, ', hex(bit_xor(unhex(sha2(concat_ws(',', id, word), 256))))) from x_long where shop_id = {shop}"
    );
    server.text(&sql).await
}

/// A fence missed, and the next one is far away. What is sold until then is compared and noted all the time, so that a control
/// server which takes the move up has seconds of the source's binlog to read.
async fn a_comparison_that_is_over_is_noted_on_until_the_fence(fleet: &Fleet) -> Result<()> {
    let moves = [("note_every", "100ms"), ("fence_retry", "10m")];
    let points = fleet.with_own_failpoints_and_moves(&moves).await?;
    let noted_on = noted_on(fleet, &points).await;
    fleet.without_own_failpoints(points).await?;
    noted_on
}

/// How long a small shop's move takes to its fence, or a note after that, on a machine that has more to do.
const NOTED_MAX: Duration = Duration::from_secs(240);

async fn noted_on(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let target = fleet.primary(2).await?;
    let control = ControlDoor::of(fleet).await?;
    let shop = fleet.shop(1).await?;
    let trade = Trade::start(&shop, CREW).await?;
    points.have_patience(shop.id)?;
    points.set(shop.id, "followed.before", "error")?;
    let id = fleet.order_move(&shop, 2).await?;
    wait_until("the next fence is waited for", NOTED_MAX, async || {
        let moving = control.show(id).await?;
        let waits = moving.waits.as_deref().unwrap_or_default();
        ensure!(waits.contains("the next is tried"), "{}", moving.words());
        Ok(())
    })
    .await?;
    let before = noted(&target, id).await?;
    // Two of them: each needs that what was written before the last one is compared.
    let mut last = before.clone();
    for count in 1..=2 {
        let what = format!("note {count} after the comparison");
        last = wait_until(&what, NOTED_MAX, async || {
            let now = noted(&target, id).await?;
            ensure!(now != last, "all that was noted is {last}");
            Ok(now)
        })
        .await?;
    }
    control.tell(id, "abort").await?.wants(200)?;
    control
        .reaches(id, &[MoveState::Aborted], MOVED_MAX)
        .await?;
    trade.stop().await?.must_be_sound(false)
}

/// From which set of the source's transactions on a run would have to look at keys again.
async fn noted(target: &Server, id: MoveId) -> Result<String> {
    let sql = format!(
        "select json_unquote(json_extract(convert(at using utf8mb4), '$.since')) from move_mark \
         where move_id = '{id}' and part = 'compare'"
    );
    target.text(&sql).await
}

/// The control server is killed in the midst of a dump. The next one reads the rest of the rows alone, and the dump is whole.
async fn a_dump_goes_on_where_it_was(fleet: &Fleet) -> Result<()> {
    fleet.on_both(TABLE).await?;
    let points = in_small_chunks(fleet).await?;
    let dumped = dumped(fleet, &points).await;
    fleet.without_own_failpoints(points).await?;
    dumped?;
    fleet.on_both("drop table x_long").await
}

async fn dumped(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let control = ControlDoor::of(fleet).await?;
    let shop = fleet.shop_with_rows(&rows(ROWS)).await?;
    let moved = fleet.move_shop(&shop, 2).await?;
    let (piece, deletion) = ("dump-piece.before", "delete.before");
    points.set(shop.id, piece, "stop")?;
    points.set(shop.id, deletion, "stop")?;
    control.tell(moved.id, "finish").await?.wants(200)?;
    points.happens(shop.id, piece, MOVED_MAX).await?;
    points.go_on(shop.id, piece);
    let part = format!("shop-{}-pod-1-", shop.id);
    wait_until("the dump is noted", MOVED_MAX, async || {
        let noted = std::fs::read_dir(fleet.home().join("control/moves/dumps"))?
            .flatten()
            .filter(|it| it.file_name().to_string_lossy().starts_with(&part))
            .any(|it| it.path().join("reached.json").exists());
        ensure!(noted, "not yet");
        Ok(())
    })
    .await?;
    points.set(shop.id, piece, "kill")?;
    points.happens(shop.id, piece, MOVED_MAX).await?;
    points.happens(shop.id, deletion, MOVED_MAX).await?;
    let shown: serde_json::Value = fleet
        .podctl
        .json(&["move", "show", &moved.id.to_string()])
        .await?;
    let read = shown["progress"]["rows_dumped"].as_u64();
    let read = read.context("no rows dumped")?;
    ensure!(
        0 < read && read < u64::from(ROWS),
        "{read} rows were read after the kill"
    );
    points.go_on(shop.id, piece);
    points.go_on(shop.id, deletion);
    let done = control
        .reaches(moved.id, &[MoveState::Done], MOVED_MAX)
        .await?;
    let folder = done.record["dump"].as_str().context("no dump")?;
    let keys = "sha256sum --check --quiet sha256 && gunzip --stdout *-x_long.tsv.gz | cut -f 2 | sort -n | uniq | wc -l";
    let mut sh = tokio::process::Command::new("sh");
    let output = sh.args(["-ec", keys]).current_dir(folder).output().await?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && said.trim() == ROWS.to_string(),
        "{said} keys of {ROWS} are in {folder}: {output:?}"
    );
    let manifest = std::fs::read_to_string(std::path::Path::new(folder).join("manifest.json"))?;
    let manifest: serde_json::Value = serde_json::from_str(&manifest)?;
    let tables = manifest["tables"].as_array().context("tables")?;
    let rows = tables.iter().find(|it| it["table"] == "x_long");
    let rows = rows.and_then(|it| it["rows"].as_u64());
    ensure!(rows == Some(ROWS.into()), "{rows:?} rows in the manifest");
    Ok(())
}
