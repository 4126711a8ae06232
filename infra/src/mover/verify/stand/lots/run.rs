//! What one run of a mover does, step by step, as the applier and the comparison do it.

use super::*;

/// Changed keys on their way, as [`Feed`](crate::mover::feed::Feed) hands them out; transactions by their number.
#[derive(Default)]
struct Keys {
    fresh: BTreeSet<u64>,
    seen: usize,
    current: BTreeSet<u64>,
    current_seen: usize,
    handed: usize,
}

impl Keys {
    fn take(&mut self, max: usize) -> Vec<u64> {
        if self.current.is_empty() {
            std::mem::swap(&mut self.current, &mut self.fresh);
            self.current_seen = self.seen;
        }
        let keys: Vec<u64> = self.current.iter().copied().take(max).collect();
        self.current.retain(|key| !keys.contains(key));
        if self.current.is_empty() {
            self.handed = self.current_seen;
        }
        keys
    }
}

/// A batch of the applier, with the rows as it read them.
struct Batch {
    rows: Vec<(u64, Option<u64>)>,
    upto: usize,
    written: bool,
    noted: bool,
}

struct Chunk {
    number: u64,
    after: Option<u64>,
    upto: Option<u64>,
    source: Rows,
    /// The sums were not the same: its rows are read again.
    unlike: bool,
}

impl Chunk {
    fn of(&self, rows: &Rows) -> Rows {
        between(rows, self.after, self.upto).collect()
    }
}

fn between(rows: &Rows, after: Option<u64>, upto: Option<u64>) -> impl Iterator<Item = (u64, u64)> {
    let inside =
        move |id: u64| after.is_none_or(|after| id > after) && upto.is_none_or(|upto| id <= upto);
    rows.iter()
        .map(|(id, row)| (*id, *row))
        .filter(move |(id, _)| inside(*id))
}

struct Comparing {
    noter: Noter,
    front: Front,
    number: u64,
    next: Position,
    open: Vec<Chunk>,
    /// A note that is not committed.
    note: Option<Stand>,
}

/// Keys that are compared by themselves.
struct Round {
    keys: Vec<(Place, u64)>,
    source: Option<Rows>,
    target: Option<Rows>,
    seen: Option<usize>,
}

/// What ends with a crash.
pub(super) struct Run {
    pub(super) ledger: Ledger,
    applied: watch::Sender<GtidSet>,
    upto: usize,
    feed: Keys,
    batch: Option<Batch>,
    stand: Option<Stand>,
    comparing: Option<Comparing>,
    round: Option<Round>,
}

impl Run {
    pub(super) fn new(lot: &mut StdRng, from: usize, stand: Option<Stand>) -> Self {
        let ledger = Ledger::new(lot.random_range(FEW..=TOUCHED_MAX));
        if stand.is_some() {
            ledger.go_on();
        }
        Self {
            ledger,
            applied: watch::Sender::default(),
            upto: 0,
            feed: Keys {
                seen: from,
                current_seen: from,
                handed: from,
                ..Keys::default()
            },
            batch: None,
            stand,
            comparing: None,
            round: None,
        }
    }

    fn tell(&mut self, upto: usize) {
        self.upto = upto;
        self.applied.send_replace(set(upto));
    }
}

impl World {
    pub(super) fn read(&mut self) {
        let feed = &mut self.run.feed;
        let more = self.lot.random_range(1..4);
        for keys in self.log.iter().skip(feed.seen).take(more) {
            feed.fresh.extend(keys);
            feed.seen += 1;
        }
    }

    pub(super) fn apply(&mut self) {
        let run = &mut self.run;
        let Some(batch) = &mut run.batch else {
            let repairs = run.ledger.take_repairs();
            run.feed
                .current
                .extend(repairs.iter().map(|(_, key)| id(key)));
            let keys = run.feed.take(self.lot.random_range(1..5));
            let upto = run.feed.handed;
            if keys.is_empty() {
                run.tell(upto);
                return;
            }
            let row = |id: u64| (id, self.source.get(&id).copied());
            run.batch = Some(Batch {
                rows: keys.into_iter().map(row).collect(),
                upto,
                written: false,
                noted: false,
            });
            return;
        };
        if !batch.written {
            for (id, row) in &batch.rows {
                let spoiled = self.spoiled.entry(*id).or_default();
                if *spoiled < self.spoiled_max && self.lot.random_ratio(1, 10) {
                    *spoiled += 1;
                    continue;
                }
                match row {
                    Some(row) => self.target.insert(*id, *row),
                    None => self.target.remove(id),
                };
            }
            (self.mark, batch.written) = (batch.upto, true);
        } else if !batch.noted {
            if self.mistake != Mistake::Untold {
                run.ledger
                    .applied(batch.rows.iter().map(|(id, _)| place(*id)));
            }
            batch.noted = true;
        } else {
            let upto = batch.upto;
            run.batch = None;
            run.tell(upto);
        }
    }

