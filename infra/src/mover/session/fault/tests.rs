//! What answers of a server mean, by their codes.

use super::*;
use crate::mover::error::Verdict;

/// What becomes of a move whose statement a server answers so.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Waits,
    TriedForAWhile,
    Fails,
}

use Fate::{Fails, TriedForAWhile, Waits};

fn said(code: u16, message: &str) -> MoveError {
    let said = ServerError {
        code,
        message: message.into(),
        state: "HY000".into(),
    };
    of(PodId::new(1).unwrap(), "load rows", Error::Server(said))
}

fn fate(code: u16) -> Fate {
    let error = said(code, "");
    match error.verdict() {
        Verdict::Again if error.is_doubtful() => TriedForAWhile,
        Verdict::Again => Waits,
        Verdict::Fail => Fails,
        Verdict::Rewind | Verdict::TakeAnew => panic!("{error:?}"),
    }
}

/// The driver would say that packets are out of sync, which an operator takes for a fault of the network.
#[test]
fn a_word_that_nobody_asked_for_is_the_end_of_a_connection() {
    let unasked = std::io::Error::other("Packets out of sync");
    let unasked = Error::Io(IoError::Io(unasked));
    let error = of(PodId::new(1).unwrap(), "compare keys", unasked);
    assert_eq!(error.verdict(), Verdict::Again);
    let text = error.brief();
    assert!(text.contains("is closed"), "{text}");
    assert!(!text.contains("sync"), "{text}");
}

#[test]
fn a_busy_server_is_waited_for_and_a_wrong_statement_is_not() {
    let cases = [
        (1040, Waits, "too many connections"),
        (1135, Waits, "cannot create a thread"),
        (1037, Waits, "out of memory"),
        (1038, Waits, "out of sort memory"),
        (1030, Waits, "an engine's error, such as a full disk"),
        (1114, Waits, "the table is full"),
        (1205, Waits, "lock wait"),
        (1206, Waits, "lock table full"),
        (1213, Waits, "deadlock"),
        (1290, Waits, "read only"),
        (3024, Waits, "execution time"),
        (3169, Waits, "session killed"),
        (1105, TriedForAWhile, "unknown error"),
        (
            1197,
            TriedForAWhile,
            "the transaction is larger than the binlog's cache",
        ),
        (1534, TriedForAWhile, "writing a row to the binlog failed"),
        (6000, TriedForAWhile, "what a later server may say"),
        (1064, Fails, "syntax"),
        (1142, Fails, "no privilege"),
        (1227, Fails, "no such privilege"),
        (3948, Fails, "files of clients are switched off"),
        (1062, Fails, "duplicate key"),
        (1452, Fails, "foreign key"),
        (3819, Fails, "check constraint"),
        (1644, Fails, "a trigger's own error"),
        (1264, Fails, "out of range"),
        (1366, Fails, "incorrect string"),
        (1406, Fails, "too long"),
        (1054, Fails, "no such column"),
        (1146, Fails, "no such table"),
        (1176, Fails, "no such key"),
    ];
    for (code, expected, what) in cases {
        assert_eq!(fate(code), expected, "{code}: {what}");
    }
}

#[test]
fn a_code_stands_in_one_list_at_most() {
    let mut codes = [PASSING, FINAL, SCHEMA].concat();
    let all = codes.len();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), all);
    assert!(QUOTING.iter().all(|code| FINAL.contains(code)));
}

#[test]
fn what_failed_is_told_with_its_code_and_without_a_merchants_value() {
    let cases = [
        (
            1062,
            "Duplicate entry '7-ann' for 'x'@example.org' for key 'customer.email'",
            "Duplicate entry '...' for key 'customer.email'",
        ),
        (
            1292,
            "Truncated incorrect DOUBLE value: 'ann@example.org'",
            "Truncated incorrect DOUBLE value: '...'",
        ),
        (
            1366,
            "Incorrect string value: '\\xF0\\x9F' for column 'title' at row 1",
            "Incorrect string value: '...' for column 'title' at row 1",
        ),
        (
            1146,
            "Table 'pod.product' doesn't exist",
            "Table 'pod.product' doesn't exist",
        ),
    ];
    for (code, message, told) in cases {
        let brief = said(code, message).brief();
        assert!(
            brief.contains(told) && brief.contains(&code.to_string()),
            "{brief}"
        );
        assert_eq!(message == told, brief.contains(message), "{brief}");
    }
}
