//! What a move carries: every type of column and every kind of key, to the byte, while they are written; and what it
//! refuses to carry, by name.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shared::moves::MoveState;
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, MOVED_MAX, Written, differences, rows_of, write_until_fenced};
use tests::suite::Test;
use tests::{Fleet, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: every_type_and_every_key_moves_to_the_byte_while_it_is_written,
            what_cannot_be_moved_exactly_is_refused_by_name;
        long: rows_as_large_as_a_packet_move;
    ]
}

const TABLES: &str = include_str!("move_copy/tables.sql");
const ROWS: &str = include_str!("move_copy/rows.sql");
/// The tables of `tables.sql`, children first.
const NAMES: &[&str] = &[
    "every_type",
    "k_int",
    "k_uns",
    "k_dec",
    "k_date",
    "k_bit",
    "k_enum",
    "k_lat",
    "k_none",
    "k_gen",
    "k_desc",
    "achild",
    "parent",
];
/// Between two changes.
const PAUSE: Duration = Duration::from_millis(1);

/// Changes of the shop's rows: values that change hands between unique rows, keys that change (also to one that the
/// collation takes for the same), rows that go and come.
const CHANGES: &[&str] = &[
    "update every_type set iu = null where shop_id = {shop} and iu in (11, 12)",
    "update every_type set iu = 11, vc = uuid(), d = rand() where shop_id = {shop} and k1 = 'nulls'",
    "update every_type set iu = 12, t6 = '-00:00:00.000001', j = '{\"a\": [1.5, \"x\"]}' where shop_id = {shop} and k1 = 'zero'",
    "update every_type set iu = null where shop_id = {shop} and k1 = 'nulls'",
    "update every_type set iu = 11 where shop_id = {shop} and k1 = 'zero'",
    "update every_type set k1 = if(cast(k1 as binary) = cast('NULLS' as binary), 'nulls', 'NULLS') where shop_id = {shop} and k1 = 'nulls'",
    "update every_type set mb = repeat(uuid(), 900), b64 = ~b64, s64 = ~s64 where shop_id = {shop} and k1 = 'max'",
    "delete from k_enum where shop_id = {shop} and e = 2 and k < 400 limit 7",
    "insert ignore into k_enum values ({shop}, 'nope', floor(rand() * 1000), 1), ({shop}, 'a', floor(rand() * 400), 2)",
    "update ignore k_enum set e = 1 + mod(k, 3), k = k + 1 where shop_id = {shop} and k > 900",
    "replace into k_uns values ({shop}, 18446744073709551615, uuid()), ({shop}, floor(rand() * 50), 'r')",
    "delete from k_lat where shop_id = {shop} and u like 'ü1%' limit 3",
    "insert ignore into k_lat values ({shop}, 'A', concat('ü', floor(rand() * 300)), x'5C', 7)",
    "update k_bit set s = s ^ 3 where shop_id = {shop} and b = 18446744073709551615",
    "update k_dec set t = addtime(t, '-00:00:00.001'), v = v + 1 where shop_id = {shop} and k < 0 limit 5",
    "update k_date set v = v + 1, ts = ts + interval 1 second where shop_id = {shop} order by shop_id, d, ts limit 2",
    "update ignore k_gen set a = a + 1, v = v + 1 where shop_id = {shop} and a > 290 order by g desc limit 3",
    "update k_desc set a = -a, v = v + 1 where shop_id = {shop} and c > 2990",
    "update k_none set v = concat(v, x'5C090A00') where shop_id = {shop}",
    "delete from achild where shop_id = {shop} and id < 400 limit 2",
];

async fn every_type_and_every_key_moves_to_the_byte_while_it_is_written(
    fleet: &Fleet,
) -> Result<()> {
    let points = fleet.with_own_failpoints().await?;
    fleet.on_both(TABLES).await?;
    let moved = move_written_shop(fleet, &points).await;
    let names = NAMES.join(", ");
    fleet.without_own_failpoints(points).await?;
    let dropped = format!("drop table if exists {names}");
    fleet.on_both(&dropped).await?;
    moved
}

