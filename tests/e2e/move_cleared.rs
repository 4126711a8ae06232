//! Rows that somebody wrote past the pods, at a pod that does not own their shop: a move there is refused until an operator has
//! ordered to clear them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use shared::ShopId;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, Moving, rows_left};
use tests::suite::Test;
use tests::{Call, Fleet, Server, Shop, tests, wait_until};

// Somebody who writes on and on.
mod noisy;
use noisy::inv9_orders_whose_rows_somebody_writes_keep_nobody_waiting;

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: inv1_inv3_rows_that_no_move_made_are_dumped_and_cleared_by_an_order,
            inv3_rows_that_come_while_others_are_cleared_are_dumped_too,
            inv9_orders_whose_rows_somebody_writes_keep_nobody_waiting;
    ]
}

/// What a control server does to clear rows, as the binary names it.
pub(crate) const STEPS: [&str; 7] = [
    "clear-mark",
    "clear-watch",
    "clear-dump",
    "clear-note",
    "clear-delete",
    "clear-release",
    "clear-done",
];

const TABLE: &str = "create table if not exists x_past (shop_id bigint unsigned not null, id int not null, \
    text varchar(40) not null, primary key (shop_id, id))";
/// With what a dump writes otherwise than it is.
const PAST: &str =
    r"insert into x_past (shop_id, id, text) values ({shop}, 1, 'a\tb\\c'), ({shop}, 2, 'd')";

/// A control server that is killed for each shop's sake, on a machine that has more to do.
const ENDS_MAX: Duration = Duration::from_secs(240);

/// For each step a shop, for whose sake the control server is killed after it, when it has seemed to fail before. One of them
/// was at that pod once, so that a home of it is there; the others never moved.
async fn inv1_inv3_rows_that_no_move_made_are_dumped_and_cleared_by_an_order(
    fleet: &Fleet,
) -> Result<()> {
    fleet.on_both(TABLE).await?;
    let points = fleet.with_own_failpoints().await?;
    let control = ControlDoor::of(fleet).await?;
    let other = fleet.primary(2).await?;
    let mut shops = Vec::new();
    for (number, step) in STEPS.iter().enumerate() {
        let shop = fleet.shop(1).await?;
        if number == 0 {
            refused(fleet, &shop, 2, "has no rows of shop").await?;
            there_and_back(fleet, &shop).await?;
        }
        other.run(&of(PAST, shop.id)).await?;
        let answer = control.order(shop.id, 2).await?;
        let text = answer.wants(409)?.text();
        let way = format!("podctl shop clear {} --at 2", shop.id);
        ensure!(text.contains(&way), "{text}");
        refused(fleet, &shop, 1, "owns shop").await?;
        points.set(shop.id, &format!("{step}.before"), "error")?;
        points.set(shop.id, &format!("{step}.after"), "kill")?;
        shops.push(shop);
    }
    let mut ordered = Vec::new();
    for shop in &shops {
        ordered.push(clear(fleet, shop).await?);
    }
    for ((shop, id), step) in shops.iter().zip(&ordered).zip(STEPS) {
        is_cleared(fleet, &control, &other, shop, *id)
            .await
            .with_context(|| format!("shop {}, {step}", shop.id))?;
        for when in ["before", "after"] {
            let place = format!("{step}.{when}");
            let happened = points.go_on(shop.id, &place);
            ensure!(happened, "{place} was never reached");
        }
        // Once it is done it is the same one.
        let again = clear(fleet, shop).await?;
        ensure!(again == *id, "{again} after {id}");
    }
    for shop in [&shops[0], &shops[STEPS.len() - 1]] {
        let moved = fleet.move_shop(shop, 2).await?;
        let product = shop.product("Lamp", "10.00", 9).await?;
        shop.buy("there", &[(&product, 1)]).await?;
        // Now that pod is the shop's.
        refused(fleet, shop, 1, "has an open move").await?;
        fleet.finish_move(moved.id).await?;
        refused(fleet, shop, 2, "owns shop").await?;
    }
    fleet.without_own_failpoints(points).await?;
    fleet.on_both("drop table x_past").await
}

