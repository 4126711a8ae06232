//! A shop whose writers are faster than its move.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use futures::future::{select_all, try_join_all};
use shared::moves::MoveState;
use sqlx::{AssertSqlSafe, Executor};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX};
use tests::mysql::text;
use tests::{Fleet, Server, Shop, wait_until};
use toml::Value;

use super::{says, shop_with_rows, tidy_up};

/// Writers; each has rows of its own.
const WRITERS: u32 = 4;
/// Rows of each, all changed by each of its transactions: more than the move is content with, and few enough to be read again
/// as fast as they are written, or nearly. And how far apart they are: no range locks another's.
const ROWS_EACH: u32 = 60;
const APART: u32 = 1_000;
/// Where the move is held until they write: what they did before would only make its first look long.
const HELD_AT: &str = "catch-up.before";
/// The lock that the test holds for as long as they shall write.
const LOCK: &str = "x_pace_writes";
/// Waited for inside of a server, where no machine is too slow for them: between two of a writer's transactions there is no
/// client. A writer goes by the home's leave, as a pod does.
const WRITER: &str =
    "create procedure x_pace_write(in shop bigint unsigned, in first int, in last int) begin
    set @home = 'serving';
    while @home = 'serving' and is_used_lock('x_pace_writes') is not null do
      start transaction;
      select state into @home from shop_home where shop_id = shop for share;
      if @home = 'serving' then
        update x_pace set n = n + 1 where shop_id = shop and id between first and last;
      end if;
      commit;
    end while;
  end";
/// Until the mover has given up, and until what it left is deleted, on a machine that has more to do.
const ENDS_MAX: Duration = Duration::from_secs(180);

/// Writers change some thousand rows a second while a move is content with very few: it ends by itself, says why, and leaves
/// nothing behind; the shop has sold all the while and goes on.
pub(super) async fn a_shop_that_is_never_caught_up_with_stays_and_sells(
    fleet: &Fleet,
) -> Result<()> {
    let points = fleet
        .with_own_failpoints_and_moves(&[
            ("converge_bound", Value::from("3s")),
            ("fence_keys_max", Value::from(20)),
            // Writers like these leave the replicas of a busy machine behind.
            ("replica_lag_max", Value::from("1h")),
        ])
        .await?;
    let done = Box::pin(never_caught_up(fleet, &points)).await;
    let source = fleet.primary(1).await?;
    source.run("drop procedure if exists x_pace_write").await?;
    tidy_up(fleet, points).await?;
    done
}

async fn never_caught_up(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let shop = shop_with_rows(fleet).await?;
    let (source, target) = (fleet.primary(1).await?, fleet.primary(2).await?);
    source.run(WRITER).await?;
    let control = ControlDoor::of(fleet).await?;
    points.set(shop.id, HELD_AT, "stop")?;
    let id = fleet.order_move(&shop, 2).await?;
    points.happens(shop.id, HELD_AT, MOVED_MAX).await?;
    let mut lock = source.connect().await?;
    text(&mut lock, &format!("select get_lock('{LOCK}', 0)")).await?;
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| tokio::spawn(write(source.clone(), shop.clone(), number)))
        .collect();
    let moving = async {
        all_write(&source, &shop).await?;
        points.go_on(shop.id, HELD_AT);
        control.reaches(id, &[MoveState::Aborted], ENDS_MAX).await
    };
    let mut writers = select_all(writers);
    let aborted = tokio::select! {
        aborted = moving => aborted?,
        // They end by a fence only: there is none.
        (ended, ..) = &mut writers => return Err(anyhow!("a fence closed: {ended:?}")),
    };
    drop(lock);
    try_join_all(writers.into_inner())
        .await
        .context("the writers")?
        .into_iter()
        .collect::<Result<()>>()?;
    let error = aborted.error.clone().unwrap_or_default();
    for words in ["does not come close to the source", "freeze the shop"] {
        ensure!(error.contains(words), "it says {error:?}");
    }
    ensure!(aborted.took("fence_tries") == Some(0), "{}", aborted.record);
    says(fleet, aborted.id, &["does not come close to the source"]).await?;
    shop.product("One more", "1.00", 1).await?;
    ensure!(fleet.owner(&shop).await? == (1, 1), "another pod owns it");
    ensure!(
        source.home(shop.id).await? == ("serving".to_owned(), 1),
        "the source's home"
    );
    wait_until("the target's rows are gone", ENDS_MAX, async || {
        let left = target.rows("x_pace", shop.id).await?;
        ensure!(left == 0, "{left} rows are left");
        Ok(())
    })
    .await?;
    // With nobody who writes like that it goes.
    let moved = fleet.move_shop(&shop, 2).await?;
    fleet.finish_move(moved.id).await.map(drop)
}

/// Returns when each writer has written.
async fn all_write(source: &Server, shop: &Shop) -> Result<()> {
    let written = format!(
        "select count(*) from x_pace where shop_id = {} and n > 0",
        shop.id
    );
    wait_until("all of them write", MOVED_MAX, async || {
        let written = source.number(&written).await?;
        let all = i64::from(WRITERS * ROWS_EACH);
        ensure!(written == all, "{written} rows of {all} are changed");
        Ok(())
    })
    .await
}

/// Writes until a fence, or the end of the lock.
async fn write(source: Server, shop: Shop, number: u32) -> Result<()> {
    let first = 1 + number * APART;
    let last = first + ROWS_EACH - 1;
    let call = format!("call x_pace_write({}, {first}, {last})", shop.id);
    let mut session = source.connect().await?;
    let written = session.execute(AssertSqlSafe(call)).await;
    written.map(drop).context("a writer")
}
