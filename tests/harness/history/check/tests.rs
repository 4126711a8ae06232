//! Each rule finds the one thing that breaks it in a history that is otherwise sound.

use super::*;
use crate::history::Step;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Client, begin and end in ms, act.
fn record(client: usize, began: u64, ended: u64, act: Act) -> Record {
    Record {
        client,
        began: ms(began),
        ended: ms(ended),
        act,
    }
}

fn bought(key: &str, order: &str) -> Act {
    Act::Bought {
        key: key.into(),
        order: order.into(),
        units: 2,
    }
}

fn declined(key: &str) -> Act {
    Act::Declined {
        key: key.into(),
        approve: false,
    }
}

fn listed(orders: &[&str], more: bool) -> Act {
    Act::Listed {
        orders: orders.iter().map(|o| (*o).to_owned()).collect(),
        more,
    }
}

fn stepped(order: &str, step: Step) -> Act {
    Act::Stepped {
        order: order.into(),
        step,
    }
}

fn saw(order: &str, status: &str) -> Act {
    Act::SawOrder {
        order: order.into(),
        status: status.into(),
    }
}

fn stored(id: &str, status: &str, units: i64) -> Stored {
    Stored {
        id: id.into(),
        status: status.into(),
        units,
    }
}

/// Two orders, one of which was sent and paid back, a clerk at 2, and a list.
fn sound() -> (Account, End) {
    let records = vec![
        record(1, 0, 10, bought("k1", "o1")),
        record(0, 0, 12, Act::Set { to: 1 }),
        record(1, 11, 15, bought("k1", "o1")),
        record(1, 16, 20, bought("k2", "o2")),
        record(1, 21, 25, declined("k3")),
        record(1, 26, 30, listed(&["o2"], true)),
        record(2, 0, 31, Act::SawStock { value: 2 }),
        record(0, 13, 32, Act::Set { to: 2 }),
        record(1, 31, 35, stepped("o1", Step::Fulfil)),
        record(1, 36, 40, saw("o1", "fulfilled")),
        record(1, 41, 45, stepped("o1", Step::Refund)),
        record(1, 46, 50, listed(&["o2", "o1"], false)),
        record(2, 33, 51, Act::SawStock { value: 2 }),
    ];
    let end = End {
        orders: vec![
            stored("o1", "refunded", 2),
            stored("o2", "paid", 2),
            stored("o3", "payment_failed", 2),
        ],
        stock: (100, 98),
        clerk: 2,
    };
    let account = Account {
        records,
        ..Account::default()
    };
    (account, end)
}

/// The one fault after a change, which must contain the words.
fn found(change: impl Fn(&mut Account, &mut End), words: &str) {
    let (mut account, mut end) = sound();
    change(&mut account, &mut end);
    let faults = account.faults(&end);
    assert!(
        faults.iter().any(|fault| fault.contains(words)),
        "{words:?} is not in {faults:#?}"
    );
}

#[test]
fn a_sound_history_has_no_fault() {
    let (account, end) = sound();
    assert_eq!(account.faults(&end), Vec::<Fault>::new());
}

#[test]
fn an_order_that_is_gone_doubled_or_nobodys_is_found() {
    found(
        |_, end| drop(end.orders.remove(1)),
        "o2 was acknowledged and is gone",
    );
    found(
        |_, end| {
            end.orders.push(stored("o4", "paid", 2));
            end.stock.1 -= 2;
        },
        "nobody was told of",
    );
    found(
        |_, end| end.orders.push(stored("o2", "paid", 2)),
        "listed twice",
    );
    found(|_, end| end.orders[1].units = 1, "now has 1");
    found(
        |account, _| account.records.push(record(3, 60, 61, bought("k1", "o9"))),
        "key k1 got",
    );
    found(
        |account, _| account.records.push(record(3, 60, 61, bought("k9", "o1"))),
        "was given to",
    );
    found(
        |account, _| account.records.push(record(3, 60, 61, declined("k1"))),
        "key k1 got",
    );
}

#[test]
fn an_order_of_a_request_that_was_given_up_may_be_there() {
    let (mut account, mut end) = sound();
    account.given_up.push("checkout k4".into());
    end.orders.push(stored("o4", "paid", 2));
    end.stock.1 -= 2;
    assert_eq!(account.faults(&end), Vec::<Fault>::new());
}

#[test]
fn stock_that_is_not_conserved_is_found() {
    found(|_, end| end.stock.1 = 96, "orders hold 2");
    found(
        |_, end| end.orders[2].status = "pending".into(),
        "orders hold 4",
    );
}

#[test]
fn a_state_that_goes_back_is_found() {
    found(
        |_, end| end.orders[0].status = "fulfilled".into(),
        "o1 was Refunded and is",
    );
    found(
        |account, _| account.records.push(record(4, 60, 61, saw("o1", "paid"))),
        "was Refunded and then read as Paid",
    );
    found(
        |account, _| {
            account
                .records
                .push(record(4, 60, 61, saw("o2", "cancelled")))
        },
        "o2 was seen as cancelled",
    );
}

#[test]
fn a_strong_read_between_what_was_acknowledged_and_what_was_asked_is_sound() {
    let read = |began, ended, value| {
        let (mut account, end) = sound();
        account
            .records
            .push(record(5, began, ended, Act::SawStock { value }));
        account.faults(&end)
    };
    assert!(read(14, 16, 1).is_empty() && read(14, 16, 2).is_empty());
    assert!(read(33, 40, 1)[0].contains("was set to 2 and then read as 1"));
    assert!(read(5, 12, 2)[0].contains("before it was set"));
    found(|_, end| end.clerk = 1, "was set to 2 and is 1");
}

#[test]
fn a_session_that_forgets_is_found() {
    found(
        |account, _| {
            account
                .records
                .push(record(1, 60, 61, listed(&["o2"], false)))
        },
        "knew order o1",
    );
    found(
        |account, _| {
            account
                .records
                .push(record(1, 60, 61, listed(&["o1"], true)))
        },
        "knew order o2",
    );
    let (mut account, end) = sound();
    account
        .records
        .push(record(7, 60, 61, listed(&["o1"], false)));
    assert_eq!(
        account.faults(&end),
        Vec::<Fault>::new(),
        "another client's session knew nothing"
    );
}

#[test]
fn answers_beyond_the_allowed_are_found() {
    let mut account = Account::default();
    for status in [200, 201, 303, 402, 409] {
        account.told.insert(Told::Status(status, Again::Unsaid), 1);
    }
    account.told.remove(&Told::Status(303, Again::Unsaid));
    assert!(account.wrong_answers(false).is_empty());
    for told in [
        Told::Cut,
        Told::Status(503, Again::Later),
        Told::Status(409, Again::Later),
        Told::Status(502, Again::Later),
        Told::Status(504, Again::Later),
    ] {
        account.told = BTreeMap::from([(told, 1)]);
        assert_eq!(account.wrong_answers(false).len(), 1, "{told:?}");
        assert!(account.wrong_answers(true).is_empty(), "{told:?}");
    }
    for told in [
        Told::Status(503, Again::Unsaid),
        Told::Status(500, Again::Unsaid),
        Told::Status(502, Again::Unsaid),
        Told::Status(504, Again::Unsaid),
        Told::Status(404, Again::Unsaid),
        Told::Status(421, Again::Unsaid),
        Told::Status(429, Again::Later),
    ] {
        account.told = BTreeMap::from([(told, 1)]);
        assert_eq!(account.wrong_answers(true).len(), 1, "{told:?}");
    }
}