/// A job that writes there goes on doing so: what comes after the dump is dumped before it goes, and told.
async fn inv3_rows_that_come_while_others_are_cleared_are_dumped_too(fleet: &Fleet) -> Result<()> {
    fleet.announce_error("strays at a pod that is not the shop's")?;
    fleet.on_both(TABLE).await?;
    let points = fleet.with_own_failpoints().await?;
    let control = ControlDoor::of(fleet).await?;
    let other = fleet.primary(2).await?;
    for when in [Late::NobodyDrives, Late::Seen, Late::Behind] {
        let late = late(fleet, &points, &control, &other, when).await;
        late.with_context(|| format!("{when:?}"))?;
    }
    fleet.without_own_failpoints(points).await?;
    fleet.on_both("drop table x_past").await
}

/// When a late row comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    /// While nobody drives the order, after a dump that the next run finds whole.
    NobodyDrives,
    /// Beside the run that is about to delete, which has seen it.
    Seen,
    /// Beside the run that is about to delete, whose reading of the binlog is behind.
    Behind,
}

/// A deletion that did not wait for the reading of the binlog would be over by then; one that waits may take longer.
const DELETED_BY: Duration = Duration::from_secs(2);

async fn late(
    fleet: &Fleet,
    points: &OwnFailPoints,
    control: &ControlDoor,
    other: &Server,
    when: Late,
) -> Result<()> {
    let shop = fleet.shop(1).await?;
    other.run(&of(PAST, shop.id)).await?;
    let more = of(
        "insert into x_past (shop_id, id, text) values ({shop}, 3, 'late')",
        shop.id,
    );
    let id = match when {
        Late::NobodyDrives => {
            let (place, first) = ("clear-note.after", "clear-mark.before");
            points.set(shop.id, place, "kill")?;
            // Until the row is there nobody goes on.
            points.set(shop.id, first, "stop")?;
            let id = clear(fleet, &shop).await?;
            points.happens(shop.id, first, ENDS_MAX).await?;
            points.set(shop.id, first, "stop")?;
            points.go_on(shop.id, first);
            points.happens(shop.id, place, ENDS_MAX).await?;
            points.happens(shop.id, first, ENDS_MAX).await?;
            other.run(&more).await?;
            points.go_on(shop.id, place);
            points.go_on(shop.id, first);
            id
        }
        Late::Seen | Late::Behind => {
            let place = "clear-delete.before";
            points.set(shop.id, place, "stop")?;
            let id = clear(fleet, &shop).await?;
            points.happens(shop.id, place, ENDS_MAX).await?;
            if when == Late::Behind {
                points.be_blind(shop.id, 2)?;
            }
            other.run(&more).await?;
            if when == Late::Seen {
                is_seen(control, id).await?;
            }
            points.go_on(shop.id, place);
            if when == Late::Behind {
                tokio::time::sleep(DELETED_BY).await;
                points.see(shop.id, 2)?;
            }
            id
        }
    };
    let cleared = gone(control, id).await?;
    ensure!(cleared.strays.len() == 1, "{:?}", cleared.strays);
    let left = rows_left(other, shop.id).await?;
    ensure!(left == 0, "{left} rows are left");
    let last = dump_of(&cleared, "-cleared-strays-1.dump")?;
    let found = dumped(last)?;
    ensure!(
        found == wanted(shop.id) + &format!("{}\t3\tlate\n", shop.id),
        "{found:?}"
    );
    let first = last.to_string_lossy().replace("-strays-1", "");
    // No row went after it, so the second one has all of it.
    ensure!(!Path::new(&first).exists(), "{first} is kept");
    Ok(())
}

/// Waits until the order tells of the late row.
async fn is_seen(control: &ControlDoor, id: MoveId) -> Result<()> {
    wait_until("the late row is seen", ENDS_MAX, async || {
        let strays = control.show(id).await?.strays.len();
        ensure!(strays == 1, "{strays} are");
        Ok(())
    })
    .await
}

fn of(sql: &str, shop: ShopId) -> String {
    sql.replace("{shop}", &shop.to_string())
}

/// To that pod, home again, and all moves of it over.
async fn there_and_back(fleet: &Fleet, shop: &Shop) -> Result<()> {
    for to in [2, 1] {
        let moved = fleet.move_shop(shop, to).await?;
        fleet.finish_move(moved.id).await?;
    }
    Ok(())
}

