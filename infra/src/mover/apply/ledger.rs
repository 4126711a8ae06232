//! Which keys were changed at the target since they were last compared with the source.
//!
//! While both sides are compared, rows go on changing. A difference counts only if nothing is on its way to mend it: the
//! applier numbers its transactions here and notes their keys, and whoever compares looks whether a key's number is
//! still the one from before the rows were read. What is in here when the fence closes is compared inside it, so that
//! every key is compared after its last change.
//!
//! There is one rule for how much it holds, before all is compared, meanwhile and afterwards: where more keys wait to be
//! compared than that, it forgets them all, and what was compared counts for nothing any more. A comparison begins with the first
//! row then, so no key that was touched is left out.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::mover::table::Key;

/// A key of a table, by the table's place in the list.
pub(crate) type Place = (usize, Key);

/// Shared by the applier, who notes, and the comparison, who strikes out.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Keys that wait to be compared, at most.
    max: usize,
    notes: Mutex<Notes>,
}

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
    /// Nothing is noted before a comparison begins with the first row: that one sees all of them. None has begun, or what was
    /// noted was too much.
    #[default]
    Off,
    /// The comparison of an earlier run is to be gone on with: what changed since is noted.
    GoingOn,
    /// All rows are being compared.
    Comparing,
    /// All rows were compared.
    Complete,
}

impl Notes {
    /// Keys are never forgotten but with all that was compared.
    fn forget_above(&mut self, max: usize) {
        if self.keys.len() > max {
            self.stage = Stage::Off;
            (self.keys, self.repairs) = (HashMap::new(), Vec::new());
        }
    }

    /// Whether what is in here says all that is left to compare of some rows.
    const fn counts(&self) -> bool {
        match self.stage {
            Stage::Off | Stage::GoingOn => false,
            Stage::Comparing | Stage::Complete => true,
        }
    }
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
    /// Before any comparison. So many keys may wait to be compared.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            notes: Mutex::default(),
        }
    }

    /// The comparison of an earlier run is to be gone on with; what is applied from now on has changed since.
    pub(crate) fn go_on(&self) {
        self.notes.lock().stage = Stage::GoingOn;
    }

    /// It is gone on with now. Not, where more changed since than is noted.
    pub(crate) fn goes_on(&self) -> bool {
        let mut notes = self.notes.lock();
        let goes_on = notes.stage == Stage::GoingOn;
        if goes_on {
            notes.stage = Stage::Comparing;
        }
        goes_on
    }

    /// A comparison of everything begins: what changes from now on is noted.
    pub(crate) fn begin(&self) {
        let mut notes = self.notes.lock();
        notes.stage = Stage::Comparing;
        notes.keys.clear();
        notes.repairs.clear();
    }

    /// Everything was compared. Not, where it has forgotten meanwhile what changed.
    pub(crate) fn complete(&self) -> bool {
        let mut notes = self.notes.lock();
        let complete = notes.counts();
        if complete {
            notes.stage = Stage::Complete;
        }
        complete
    }

    /// Whether nothing is noted: no comparison has begun, or it has to begin with the first row.
    pub(crate) fn is_off(&self) -> bool {
        self.notes.lock().stage == Stage::Off
    }

    /// Whether everything was compared: what is in here is all that is left.
    pub(crate) fn is_complete(&self) -> bool {
        self.notes.lock().stage == Stage::Complete
    }

    /// A transaction of the applier is committed. To be called before its GTID set is told to anyone.
    pub(crate) fn applied(&self, keys: impl IntoIterator<Item = Place>) {
        let mut notes = self.notes.lock();
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
        notes.forget_above(self.max);
    }

    /// Keys that looked different in a chunk: they are compared again by themselves.
    pub(crate) fn suspect(&self, keys: impl IntoIterator<Item = Place>) {
        let mut notes = self.notes.lock();
        if notes.stage == Stage::Off {
            return;
        }
        for key in keys {
            notes.keys.entry(key).or_insert(Note {
                number: 0,
                repair: Repair::None,
            });
        }
        notes.forget_above(self.max);
    }

    /// How many keys are to be compared.
    pub(crate) fn len(&self) -> usize {
        self.notes.lock().keys.len()
    }

    /// The number of the applier's last transaction.
    pub(crate) fn last_number(&self) -> u64 {
        self.notes.lock().number
    }

    /// Whether every key that was written up to that transaction has been the same since, or was written again, and none
    /// looks different. Never where that is not known any more.
    pub(crate) fn is_past(&self, number: u64) -> bool {
        let notes = self.notes.lock();
        let past = |note: &Note| note.number > number && note.repair == Repair::None;
        notes.counts() && notes.keys.values().all(past)
    }

    /// How many of them looked different and have not been equal since.
    pub(crate) fn unsettled(&self) -> usize {
        let notes = self.notes.lock();
        let open = |note: &&Note| note.number == 0 || note.repair != Repair::None;
        notes.keys.values().filter(open).count()
    }

    /// Up to `max` keys to compare, with their numbers as of now: to be called before any row is read. Those that have
    /// not changed for longest come first, since they have the best chance of being equal.
    pub(crate) fn round(&self, max: usize) -> Vec<(Place, u64)> {
        let notes = self.notes.lock();
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
        let mut notes = self.notes.lock();
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
        std::mem::take(&mut self.notes.lock().repairs)
    }

    /// Whether there is any.
    pub(crate) fn has_repairs(&self) -> bool {
        !self.notes.lock().repairs.is_empty()
    }

    /// Keys of true differences so far.
    pub(crate) fn repaired(&self) -> u64 {
        self.notes.lock().repaired
    }
}

#[cfg(test)]
mod tests;
