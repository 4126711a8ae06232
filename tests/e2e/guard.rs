//! The guard of the write transaction, tried with statements and cancellations that would fool it. `probe` is a pod
//! process with one route that sends what it is given through the guard (`pod/examples/probe.rs`).

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use serde_json::json;
use tests::chaos::{Chaos, Wire};
use tests::own_pod::OwnPod;
use tests::suite::Test;
use tests::{Call, Fleet, Server, Shop, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![
        own: the_server_commits_even_what_it_refuses;
        shares: inv1_a_statement_that_would_commit_implicitly_is_refused,
            inv3_a_client_that_leaves_at_any_moment_costs_no_write_and_no_connection;
    ]
}

/// What commits implicitly, or changes what a transaction is, or outlives it; in the spellings that hide it.
const REFUSED: &[&str] = &[
    "create table sneaky (id int primary key)",
    "CREATE TEMPORARY TABLE sneaky (id int primary key)",
    "drop table if exists sneaky",
    "truncate table bogus_charge",
    "alter table product comment = 'x'",
    "rename table product to sneaky",
    "lock tables product read",
    "unlock tables",
    "flush tables",
    "analyze table product",
    "optimize table product",
    "begin",
    "start transaction",
    "commit",
    "rollback",
    "set autocommit = 1",
    "set @@session.autocommit = 1",
    "grant select on *.* to podhost_app",
    "create user sneaky",
    "set password = 'x'",
    "call sneaky()",
    "xa start 'x'",
    "prepare s from 'commit'",
    "do get_lock('x', 1)",
    "select get_lock('x', 1)",
    "replace into product (shop_id) values (1)",
    "  /* a comment */ commit",
    "/*! commit */",
    "-- a comment\ncommit",
    "select 1; commit",
];

async fn probe(fleet: &Fleet, shop: &Shop, port: Option<u16>) -> Result<OwnPod> {
    OwnPod::start_binary("examples/probe", fleet, shop.pod, |config| {
        if let Some(port) = port {
            OwnPod::primary_at(config, port);
        }
    })
    .await
}

/// A customer is the smallest row of a shop.
fn insert(email: &str) -> String {
    format!(
        "insert into customer (shop_id, customer_id, email) values (?, uuid_to_bin(uuid()), '{email}')"
    )
}

async fn customers(primary: &Server, shop: &Shop, like: &str) -> Result<i64> {
    let id = shop.id;
    primary
        .number(&format!(
            "select count(*) from customer where shop_id = {id} and email like '{like}'"
        ))
        .await
}

async fn send(own: &OwnPod, shop: &Shop, statements: &[String]) -> Result<tests::Answer> {
    let call = Call::post("/probe").json(&json!({ "statements": statements }));
    own.door.send(shop.id, shop.epoch, &call).await
}

/// Why the guard looks at statements at all: a refused CREATE commits what was before it and drops the lock. When
/// this fails, MySQL has changed, and the list of kinds may be looked at again.
async fn the_server_commits_even_what_it_refuses() -> Result<()> {
    use sqlx::Executor as _;
    let mysql = tests::BareMysql::start().await?;
    mysql
        .server
        .run("create table home (id int primary key, n int)")
        .await?;
    mysql.server.run("insert into home values (1, 0)").await?;
    mysql
        .server
        .run("create user plain@'%' identified by 'plain'")
        .await?;
    mysql
        .server
        .run("grant select, insert, update, delete on scratch.* to plain@'%'")
        .await?;
    let plain = Server::account("127.0.0.1", mysql.server.port, "plain", "plain", "scratch");
    let mut session = plain.connect().await?;
    session.execute("begin").await?;
    session
        .execute("select n from home where id = 1 for share")
        .await?;
    session.execute("insert into home values (2, 0)").await?;
    let refused = session
        .execute("create table other (id int primary key)")
        .await;
    ensure!(refused.is_err(), "the plain account may create tables");
    assert_eq!(
        mysql.server.number("select count(*) from home").await?,
        2,
        "half was committed"
    );
    mysql
        .server
        .run("set lock_wait_timeout = 1; update home set n = 1 where id = 1")
        .await?;
    Ok(())
}

