//! The two tables of states: no dead end, nothing backward, orders that are events, each order's literal outcome.

use super::*;

const EVENTS: [MoveEvent; 20] = [
    MoveEvent::Prepared,
    MoveEvent::PreparedBack,
    MoveEvent::Copied,
    MoveEvent::CaughtUp,
    MoveEvent::Verified,
    MoveEvent::FenceMissed,
    MoveEvent::PrimaryChanged,
    MoveEvent::Followed,
    MoveEvent::HandedOver,
    MoveEvent::Finish,
    MoveEvent::TakenBack,
    MoveEvent::Retired,
    MoveEvent::Pause,
    MoveEvent::Resume(ResumePoint::Preparing),
    MoveEvent::Resume(ResumePoint::Copying),
    MoveEvent::Resume(ResumePoint::CatchingUp),
    MoveEvent::Resume(ResumePoint::Retiring),
    MoveEvent::Abort,
    MoveEvent::Undone,
    MoveEvent::Fail,
];

#[test]
fn words_are_read_back() {
    for state in MoveState::ALL {
        assert_eq!(MoveState::parse(state.as_str()), Some(state));
    }
    assert_eq!(MoveState::parse("fencing"), None);
}

/// Who is fenced and who hands over says where a fence stands; every event that leads out of that either hands over or lifts it,
/// and none but a hand-over leads past it.
#[test]
fn a_fence_may_stand_from_its_state_on_until_the_owner_has_changed() {
    let fenced = MoveState::ALL.into_iter().filter(|it| it.may_be_fenced());
    assert_eq!(
        fenced.collect::<Vec<_>>(),
        [MoveState::Fenced, MoveState::Cutover]
    );
    for state in MoveState::ALL {
        for event in EVENTS {
            let Some(next) = state.after(event) else {
                continue;
            };
            if next.may_be_fenced() && !state.may_be_fenced() {
                assert_eq!(event, MoveEvent::Verified, "{state}");
            }
            if next == MoveState::Observing {
                assert!(state.may_be_fenced(), "{state} {event:?}");
            }
        }
    }
}

/// From every open state an end can be reached, by the table alone: no dead end.
#[test]
fn every_open_state_has_a_way_to_an_end() {
    for start in MoveState::ALL {
        let mut reached = vec![start];
        let mut next = 0;
        while let Some(&state) = reached.get(next) {
            next += 1;
            for event in EVENTS {
                if let Some(after) = state.after(event)
                    && !reached.contains(&after)
                {
                    reached.push(after);
                }
            }
        }
        assert!(reached.iter().any(|s| !s.is_open()), "{start} has no end");
    }
}

/// What is over stays over.
#[test]
fn closed_states_take_no_event() {
    for state in MoveState::ALL.into_iter().filter(|s| !s.is_open()) {
        for event in EVENTS {
            assert_eq!(state.after(event), None, "{state} {event:?}");
        }
    }
}

/// Once the target may have sold, nothing but forward: no abort, no failure, no pause into an earlier state.
#[test]
fn after_the_hand_over_only_forward() {
    for event in EVENTS {
        let after = MoveState::Observing.after(event);
        assert!(
            matches!(after, None | Some(MoveState::Retiring | MoveState::Done)),
            "{event:?}"
        );
    }
    assert_eq!(MoveState::Retiring.after(MoveEvent::Abort), None);
    assert_eq!(MoveState::Retiring.after(MoveEvent::Fail), None);
}

#[test]
fn a_state_that_can_be_paused_says_where_it_goes_on() {
    for state in MoveState::ALL {
        let pausable = state.after(MoveEvent::Pause).is_some();
        assert_eq!(state.resume_point().is_some(), pausable, "{state}");
    }
}

