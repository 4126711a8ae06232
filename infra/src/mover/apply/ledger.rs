//! Which keys were changed at the target since they were last compared with the source.
//!
//! While both sides are compared, rows go on changing. A difference counts only if nothing is on its way to mend it: the
//! applier numbers its transactions here and notes their keys, and whoever compares looks whether a key's number is
//! still the one from before the rows were read. What is in here when the fence closes is compared inside it, so that
//! every key is compared after its last change.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::mover::table::Key;

/// Keys that changed since they were compared, at most: some tens of megabytes.
pub(super) const TOUCHED_MAX: usize = 300_000;

/// A key of a table, by the table's place in the list.
pub(crate) type Place = (usize, Key);

/// Shared by the applier, who notes, and the comparison, who strikes out.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    stage: Stage,
    /// The applier's transactions so far.
    number: u64,
    keys: HashMap<Place, Note>,
    /// To be applied anew although nobody changed them.
    repairs: Vec<Place>,
    /// Keys of true differences so far.
    repaired: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// Nothing is noted before a comparison begins with the first row: that one sees all of them.
    #[default]
    Off,
    /// The comparison of an earlier run is to be gone on with: what changed since is noted, unless that is too much.
    GoingOn,
    /// All rows are being compared.
    Comparing,
    /// All rows were compared.
    Complete,
}

#[derive(Debug, Clone, Copy)]
struct Note {
    /// The transaction that wrote it last; 0 for a key that only looked different.
    number: u64,
    repair: Repair,
}

/// A true difference is put in order once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    None,
    /// It differed with nothing on its way; the applier has not got to it.
    Waiting,
    Done,
}

/// What a comparison of keys found, when nothing more was on its way.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Equal, and struck out.
    pub(crate) equal: u64,
    /// Changed meanwhile: to be compared later.
    pub(crate) later: u64,
    /// Different: they will be applied anew.
    pub(crate) repair: Vec<Place>,
    /// Different although they were applied anew.
    pub(crate) lost: Vec<Place>,
}

impl Ledger {
    /// The comparison of an earlier run is to be gone on with; what is applied from now on has changed since.
    pub(crate) fn go_on(&self) {
        self.0.lock().stage = Stage::GoingOn;
    }

    /// It is gone on with now. Not, where more changed since than is noted.
    pub(crate) fn goes_on(&self) -> bool {
        let mut notes = self.0.lock();
        let goes_on = notes.stage == Stage::GoingOn;
        if goes_on {
            notes.stage = Stage::Comparing;
        }
        goes_on
    }

    /// A comparison of everything begins: what changes from now on is noted.
    pub(crate) fn begin(&self) {
        let mut notes = self.0.lock();
        notes.stage = Stage::Comparing;
        notes.keys.clear();
        notes.repairs.clear();
    }

    /// Everything was compared.
    pub(crate) fn complete(&self) {
        self.0.lock().stage = Stage::Complete;
    }

