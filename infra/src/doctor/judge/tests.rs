//! A sound fleet has no finding, and each single fault added to it has exactly its own.

use shared::home::HomeState;
use shared::moves::MoveState;
use time::Duration;

use super::judge;
use crate::doctor::facts::{Facts, Home};
use crate::doctor::{Diagnosis, Severity};

mod cases;
mod moves;
mod sound;

use cases::{CONTENTS, MACHINE, PLACEMENTS, SERVERS};
use moves::MOVES;
use sound::{Reach as _, a_move, epoch, pod_id, shop_id, sound};

#[test]
fn a_sound_fleet_has_no_findings() {
    assert_eq!(judge(&sound()), []);
}

#[test]
fn each_fault_has_its_finding_and_no_other() {
    for case in [PLACEMENTS, MOVES, CONTENTS, SERVERS, MACHINE]
        .into_iter()
        .flatten()
    {
        let mut facts = sound();
        (case.break_it)(&mut facts);
        let findings = judge(&facts);
        let name = format!("{} {}: {}", case.check, case.subject, case.wrong);
        assert_eq!(findings.len(), 1, "{name}: {findings:#?}");
        let finding = &findings[0];
        assert_eq!(finding.severity, case.severity, "{name}");
        assert_eq!(
            (finding.check, finding.subject.as_str()),
            (case.check, case.subject),
            "{name}"
        );
        assert!(
            finding.wrong.contains(case.wrong),
            "{name}: {}",
            finding.wrong
        );
        assert!(!finding.fix.is_empty(), "{name}");
    }
}

#[test]
fn of_a_fleet_that_was_ended_only_that_is_told() {
    let mut facts = sound();
    facts.supervised = Some(false);
    for unit in &mut facts.units {
        unit.pid = None;
    }
    facts.catalog = Err("connection refused".into());
    facts.plan = Some(Ok(vec!["control: start it".into()]));
    let findings = judge(&facts);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].wrong, "the fleet does not run");
}

#[test]
fn a_home_that_the_catalog_does_not_know_matters_more_when_nothing_is_being_made() {
    let home = Home {
        epoch: epoch(1),
        state: HomeState::Serving,
        move_id: None,
    };
    let mut facts = sound();
    facts.contents().homes.insert(shop_id(8), home);
    assert_eq!(judge(&facts)[0].severity, Severity::Warning);
    facts.catalog().operations.clear();
    assert_eq!(judge(&facts)[0].severity, Severity::Error);
}

/// Large copies take their time, and nothing is wrong with that.
#[test]
fn a_copy_that_is_being_deleted_is_no_fault() {
    for clears in [false, true] {
        let mut facts = sound();
        moves::left(&mut facts, Duration::minutes(50)).clears = clears;
        assert_eq!(judge(&facts), []);
    }
}

#[test]
fn what_a_move_does_is_no_fault() {
    let mut facts = sound();
    facts.catalog().moves = vec![a_move(MoveState::Copying)];
    let move_id = Some(facts.catalog().moves[0].id);
    let incoming = Home {
        epoch: epoch(4),
        state: HomeState::Incoming,
        move_id,
    };
    let moved = Home {
        epoch: epoch(2),
        state: HomeState::Moved,
        move_id: None,
    };
    facts.contents().homes.insert(shop_id(2), incoming);
    facts
        .pods
        .get_mut(&pod_id(2))
        .unwrap()
        .contents
        .as_mut()
        .unwrap()
        .homes
        .insert(shop_id(1), moved);
    *facts.home() = Home {
        state: HomeState::Fenced,
        move_id,
        ..*facts.home()
    };
    assert_eq!(judge(&facts), []);
}

#[test]
fn a_source_that_is_gone_for_good_is_waited_for_in_silence() {
    let mut facts = sound();
    let mut it = a_move(MoveState::Done);
    it.source_gone = true;
    it.leftover_since = Some(facts.at - time::Duration::days(400));
    facts.catalog().moves = vec![it];
    assert_eq!(judge(&facts), []);
}

#[test]
fn only_a_move_past_its_hand_over_is_told_to_do_without_its_source() {
    for (state, wanted) in [(MoveState::Retiring, true), (MoveState::Copying, false)] {
        let mut facts = sound();
        let mut it = a_move(state);
        it.state_since = facts.at - time::Duration::minutes(11);
        it.changed_at = it.state_since;
        facts.catalog().moves = vec![it];
        let fix = &judge(&facts)[0].fix;
        assert_eq!(fix.contains("--source-gone"), wanted, "{state}: {fix}");
    }
}

/// Whatever is noted while it tries again makes it no younger.
#[test]
fn a_move_that_notes_something_all_the_while_is_as_stuck_as_a_silent_one() {
    for state in [
        MoveState::Preparing,
        MoveState::CatchingUp,
        MoveState::Cutover,
    ] {
        let mut facts = sound();
        let mut it = a_move(state);
        it.state_since = facts.at - time::Duration::minutes(11);
        it.waits = Some("3 fences did not hold".into());
        facts.catalog().moves = vec![it.clone()];
        let found = judge(&facts);
        assert!(
            found.iter().any(|f| f.wrong.contains("3 fences")),
            "{state}: {found:?}"
        );
        // One that copies for long and is held up by nothing is not stuck.
        it.waits = None;
        it.progress = Some(crate::api::MoveProgress::default());
        facts.catalog().moves = vec![it];
        let told = judge(&facts);
        assert_eq!(told.is_empty(), state != MoveState::Cutover, "{told:?}");
    }
}

#[test]
fn fences_that_miss_one_after_the_other_are_told_although_the_state_changes() {
    for (tries, told) in [(4, false), (5, true)] {
        let mut facts = sound();
        let mut it = a_move(MoveState::Verifying);
        it.record.fence_tries = tries;
        it.waits = Some("the hand-over took longer than 5000 ms".into());
        facts.catalog().moves = vec![it];
        let found = judge(&facts);
        let text = found.iter().any(|f| {
            f.wrong.contains("5 fences of its move") && f.wrong.contains("longer than 5000 ms")
        });
        assert_eq!((text, found.is_empty()), (told, !told), "{found:?}");
    }
}

#[test]
fn only_what_two_looks_show_is_told() {
    let look = |break_it: fn(&mut Facts)| {
        let mut facts = sound();
        break_it(&mut facts);
        Diagnosis::of(judge(&facts))
    };
    let first = look(|f| {
        f.units[0].pid = None;
        f.home().state = HomeState::Frozen;
    });
    let second = look(|f| {
        f.units[0].ready = Some(Err("503".into()));
        f.server(1).replica = None;
    });
    let lasting = first.clone().lasting(second);
    let told: Vec<_> = lasting
        .findings
        .iter()
        .map(|f| (f.check, f.wrong.as_str()))
        .collect();
    assert_eq!(told, [("process", "it runs and is not ready: 503")]);
    assert!(first.lasting(look(|_| {})).healthy);
}