/// What each order makes of each state, as operators are told; `-` is a refusal, `...` depends on where it was paused. Written
/// out by hand: the tests of the catalog and of whole fleets go by [`MoveState::ordered`] itself.
#[rustfmt::skip] // a table: one state a line
const fn orders_of(state: MoveState) -> [&'static str; 5] {
    match state {
        //                        pause     resume       abort        finish      source gone
        MoveState::Preparing  => ["paused", "-",         "aborting",  "-",        "-"],
        MoveState::Copying    => ["paused", "-",         "aborting",  "-",        "-"],
        MoveState::CatchingUp => ["paused", "-",         "aborting",  "-",        "-"],
        MoveState::Verifying  => ["paused", "-",         "aborting",  "-",        "-"],
        MoveState::Fenced     => ["-",      "-",         "aborting",  "-",        "-"],
        MoveState::Cutover    => ["-",      "-",         "aborting",  "-",        "cutover"],
        MoveState::Observing  => ["-",      "-",         "-",         "retiring", "retiring"],
        MoveState::Retiring   => ["paused", "-",         "-",         "retiring", "retiring"],
        MoveState::Done       => ["-",      "-",         "-",         "-",        "-"],
        MoveState::Paused     => ["paused", "...",       "...",       "-",        "-"],
        MoveState::Aborting   => ["-",      "-",         "aborting",  "-",        "-"],
        MoveState::Aborted    => ["-",      "-",         "-",         "-",        "-"],
        MoveState::Failed     => ["-",      "preparing", "aborting",  "-",        "-"],
    }
}

/// `resume` and `abort` of a paused move, by where it was paused.
const OF_PAUSED: [(Option<ResumePoint>, &str, &str); 5] = [
    (None, "preparing", "aborting"),
    (Some(ResumePoint::Preparing), "preparing", "aborting"),
    (Some(ResumePoint::Copying), "copying", "aborting"),
    (Some(ResumePoint::CatchingUp), "catching_up", "aborting"),
    (Some(ResumePoint::Retiring), "retiring", "-"),
];

#[test]
fn every_order_in_every_state_leads_where_the_table_says() {
    let orders = [
        Order::Pause,
        Order::Resume,
        Order::Abort,
        Order::Finish,
        Order::SourceGone,
    ];
    assert_eq!(orders, Order::ALL);
    for state in MoveState::ALL {
        for (point, resumed, aborted) in OF_PAUSED {
            for (order, word) in orders.into_iter().zip(orders_of(state)) {
                let wanted = match (word, order) {
                    ("...", Order::Resume) => resumed,
                    ("...", Order::Abort) => aborted,
                    _ => word,
                };
                let next = state.ordered(order, point).map_or("-", MoveState::as_str);
                assert_eq!(next, wanted, "{state} {order:?} {point:?}");
            }
        }
    }
}

/// An order changes a state only by an event that the other table has there.
#[test]
fn what_is_ordered_is_an_event_of_the_state() {
    let points = [
        None,
        Some(ResumePoint::Preparing),
        Some(ResumePoint::Copying),
        Some(ResumePoint::CatchingUp),
        Some(ResumePoint::Retiring),
    ];
    for state in MoveState::ALL {
        for (order, resume) in Order::ALL
            .into_iter()
            .flat_map(|order| points.map(|point| (order, point)))
        {
            let point = resume.unwrap_or(ResumePoint::Preparing);
            let event = match order {
                Order::Pause => MoveEvent::Pause,
                Order::Resume => MoveEvent::Resume(point),
                Order::Abort => MoveEvent::Abort,
                Order::Finish | Order::SourceGone => MoveEvent::Finish,
            };
            let next = state.ordered(order, resume);
            if let Some(next) = next.filter(|next| *next != state) {
                let told = if state == MoveState::Failed && order == Order::Resume {
                    state.after(MoveEvent::Resume(ResumePoint::Preparing))
                } else {
                    state.after(event)
                };
                assert_eq!(Some(next), told, "{state} {order:?}");
            } else if next.is_none() && !state.is_open() {
                assert_eq!(state.after(event), None, "{state} {order:?}");
            }
        }
    }
    let deletes = Some(ResumePoint::Retiring);
    assert_eq!(MoveState::Paused.ordered(Order::Abort, deletes), None);
}
