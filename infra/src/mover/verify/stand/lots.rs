//! What is noted of a comparison, with everything drawn by lot: changes at the source, the applier's batches, chunks and rounds
//! in any order, notes, and crashes after which another run goes on. Some writes of the applier are wrong: each key's once, and in
//! some worlds twice, after which the move may fail.
//!
//! After each step the last note must be true: every row before its place is equal, or its key changed after its set. At the
//! end both sides are the same, or what differs is among the keys that are compared inside the fence.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::mover::apply::Place;
use crate::mover::table::KeyPart;
use crate::mover::verify::chunks::Front;

// The steps.
mod run;

use run::Run;

const SEEDS: u64 = 200;
/// Few, so that they meet.
const KEYS: u64 = 16;
/// The largest ledger: it may hold nearly all of them.
const TOUCHED_MAX: usize = 15;
/// Steps with changes and crashes, at most, and those after them in which the move must end.
const WILD: u32 = 2_000;
const CALM: u32 = 20_000;
/// What may be left for the fence.
const FEW: usize = 3;

type Rows = BTreeMap<u64, u64>;

/// What a mover could do wrong; each must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// A note says that all chunks are compared that have begun.
    PlaceTooFar,
    /// A note leaves out changes that were applied and not compared.
    SetTooNew,
    /// The ledger is not told of what was written.
    Untold,
    /// Where the ledger has forgotten its keys, the comparison goes on all the same.
    Forgotten,
    /// A run that goes on reads the binlog from where the applier was.
    FeedTooLate,
}

fn set(upto: usize) -> GtidSet {
    match upto {
        0 => GtidSet::default(),
        _ => GtidSet::parse(&format!("01010101-0101-0101-0101-010101010101:1-{upto}")).unwrap(),
    }
}

fn place(id: u64) -> Place {
    (0, Key([KeyPart::Unsigned(id)].into()))
}

fn id(key: &Key) -> u64 {
    match &key.0[..] {
        [KeyPart::Unsigned(id)] => *id,
        other => unreachable!("{other:?}"),
    }
}

struct World {
    lot: StdRng,
    mistake: Mistake,
    source: Rows,
    /// The keys of each transaction of the source.
    log: Vec<Vec<u64>>,
    target: Rows,
    /// What the target's mark says of the applier.
    mark: usize,
    /// The note at the target.
    noted: Option<(usize, Stand)>,
    /// How often keys were written wrongly, and how often that may be.
    spoiled: BTreeMap<u64, u8>,
    spoiled_max: u8,
    /// A difference came back.
    failed: bool,
    run: Run,
    /// How often comparisons were gone on with, and forgotten.
    seen: [u64; 2],
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> Self {
        let mut lot = StdRng::seed_from_u64(seed);
        let source: Rows = (0..KEYS)
            .filter(|_| lot.random_ratio(3, 4))
            .map(|id| (id, 0))
            .collect();
        let spoiled: BTreeMap<u64, u8> = (0..KEYS)
            .filter(|_| lot.random_ratio(1, 16))
            .map(|id| (id, 1))
            .collect();
        let spoiled_max = if lot.random_ratio(1, 4) { 2 } else { 1 };
        let mut target = source.clone();
        for id in spoiled.keys() {
            if target.remove(id).is_none() {
                target.insert(*id, u64::MAX);
            }
        }
        let run = Run::new(&mut lot, 0, None);
        Self {
            lot,
            mistake,
            source,
            log: Vec::new(),
            target,
            mark: 0,
            noted: None,
            spoiled,
            spoiled_max,
            failed: false,
            run,
            seen: [0; 2],
        }
    }

    fn executed(&self) -> usize {
        self.log.len()
    }

    fn chance(&mut self, of: u32) -> bool {
        self.lot.random_ratio(1, of)
    }

    fn play(&mut self) -> Result<(), String> {
        let wild = self.lot.random_range(0..WILD);
        for step in 0..wild + CALM {
            match self.lot.random_range(0..200) {
                0 if step < wild => self.crash(),
                1..8 if step < wild => self.change(),
                _ => self.step()?,
            }
            self.check_note()?;
            let over = step >= wild && self.run.ledger.is_complete() && self.is_followed();
            if self.failed {
                return Ok(());
            }
            if over {
                return self.check_end();
            }
        }
        Err("it does not end".to_owned())
    }

    fn step(&mut self) -> Result<(), String> {
        match self.lot.random_range(0..9) {
            0 => self.read(),
            1..4 => self.apply(),
            4 => self.begin(),
            5 => self.take_chunk(),
            6 => self.compare_chunk(),
            7 => return self.settle(),
            _ => self.note(),
        }
        Ok(())
    }

    fn change(&mut self) {
        let version = self.executed() as u64 + 1;
        let keys: Vec<u64> = (0..self.lot.random_range(1..4))
            .map(|_| self.lot.random_range(0..KEYS))
            .collect();
        for id in &keys {
            if self.chance(4) {
                self.source.remove(id);
            } else {
                self.source.insert(*id, version);
            }
        }
        self.log.push(keys);
    }

    fn crash(&mut self) {
        let stand = self.noted.clone();
        let from = match &stand {
            Some((since, _)) if self.mistake != Mistake::FeedTooLate => self.mark.min(*since),
            Some(_) | None => self.mark,
        };
        self.run = Run::new(&mut self.lot, from, stand.map(|(_, stand)| stand));
    }

    /// The note is true, whenever a run may go on with it.
    fn check_note(&self) -> Result<(), String> {
        let Some((since, stand)) = &self.noted else {
            return Ok(());
        };
        let at = &stand.place;
        for id in unlike(&self.source, &self.target) {
            let before = at.table > 0 || at.after.as_ref().is_some_and(|key| id <= self::id(key));
            let later = self.log.iter().skip(*since);
            if before && !later.flatten().any(|changed| *changed == id) {
                return Err(format!(
                    "{id} differs before {at:?}, unchanged since {since}"
                ));
            }
        }
        Ok(())
    }

    /// Nothing is lost without a word.
    fn check_end(&self) -> Result<(), String> {
        let left = self.run.ledger.round(usize::MAX);
        let left: BTreeSet<u64> = left.iter().map(|((_, key), _)| id(key)).collect();
        match unlike(&self.source, &self.target).find(|id| !left.contains(id)) {
            Some(id) => Err(format!("{id} differs, and nobody compares it")),
            None => Ok(()),
        }
    }
}

/// Keys whose rows are not the same.
fn unlike(source: &Rows, target: &Rows) -> impl Iterator<Item = u64> {
    (0..KEYS).filter(|id| source.get(id) != target.get(id))
}

#[test]
fn whatever_happens_a_note_is_true() {
    let mut seen = [0; 2];
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Mistake::None);
        if let Err(text) = world.play() {
            panic!("seed {seed}: {text}");
        }
        seen = [seen[0] + world.seen[0], seen[1] + world.seen[1]];
    }
    // Without these it would say little.
    assert!(seen.iter().all(|times| *times > SEEDS), "{seen:?}");
}

#[test]
fn each_mistake_is_found() {
    for mistake in [
        Mistake::PlaceTooFar,
        Mistake::SetTooNew,
        Mistake::Untold,
        Mistake::Forgotten,
        Mistake::FeedTooLate,
    ] {
        let found = (0..SEEDS).find_map(|seed| World::new(seed, mistake).play().err());
        assert!(found.is_some(), "{mistake:?}");
    }
}
