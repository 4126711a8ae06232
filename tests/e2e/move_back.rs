//! A move back makes the former pod's copy equal to the shop again. What somebody changed there meanwhile is undone by that, so
//! an operator has to say that he knows of it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use shared::ShopId;
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX};
use tests::suite::Test;
use tests::{Call, Fleet, Server, Shop, tests, wait_until};

use crate::move_cleared::lines_of;

pub(crate) fn list() -> Vec<Test> {
    tests![alone: inv3_a_move_back_undoes_no_stray_without_a_word_on_it;]
}

const TABLE: &str = "create table if not exists x_back (shop_id bigint unsigned not null, id int not null, \
    text varchar(40) not null, primary key (shop_id, id))";
const ROWS: &str = "insert into x_back (shop_id, id, text) values ({shop}, 1, 'sold')";

/// A small shop's move, on a machine that has more to do.
const ENDS_MAX: Duration = Duration::from_secs(240);

/// A move that did not wait for the reading of the target's binlog would have written by then; one that waits may take longer.
const WRITTEN_BY: Duration = Duration::from_secs(2);

/// It is refused, by its dry run too, until the word is of all strays that there are. One that comes after the word fails the
/// move before a row is written, and is there still.
async fn inv3_a_move_back_undoes_no_stray_without_a_word_on_it(fleet: &Fleet) -> Result<()> {
    fleet.announce_error("strays at the source")?;
    fleet.on_both(TABLE).await?;
    let points = fleet.with_own_failpoints().await?;
    let control = ControlDoor::of(fleet).await?;
    let source = fleet.primary(1).await?;
    let (shop, moved) = changed(fleet, &control, &source).await?;
    let back = back(fleet, &shop, 2).await?;
    let there = control
        .reaches(back, &[MoveState::Observing], ENDS_MAX)
        .await?;
    ensure!(there.back_of == Some(moved), "{}", there.words());
    let row = text(&source, shop.id).await?;
    ensure!(row == "sold", "{row}");
    for id in [moved, back] {
        let call = Call::get(format!("/v1/moves/{id}/events?wait_ms=0"));
        let told = control.send(call).await?.wants(200)?.text();
        ensure!(told.contains("despite 2 stray changes"), "{told}");
    }
    fleet.finish_move(back).await?;

    for order in ["abort", "resume"] {
        let undone = third(fleet, &points, &control, &source, order).await;
        undone.with_context(|| order.to_owned())?;
    }
    fleet.without_own_failpoints(points).await?;
    fleet.on_both("drop table x_back").await
}

/// One comes after the word. It fails the move, and is in a dump when an operator has the move undone, or begun anew.
async fn third(
    fleet: &Fleet,
    points: &OwnFailPoints,
    control: &ControlDoor,
    source: &Server,
    order: &str,
) -> Result<()> {
    let (shop, moved) = changed(fleet, control, source).await?;
    // Nobody hears of the third one.
    points.set(shop.id, "note-strays.before", "stop")?;
    stray(source, shop.id).await?;
    points
        .happens(shop.id, "note-strays.before", MOVED_MAX)
        .await?;
    // The shop has changed the same row, and its change would be written over the stray. What looks for strays is late.
    let sells = format!(
        "update x_back set text = 'sold on' where shop_id = {}",
        shop.id
    );
    fleet.primary(2).await?.run(&sells).await?;
    points.be_blind(shop.id, 1)?;
    let back = self::back(fleet, &shop, 2).await?;
    control
        .reaches(back, &[MoveState::CatchingUp], ENDS_MAX)
        .await?;
    tokio::time::sleep(WRITTEN_BY).await;
    let row = text(source, shop.id).await?;
    ensure!(row == "stray stray stray", "{row}");
    points.see(shop.id, 1)?;
    let failed = control
        .reaches(back, &[MoveState::Failed], ENDS_MAX)
        .await?;
    points.go_on(shop.id, "note-strays.before");
    let why = failed.error.clone().unwrap_or_default();
    ensure!(
        why.contains("x_back") && why.contains("not the mover's"),
        "{why}"
    );
    ensure!(failed.back_of == Some(moved), "{}", failed.words());
    let row = text(source, shop.id).await?;
    ensure!(row == "stray stray stray", "{row}");
    control.tell(back, order).await?.wants(200)?;
    let (end, row) = if order == "abort" {
        (MoveState::Aborted, "")
    } else {
        (MoveState::Observing, "sold on")
    };
    control.reaches(back, &[end], ENDS_MAX).await?;
    cleared(control, back).await?;
    let left = text(source, shop.id).await?;
    ensure!(left == row, "{left}");
    let told = control.show(back).await?;
    let dump = told.record["back_dump"].as_str().context("a dump")?;
    let rows = lines_of(Path::new(dump), "x_back")?;
    ensure!(
        rows == format!("{}\t1\tstray stray stray\n", shop.id),
        "{rows:?}"
    );
    if end == MoveState::Observing {
        fleet.finish_move(back).await?;
    }
    Ok(())
}

