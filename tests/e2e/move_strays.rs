//! Rows that somebody writes at the source when its end has begun: after the dump, and while the rows are deleted.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use shared::ShopId;
use shared::moves::{MoveId, MoveState};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Executor};
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX, Moving, rows_left};
use tests::suite::Test;
use tests::{Call, Fleet, Server, metrics, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![alone: inv3_strays_at_the_end_of_a_source_are_told_and_stop_it;]
}

/// Two tables of a shop, the last ones that are deleted. The move finds the first one empty.
const TABLES: &str = "create table if not exists x_late (shop_id bigint unsigned not null, id int not null, \
    primary key (shop_id, id)); create table if not exists x_later like x_late";
const ROWS: &str = "insert into x_later (shop_id, id) values ({shop}, 1), ({shop}, 2)";
const LATER_ROWS: usize = 2;
const STRAY: &str = "insert into x_late (shop_id, id) values ({shop}, 1)";

/// When the stray is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// The dump is whole; nobody has looked for strays since it was begun.
    AfterTheDump,
    /// The last look before the first row goes is over.
    AfterTheLook,
    /// Its table was found empty, and is not looked at again; the last rows go as it is committed.
    WhileRowsGo,
}

/// Whenever it comes, the move says so and does not end before an operator's word; what is not deleted by then stays, and
/// so does the dump. After the word nothing is left.
async fn inv3_strays_at_the_end_of_a_source_are_told_and_stop_it(fleet: &Fleet) -> Result<()> {
    fleet.announce_error("strays at the source")?;
    fleet.on_both(TABLES).await?;
    let points = fleet.with_own_failpoints().await?;
    let ended = Box::pin(each(fleet, &points)).await;
    fleet.without_own_failpoints(points).await?;
    ended?;
    fleet.on_both("drop table x_late, x_later").await
}

async fn each(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let control = server(fleet).await?;
    let before = Counted::of(&control).await?;
    for when in [When::AfterTheDump, When::AfterTheLook, When::WhileRowsGo] {
        let ended = Box::pin(one(fleet, points, when)).await;
        ended.with_context(|| format!("{when:?}"))?;
    }
    before.grows_by(3.0, &control).await
}

async fn one(fleet: &Fleet, points: &OwnFailPoints, when: When) -> Result<()> {
    let control = ControlDoor::of(fleet).await?;
    let source = fleet.primary(1).await?;
    let shop = fleet.shop_with_rows(ROWS).await?;
    let product = shop.product("Lamp", "10.00", 9).await?;
    let moved = fleet.move_shop(&shop, 2).await?;
    let rows = rows_left(&source, shop.id).await?;
    let stray = STRAY.replace("{shop}", &shop.id.to_string());
    let left = match when {
        When::AfterTheDump => {
            points.set(shop.id, "note-dump.after", "stop")?;
            // What does not look again comes here.
            points.set(shop.id, "delete.before", "error")?;
            control.tell(moved.id, "finish").await?.wants(200)?;
            points
                .happens(shop.id, "note-dump.after", MOVED_MAX)
                .await?;
            source.run(&stray).await?;
            points.go_on(shop.id, "note-dump.after");
            told(&control, moved.id).await?;
            points
                .unset(shop.id, "delete.before")
                .context("the deletion was begun")?;
            vec![rows + 1]
        }
        When::AfterTheLook => {
            let server = server(fleet).await?;
            let before = Told::now(&server).await?;
            points.set(shop.id, "delete.before", "stop")?;
            control.tell(moved.id, "finish").await?.wants(200)?;
            points.happens(shop.id, "delete.before", MOVED_MAX).await?;
            source.run(&stray).await?;
            told(&control, moved.id).await?;
            alarms(&server, &before).await?;
            points.go_on(shop.id, "delete.before");
            vec![rows + 1]
        }
        When::WhileRowsGo => {
            points.set(shop.id, "delete.before", "stop")?;
            control.tell(moved.id, "finish").await?.wants(200)?;
            points.happens(shop.id, "delete.before", MOVED_MAX).await?;
            let mut writer = holds(&source, shop.id).await?;
            writer.execute(AssertSqlSafe(stray)).await?;
            points.go_on(shop.id, "delete.before");
            somebody_waits(&source).await?;
            writer.execute("commit").await.context("the stray")?;
            told(&control, moved.id).await?;
            // The stray may be seen before the server has given its locks free, and so before the last rows are gone.
            vec![1, 1 + LATER_ROWS]
        }
    };
    let found = rows_left(&source, shop.id).await?;
    ensure!(
        left.contains(&found),
        "{found} rows at the source, not {left:?}"
    );
    shop.buy("sells on", &[(&product, 1)]).await?;
    let done = despite(&control, moved.id).await?;
    let found = rows_left(&source, shop.id).await?;
    ensure!(found == 0, "{found} rows are left at the source");
    is_whole(&done)
}

/// A transaction of a person's, before whose end the shop's last table cannot be emptied.
async fn holds(source: &Server, shop: ShopId) -> Result<MySqlConnection> {
    let mut session = source.connect().await?;
    let hold = format!("select id from x_later where shop_id = {shop} for update");
    session.execute("begin").await.context("begin")?;
    let held = session.execute(AssertSqlSafe(hold)).await;
    held.context("hold rows")?;
    Ok(session)
}

