//! Statements of a mover that take too long: each is ended at its server too, and what asked for it is named.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shared::moves::MoveState;
use tests::moves::{ControlDoor, MOVED_MAX};
use tests::mysql::text;
use tests::{Fleet, Server, wait_until};
use toml::Value;

/// Much longer than the test, and what it is found by.
const SLEEP: &str = "sleep(1234)";
/// Until a statement that was given up is gone: two connections and a moment.
const ENDED_MAX: Duration = Duration::from_secs(10);

/// A question of the application that never answers: it is asked a few times, and each time the one before is ended, then
/// the move is undone and says which one it was.
pub(super) async fn a_question_that_takes_too_long_ends_the_move_and_leaves_nothing(
    fleet: &Fleet,
) -> Result<()> {
    let points = fleet
        .with_own_failpoints_and_moves(&[("check_bound", Value::from("5s"))])
        .await?;
    let question = format!("select state from shop_home where shop_id = ? and {SLEEP} = 0");
    let sql = format!("insert into move_check (name, question) values ('x', '{question}')");
    fleet.on_both(&sql).await?;
    let done = undone_by_its_question(fleet).await;
    fleet
        .on_both("delete from move_check where name = 'x'")
        .await?;
    fleet.without_own_failpoints(points).await?;
    done
}

async fn undone_by_its_question(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let target = fleet.primary(2).await?;
    let control = ControlDoor::of(fleet).await?;
    let id = fleet.order_move(&shop, 2).await?;
    let most = async {
        let mut most = 0;
        loop {
            most = most.max(running(&target, SLEEP).await?);
            // One that was given up may be there for a moment still when the next one begins.
            ensure!(most <= 2, "{most} of the same run at once");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ended = [MoveState::Aborted];
    let aborted = tokio::select! {
        aborted = control.reaches(id, &ended, MOVED_MAX) => aborted?,
        most = most => return most,
    };
    let error = aborted.error.context("an aborted move without error")?;
    for words in [
        "pod 2: the check `x` took longer than 5 s, 3 times",
        "check_bound",
    ] {
        ensure!(error.contains(words), "{error}");
    }
    gone(&target, SLEEP).await
}

/// A table that is the same on all pods, and cannot be read in time: the order is refused with its name and the way out.
pub(super) async fn a_reference_table_that_cannot_be_compared_in_time_is_named(
    fleet: &Fleet,
) -> Result<()> {
    fleet
        .on_both("create table x_reference (id int primary key)")
        .await?;
    let sql = "insert into table_kind (name, kind) values ('x_reference', 'reference')";
    fleet.on_both(sql).await?;
    let done = refused_for_its_table(fleet).await;
    let sql = "delete from table_kind where name = 'x_reference'";
    fleet.on_both(sql).await?;
    fleet.on_both("drop table x_reference").await?;
    done
}

async fn refused_for_its_table(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let target = fleet.primary(2).await?;
    let words = ["shop", "move", shop.handle.as_str(), "--to", "2"];
    let dry = [&words[..], &["--dry-run"]].concat();
    fleet
        .podctl
        .run(&dry)
        .await
        .context("with nobody in the way")?;
    let mut lock = target.connect().await?;
    sqlx::Executor::execute(&mut lock, "lock tables x_reference write").await?;
    for order in [&dry[..], &words[..]] {
        let said = fleet.podctl.refused(order, 1).await?;
        for part in [
            "table x_reference",
            "takes longer to find out than 4 s",
            "`local`",
        ] {
            ensure!(
                said.contains(part),
                "{order:?} does not say {part:?}: {said}"
            );
        }
        gone(&target, "checksum table").await?;
    }
    ensure!(
        text(&mut lock, "select 'here'").await? == "here",
        "the lock"
    );
    Ok(())
}

/// Statements that hold this text, but for the one that asks.
async fn running(server: &Server, part: &str) -> Result<i64> {
    server
        .number(&format!(
            "select count(*) from information_schema.processlist \
             where info like '%{part}%' and id <> connection_id()"
        ))
        .await
}

async fn gone(server: &Server, part: &str) -> Result<()> {
    wait_until("what was given up is gone", ENDED_MAX, async || {
        let left = running(server, part).await?;
        ensure!(left == 0, "{left} still run");
        Ok(())
    })
    .await
}