    /// Everything is at the target, as far as the applier knows.
    pub(super) fn is_followed(&self) -> bool {
        let run = &self.run;
        run.batch.is_none() && run.upto == self.executed() && !run.ledger.has_repairs()
    }

    pub(super) fn begin(&mut self) {
        let followed = self.is_followed();
        let run = &mut self.run;
        if run.comparing.is_some() && run.ledger.is_off() {
            self.seen[1] += 1;
            if self.mistake == Mistake::Forgotten {
                run.ledger.begin();
                return;
            }
            (run.comparing, run.round) = (None, None);
        }
        if run.comparing.is_some() || !followed {
            return;
        }
        let stand = run.stand.take().filter(|_| run.ledger.goes_on());
        self.seen[0] += u64::from(stand.is_some());
        let stand = stand.unwrap_or_else(|| {
            run.ledger.begin();
            Stand::beginning(run.applied.borrow().clone())
        });
        run.comparing = Some(Comparing {
            noter: Noter::new(&stand, Duration::ZERO),
            front: Front::new(stand.place.clone()),
            number: 0,
            next: stand.place,
            open: Vec::new(),
            note: None,
        });
    }

    pub(super) fn take_chunk(&mut self) {
        let Some(comparing) = &mut self.run.comparing else {
            return;
        };
        let next = &mut comparing.next;
        if next.table > 0 {
            return;
        }
        let begins = next.clone();
        let after = next.after.as_ref().map(id);
        let size = self.lot.random_range(1..6);
        let source: Rows = between(&self.source, after, None).take(size).collect();
        let last = source.last_key_value().filter(|_| source.len() == size);
        let upto = last.map(|(id, _)| *id);
        next.after = upto.map(|id| place(id).1);
        next.table = usize::from(upto.is_none());
        comparing.number += 1;
        let number = comparing.number;
        comparing.front.begun(number, begins, next.clone());
        comparing.open.push(Chunk {
            number,
            after,
            upto,
            source,
            unlike: false,
        });
    }

    pub(super) fn compare_chunk(&mut self) {
        let Some(comparing) = &mut self.run.comparing else {
            return;
        };
        let all = comparing.open.len();
        if all == 0 {
            return self.complete();
        }
        let at = self.lot.random_range(0..all);
        let chunk = &mut comparing.open[at];
        let target = chunk.of(&self.target);
        if !chunk.unlike && target != chunk.source {
            chunk.unlike = true;
            return;
        }
        let unlike = unlike(&chunk.source, &target);
        self.run.ledger.suspect(unlike.map(place));
        let chunk = comparing.open.swap_remove(at);
        comparing.front.done(chunk.number, 0);
    }

    fn complete(&self) {
        let run = &self.run;
        let read = run.comparing.as_ref().is_some_and(|it| it.next.table > 0);
        if read && run.ledger.unsettled() == 0 && run.ledger.len() <= FEW {
            run.ledger.complete();
        }
    }

    pub(super) fn settle(&mut self) -> Result<(), String> {
        let (first, executed) = (self.chance(2), self.executed());
        let run = &mut self.run;
        let Some(round) = &mut run.round else {
            let keys = run.ledger.round(self.lot.random_range(1..6));
            run.round = (!keys.is_empty()).then_some(Round {
                keys,
                source: None,
                target: None,
                seen: None,
            });
            return Ok(());
        };
        match (&round.source, &round.target, round.seen) {
            (None, None, _) if first => round.source = Some(self.source.clone()),
            (_, None, _) => round.target = Some(self.target.clone()),
            (None, Some(_), _) => round.source = Some(self.source.clone()),
            (Some(_), Some(_), None) => round.seen = Some(executed),
            (Some(source), Some(target), Some(seen)) if run.upto >= seen => {
                let different: HashSet<Place> = unlike(source, target).map(place).collect();
                let keys = std::mem::take(&mut round.keys);
                run.round = None;
                let judged = run.ledger.judge(keys, &different);
                for (_, key) in &judged.lost {
                    if self.spoiled.get(&id(key)) != Some(&2) {
                        return Err(format!("{key} cannot be put in order"));
                    }
                    self.failed = true;
                }
            }
            (Some(_), Some(_), Some(_)) => {}
        }
        Ok(())
    }

    pub(super) fn note(&mut self) {
        let run = &mut self.run;
        let Some(comparing) = &mut run.comparing else {
            return;
        };
        if let Some(stand) = comparing.note.take() {
            let known = (0..=self.log.len()).rev();
            let since = known.into_iter().find(|n| stand.since.contains(&set(*n)));
            self.noted = Some((since.unwrap_or_default(), stand));
            return;
        }
        let mut at = comparing.front.position();
        if self.mistake == Mistake::PlaceTooFar {
            at.clone_from(&comparing.next);
        }
        let stand = comparing
            .noter
            .stand(at, &run.ledger, &run.applied.subscribe());
        comparing.note = stand.map(|mut stand| {
            if self.mistake == Mistake::SetTooNew {
                stand.since = set(run.upto);
            }
            stand
        });
    }
}
