//! What is noted, struck out, put in order and forgotten.

use super::*;
use crate::mover::table::KeyPart;

fn key(id: u64) -> Place {
    (0, Key(vec![KeyPart::Unsigned(id)].into()))
}

/// Room for as many keys as the tests have.
fn ledger() -> Ledger {
    Ledger::new(10)
}

fn differ(ids: &[u64]) -> HashSet<Place> {
    ids.iter().map(|id| key(*id)).collect()
}

#[test]
fn nothing_is_noted_before_a_comparison_begins() {
    let ledger = ledger();
    ledger.applied([key(1)]);
    assert_eq!(ledger.len(), 0);
    ledger.begin();
    ledger.applied([key(2)]);
    assert_eq!(ledger.len(), 1);
}

#[test]
fn what_is_equal_and_was_not_written_meanwhile_is_struck_out() {
    let ledger = ledger();
    ledger.begin();
    ledger.applied([key(1), key(2)]);
    let round = ledger.round(10);
    ledger.applied([key(2)]);
    let judged = ledger.judge(round, &differ(&[]));
    assert_eq!((judged.equal, judged.later), (1, 1));
    assert_eq!(ledger.len(), 1);
}

#[test]
fn a_difference_is_put_in_order_once_and_is_lost_the_second_time() {
    let ledger = ledger();
    ledger.begin();
    ledger.suspect([key(7)]);
    let judged = ledger.judge(ledger.round(10), &differ(&[7]));
    assert_eq!(judged.repair, [key(7)]);
    assert_eq!(ledger.take_repairs(), [key(7)]);
    // The applier has not got to it: not lost.
    let judged = ledger.judge(ledger.round(10), &differ(&[7]));
    assert_eq!((judged.later, judged.lost.len()), (1, 0));
    ledger.applied([key(7)]);
    let judged = ledger.judge(ledger.round(10), &differ(&[7]));
    assert_eq!(judged.lost, [key(7)]);
    assert_eq!(ledger.repaired(), 1);
}

#[test]
fn a_comparison_of_an_earlier_run_is_gone_on_with_once() {
    let ledger = ledger();
    ledger.go_on();
    ledger.applied([key(1)]);
    assert_eq!(ledger.len(), 1);
    assert!(!ledger.is_past(0), "nothing is compared again yet");
    assert!(ledger.goes_on() && !ledger.goes_on());
    assert_eq!(ledger.len(), 1);
}

/// Whatever the stage is: it may not hold more, and may not say that anything is compared.
#[test]
fn too_many_keys_are_forgotten_with_all_that_was_compared() {
    type Begin = fn(&Ledger);
    type Fill = fn(&Ledger, std::ops::Range<u64>);
    let stages: [Begin; 3] = [
        |ledger| ledger.go_on(),
        |ledger| ledger.begin(),
        |ledger| {
            ledger.begin();
            assert!(ledger.complete());
        },
    ];
    let fills: [Fill; 2] = [
        |ledger, ids| ledger.applied(ids.map(key)),
        |ledger, ids| ledger.suspect(ids.map(key)),
    ];
    for begin in stages {
        for fill in fills {
            let ledger = ledger();
            begin(&ledger);
            fill(&ledger, 0..10);
            assert!(ledger.len() == 10 && !ledger.is_off());
            let round = ledger.round(10);
            ledger.judge(round.clone(), &differ(&[1]));
            fill(&ledger, 10..20);
            assert!(ledger.is_off() && !ledger.has_repairs());
            for _ in 0..3 {
                fill(&ledger, 0..20);
                assert_eq!(ledger.len(), 0);
                assert!(!ledger.is_past(0) && !ledger.is_past(u64::MAX));
                assert!(!ledger.goes_on() && !ledger.complete() && !ledger.is_complete());
            }
            assert_eq!(ledger.judge(round, &differ(&[])).equal, 0);
            ledger.begin();
            ledger.applied([key(1)]);
            assert!(ledger.len() == 1 && ledger.complete());
        }
    }
}

#[test]
fn what_was_written_before_is_past_once_it_was_the_same_or_written_again() {
    let ledger = ledger();
    ledger.begin();
    ledger.applied([key(1), key(2)]);
    let then = ledger.last_number();
    assert!(ledger.is_past(0) && !ledger.is_past(then));
    ledger.judge(ledger.round(10), &differ(&[]));
    assert!(ledger.is_past(then));
    ledger.applied([key(1)]);
    let then = ledger.last_number();
    ledger.applied([key(1)]);
    assert!(ledger.is_past(then), "it is written again");
    ledger.suspect([key(7)]);
    assert!(!ledger.is_past(0), "a difference is never past");
    ledger.judge(ledger.round(10), &differ(&[7]));
    ledger.applied(ledger.take_repairs());
    assert!(!ledger.is_past(0), "nor one that was put in order");
    ledger.judge(ledger.round(10), &differ(&[]));
    assert!(ledger.is_past(ledger.last_number()));
}

#[test]
fn a_difference_with_a_change_on_its_way_is_none() {
    let ledger = ledger();
    ledger.begin();
    ledger.suspect([key(7)]);
    let round = ledger.round(10);
    ledger.applied([key(7)]);
    let judged = ledger.judge(round, &differ(&[7]));
    assert_eq!(judged.later, 1);
    assert!(judged.repair.is_empty() && judged.lost.is_empty());
}
