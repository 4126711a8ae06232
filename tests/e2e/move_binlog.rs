//! What a move reads in the binlogs of both pods: sessions that write otherwise than pods do, tables that change meanwhile,
//! binlogs that are gone, and changes of the source's copy that are nobody's.

use anyhow::{Context, Result, ensure};
use shared::moves::{MoveId, MoveState};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX, Moving, differences, rows_of};
use tests::suite::Test;
use tests::{Fleet, Shop, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: what_a_move_cannot_follow_fails_it_with_the_reason,
            what_a_move_can_follow_arrives,
            purged_binlogs_fail_a_move,
            strays_at_the_source_are_told_and_stop_the_deletion;
    ]
}

/// The tests' own table of a shop.
const TABLE: &str = "create table if not exists x_note (shop_id bigint unsigned not null, id int not null, \
    text varchar(200) not null default '', doc json null, primary key (shop_id, id))";
/// Rows of each shop there.
const ROWS: &str = "insert into x_note (shop_id, id, text, doc) values \
    ({shop}, 1, 'one', '{\"a\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaa\", \"b\": 1}'), ({shop}, 2, 'two', null), ({shop}, 3, 'three', null)";
/// Where a move is held: all is copied, and nothing compared.
const HELD_AT: &str = "compare.before";

fn of(sql: &str, shop: &Shop) -> String {
    sql.replace("{shop}", &shop.id.to_string())
}

/// Orders a move and waits until it is held.
async fn held(fleet: &Fleet, points: &OwnFailPoints, shop: &Shop) -> Result<MoveId> {
    points.set(shop.id, HELD_AT, "stop")?;
    let id = fleet.order_move(shop, 2).await?;
    points.happens(shop.id, HELD_AT, MOVED_MAX).await?;
    Ok(id)
}

/// Waits until a move has failed with these words, undoes it, and looks whether the shop sells at pod 1 as before.
async fn fails(control: &ControlDoor, fleet: &Fleet, id: MoveId, words: &[&str]) -> Result<()> {
    let failed = control.reaches(id, &[MoveState::Failed], MOVED_MAX).await?;
    let error = failed
        .error
        .clone()
        .context("a failed move without error")?;
    for word in words {
        ensure!(error.contains(word), "no {word:?} in: {error}");
    }
    undo(control, fleet, &failed).await
}

async fn undo(control: &ControlDoor, fleet: &Fleet, moving: &Moving) -> Result<()> {
    control.tell(moving.id, "abort").await?.wants(200)?;
    let ended = [MoveState::Aborted];
    control.reaches(moving.id, &ended, MOVED_MAX).await?;
    let shop = shared::ShopId::new(moving.shop.id).context("a shop")?;
    let (state, _) = fleet.primary(1).await?.home(shop).await?;
    ensure!(state == "serving", "the home at the source is {state}");
    let target = fleet.primary(2).await?;
    wait_until("the target has nothing of it", MOVED_MAX, async || {
        let left = target.rows("x_note", shop).await?;
        ensure!(left == 0, "{left} rows are left");
        Ok(())
    })
    .await
}

/// Something that a move cannot follow.
struct Odd {
    /// Which pod's primary it is done at.
    pod: u32,
    sql: &'static str,
    /// What the move's error says.
    words: &'static [&'static str],
    /// Makes it as it was.
    mend: &'static str,
}

const ODD: &[Odd] = &[
    Odd {
        pod: 1,
        sql: "set session binlog_format = statement; update x_note set text = 'by statement' where shop_id = {shop}",
        words: &["binlog_format", "update x_note"],
        mend: "",
    },
    Odd {
        pod: 1,
        sql: "set session binlog_row_image = minimal; update x_note set text = 'less' where shop_id = {shop} and id = 1",
        words: &["x_note", "binlog_row_image"],
        mend: "",
    },
    Odd {
        pod: 1,
        sql: "set session binlog_row_value_options = partial_json; update x_note set doc = json_set(doc, '$.b', 7) where shop_id = {shop} and id = 1",
        words: &["x_note", "binlog_row_value_options"],
        mend: "",
    },
    Odd {
        pod: 1,
        sql: "xa start 'two'; update x_note set text = 'in two steps' where shop_id = {shop}; xa end 'two'; xa prepare 'two'; xa commit 'two'",
        words: &["XA PREPARE"],
        mend: "",
    },
    Odd {
        pod: 1,
        sql: "alter table x_note add column more int null",
        words: &["schema changed", "x_note"],
        mend: "alter table x_note drop column more",
    },
    Odd {
        pod: 1,
        sql: "create table x_more (shop_id bigint unsigned not null, id int not null, primary key (shop_id, id))",
        words: &["schema changed", "x_more"],
        mend: "drop table x_more",
    },
    // Not in the binlog itself: the rows after it show it.
    Odd {
        pod: 1,
        sql: "set session sql_log_bin = 0; alter table x_note add column more int null; set session sql_log_bin = 1; \
              update x_note set text = 'after' where shop_id = {shop}",
        words: &["schema changed", "x_note"],
        mend: "set session sql_log_bin = 0; alter table x_note drop column more",
    },
    Odd {
        pod: 2,
        sql: "alter table x_note add column more int null",
        words: &["pod 2", "schema changed", "x_note"],
        mend: "alter table x_note drop column more",
    },
    Odd {
        pod: 2,
        sql: "truncate table x_note",
        words: &["pod 2", "truncate table x_note"],
        mend: "",
    },
];