async fn move_written_shop(fleet: &Fleet, points: &OwnFailPoints) -> Result<()> {
    let shop = fleet.shop_with_rows(ROWS).await?;
    let (source, target) = (fleet.primary(1).await?, fleet.primary(2).await?);
    // Held before the comparison until each change was made.
    let (place, written) = ("compare.before", Written::default());
    points.set(shop.id, place, "stop")?;
    let moving = async {
        let control = ControlDoor::of(fleet).await?;
        let id = fleet.order_move(&shop, 2).await?;
        points.happens(shop.id, place, MOVED_MAX).await?;
        written
            .reaches(CHANGES.len().try_into()?, MOVED_MAX)
            .await?;
        points.go_on(shop.id, place);
        control
            .reaches(id, &[MoveState::Observing], MOVED_MAX)
            .await
    };
    // A move that fails fences nothing, so nobody would tell the writer to end.
    let writing = write_until_fenced(&source, shop.id, CHANGES, PAUSE, &written);
    let ((), moving) = tokio::try_join!(writing, moving)?;
    let written = written.so_far();
    ensure!(moving.strays.is_empty(), "strays: {:?}", moving.strays);
    let (a, b) = (
        rows_of(&source, shop.id).await?,
        rows_of(&target, shop.id).await?,
    );
    let found = differences(&a, &b);
    ensure!(found.is_empty(), "after {written} changes: {found:?}");
    ensure!(
        b.values().map(Vec::len).sum::<usize>() > 4_000,
        "few rows arrived"
    );
    // What text does not show: members by number, types inside of documents.
    for sql in [
        "select group_concat(concat_ws(',', hex(cast(k1 as binary)), k2 + 0, en + 0, cast(s64 as unsigned)) order by ai) from every_type where shop_id = {shop}",
        "select group_concat(concat_ws(',', e + 0, k) order by e + 0, k) from k_enum where shop_id = {shop}",
        "select json_type(j -> '$.a[5]') from every_type where shop_id = {shop} and k1 = 'max'",
    ] {
        let sql = sql.replace("{shop}", &shop.id.to_string());
        let (a, b) = (source.texts(&sql).await?, target.texts(&sql).await?);
        ensure!(a == b, "{sql}: {a:?} there was, {b:?} there is");
    }
    fleet.finish_move(moving.id).await?;
    let left = rows_of(&source, shop.id).await?;
    let left: Vec<_> = left.iter().filter(|(_, rows)| !rows.is_empty()).collect();
    ensure!(left.is_empty(), "the source still has {left:?}");
    ensure!(
        source.number("select count(*) from k_int").await? == 1,
        "another shop's row went too"
    );
    Ok(())
}

/// A table that cannot be moved, and what is said of it.
struct Refused {
    made: &'static str,
    said: &'static [&'static str],
    /// Made at the source alone.
    one_side: bool,
}

