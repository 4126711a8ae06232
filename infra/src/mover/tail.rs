//! Watches a pod for changes of the shop's rows that are not the mover's.
//!
//! A mover writes its mark in each of its transactions that changes rows of the shop. Whatever else changes them at the
//! target, from the beginning of the copy until the target sells, is nobody's right: the move fails. At the source, after
//! the fence, it is a stray: something wrote past the home. Strays are told, and stop the deletion of the source's copy.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shared::PodId;
use shared::gtid::{Gtid, GtidSet};
use tokio::time::{Instant, sleep};

use super::binlog::{Follow, Sink, Watch};
use super::error::MoveError;
use super::job::{End, Job};
use super::table::{Key, Table};
use crate::api::Stray;

/// Strays that are kept: an operator looks at some of them, and they are in the move's record.
pub(crate) const STRAYS_KEPT: usize = 100;

/// How often one that waits until strays are taken looks again.
const TAKEN_AGAIN: Duration = Duration::from_millis(50);

/// Watches until it is dropped.
#[derive(Debug)]
pub(crate) struct Tail {
    follow: Follow,
    found: Arc<Mutex<Found>>,
    noted: Mutex<(Instant, GtidSet)>,
    note_every: Duration,
}

/// Foreign changes that nobody has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// The first ones of many.
    pub(crate) listed: Vec<Stray>,
    /// How many came after those.
    pub(crate) more: u64,
}

/// What a watch of a source has found.
#[derive(Debug, Default)]
struct Found {
    strays: Strays,
    /// All transactions in which those were looked for, and no more: at each one's end both are written at once.
    seen: GtidSet,
}

impl Strays {
    fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.more == 0
    }

    fn add(&mut self, stray: Stray) {
        if self.listed.len() < STRAYS_KEPT {
            self.listed.push(stray);
        } else {
            self.more += 1;
        }
    }
}

/// What a foreign change means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Foreign {
    Fails,
    IsTold,
}

impl Tail {
    /// Watches the target: a foreign change ends it with [`MoveError::Tampered`].
    pub(crate) async fn target(
        job: &Job,
        tables: &Arc<[Table]>,
        from: GtidSet,
    ) -> Result<Self, MoveError> {
        Self::start(job, &job.target, tables, from, Foreign::Fails).await
    }

    /// Watches the source: foreign changes are told by [`Self::take_strays`]. So are changes that cannot be followed exactly,
    /// which may be of the shop.
    pub(crate) async fn source(
        job: &Job,
        tables: &Arc<[Table]>,
        from: GtidSet,
    ) -> Result<Self, MoveError> {
        Self::start(job, &job.source, tables, from, Foreign::IsTold).await
    }

    async fn start(
        job: &Job,
        end: &End,
        tables: &Arc<[Table]>,
        from: GtidSet,
        foreign: Foreign,
    ) -> Result<Self, MoveError> {
        let watch = Watch {
            pod: end.pod,
            shop: job.shop,
            tables: Arc::clone(tables),
            mark: job.id.to_string(),
            past_marked: true,
            goes_on: foreign == Foreign::IsTold,
        };
        let found = Arc::new(Mutex::new(Found {
            strays: Strays::default(),
            seen: from.clone(),
        }));
        let sink = Guard {
            pod: end.pod,
            tables: Arc::clone(tables),
            foreign,
            touched: None,
            odd: None,
            marked: false,
            found: Arc::clone(&found),
        };
        Ok(Self {
            noted: Mutex::new((Instant::now(), from.clone())),
            note_every: job.limits.note_every,
            follow: Follow::start(end.clone(), watch, from, &job.stop, sink).await?,
            found,
        })
    }

    /// What ended it, if anything did.
    pub(crate) fn check(&self) -> Result<(), MoveError> {
        self.follow.check()
    }

    /// Waits until it ends, and says why. Never, as long as all is well.
    pub(crate) async fn watch(&self) -> MoveError {
        self.follow.watch().await
    }

    /// Waits until all of a set has been read: nothing foreign was in it, or it is told.
    pub(crate) async fn wait_for(&self, set: &GtidSet, limit: Duration) -> Result<(), MoveError> {
        self.follow.wait_for(set, limit).await
    }

    /// Everything that was looked at: it held nothing foreign, or it is told.
    pub(crate) fn seen(&self) -> GtidSet {
        self.follow.seen()
    }

    /// Whether it is time to note how far it came, if it came further.
    pub(crate) fn is_to_note(&self, seen: &GtidSet) -> bool {
        let mut noted = self.noted.lock();
        let due = noted.0.elapsed() > self.note_every && noted.1 != *seen;
        if due {
            *noted = (Instant::now(), seen.clone());
        }
        due
    }

    /// The foreign changes since this was asked last, and all that was looked at by then.
    pub(crate) fn take_strays(&self) -> Result<(Strays, GtidSet), MoveError> {
        self.check()?;
        let mut found = self.found.lock();
        Ok((std::mem::take(&mut found.strays), found.seen.clone()))
    }

