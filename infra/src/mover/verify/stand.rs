//! Where a comparison of all rows stands, kept at the target: a run that takes the move up goes on from there. To compare
//! a large shop takes hours, and a control server is restarted more often than that.
//!
//! A [`Stand`] is true of every row up to its key: at source and target the row was the same after all that the applier had
//! written there by then, but for keys that changed at the source after [`Stand::since`]. Whoever goes on reads the source's
//! binlog from that set on, so those keys are applied and compared again. What changes rows at the target without being
//! the mover's is seen by the tail of that binlog, whichever run reads it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use shared::gtid::GtidSet;
use tokio::sync::watch;

use super::{Comparison, Pair};
use crate::mover::apply::Ledger;
use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::session::Session;
use crate::mover::step::{Step, step};
use crate::mover::table::{Key, Table};
use crate::mover::tries;

/// Whose mark it is.
const PART: &str = "compare";

/// Where a comparison stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stand {
    /// The transactions of the source whose keys need no second look.
    pub(crate) since: GtidSet,
    /// Which rows are compared.
    pub(super) place: Position,
    /// Keys that were put in order so far.
    pub(super) repaired: u64,
}

/// A place in the order in which rows are compared: table by table, by their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// The table's index; the number of tables, once all are compared.
    pub(super) table: usize,
    /// The last key of it that was compared.
    pub(super) after: Option<Key>,
    /// The source's rows up to there, in all tables.
    pub(super) rows: u64,
}

/// What a [`Stand`] is true of.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sides {
    /// The terms of source and target: another primary may lack what the one before had.
    terms: [u64; 2],
    /// What the tables look like, in hex.
    tables: String,
}

impl Sides {
    fn of(job: &Job, tables: &[Table]) -> Self {
        let mut hash = Sha256::new();
        for table in tables {
            hash.update((table.name.len() as u64).to_be_bytes());
            hash.update(&table.name);
            hash.update(table.fingerprint_of_schema());
        }
        let digest = hash.finalize();
        Self {
            terms: [job.source.term, job.target.term],
            tables: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

/// A [`Stand`] as it is noted.
#[derive(Debug, Serialize, Deserialize)]
struct Noted {
    sides: Sides,
    since: String,
    table: usize,
    after: Option<Vec<u8>>,
    rows: u64,
    repaired: u64,
}

impl Stand {
    /// A comparison that begins, when so much is applied.
    pub(super) fn beginning(applied: GtidSet) -> Self {
        Self {
            since: applied,
            ..Self::default()
        }
    }

    /// What an earlier run of the same move has noted; `None` where it noted nothing, or what is not true any more.
    pub(crate) async fn noted(
        target: &mut Session,
        job: &Job,
        tables: &[Table],
    ) -> Result<Option<Self>, MoveError> {
        let at = target.marked(job, PART).await?;
        Ok(at.and_then(|at| Self::from_bytes(&at, &Sides::of(job, tables))))
    }

    fn to_bytes(&self, sides: Sides) -> Vec<u8> {
        let Position { table, after, rows } = &self.place;
        let noted = Noted {
            sides,
            since: self.since.to_string(),
            table: *table,
            after: after.as_ref().map(Key::to_bytes),
            rows: *rows,
            repaired: self.repaired,
        };
        // Numbers and texts always have a form in JSON. (Nothing noted would be a comparison from its beginning.)
        serde_json::to_vec(&noted).unwrap_or_default()
    }

    fn from_bytes(bytes: &[u8], sides: &Sides) -> Option<Self> {
        let noted: Noted = serde_json::from_slice(bytes).ok()?;
        if noted.sides != *sides {
            return None;
        }
        let after = match noted.after {
            Some(key) => Some(Key::from_bytes(&key).ok()?),
            None => None,
        };
        Some(Self {
            since: GtidSet::parse(&noted.since).ok()?,
            place: Position {
                table: noted.table,
                after,
                rows: noted.rows,
            },
            repaired: noted.repaired,
        })
    }
}

/// Notes now and then where a comparison stands.
///
/// The set of a stand may grow to what was applied at some moment, once every key written up to that moment has been the
/// same since, or was written again: so a run that goes on has the changes of seconds to look at, not of hours.
pub(super) struct Noter {
    /// Keys that earlier runs put in order.
    repaired: u64,
    /// What was applied at the moment of the last note, and the applier's number then.
    then: (u64, GtidSet),
    noted: Instant,
    every: Duration,
}

impl Noter {
    /// The comparison begins there. The ledger has all that was written after that set, and nothing else.
    pub(super) fn new(stand: &Stand, every: Duration) -> Self {
        Self {
            repaired: stand.repaired,
            then: (0, stand.since.clone()),
            noted: Instant::now(),
            every,
        }
    }

    /// Whether it is time for a note.
    pub(super) fn is_due(&self) -> bool {
        self.noted.elapsed() > self.every
    }

    /// Notes that all is compared up to a place, unless there are keys to look at first. Says whether it did. Whatever looked
    /// different before that place is in the ledger.
    pub(super) async fn note(
        &mut self,
        comparison: &Comparison<'_>,
        place: Position,
        pair: &mut Pair,
    ) -> Result<bool, MoveError> {
        let Some(stand) = self.stand(place, comparison.ledger, &comparison.applied) else {
            return Ok(false);
        };
        let sides = Sides::of(comparison.job, comparison.tables);
        let bytes = stand.to_bytes(sides);
        let (job, target) = (comparison.job, &mut pair.target);
        step!(Step::NoteCompared => {
            target.awake().await?;
            tries::note(target, job, PART, &bytes).await
        })
        .await?;
        Ok(true)
    }

    /// What holds of the rows before a place, if that can be said.
    fn stand(
        &mut self,
        place: Position,
        ledger: &Ledger,
        applied: &watch::Receiver<GtidSet>,
    ) -> Option<Stand> {
        if !ledger.is_past(self.then.0) {
            return None;
        }
        // The set first: what is in it has a number up to the one that is asked for after it.
        let applied = applied.borrow().clone();
        let (_, since) = std::mem::replace(&mut self.then, (ledger.last_number(), applied));
        self.noted = Instant::now();
        Some(Stand {
            since,
            place,
            repaired: self.repaired + ledger.repaired(),
        })
    }
}

/// A comparison that is over: all rows were compared, and those that change are compared by themselves until the fence.
///
/// It is noted on at the same pace, and by the same rule: what is written is in the ledger until it was the same, before the
/// comparison is over and after. Who takes the move up would otherwise have the changes of all the time to look at for which a
/// fence was waited for.
pub(crate) struct Compared {
    noter: Noter,
    /// Behind the last row.
    end: Position,
}

impl Compared {
    pub(super) const fn new(noter: Noter, end: Position) -> Self {
        Self { noter, end }
    }

    /// Notes, when it is time. Says whether there are keys to look at before that can be done.
    pub(super) async fn note_on(
        &mut self,
        comparison: &Comparison<'_>,
        pair: &mut Pair,
    ) -> Result<bool, MoveError> {
        if !self.noter.is_due() {
            return Ok(false);
        }
        let noted = self.noter.note(comparison, self.end.clone(), pair).await?;
        Ok(!noted)
    }
}

#[cfg(test)]
mod lots;
#[cfg(test)]
mod tests;