async fn what_a_move_cannot_follow_fails_it_with_the_reason(fleet: &Fleet) -> Result<()> {
    fleet.on_both(TABLE).await?;
    let points = fleet.with_own_failpoints().await?;
    let done = async {
        let control = ControlDoor::of(fleet).await?;
        for odd in ODD {
            let case = async {
                let shop = fleet.shop_with_rows(ROWS).await?;
                let id = held(fleet, &points, &shop).await?;
                let server = fleet.primary(odd.pod).await?;
                let done = server.run(&of(odd.sql, &shop)).await;
                points.go_on(shop.id, HELD_AT);
                let failed = fails(&control, fleet, id, odd.words).await;
                if !odd.mend.is_empty() {
                    server.run(odd.mend).await?;
                }
                done.and(failed)
            };
            case.await.with_context(|| odd.sql)?;
        }
        Ok(())
    }
    .await;
    fleet.without_own_failpoints(points).await?;
    fleet.on_both("drop table if exists x_more, x_note").await?;
    done
}

/// What another session than a pod's may do while a shop moves.
const FOLLOWED: &[&str] = &[
    "set session binlog_transaction_compression = on; begin; update x_note set text = repeat('compressed ', 15) where shop_id = {shop}; \
     insert into x_note (shop_id, id) values ({shop}, 10), ({shop} + 1000000, 10); delete from x_note where shop_id = {shop} and id = 2; commit; \
     set session binlog_transaction_compression = off",
    "begin; insert into x_note (shop_id, id) values ({shop}, 20); savepoint s; update x_note set text = 'never' where shop_id = {shop}; \
     rollback to s; insert into x_note (shop_id, id) values ({shop}, 21); commit",
    // A row that leaves the shop, and one that comes to it.
    "update x_note set shop_id = {shop} + 2000000 where shop_id = {shop} and id = 20; \
     update x_note set shop_id = {shop}, id = 30 where shop_id = {shop} + 1000000",
    "update x_note set id = id + 100 where shop_id = {shop} and id > 10 order by id desc",
    "flush binary logs; replace into x_note (shop_id, id, text) values ({shop}, 1, 'replaced')",
    "set session gtid_next = 'automatic:x_tag'; insert into x_note (shop_id, id) values ({shop}, 40); set session gtid_next = 'automatic'",
    "xa start 'other'; insert into x_note (shop_id, id) values ({shop} + 3000000, 1); xa end 'other'; xa prepare 'other'; xa commit 'other'",
    "xa start 'one'; insert into x_note (shop_id, id) values ({shop}, 50); xa end 'one'; xa commit 'one' one phase",
    "set session binlog_row_image = minimal; insert into x_note (shop_id, id) values ({shop} + 4000000, 1); set session binlog_row_image = full",
    "create table x_none (id int primary key) select 1 as id; truncate x_none; drop table x_none; analyze table x_note; flush privileges",
];

async fn what_a_move_can_follow_arrives(fleet: &Fleet) -> Result<()> {
    fleet.on_both(TABLE).await?;
    let points = fleet.with_own_failpoints().await?;
    let done = async {
        let control = ControlDoor::of(fleet).await?;
        let shop = fleet.shop_with_rows(ROWS).await?;
        let id = held(fleet, &points, &shop).await?;
        let (source, target) = (fleet.primary(1).await?, fleet.primary(2).await?);
        for sql in FOLLOWED {
            source.run(&of(sql, &shop)).await.with_context(|| *sql)?;
        }
        points.go_on(shop.id, HELD_AT);
        let observing = [MoveState::Observing];
        control.reaches(id, &observing, MOVED_MAX).await?;
        let (a, b) = (
            rows_of(&source, shop.id).await?,
            rows_of(&target, shop.id).await?,
        );
        let found = differences(&a, &b);
        ensure!(found.is_empty(), "{found:?}");
        let ids = of(
            "select id from x_note where shop_id = {shop} order by id",
            &shop,
        );
        let ids = target.texts(&ids).await?;
        ensure!(ids == ["1", "3", "10", "40", "50", "121", "130"], "{ids:?}");
        fleet.finish_move(id).await.map(drop)
    }
    .await;
    fleet.without_own_failpoints(points).await?;
    fleet.on_both("drop table if exists x_none, x_note").await?;
    done
}