const fn refused(made: &'static str, said: &'static [&'static str]) -> Refused {
    Refused {
        made,
        said,
        one_side: false,
    }
}

const REFUSED: &[Refused] = &[
    refused(
        "create table x_odd (id int primary key)",
        &["x_odd", "table_kind", "reference"],
    ),
    refused(
        "create table x_odd (shop_id bigint not null primary key)",
        &["x_odd", "shop_id", "bigint unsigned"],
    ),
    refused(
        "create table x_odd (shop_id bigint unsigned not null, id int not null, code int, primary key (shop_id, id), unique key code_once (code))",
        &["x_odd", "code_once", "another shop's"],
    ),
    refused(
        "create table x_odd (shop_id bigint unsigned not null, f float not null, primary key (shop_id, f))",
        &["x_odd", "column f", "float"],
    ),
    refused(
        "create table x_odd (shop_id bigint unsigned not null, t text not null, primary key (shop_id, t(9)))",
        &["x_odd", "column t", "prefix"],
    ),
    refused(
        "create table x_odd (shop_id bigint unsigned not null, id int not null, primary key (shop_id, id)); \
         create trigger x_trigger before insert on x_odd for each row set new.id = new.id",
        &["x_odd", "x_trigger", "drop it"],
    ),
    refused(
        "create table x_odd (shop_id bigint unsigned not null, id int not null, parent int, primary key (shop_id, id), \
         constraint x_cascade foreign key (shop_id, parent) references x_odd (shop_id, id) on delete cascade)",
        &["x_odd", "x_cascade", "restrict"],
    ),
    refused(
        "create table x_odd (shop_id bigint unsigned not null, id int not null, j json, primary key (shop_id, id)); \
         insert into x_odd values ({shop}, 4711, json_object('price', cast(1.50 as decimal(5, 2))))",
        &["x_odd", "column j", "4711", "DECIMAL"],
    ),
    Refused {
        made: "create table x_odd (shop_id bigint unsigned not null, id int not null, c varchar(9), primary key (shop_id, id))",
        said: &["x_odd", "missing at pod 2", "migrate"],
        one_side: true,
    },
    Refused {
        made: "alter table product add column x_odd varchar(9) character set latin1",
        said: &["product", "x_odd", "missing at pod 2", "migrate"],
        one_side: true,
    },
];

async fn what_cannot_be_moved_exactly_is_refused_by_name(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    for case in REFUSED {
        let made = case.made.replace("{shop}", &shop.id.to_string());
        fleet.primary(1).await?.run(&made).await?;
        if !case.one_side {
            fleet
                .primary(2)
                .await?
                .run(case.made.split("; insert").next().unwrap_or(&made))
                .await?;
        }
        let said = fleet
            .podctl
            .refused(&["shop", "move", &shop.handle, "--to", "2", "--dry-run"], 1)
            .await;
        fleet.on_both("drop table if exists x_odd").await?;
        if made.starts_with("alter") {
            fleet
                .primary(1)
                .await?
                .run("alter table product drop column x_odd")
                .await?;
        }
        let said = said.with_context(|| made.clone())?;
        let missing: Vec<_> = case
            .said
            .iter()
            .filter(|part| !said.contains(**part))
            .collect();
        ensure!(missing.is_empty(), "{made}: {missing:?} is not in {said}");
    }
    Ok(())
}

/// A row nearly as large as a packet may be, and more such rows than fit into a chunk.
async fn rows_as_large_as_a_packet_move() -> Result<()> {
    let fleet = Fleet::start().await?;
    let moved = move_large_rows(&fleet).await;
    fleet.stop().await?;
    moved
}

async fn move_large_rows(fleet: &Fleet) -> Result<()> {
    /// A hundred megabytes through a build that is not optimized, on a machine that does other things too.
    const LARGE_MAX: Duration = Duration::from_secs(20 * 60);
    let shop = fleet.shop(1).await?;
    let (source, target) = (fleet.primary(1).await?, fleet.primary(2).await?);
    fleet
        .on_both("create table if not exists x_large (shop_id bigint unsigned not null, id int not null, b longblob, primary key (shop_id, id))")
        .await?;
    let fill = format!(
        "insert into x_large select {0}, 1, repeat(x'5C090A00', (@@global.max_allowed_packet - 2000) div 4); \
         insert into x_large select {0}, 2 + n, repeat(x'FF5C', 3000000) from (select 0 n union select 1 union select 2) n; \
         insert into x_large values ({0}, 9, 'small')",
        shop.id
    );
    let moved = async {
        source.run(&fill).await?;
        let control = ControlDoor::of(fleet).await?;
        let id = fleet.order_move(&shop, 2).await?;
        control
            .reaches(id, &[MoveState::Observing], LARGE_MAX)
            .await?;
        let sql = format!(
            "select group_concat(concat(id, sha2(b, 256)) order by id) from x_large where shop_id = {}",
            shop.id
        );
        let (a, b) = (source.text(&sql).await?, target.text(&sql).await?);
        ensure!(a == b, "{a} there was, {b} there is");
        // Before the table goes: its end would be a stray.
        control.tell(id, "finish").await?.wants(200)?;
        let done = [MoveState::Done];
        control.reaches(id, &done, LARGE_MAX).await.map(drop)
    };
    let moved = moved.await;
    fleet.on_both("drop table x_large").await?;
    moved
}
