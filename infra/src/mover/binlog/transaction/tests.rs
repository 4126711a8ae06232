//! Transactions put together from events of a real server, damaged and strange ones too.
//!
//! `recorded.binlog` is a whole file of MySQL 9.7.4, as it stands on the disk, of these statements:
//!
//! ```sql
//! create table orders (shop_id bigint unsigned not null, id bigint unsigned not null, note varchar(100), t time(2), j json,
//!   v int generated always as (id % 7) virtual, s int generated always as (id % 5) stored, inv int invisible default 3,
//!   primary key (shop_id, id)); -- before
//! create table words (shop_id bigint unsigned not null, w varchar(40) not null, n int, primary key (shop_id, w)); -- before
//! insert into orders (shop_id, id, note, t, j) values (7, 1, 'one', '-10:11:12.34', '{"a":1}'), (8, 1, 'other', null, null); -- 83
//! update orders set shop_id = 9 where shop_id = 7; -- 84
//! begin; insert into orders (shop_id, id) values (7, 100); savepoint s1; insert into orders (shop_id, id) values (7, 101);
//!   rollback to s1; insert into orders (shop_id, id) values (7, 102); commit; -- 85
//! -- compressed:
//! begin; insert into move_mark (move_id, part) values ('0193a000-0000-7000-8000-000000000001', 'apply');
//!   delete from orders where shop_id = 7; commit; -- 86
//! insert into words (shop_id, w, n) values (7, 'A', 1); -- pod:2
//! update words set w = 'a' where w = 'A'; -- 87
//! -- with binlog_row_image MINIMAL:
//! update orders set note = 'x' where shop_id = 8; update words set n = 5 where shop_id = 7; -- 88, 89
//! -- with binlog_row_value_options PARTIAL_JSON:
//! insert into orders (shop_id, id, j) values (7, 5, '{"a":"aaaaaaaaaaaaaaaaaaaaaaaaaa","b":2}'); -- 90
//! update orders set j = json_set(j, '$.b', 3) where id = 5; -- 91
//! xa start 'x1'; insert into orders (shop_id, id) values (8, 80); xa end 'x1'; xa prepare 'x1'; xa commit 'x1'; -- 92, 93
//! xa start 'x1'; insert into orders (shop_id, id) values (7, 80); xa end 'x1'; xa prepare 'x1'; xa rollback 'x1'; -- 94, 95
//! -- with binlog_format STATEMENT:
//! delete from orders where shop_id = 8 and id = 80; -- 96
//! alter table orders add column zz int; -- 97
//! insert into orders (shop_id, id) values (7, 6); -- 98
//! ```

use super::*;
use crate::mover::binlog::event::{HEADER_BYTES, size_of};
use crate::mover::binlog::payload::Payload;
use crate::mover::error::Verdict;
use crate::mover::table::{Column, Key, KeyPart, Kind, Shape};

// Damage, and what no server sends.
mod strange;

const RECORDED: &[u8] = include_bytes!("recorded.binlog");
/// The file's own beginning.
const MAGIC: usize = 4;
const MOVE: &str = "0193a000-0000-7000-8000-000000000001";

fn column(name: &str, data_type: &str, kind: Kind) -> Column {
    Column {
        name: name.into(),
        quoted: format!("`{name}`"),
        kind,
        data_type: data_type.into(),
        charset: None,
        digits: None,
        nullable: false,
        generated: ["v", "s"].contains(&name),
    }
}

fn table(name: &str, columns: Vec<Column>) -> Table {
    Table {
        name: name.into(),
        quoted: format!("`{name}`"),
        columns,
        key: vec![0, 1],
        falling: vec![false; 2],
        row_bytes: 0,
        shape: Shape::default(),
    }
}

fn tables() -> Vec<Table> {
    let number = |name, unsigned| {
        let kind = if unsigned { "bigint" } else { "int" };
        column(name, kind, Kind::Int { unsigned })
    };
    let orders = vec![
        number("shop_id", true),
        number("id", true),
        column("note", "varchar", Kind::Text),
        column("t", "time", Kind::Temporal),
        column("j", "json", Kind::Json),
        number("v", false),
        number("s", false),
        number("inv", false),
    ];
    let words = vec![
        number("shop_id", true),
        column("w", "varchar", Kind::Text),
        number("n", false),
    ];
    vec![table("orders", orders), table("words", words)]
}