/// A shop at pod 2, with two strays at pod 1 that its move has told; of one word after the other none did.
async fn changed(fleet: &Fleet, control: &ControlDoor, source: &Server) -> Result<(Shop, MoveId)> {
    let shop = fleet.shop_with_rows(ROWS).await?;
    let moved = fleet.move_shop(&shop, 2).await?;
    for number in 1..=2 {
        stray(source, shop.id).await?;
        wait_until("the stray is told", MOVED_MAX, async || {
            let told = control.show(moved.id).await?.strays.len();
            ensure!(told == number, "{told} strays");
            Ok(())
        })
        .await?;
        let way = format!("--despite-strays {number}");
        for word in ["0", "3", if number == 1 { "2" } else { "1" }] {
            for dry_run in [true, false] {
                let mut args = vec!["shop", "move", &shop.handle, "--to", "1"];
                args.extend(["--despite-strays", word]);
                args.extend(dry_run.then_some("--dry-run"));
                let text = fleet.podctl.refused(&args, 1).await?;
                ensure!(
                    text.contains(&way) && text.contains("podctl move show"),
                    "{text}"
                );
            }
        }
    }
    Ok((shop, moved.id))
}

async fn stray(source: &Server, shop: ShopId) -> Result<()> {
    let change = "text = if(text = 'sold', 'stray', concat(text, ' stray'))";
    let sql = format!("update x_back set {change} where shop_id = {shop}");
    source.run(&sql).await
}

async fn text(source: &Server, shop: ShopId) -> Result<String> {
    let sql = format!("select ifnull(max(text), '') from x_back where shop_id = {shop}");
    source.text(&sql).await
}

/// In one command, after a dry run that is not refused either.
async fn back(fleet: &Fleet, shop: &Shop, despite: u64) -> Result<MoveId> {
    let despite = despite.to_string();
    let mut args = vec!["shop", "move", &shop.handle, "--to", "1"];
    args.extend(["--despite-strays", &despite]);
    let mut dry = args.clone();
    dry.push("--dry-run");
    let check: Value = fleet.podctl.json(&dry).await?;
    ensure!(check["back"] == true && check["strays"] == 2, "{check}");
    args.extend(["--observe", "1h"]);
    let begun: Value = fleet.podctl.json(&args).await?;
    let id = begun["id"].as_str().context("an id")?;
    id.parse().map_err(|_| anyhow::anyhow!("the id {id}"))
}

/// Nothing of the undone move is there any more.
async fn cleared(control: &ControlDoor, id: MoveId) -> Result<()> {
    wait_until("what it left is deleted", ENDS_MAX, async || {
        let call = Call::get(format!("/v1/moves/{id}"));
        let told: Value = control.send(call).await?.wants(200)?.json()?;
        ensure!(told["leftover_since"].is_null(), "{told}");
        Ok(())
    })
    .await
}
