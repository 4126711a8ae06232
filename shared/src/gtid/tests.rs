//! Sets of transactions, against plain sets and against MySQL's text.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const A: &str = "bdbea337-ec7c-11f1-86a3-02fc00000001";
const B: &str = "cdbea337-ec7c-11f1-86a3-02fc00000001";

fn set(text: &str) -> GtidSet {
    GtidSet::parse(text).unwrap()
}

fn gtid(server: &str, tag: Option<&str>, number: u64) -> Gtid {
    let server = uuid::Uuid::try_parse(server).unwrap();
    Gtid::new(server.into_bytes(), tag, number).unwrap()
}

#[test]
fn containing_is_by_source_tag_and_range() {
    let have = set(&format!("{A}:1-5:7-9:pod:1-3,\n{B}:1"));
    for inside in [
        format!("{A}:2-4"),
        format!("{A}:7"),
        format!("{B}:1,{A}:pod:3"),
        String::new(),
    ] {
        assert!(have.contains(&set(&inside)), "{inside}");
    }
    for outside in [
        format!("{A}:6"),
        format!("{A}:5-7"),
        format!("{B}:pod:1"),
        format!("{A}:pod:4"),
    ] {
        assert!(!have.contains(&set(&outside)), "{outside}");
    }
}

#[test]
fn touching_ranges_are_one() {
    assert_eq!(set(&format!("{A}:1-3:4-5")), set(&format!("{A}:1-5")));
    assert_eq!(set(&format!("{A}:9:1-3,{A}:4-8")), set(&format!("{A}:1-9")));
}

#[test]
fn anything_else_is_refused() {
    for bad in [
        "x",
        "x:1",
        A,
        &format!("{A}:"),
        &format!("{A}:0"),
        &format!("{A}:5-4"),
        &format!("{A}:1-x"),
        &format!("{A}:9223372036854775807"),
        &format!("{A}:a-b:1"),
        &format!("{A}:{}:1", "t".repeat(33)),
        "zdbea337-ec7c-11f1-86a3-02fc00000001:1",
        "bdbea337ec7c11f186a302fc00000001:1",
    ] {
        assert!(GtidSet::parse(bad).is_err(), "{bad}");
    }
}

/// The text that a server prints, save its line breaks.
#[test]
fn a_set_is_written_as_the_server_writes_it() {
    for text in [
        String::new(),
        format!("{A}:1-5:7"),
        format!("{A}:1-5:7:pod:1-3:zed:9,{B}:1"),
        format!("{A}:pod:1,{B}:abc:2:pod:5-6"),
    ] {
        assert_eq!(set(&text).to_string(), text);
    }
    let repeated = format!("{A}:1,{A}:Pod:1-2");
    assert_eq!(set(&repeated).to_string(), format!("{A}:1:pod:1-2"));
}

#[test]
fn single_transactions_are_added_wherever_they_belong() {
    let mut sum = set(&format!("{A}:1-2"));
    for (server, tag, number) in [
        (A, None, 3),
        (A, None, 5),
        (A, Some("t"), 1),
        (B, None, 8),
        (A, None, 4),
        (A, None, 4),
    ] {
        let one = gtid(server, tag, number);
        sum.add(&one);
        assert!(sum.has(&one));
    }
    assert_eq!(sum, set(&format!("{A}:1-5:t:1,{B}:8")));
    assert!(!sum.has(&gtid(A, None, 6)) && !sum.has(&gtid(B, Some("t"), 8)));
    assert_eq!(gtid(A, Some("t"), 1).to_string(), format!("{A}:t:1"));
    let server = [0; 16];
    assert_eq!(Gtid::new(server, None, 0), None);
    assert_eq!(Gtid::new(server, None, u64::MAX), None);
    assert_eq!(Gtid::new(server, Some("1t"), 1), None);
}

#[test]
fn sources_are_named_by_server_and_tag() {
    let set = set(&format!("{A}:1-5:pod:2,{B}:1:3"));
    let seen: Vec<_> = set.sources().collect();
    let (a, b) = (
        uuid::Uuid::try_parse(A).unwrap(),
        uuid::Uuid::try_parse(B).unwrap(),
    );
    let (one, two): (&[_], &[_]) = (&[(1, 5)], &[(2, 2)]);
    let three: &[_] = &[(1, 1), (3, 3)];
    assert_eq!(
        seen,
        [(a, None, one), (a, Some("pod"), two), (b, None, three)]
    );
}

/// A small world: two servers, two tags, few numbers.
type Plain = BTreeSet<(usize, u64)>;

const SOURCES: [(&str, Option<&str>); 4] =
    [(A, None), (A, Some("pod")), (B, None), (B, Some("pod"))];

fn plain() -> impl Strategy<Value = Plain> {
    prop::collection::btree_set((0..SOURCES.len(), 1..30_u64), 0..60)
}

fn of(plain: &Plain) -> GtidSet {
    let mut set = GtidSet::default();
    for &(source, number) in plain {
        let (server, tag) = SOURCES[source];
        set.add(&gtid(server, tag, number));
    }
    set
}

proptest! {
    /// Sets of transactions are sets.
    #[test]
    fn operations_are_those_of_sets(a in plain(), b in plain()) {
        let (left, right) = (of(&a), of(&b));
        let mut sum = left.clone();
        sum.union(&right);
        prop_assert_eq!(&sum, &of(&a.union(&b).copied().collect()));
        prop_assert_eq!(left.intersection(&right), of(&a.intersection(&b).copied().collect()));
        prop_assert_eq!(left.minus(&right), of(&a.difference(&b).copied().collect()));
        prop_assert_eq!(left.contains(&right), b.is_subset(&a));
        prop_assert!(sum.contains(&left) && sum.contains(&right));
        prop_assert_eq!(left.count(), a.len() as u64);
        prop_assert_eq!(left.is_empty(), a.is_empty());
    }

    /// What is written is read back.
    #[test]
    fn text_is_read_back(a in plain()) {
        let set = of(&a);
        prop_assert_eq!(GtidSet::parse(&set.to_string()), Ok(set));
    }
}
