//! A table with every type and many rows, written while it moves.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shared::ShopId;
use shared::moves::MoveState;
use tests::failpoint::OwnFailPoints;
use tests::moves::{ControlDoor, Written, write_until_fenced};
use tests::{Fleet, Server, Shop};

/// Rows of one statement: more would be a transaction of a gigabyte.
const PART: u32 = 20_000;

/// As wide as a table gets: every type, more than once, stored and computed; a key of four parts and two unique ones.
const TABLE: &str = "create table if not exists x_large (
  shop_id bigint unsigned not null, k varchar(20) not null, e enum('z','a','b') not null, b binary(4) not null, i bigint not null,
  ti tinyint, su smallint unsigned, mi mediumint, ii int, bu bigint unsigned, de decimal(40,20), f float, d double, b7 bit(7), b64 bit(64),
  da date, t6 time(6), d6 datetime(6), ts timestamp(6) null, ye year,
  c char(20), cl varchar(60) character set latin1, vu varchar(60) character set utf16, vc varchar(200), vb varbinary(120), bl blob, tx text, lt longtext,
  st set('x','y','z'), j json, g geometry, ve vector(3), inv int invisible,
  gv bigint generated always as (ii + i) virtual, gs varchar(80) generated always as (concat(k, '-', i)) stored,
  u1 bigint unsigned not null, u2 varchar(40) null,
  primary key (shop_id, k, e, b, i), unique key u1 (shop_id, u1), unique key u2 (shop_id, u2), key d6 (shop_id, d6), key gs (shop_id, gs))";

/// Rows by number; what a number makes of each type has its ends in it now and then.
const ROWS: &str = "insert into x_large (shop_id, k, e, b, i, ti, su, mi, ii, bu, de, f, d, b7, b64, da, t6, d6, ts, ye, c, cl, vu, vc, vb, bl, tx, lt, st, j, g, ve, inv, u1, u2)
  with recursive n as (select {from} n union all select n + 1 from n where n < {to})
  select {shop}, concat('key ', mod(n, 1000)), 1 + mod(n, 3), unhex(lpad(hex(mod(n, 65536)), 8, '0')), if(mod(n, 97) = 0, -9223372036854775807 + n, n),
   mod(n, 256) - 128, mod(n, 65536), mod(n, 8388608) * if(mod(n, 2), 1, -1), if(mod(n, 11) = 0, null, n), 18446744073709551615 - n, n / 7, if(mod(n, 13) = 0, null, n / 3), exp(mod(n, 600)) / 7, mod(n, 128), ~n,
   if(mod(n, 101) = 0, '0000-00-00', date_add('2020-02-28', interval mod(n, 1000) day)), sec_to_time(mod(n, 3000000) - 1500000.5), date_add('2026-01-01', interval n second_microsecond), if(mod(n, 17) = 0, null, from_unixtime(1 + mod(n, 2000000000))), if(mod(n, 7) = 0, 0, 1901 + mod(n, 255)),
   concat(mod(n, 10), ' x  '), concat('caf', convert(x'E9' using latin1), n), concat('\u{20ac}', n), if(mod(n, 5) = 0, '', repeat(concat('\\t\\n\\\\', n), 1 + mod(n, 9))), unhex(sha2(n, 512)), if(mod(n, 19) = 0, null, unhex(repeat(sha2(n, 256), 1 + mod(n, 4)))), if(mod(n, 3) = 0, 'NULL', null), if(mod(n, 1009) = 0, repeat('long ', 3000), n),
   mod(n, 8), concat('{\"n\": ', n, ', \"f\": ', n / 8, ', \"l\": [true, null, \"', mod(n, 50), '\"]}'), st_geomfromtext(concat('POINT(', n, ' ', -n, ')')), to_vector(concat('[', n, ',-0.5,', mod(n, 9), ']')), if(mod(n, 2), null, n),
   n, if(mod(n, 23) = 0, null, concat('u', n)) from n";

/// What happens to them while they move, and to a table beside them. Left to itself the server reads the whole shop for
/// some of them (it intersects `u1` with the primary key's `shop_id`), and locks each row and gap of it for minutes.
const CHANGES: [&str; 7] = [
    "set @f = floor(rand() * {rows}); update /*+ index(x_large u1) */ x_large set vc = uuid(), d = rand(), j = json_set(j, '$.f', 1.5e0), d6 = now(6) where shop_id = {shop} and u1 = @f",
    "set @f = floor(rand() * {rows}); update /*+ index(x_large u1) */ x_large set bl = random_bytes(300), ii = null where shop_id = {shop} and u1 between @f and @f + 20",
    "set @f = floor(rand() * {rows}); delete /*+ index(x_large u1) */ from x_large where shop_id = {shop} and u1 = @f",
    "set @f = floor(rand() * {rows}); update /*+ index(x_large u1) */ ignore x_large set k = upper(k), i = i - 1 where shop_id = {shop} and u1 = @f",
    "insert into x_large (shop_id, k, e, b, i, u1) select {shop}, mod(uuid_short(), 1000000000), 2, '', 0, 1000000000 + mod(uuid_short(), 1000000000)",
    "update /*+ index(x_large u1) */ x_large set u2 = null where shop_id = {shop} and u1 in (1, 2); update /*+ index(x_large u1) */ x_large set u2 = if(u1 = 1, 'u2', 'u1') where shop_id = {shop} and u1 in (1, 2)",
    "update product set title = uuid() where shop_id = {shop}",
];