    /// Whether everything was compared: what is in here is all that is left.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.lock().stage == Stage::Complete
    }

    /// A transaction of the applier is committed. To be called before its GTID set is told to anyone.
    pub(crate) fn applied(&self, keys: impl IntoIterator<Item = Place>) {
        let mut notes = self.0.lock();
        notes.number += 1;
        if notes.stage == Stage::Off {
            return;
        }
        let number = notes.number;
        for key in keys {
            notes
                .keys
                .entry(key)
                .and_modify(|note| {
                    note.number = number;
                    if note.repair == Repair::Waiting {
                        note.repair = Repair::Done;
                    }
                })
                .or_insert(Note {
                    number,
                    repair: Repair::None,
                });
        }
        if notes.stage == Stage::GoingOn && notes.keys.len() > TOUCHED_MAX {
            // After a pause of days: to compare all rows is less work, and takes no memory.
            notes.stage = Stage::Off;
            notes.keys = HashMap::new();
            notes.repairs = Vec::new();
        }
    }

    /// Keys that looked different in a chunk: they are compared again by themselves.
    pub(crate) fn suspect(&self, keys: impl IntoIterator<Item = Place>) {
        let mut notes = self.0.lock();
        for key in keys {
            notes.keys.entry(key).or_insert(Note {
                number: 0,
                repair: Repair::None,
            });
        }
    }

    /// How many keys are to be compared.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().keys.len()
    }

    /// The number of the applier's last transaction.
    pub(crate) fn last_number(&self) -> u64 {
        self.0.lock().number
    }

    /// Whether every key that was written up to that transaction has been the same since, or was written again, and none
    /// looks different.
    pub(crate) fn is_past(&self, number: u64) -> bool {
        let notes = self.0.lock();
        let past = |note: &Note| note.number > number && note.repair == Repair::None;
        notes.keys.values().all(past)
    }

    /// How many of them looked different and have not been equal since.
    pub(crate) fn unsettled(&self) -> usize {
        let notes = self.0.lock();
        let open = |note: &&Note| note.number == 0 || note.repair != Repair::None;
        notes.keys.values().filter(open).count()
    }

    /// Up to `max` keys to compare, with their numbers as of now: to be called before any row is read. Those that have
    /// not changed for longest come first, since they have the best chance of being equal.
    pub(crate) fn round(&self, max: usize) -> Vec<(Place, u64)> {
        let notes = self.0.lock();
        let mut numbers: Vec<u64> = notes.keys.values().map(|note| note.number).collect();
        let youngest = if numbers.len() > max {
            *numbers.select_nth_unstable(max).1
        } else {
            u64::MAX
        };
        let older = notes.keys.iter().filter(|(_, note)| note.number < youngest);
        let same = notes
            .keys
            .iter()
            .filter(|(_, note)| note.number == youngest);
        older
            .chain(same)
            .take(max)
            .map(|(key, note)| (key.clone(), note.number))
            .collect()
    }

    /// Judges a round: to be called when every transaction that could be seen in it is applied.
    pub(crate) fn judge(&self, round: Vec<(Place, u64)>, different: &HashSet<Place>) -> Judged {
        let mut notes = self.0.lock();
        let mut judged = Judged::default();
        for (key, number) in round {
            let Some(note) = notes.keys.get_mut(&key) else {
                continue;
            };
            if note.number != number || note.repair == Repair::Waiting {
                judged.later += 1;
            } else if !different.contains(&key) {
                notes.keys.remove(&key);
                judged.equal += 1;
            } else if note.repair == Repair::Done {
                judged.lost.push(key);
            } else {
                note.repair = Repair::Waiting;
                judged.repair.push(key);
            }
        }
        notes.repaired += judged.repair.len() as u64;
        let repairs = judged.repair.clone();
        notes.repairs.extend(repairs);
        judged
    }

    /// What the applier shall apply anew.
    pub(crate) fn take_repairs(&self) -> Vec<Place> {
        std::mem::take(&mut self.0.lock().repairs)
    }

    /// Whether there is any.
    pub(crate) fn has_repairs(&self) -> bool {
        !self.0.lock().repairs.is_empty()
    }

    /// Keys of true differences so far.
    pub(crate) fn repaired(&self) -> u64 {
        self.0.lock().repaired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mover::table::KeyPart;

    fn key(id: u64) -> Place {
        (0, Key(vec![KeyPart::Unsigned(id)].into()))
    }

    fn differ(ids: &[u64]) -> HashSet<Place> {
        ids.iter().map(|id| key(*id)).collect()
    }

    #[test]
    fn nothing_is_noted_before_a_comparison_begins() {
        let ledger = Ledger::default();
        ledger.applied([key(1)]);
        assert_eq!(ledger.len(), 0);
        ledger.begin();
        ledger.applied([key(2)]);
        assert_eq!(ledger.len(), 1);
    }

    #[test]
    fn what_is_equal_and_was_not_written_meanwhile_is_struck_out() {
        let ledger = Ledger::default();
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
        let ledger = Ledger::default();
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
    fn a_comparison_is_not_gone_on_with_where_too_much_changed_since() {
        let ledger = Ledger::default();
        ledger.go_on();
        ledger.applied([key(1)]);
        assert_eq!(ledger.len(), 1);
        assert!(ledger.goes_on() && !ledger.goes_on());
        let ledger = Ledger::default();
        ledger.go_on();
        ledger.applied((0..=TOUCHED_MAX as u64).map(key));
        assert_eq!(ledger.len(), 0);
        ledger.applied([key(1)]);
        assert!(ledger.len() == 0 && !ledger.goes_on());
    }

    #[test]
    fn what_was_written_before_is_past_once_it_was_the_same_or_written_again() {
        let ledger = Ledger::default();
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
        let ledger = Ledger::default();
        ledger.begin();
        ledger.suspect([key(7)]);
        let round = ledger.round(10);
        ledger.applied([key(7)]);
        let judged = ledger.judge(round, &differ(&[7]));
        assert_eq!(judged.later, 1);
        assert!(judged.repair.is_empty() && judged.lost.is_empty());
    }
}
