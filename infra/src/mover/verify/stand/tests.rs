//! What is noted of a comparison, and when.

use std::collections::HashSet;

use super::*;
use crate::mover::apply::Place;
use crate::mover::table::KeyPart;

fn upto(number: u64) -> GtidSet {
    GtidSet::parse(&format!("01010101-0101-0101-0101-010101010101:1-{number}")).unwrap()
}

fn key(id: u64) -> Key {
    Key([KeyPart::Unsigned(id), KeyPart::Bytes(vec![0xFF])].into())
}

fn place(id: u64) -> Position {
    Position {
        table: 3,
        after: Some(key(id)),
        rows: id,
    }
}

fn sides(source: u64, tables: &str) -> Sides {
    Sides {
        terms: [source, 1],
        tables: tables.to_owned(),
    }
}

#[test]
fn what_was_noted_is_read_as_long_as_it_is_true() {
    let stand = Stand {
        since: upto(9),
        place: place(7),
        repaired: 2,
    };
    let bytes = stand.to_bytes(sides(1, "a"));
    let read = |sides: &Sides| Stand::from_bytes(&bytes, sides);
    assert_eq!(read(&sides(1, "a")), Some(stand));
    assert_eq!(read(&sides(2, "a")), None, "another primary");
    assert_eq!(read(&sides(1, "b")), None, "other tables");
    assert_eq!(Stand::from_bytes(b"{}", &sides(1, "a")), None);
}

/// What was written by a moment is compared before the set may grow to that moment.
#[test]
fn a_note_waits_for_what_was_written_before_the_last_one() {
    let ledger = Ledger::new(10);
    let (applied, watched) = watch::channel(upto(1));
    ledger.begin();
    let mut noter = Noter::new(&Stand::beginning(upto(1)), Duration::ZERO);
    let write = |id: u64, number: u64| {
        ledger.applied([(0, key(id))]);
        applied.send_replace(upto(number));
    };
    let equal = || {
        let round = ledger.round(10);
        ledger.judge(round, &HashSet::<Place>::new());
    };
    let mut since = |at: u64| {
        let noted = noter.stand(place(at), &ledger, &watched);
        noted.map(|stand| (stand.since, stand.place))
    };
    write(1, 2);
    assert_eq!(since(1), Some((upto(1), place(1))), "from the beginning");
    write(2, 3);
    assert_eq!(since(2), None, "the first key was not compared");
    equal();
    write(3, 4);
    assert_eq!(
        since(3),
        Some((upto(2), place(3))),
        "and the third is after that"
    );
    assert_eq!(since(4), None);
    write(3, 5);
    assert_eq!(since(4), Some((upto(4), place(4))), "written again");
    ledger.suspect([(0, key(9))]);
    assert_eq!(since(5), None, "something looks different");
}