fn reader(shop: u64, tables: Vec<Table>, goes_on: bool) -> Transactions {
    Transactions::new(Watch {
        pod: PodId::new(1).unwrap(),
        shop: ShopId::new(shop).unwrap(),
        tables: tables.into(),
        mark: MOVE.into(),
        past_marked: goes_on,
        goes_on,
    })
}

/// Each event of the file, with its checksum.
fn recorded() -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    let mut rest = &RECORDED[MAGIC..];
    while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
        let (event, more) = rest.split_at(size_of(header));
        events.push(event.to_vec());
        rest = more;
    }
    events
}

/// Takes an event as a stream gives it: one that is compressed gives those in it.
fn take(reader: &mut Transactions, whole: &[u8], out: &mut Vec<Seen>) -> Result<(), MoveError> {
    let event = Event::parse(whole, true).unwrap();
    if event.kind != kind::TRANSACTION_PAYLOAD {
        return reader.take(&event, out);
    }
    let mut payload = Payload::open(event.body).unwrap();
    let mut inner = Vec::new();
    while payload.next(&mut inner).unwrap() {
        reader.take(&Event::parse(&inner, false).unwrap(), out)?;
    }
    Ok(())
}

/// All that a reader sees, in short: `orders 1`, `mark`, `odd`, `end 83`.
fn words_of(seen: &[Seen]) -> Vec<String> {
    let names = ["orders", "words"];
    let word = |one: &Seen| match one {
        Seen::Row(table, Key(parts)) => match parts.first() {
            Some(KeyPart::Unsigned(n)) => format!("{} {n}", names[*table]),
            Some(KeyPart::Bytes(text)) => {
                format!("{} {}", names[*table], String::from_utf8_lossy(text))
            }
            other => format!("{other:?}"),
        },
        Seen::Mark => "mark".into(),
        Seen::Odd(text) => format!("odd {text}"),
        Seen::End(gtid, _) => {
            let gtid = gtid.to_string();
            format!("end {}", gtid.split_once(':').unwrap().1)
        }
    };
    seen.iter().map(word).collect()
}

/// What is seen up to the first fault, and the fault.
fn read(shop: u64) -> (Vec<String>, MoveError) {
    let mut reader = reader(shop, tables(), false);
    let mut out = Vec::new();
    for event in recorded() {
        if let Err(fault) = take(&mut reader, &event, &mut out) {
            return (words_of(&out), fault);
        }
    }
    panic!("the file has what no feed may go past");
}

#[test]
fn keys_before_and_after_each_change_are_seen() {
    let (seen, fault) = read(7);
    let expected = [
        "orders 1",
        "end 83",
        "orders 1",
        "end 84",
        "orders 100",
        "orders 102",
        "end 85",
        "mark",
        "orders 100",
        "orders 102",
        "end 86",
        "words A",
        "end pod:2",
        "words A",
        "words a",
        "end 87",
        "end 88",
        "words a",
        "words a",
    ];
    assert_eq!(seen, expected);
    // The minimal image of another shop's row was no fault; this shop's is.
    assert_eq!(fault.verdict(), Verdict::Fail);
    let text = fault.to_string();
    assert!(
        text.contains("table words") && text.contains("binlog_row_image"),
        "{text}"
    );
    assert!(text.ends_with(":89)"), "{text}");
}

/// A row that changes its shop is seen by both.
#[test]
fn another_shop_sees_its_own() {
    let (seen, _) = read(9);
    assert_eq!(seen.first().unwrap(), "end 83");
    assert_eq!(seen.get(1..3).unwrap(), ["orders 1", "end 84"]);
    assert_eq!(
        seen.iter().filter(|w| !w.starts_with("end")).count(),
        2,
        "{seen:?}"
    );
}

/// The time of a commit is the server's, in ms.
#[test]
fn a_commit_has_a_time() {
    let mut reader = reader(7, tables(), false);
    let mut out = Vec::new();
    for event in recorded().iter().take(8) {
        take(&mut reader, event, &mut out).unwrap();
    }
    let Some(Seen::End(_, at_ms)) = out.last() else {
        panic!("{out:?}");
    };
    let second = u32::from_le_bytes(*recorded()[2].first_chunk().unwrap());
    assert!(at_ms.abs_diff(u64::from(second) * 1000) < 2_000, "{at_ms}");
}