async fn refused(fleet: &Fleet, shop: &Shop, at: u32, part: &str) -> Result<()> {
    let args = ["shop", "clear", &shop.handle, "--at", &at.to_string()];
    let text = fleet.podctl.refused(&args, 1).await?;
    ensure!(text.contains(part), "{text}");
    Ok(())
}

/// Orders it, until that is answered: the control server is killed meanwhile.
async fn clear(fleet: &Fleet, shop: &Shop) -> Result<MoveId> {
    let args = ["shop", "clear", &shop.handle, "--at", "2"];
    let what = "the order to clear is answered";
    let ordered = wait_until(what, ENDS_MAX, async || {
        fleet.podctl.json::<Value>(&args).await
    });
    let ordered = ordered.await?;
    ensure!(ordered["clears"] == true, "{ordered}");
    let id = ordered["id"].as_str().context("an id")?;
    id.parse().map_err(|_| anyhow::anyhow!("the id {id}"))
}

/// Waits until nothing is left to be deleted.
async fn gone(control: &ControlDoor, id: MoveId) -> Result<Moving> {
    let told = wait_until("the rows are cleared", ENDS_MAX, async || {
        let call = Call::get(format!("/v1/moves/{id}"));
        let told: Value = control.send(call).await?.wants(200)?.json()?;
        ensure!(told["leftover_since"].is_null(), "{told}");
        // The control server may be killed for another shop in between.
        control.show(id).await
    })
    .await?;
    ensure!(told.state == MoveState::Aborted, "{}", told.words());
    Ok(told)
}

/// No row is left, the dump has them as they were, and the home sends everybody on and is nobody's.
async fn is_cleared(
    fleet: &Fleet,
    control: &ControlDoor,
    other: &Server,
    shop: &Shop,
    id: MoveId,
) -> Result<()> {
    let told = gone(control, id).await?;
    ensure!(told.strays.is_empty(), "{:?}", told.strays);
    let left = rows_left(other, shop.id).await?;
    ensure!(left == 0, "{left} rows are left");
    let found = dumped(dump_of(&told, "-cleared.dump")?)?;
    ensure!(found == wanted(shop.id), "{found:?}");
    let home = format!(
        "select concat(state, ' ', mark_pod, ' ', ifnull(move_id, 'nobody'), ' ', owner) from shop_home where shop_id = {}",
        shop.id
    );
    let home = other.text(&home).await?;
    ensure!(home == format!("moved 1 nobody {}", told.owner), "{home}");
    let what = "the control server says who owns it";
    let (owner, _) = wait_until(what, ENDS_MAX, async || fleet.owner(shop).await).await?;
    ensure!(owner == 1, "pod {owner} owns it");
    let product = shop.product("Lamp", "10.00", 9).await?;
    shop.buy("at home", &[(&product, 1)]).await.map(drop)
}

fn dump_of<'a>(told: &'a Moving, ending: &str) -> Result<&'a Path> {
    let dump = told.record["dump"].as_str().context("a dump")?;
    ensure!(dump.ends_with(ending), "{dump}");
    Ok(Path::new(dump))
}

/// The lines of the tests' own table in a dump.
fn dumped(dump: &Path) -> Result<String> {
    lines_of(dump, "x_past")
}

/// The lines of a table's file.
pub(crate) fn lines_of(dump: &Path, table: &str) -> Result<String> {
    let text = fs::read_to_string(dump.join("manifest.json"));
    let manifest: Value = serde_json::from_str(&text.context("a manifest")?)?;
    let tables = manifest["tables"].as_array().context("tables")?;
    let table = tables.iter().find(|it| it["table"] == table);
    let file = table.and_then(|it| it["file"].as_str());
    let file = dump.join(file.context("a file")?);
    let out = Command::new("gzip").arg("-dc").arg(&file).output()?;
    ensure!(out.status.success(), "{}", file.display());
    String::from_utf8(out.stdout).context("a dump")
}

/// As `load data` reads them again.
fn wanted(shop: ShopId) -> String {
    format!("{shop}\t1\ta\\tb\\\\c\n{shop}\t2\td\n")
}