async fn purged_binlogs_fail_a_move(fleet: &Fleet) -> Result<()> {
    fleet.on_both(TABLE).await?;
    let points = fleet.with_own_failpoints().await?;
    let control = ControlDoor::of(fleet).await?;
    let shop = fleet.shop_with_rows(ROWS).await?;
    let id = held(fleet, &points, &shop).await?;
    // Nobody reads the binlog while no control server runs the move.
    let paused = control.tell(id, "pause").await?.wants(200).map(drop);
    fleet.without_own_failpoints(points).await?;
    paused?;
    control.reaches(id, &[MoveState::Paused], MOVED_MAX).await?;
    let source = fleet.primary(1).await?;
    let change = "update x_note set text = 'unseen' where shop_id = {shop}";
    source.run(&of(change, &shop)).await?;
    wait_until("the binlogs are gone", MOVED_MAX, async || {
        source.purge_binlogs().await?;
        let purged = source.text("select @@global.gtid_purged").await?;
        let executed = source.gtid_executed().await?;
        let counted = |set: &str| shared::gtid::GtidSet::parse(set).map(|s| s.count());
        let left = counted(&executed)?.saturating_sub(counted(&purged)?);
        ensure!(left < 500, "{left} transactions are still there");
        Ok(())
    })
    .await?;
    control.tell(id, "resume").await?.wants(200)?;
    fails(&control, fleet, id, &["pod 1", "purged"]).await?;
    // A new move reads what there is.
    let moved = fleet.move_shop(&shop, 2).await?;
    fleet.finish_move(moved.id).await?;
    fleet.on_both("drop table if exists x_note").await
}

async fn strays_at_the_source_are_told_and_stop_the_deletion(fleet: &Fleet) -> Result<()> {
    fleet.announce_error("strays at the source")?;
    fleet.on_both(TABLE).await?;
    let control = ControlDoor::of(fleet).await?;
    let shop = fleet.shop_with_rows(ROWS).await?;
    let moved = fleet.move_shop(&shop, 2).await?;
    ensure!(moved.strays.is_empty(), "{:?}", moved.strays);
    let source = fleet.primary(1).await?;
    for sql in [
        "update x_note set text = 'stray' where shop_id = {shop} and id = 1",
        "set session binlog_format = statement; update x_note set text = 'stray' where shop_id = {shop} and id = 2",
        // Nobody's business here.
        "insert into x_note (shop_id, id) values ({shop} + 1000000, 1)",
    ] {
        source.run(&of(sql, &shop)).await?;
    }
    let told = wait_until("both strays are told", MOVED_MAX, async || {
        let now = control.show(moved.id).await?;
        ensure!(now.strays.len() == 2, "{:?}", now.strays);
        Ok(now)
    })
    .await?;
    ensure!(told.state == MoveState::Observing, "{}", told.words());
    let tables: Vec<_> = told.strays.iter().map(|s| s["table"].as_str()).collect();
    ensure!(tables.first() == Some(&Some("x_note")), "{tables:?}");
    let rows = source.rows("x_note", shop.id).await?;
    ensure!(rows == 3, "{rows} rows are left at the source");
    let refused = control.tell(moved.id, "finish").await?;
    ensure!(refused.status == 409, "{refused:?}");
    goes_on_where_it_was(fleet, &control, &told, &shop).await?;
    let id = moved.id.to_string();
    let finish = ["move", "finish", &id, "--despite-strays", "4"];
    fleet.podctl.ok(&finish).await?;
    control
        .reaches(moved.id, &[MoveState::Done], MOVED_MAX)
        .await?;
    fleet.on_both("drop table if exists x_note").await
}

/// A mover that takes a watched copy up needs no binlog that was looked at already: it tells of nothing unseen, and sees what
/// comes.
async fn goes_on_where_it_was(
    fleet: &Fleet,
    control: &ControlDoor,
    told: &Moving,
    shop: &Shop,
) -> Result<()> {
    let source = fleet.primary(1).await?;
    let stray = of(
        "update x_note set text = concat(text, '!') where shop_id = {shop} and id = 3",
        shop,
    );
    let tells = async |count: usize| {
        wait_until("strays are told", MOVED_MAX, async || {
            let now = control.show(told.id).await?;
            ensure!(now.strays.len() == count, "{:?}", now.strays);
            Ok(())
        })
        .await
    };
    let file = source.new_binlog().await?;
    source.run(&stray).await?;
    tells(3).await?;
    fleet.kill_and_hold_down("control").await?;
    source.purge_binlogs_to(&file).await?;
    fleet.let_up("control").await?;
    source.run(&stray).await?;
    tells(4).await
}