/// Three writers with seven changes each.
const CHANGED_MIN: u64 = 3 * 7;

/// How much it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Rows of the table.
    pub(super) rows: u32,
    /// Between two changes of a writer.
    pub(super) pause: Duration,
    /// How long the move may take.
    pub(super) moved_max: Duration,
}

/// Fills the table, moves the shop while three writers are at it, and compares both sides.
pub(super) async fn run(fleet: &Fleet, points: &OwnFailPoints, size: Size) -> Result<()> {
    fleet.on_both(TABLE).await?;
    let shop = fleet.shop(1).await?;
    shop.product("Beside it", "1.00", 1).await?;
    // Where it fails the move may still hold the table, which is not what is to be told.
    Box::pin(moved(fleet, points, &shop, size)).await?;
    fleet.on_both("drop table x_large").await
}

async fn moved(fleet: &Fleet, points: &OwnFailPoints, shop: &Shop, size: Size) -> Result<()> {
    let Size {
        rows,
        pause,
        moved_max,
    } = size;
    let (source, target) = &(fleet.primary(1).await?, fleet.primary(2).await?);
    fill(source, shop, rows).await?;
    // What filled the table is not to be read again, and takes as much of the disks as the table.
    for server in fleet.replicas(1).await?.iter().chain([source]) {
        server.purge_binlogs().await?;
    }
    let changes = CHANGES.map(|change| change.replace("{rows}", &rows.to_string()));
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    // Held before the comparison until each change was made by each writer.
    let (place, written) = ("compare.before", Written::default());
    points.set(shop.id, place, "stop")?;
    let moving = async {
        let control = ControlDoor::of(fleet).await?;
        let id = fleet.order_move(shop, 2).await?;
        points.happens(shop.id, place, moved_max).await?;
        written.reaches(CHANGED_MIN, moved_max).await?;
        points.go_on(shop.id, place);
        control
            .reaches(id, &[MoveState::Observing], moved_max)
            .await
    };
    let write = || write_until_fenced(source, shop.id, &changes, pause, &written);
    // A move that is not even begun ends the writers too: they wait for its fence.
    let ((), (), (), moving) = tokio::try_join!(write(), write(), write(), moving)?;
    ensure!(moving.took("repaired_rows") == Some(0), "{}", moving.record);
    for table in ["x_large", "product", "outbox"] {
        let (a, b) = tokio::try_join!(
            digest(source, table, shop.id),
            digest(target, table, shop.id)
        )?;
        ensure!(a == b, "{table}: {a} there was, {b} there is");
    }
    let there = target.rows("x_large", shop.id).await?;
    ensure!(there > i64::from(rows / 2), "{there} rows arrived");
    // Before the tables go: their end would be a stray.
    let control = ControlDoor::of(fleet).await?;
    control.tell(moving.id, "finish").await?.wants(200)?;
    control
        .reaches(moving.id, &[MoveState::Done], moved_max)
        .await?;
    ensure!(
        source.rows("x_large", shop.id).await? == 0,
        "rows are left at the source"
    );
    Ok(())
}

/// Makes the shop's rows.
async fn fill(source: &Server, shop: &Shop, rows: u32) -> Result<()> {
    let mut from = 0;
    while from < rows {
        let to = (from + PART).min(rows);
        let fill = ROWS
            .replace("{shop}", &shop.id.to_string())
            .replace("{from}", &from.to_string())
            .replace("{to}", &(to - 1).to_string());
        source
            .run(&format!(
                "set cte_max_recursion_depth = {PART}, sql_mode = 'ALLOW_INVALID_DATES'; {fill}"
            ))
            .await?;
        from = to;
    }
    Ok(())
}

/// Number and fingerprint of a shop's rows, of all bytes of all columns.
async fn digest(server: &Server, table: &str, shop: ShopId) -> Result<String> {
    let columns = server
        .texts(&format!(
            "select concat('ifnull(hex(cast(', if(data_type = 'float', concat('cast(`', column_name, '` as double)'), \
             concat('`', column_name, '`')), ' as binary)), ''null'')') \
             from information_schema.columns where table_schema = database() and table_name = '{table}' order by ordinal_position"
        ))
        .await?;
    ensure!(columns.len() > 3, "the columns of {table}");
    let sql = format!(
        "select concat(count(*), ' rows, ', ifnull(hex(bit_xor(unhex(sha2(concat_ws(',', {}), 256)))), '')) from `{table}` where shop_id = {shop}",
        columns.join(", ")
    );
    server
        .text(&sql)
        .await
        .with_context(|| format!("the fingerprint of {table}"))
}