/// A reader that goes on tells of everything that it cannot follow, and comes to the end.
#[test]
fn what_cannot_be_followed_is_told() {
    let mut reader = reader(7, tables(), true);
    let mut out = Vec::new();
    for event in recorded() {
        take(&mut reader, &event, &mut out).unwrap();
    }
    let seen = words_of(&out);
    let odd: Vec<&String> = seen.iter().filter(|w| w.starts_with("odd")).collect();
    let expected = [
        ("binlog_row_image", ":89)"),
        ("binlog_row_value_options", ":91)"),
        ("XA PREPARE", ":94)"),
        ("`delete from orders where shop_id and id`", ":96)"),
        ("`alter table orders add column zz int`", ":97)"),
        ("9 columns in place of 8", ":98)"),
    ];
    assert_eq!(odd.len(), expected.len(), "{odd:#?}");
    for (said, (what, end)) in odd.iter().zip(expected) {
        assert!(said.contains(what) && said.ends_with(end), "{said}");
    }
    assert_eq!(seen.last().unwrap(), "end 98");
    // It has no interest in what the mover itself did.
    let mark = seen.iter().position(|word| word == "mark").unwrap();
    assert_eq!(seen.get(mark + 1).unwrap(), "end 86");
}

/// A connection may die between the two steps of another's transaction.
#[test]
fn the_next_connection_knows_what_the_one_before_it_saw_half_of() {
    let events = recorded();
    let is_half = |event: &Vec<u8>| Event::parse(event, true).unwrap().kind == kind::XA_PREPARE;
    let half = events.iter().position(is_half).unwrap();
    let (first, second) = events.split_at(half + 1);
    let is_odd = |remembers: bool| {
        let (mut before, mut after) = (reader(7, tables(), true), reader(7, tables(), true));
        for event in first {
            take(&mut before, event, &mut Vec::new()).unwrap();
        }
        if remembers {
            after.remember(before);
        }
        let mut out = Vec::new();
        for event in second {
            take(&mut after, event, &mut out).unwrap();
        }
        let words = words_of(&out);
        words.iter().any(|word| word.contains("first was not seen"))
    };
    assert!(!is_odd(true) && is_odd(false));
}

/// The place to resume from is never inside of a transaction: after any number of events, what has ended is whole.
#[test]
fn only_an_end_is_a_place_to_resume_from() {
    let ends = |events: usize| {
        let mut reader = reader(7, tables(), false);
        let mut out = Vec::new();
        for event in recorded().iter().take(events) {
            take(&mut reader, event, &mut out).unwrap();
        }
        let ended = out.iter().filter(|s| matches!(s, Seen::End(..))).count();
        (ended, reader.open.is_some())
    };
    // Two events of the file, five or nine of a transaction.
    assert_eq!(ends(2), (0, false));
    assert_eq!(ends(6), (0, true));
    assert_eq!(ends(7), (1, false));
    assert_eq!(ends(12), (2, false));
    // The savepoint.
    assert_eq!(ends(17), (2, true));
    assert_eq!(ends(20), (3, false));
}

#[test]
fn a_table_that_is_not_what_it_was_is_seen_before_its_rows() {
    let with = |change: &dyn Fn(&mut Table)| {
        let mut tables = tables();
        change(&mut tables[0]);
        let mut reader = reader(1_000, tables, false);
        let mut out = Vec::new();
        let fault = recorded()
            .iter()
            .find_map(|event| take(&mut reader, event, &mut out).err());
        fault.unwrap().to_string()
    };
    for (change, expected) in [
        (
            &(|table: &mut Table| drop(table.columns.pop())) as &dyn Fn(&mut Table),
            "8 columns in place of 7",
        ),
        (
            &|table| table.columns[2].name = "remark".into(),
            "a column note in place of remark",
        ),
        (
            &|table| table.columns[2].data_type = "char".into(),
            "another type of note than char",
        ),
        (
            &|table| table.columns[1].kind = Kind::Int { unsigned: false },
            "another type of id than bigint",
        ),
        (
            &|table| table.columns[4].data_type = "text".into(),
            "another type of j than text",
        ),
    ] {
        let fault = with(change);
        assert!(
            fault.contains("schema changed") && fault.contains(expected),
            "{fault}"
        );
    }
}