    /// Comes back when it has read all that the server had executed, and everything foreign in it was taken: what was written
    /// before is known to whoever dumps it. (Who takes it may well end what waits here.)
    pub(crate) async fn lets_go(
        &self,
        executed: &GtidSet,
        limit: Duration,
    ) -> Result<(), MoveError> {
        self.wait_for(executed, limit).await?;
        while !self.found.lock().strays.is_empty() {
            self.check()?;
            sleep(TAKEN_AGAIN).await;
        }
        Ok(())
    }
}

/// Judges each transaction at its end: the mark may come after the rows.
struct Guard {
    pod: PodId,
    tables: Arc<[Table]>,
    foreign: Foreign,
    /// The first table whose rows of the shop the present transaction changed.
    touched: Option<usize>,
    odd: Option<String>,
    marked: bool,
    found: Arc<Mutex<Found>>,
}

impl Guard {
    fn reset(&mut self) {
        (self.touched, self.odd, self.marked) = (None, None, false);
    }
}

impl Sink for Guard {
    fn row(&mut self, table: usize, _: Key) -> Result<(), MoveError> {
        self.touched.get_or_insert(table);
        Ok(())
    }

    fn mark(&mut self) {
        self.marked = true;
    }

    fn odd(&mut self, text: String) {
        self.odd.get_or_insert(text);
    }

    fn end(&mut self, gtid: &Gtid, at_ms: u64) -> Result<(), MoveError> {
        let table = self.touched.and_then(|at| self.tables.get(at));
        let table = table.map(|table| table.name.clone());
        let (odd, marked) = (self.odd.take(), self.marked);
        self.reset();
        let stray = match (odd, table, self.foreign) {
            (None, None, _) => None,
            (None, Some(_), _) if marked => None,
            (Some(text), _, _) | (None, Some(text), Foreign::IsTold) => Some(text),
            (None, Some(table), Foreign::Fails) => {
                return Err(MoveError::Tampered {
                    pod: self.pod,
                    text: format!(
                        "transaction {gtid} changed rows of the shop in table {table}, and it is not the mover's; find who \
                         writes there (the transaction is in that pod's binlog), then `podctl move resume`"
                    ),
                });
            }
        };
        let mut found = self.found.lock();
        if let Some(table) = stray {
            let gtid = gtid.to_string();
            found.strays.add(Stray { table, gtid, at_ms });
        }
        found.seen.add(gtid);
        Ok(())
    }

    fn again(&mut self) {
        self.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gtid(number: u64) -> Gtid {
        Gtid::new([1; 16], None, number).unwrap()
    }

    fn table() -> Table {
        Table {
            name: "orders".into(),
            quoted: "`orders`".into(),
            columns: Vec::new(),
            key: Vec::new(),
            falling: Vec::new(),
            row_bytes: 0,
            shape: crate::mover::table::Shape::default(),
        }
    }

    fn guard(foreign: Foreign) -> Guard {
        Guard {
            pod: PodId::new(2).unwrap(),
            tables: Arc::new([table()]),
            foreign,
            touched: None,
            odd: None,
            marked: false,
            found: Arc::default(),
        }
    }

    fn row(guard: &mut Guard) {
        guard.row(0, Key([].into())).unwrap();
    }

    #[test]
    fn marked_transactions_are_the_movers_wherever_the_mark_is() {
        for foreign in [Foreign::Fails, Foreign::IsTold] {
            let mut guard = guard(foreign);
            guard.mark();
            row(&mut guard);
            guard.end(&gtid(1), 0).unwrap();
            row(&mut guard);
            guard.mark();
            guard.end(&gtid(2), 0).unwrap();
            // Nothing of the shop.
            guard.end(&gtid(3), 0).unwrap();
            assert!(guard.found.lock().strays.is_empty());
        }
    }

    #[test]
    fn another_change_at_the_target_names_table_and_transaction() {
        let mut guard = guard(Foreign::Fails);
        guard.mark();
        guard.end(&gtid(1), 0).unwrap();
        row(&mut guard);
        let fault = guard.end(&gtid(2), 0).unwrap_err().to_string();
        assert!(fault.contains("orders") && fault.contains(":2 "), "{fault}");
    }

    #[test]
    fn strays_are_listed_up_to_a_bound_and_counted_beyond_it() {
        let mut guard = guard(Foreign::IsTold);
        for number in 1..=STRAYS_KEPT as u64 + 5 {
            row(&mut guard);
            guard.end(&gtid(number), 7).unwrap();
        }
        // What was read half before a connection died is read again.
        row(&mut guard);
        guard.again();
        guard.end(&gtid(1_000), 7).unwrap();
        guard.odd("`truncate orders`".into());
        guard.end(&gtid(1_001), 7).unwrap();
        let found = guard.found.lock();
        let strays = &found.strays;
        assert_eq!((strays.listed.len(), strays.more), (STRAYS_KEPT, 6));
        let first = strays.listed.first().unwrap();
        assert_eq!((first.table.as_str(), first.at_ms), ("orders", 7));
        assert_eq!(first.gtid, gtid(1).to_string());
    }
}
