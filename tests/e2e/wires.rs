//! The tap itself, on a bare server: that it cuts where it says, so that the tests that rely on it show something.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use sqlx::Executor as _;
use tests::suite::Test;
use tests::tap::{Moment, Tap};
use tests::{BareMysql, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![own: the_tap_cuts_where_it_says]
}

const SOON: Duration = Duration::from_secs(5);

/// One row each, text and prepared statements: rolled back before the COMMIT, committed after its answer, one of both
/// in between; held means open and silent. A transaction without the word passes.
async fn the_tap_cuts_where_it_says() -> Result<()> {
    let mysql = BareMysql::start().await?;
    mysql
        .server
        .run("create table tapped (id int primary key)")
        .await?;
    mysql
        .server
        .run("create table other (id int primary key)")
        .await?;
    let tap = Tap::to(SocketAddr::from(([127, 0, 0, 1], mysql.server.port))).await?;
    let through = mysql.server.at_port(tap.address().port());
    let count = |id: i32| format!("select count(*) from tapped where id = {id}");
    for (id, moment, prepared) in [
        (1, Moment::BeforeCommit, false),
        (2, Moment::BeforeCommit, true),
        (3, Moment::CommitSent, true),
        (4, Moment::CommitAnswered, false),
        (5, Moment::CommitAnswered, true),
    ] {
        let mut session = through.connect().await?;
        tap.set("into tapped", moment);
        session.execute("begin").await?;
        session.execute("insert into other values (1)").await?;
        session
            .execute("commit")
            .await
            .map_err(|e| anyhow::anyhow!("a commit without the word: {e}"))?;
        session.execute("begin").await?;
        session.execute("delete from other").await?;
        if prepared {
            sqlx::query("INSERT into tapped values (?)")
                .bind(id)
                .execute(&mut session)
                .await?;
        } else {
            session
                .execute(sqlx::AssertSqlSafe(format!(
                    "insert into tapped values ({id})"
                )))
                .await?;
        }
        let commit = session.execute("COMMIT; select 1").await;
        ensure!(commit.is_err(), "{moment:?}: the client got the answer");
        tap.sprung(SOON).await?;
        let rolled_back = moment == Moment::BeforeCommit;
        if moment != Moment::CommitSent {
            wait_until("the outcome", SOON, async || {
                let rows = mysql.server.number(&count(id)).await?;
                ensure!(rows == i64::from(!rolled_back), "{moment:?}: {rows} rows");
                Ok(())
            })
            .await?;
        }
        mysql.server.run("delete from other").await?;
    }
    is_held(&mysql, &tap).await
}

/// Neither answered nor hung up on.
async fn is_held(mysql: &BareMysql, tap: &Tap) -> Result<()> {
    let through = mysql.server.at_port(tap.address().port());
    let mut session = through.connect().await?;
    tap.set("into tapped", Moment::Held);
    session.execute("begin").await?;
    let insert = session.execute("insert into tapped values (6)");
    ensure!(
        tokio::time::timeout(Duration::from_millis(500), insert)
            .await
            .is_err(),
        "it was answered"
    );
    assert_eq!(tap.sprung_times(), 6);
    let open = mysql
        .server
        .number("select count(*) from information_schema.innodb_trx")
        .await?;
    assert_eq!(open, 1, "the transaction is open");
    Ok(())
}