/// Each of the list between two inserts: the answer is a failure, neither insert is there, and the process serves on.
/// Savepoints are allowed and work.
async fn inv1_a_statement_that_would_commit_implicitly_is_refused(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let own = probe(fleet, &shop, None).await?;
    let primary = fleet.primary(1).await?;
    for (n, bad) in REFUSED.iter().enumerate() {
        let script = [
            insert(&format!("before-{n}")),
            (*bad).to_owned(),
            insert(&format!("after-{n}")),
        ];
        let answer = send(&own, &shop, &script).await?;
        ensure!(
            answer.status == 500,
            "{bad:?}: {} {}",
            answer.status,
            answer.text()
        );
        ensure!(
            !answer.text().contains("customer"),
            "{bad:?}: the client reads SQL: {}",
            answer.text()
        );
    }
    assert_eq!(
        customers(&primary, &shop, "%").await?,
        0,
        "something was committed"
    );
    let script = [
        insert("kept"),
        "savepoint a".to_owned(),
        insert("undone"),
        "rollback to savepoint a".to_owned(),
        "release savepoint a".to_owned(),
    ];
    send(&own, &shop, &script).await?.wants(200)?;
    assert_eq!(customers(&primary, &shop, "kept").await?, 1);
    assert_eq!(customers(&primary, &shop, "undone").await?, 0);
    let tables = "select count(*) from information_schema.tables where table_name = 'sneaky'";
    assert_eq!(primary.number(tables).await?, 0);
    Ok(())
}

/// Answers take this long through the slowed wire, one way.
const WIRE: Duration = Duration::from_millis(30);
/// The slowed write takes less than this; a client leaves every step of it.
const WRITE_MAX: Duration = Duration::from_millis(600);
const STEP: Duration = Duration::from_millis(25);
/// More than the pool of one process has.
const AT_ONCE: usize = 40;

/// The cures of both faults in `sqlx_faults`: a client hangs up every 25 ms further into a write over a slow wire, so in
/// BEGIN, in the first PREPARE (each statement is new), in EXECUTE and in COMMIT. After each, a write that is
/// acknowledged is seen by others at once; each write that was left is there whole or not at all; and in the end the
/// pool has all its connections.
async fn inv3_a_client_that_leaves_at_any_moment_costs_no_write_and_no_connection(
    fleet: &Fleet,
) -> Result<()> {
    let shop = fleet.shop(2).await?;
    let port = OwnPod::primary_port(&OwnPod::config_of(fleet, shop.pod)?)?;
    let chaos = Chaos::to(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    let own = probe(fleet, &shop, Some(chaos.address().port())).await?;
    let primary = fleet.primary(2).await?;
    let mut left = 0;
    for n in 0..WRITE_MAX.as_millis() / STEP.as_millis() {
        let n = u32::try_from(n).context("a step")?;
        chaos.set(Wire::Slow(WIRE));
        let script = [
            insert(&format!("left-{n}-a")),
            insert(&format!("left-{n}-b")),
        ];
        let patience = STEP * (n + 1);
        let finished = tokio::time::timeout(patience, send(&own, &shop, &script))
            .await
            .is_ok();
        chaos.set(Wire::Open);
        left += i32::from(!finished);
        send(&own, &shop, &[insert(&format!("next-{n}"))])
            .await?
            .wants(200)
            .with_context(|| format!("next {n}"))?;
        assert_eq!(
            customers(&primary, &shop, &format!("next-{n}")).await?,
            1,
            "an acknowledged write is hidden"
        );
    }
    ensure!(
        left >= 5,
        "clients left {left} times only: the wire is not slow enough to show anything"
    );
    wait_until(
        "writes that were left have ended",
        Duration::from_secs(6),
        async || {
            let open = "select count(*) from information_schema.innodb_trx";
            let open = primary.number(open).await?;
            ensure!(open == 0, "{open} transactions are open");
            Ok(())
        },
    )
    .await?;
    for n in 0..24 {
        let halves = customers(&primary, &shop, &format!("left-{n}-%")).await?;
        ensure!(halves == 0 || halves == 2, "write {n} is there by half");
    }
    let scripts: Vec<[String; 1]> = (0..AT_ONCE)
        .map(|n| [insert(&format!("at-once-{n}"))])
        .collect();
    for answer in join_all(scripts.iter().map(|script| send(&own, &shop, script))).await {
        answer?.wants(200).context("the pool lost connections")?;
    }
    assert_eq!(
        customers(&primary, &shop, "at-once-%").await?,
        i64::try_from(AT_ONCE)?
    );
    Ok(())
}