async fn somebody_waits(source: &Server) -> Result<()> {
    let waits = "select count(*) from performance_schema.data_lock_waits w join performance_schema.data_locks l \
         on l.engine_lock_id = w.requesting_engine_lock_id where l.object_name = 'x_later'";
    wait_until("the deletion is at the last table", MOVED_MAX, async || {
        ensure!(source.number(waits).await? > 0, "it is not");
        Ok(())
    })
    .await
}

/// Waits until the move says that there is a stray, and that it waits for a word.
async fn told(control: &ControlDoor, id: MoveId) -> Result<()> {
    wait_until("the stray is told", MOVED_MAX, async || {
        let now = control.show(id).await?;
        let waits = now.waits.as_deref().unwrap_or_default();
        ensure!(
            now.strays.len() == 1 && waits.contains("--despite-strays"),
            "{:?}; {}",
            now.strays,
            now.words()
        );
        ensure!(now.state == MoveState::Retiring, "{}", now.words());
        ensure!(now.strays[0]["table"] == "x_late", "{:?}", now.strays);
        Ok(())
    })
    .await
}

/// Where the control server is.
async fn server(fleet: &Fleet) -> Result<String> {
    let status = fleet.status().await?;
    let control = status.controls.into_iter().next();
    Ok(control.context("a control server")?.http)
}

/// What the metrics say of open moves.
#[derive(Debug)]
struct Told {
    strays: f64,
    retiring: f64,
    /// For how long the first of those is at it.
    age: f64,
}

impl Told {
    /// Of a moment that is not over yet when it is asked for.
    async fn now(control: &str) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        wait_until("the metrics are of now", MOVED_MAX, async || {
            let looked = "podhost_catalog_look_timestamp_seconds";
            let looked = metrics::total(control, looked).await?;
            ensure!(looked > now, "they are {} s old", now - looked);
            Self::of(control).await
        })
        .await
    }

    async fn of(control: &str) -> Result<Self> {
        let (retiring, oldest) = ("\"retiring\"", "podhost_moves_state_oldest_seconds");
        Ok(Self {
            strays: metrics::total(control, "podhost_moves_strays").await?,
            retiring: metrics::sum(control, "podhost_moves_open", retiring).await?,
            age: metrics::sum(control, oldest, retiring).await?,
        })
    }
}

/// Who watches the metrics is told of it too.
async fn alarms(control: &str, before: &Told) -> Result<()> {
    wait_until("the metrics have the stray", MOVED_MAX, async || {
        let now = Told::of(control).await?;
        let more = now.strays - before.strays >= 1.0 && now.retiring - before.retiring >= 1.0;
        ensure!(more && now.age > 0.0, "{now:?} after {before:?}");
        Ok(())
    })
    .await
}

/// What the control server has counted since it was started.
#[derive(Debug)]
struct Counted {
    done: f64,
    fences: f64,
}

impl Counted {
    async fn of(control: &str) -> Result<Self> {
        let fences = "podhost_moves_fence_seconds_count";
        Ok(Self {
            done: metrics::sum(control, "podhost_moves_ended_total", "\"done\"").await?,
            fences: metrics::total(control, fences).await?,
        })
    }

    /// Each of so many moves was handed over once, and came to its end.
    async fn grows_by(&self, moves: f64, control: &str) -> Result<()> {
        wait_until("the moves are counted", MOVED_MAX, async || {
            let now = Self::of(control).await?;
            let (done, fences) = (now.done - self.done, now.fences - self.fences);
            ensure!(
                done >= moves && fences >= moves,
                "{done} moves are done, of {fences} fences"
            );
            Ok(())
        })
        .await
    }
}

/// An operator's word, who has looked at the one stray.
async fn despite(control: &ControlDoor, id: MoveId) -> Result<Moving> {
    let call = Call::new(Method::POST, format!("/v1/moves/{id}/finish"));
    let word = control.send(call.json(&json!({"despite_strays": 1})));
    word.await?.wants(200)?;
    control.reaches(id, &[MoveState::Done], MOVED_MAX).await
}

/// Before the first row went there was a dump of all, and after the word one of what was there with the stray.
fn is_whole(done: &Moving) -> Result<()> {
    let last = Path::new(done.record["dump"].as_str().context("a dump")?);
    let dumps = last.parent().context("a folder")?;
    let (shop, pod, epoch) = (done.shop.id, done.source.id, done.epoch.get() - 1);
    let first = dumps.join(format!("shop-{shop}-pod-{pod}-epoch-{epoch}.dump"));
    let (all, partial) = dumped(&first, "x_later")?;
    ensure!(
        all == LATER_ROWS as u64 && !partial,
        "{all} rows are in {}",
        first.display()
    );
    let (stray, _) = dumped(last, "x_late")?;
    ensure!(stray == 1, "{stray} strays are in {}", last.display());
    Ok(())
}

/// Rows of a table that a dump has, and whether others were deleted before it was made.
fn dumped(dump: &Path, table: &str) -> Result<(u64, bool)> {
    let text = fs::read_to_string(dump.join("manifest.json"));
    let text = text.with_context(|| dump.display().to_string())?;
    let manifest: Value = serde_json::from_str(&text).context("a dump")?;
    let tables = manifest["tables"].as_array().context("tables")?;
    let found = tables.iter().find(|it| it["table"] == table);
    let rows = found
        .and_then(|it| it["rows"].as_u64())
        .context("a table")?;
    Ok((rows, manifest["partial"] == true))
}
