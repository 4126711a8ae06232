//! Keys of rows that changed: each once, in memory up to a bound, beyond it in files.
//!
//! Order does not matter, since whoever takes a key reads its row as it is then. A key that comes again after it went to
//! a file is kept twice, which costs a look and nothing else.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::error::MoveError;
use super::table::Key;
use spill::Spills;

// Keys in files.
mod spill;

/// A file holds less than a hundred bytes of a key, as a rule: these are the keys of some hundred million rows, which no
/// applier would make equal in the time that it has to.
const SPILLED_MAX: u64 = 16 << 30;
/// What a table of hashes takes for a key besides the key.
const ENTRY_BYTES: usize = 48;

/// A key with its table's index.
pub(crate) type TableKey = (usize, Key);

/// A set of keys.
#[derive(Debug)]
pub(crate) struct Keys {
    folder: Arc<Path>,
    /// What may be in memory.
    bytes_max: usize,
    fresh: HashSet<TableKey>,
    /// What `fresh` takes.
    bytes: usize,
    /// Being taken.
    taking: Vec<TableKey>,
    files: Spills,
}

impl Keys {
    /// An empty set that keeps so many bytes in memory, and the rest in files in a folder.
    pub(crate) fn new(folder: Arc<Path>, bytes_max: usize) -> Self {
        Self {
            folder,
            bytes_max,
            fresh: HashSet::new(),
            bytes: 0,
            taking: Vec::new(),
            files: Spills::default(),
        }
    }

    /// How many keys there are; a key that went to a file may count more than once.
    pub(crate) fn len(&self) -> u64 {
        self.files.left() + (self.fresh.len() + self.taking.len()) as u64
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.taking.is_empty() && self.files.left() == 0
    }

    /// Adds a key.
    pub(crate) fn insert(&mut self, table: usize, key: Key) -> Result<(), MoveError> {
        let bytes = ENTRY_BYTES + key.weight();
        if self.fresh.insert((table, key)) {
            self.bytes += bytes;
        }
        if self.bytes > self.bytes_max {
            self.spill()?;
        }
        Ok(())
    }

    /// Moves all keys of another set here.
    pub(crate) fn append(&mut self, other: &mut Self) -> Result<(), MoveError> {
        self.files.append(&mut other.files)?;
        other.bytes = 0;
        let keys = std::mem::take(&mut other.taking);
        for (table, key) in keys.into_iter().chain(other.fresh.drain()) {
            self.insert(table, key)?;
        }
        self.check()
    }

    /// Forgets all keys.
    pub(crate) fn clear(&mut self) {
        self.fresh.clear();
        self.taking.clear();
        self.files.clear();
        self.bytes = 0;
    }

    /// Takes up to so many keys out.
    pub(crate) fn take(&mut self, max: usize) -> Result<Vec<TableKey>, MoveError> {
        let mut taken = Vec::new();
        while taken.len() < max {
            if self.taking.is_empty() {
                self.taking.extend(self.fresh.drain());
                self.bytes = 0;
            }
            if self.taking.is_empty() {
                if self.files.left() == 0 {
                    break;
                }
                self.files.read(max - taken.len(), &mut taken)?;
                continue;
            }
            let rest = self.taking.len().saturating_sub(max - taken.len());
            taken.extend(self.taking.drain(rest..));
        }
        if self.taking.is_empty() {
            // A set that was large once would keep its memory.
            self.taking = Vec::new();
            self.fresh.shrink_to_fit();
        }
        Ok(taken)
    }

    /// Writes what is in memory to a file. It takes as long as copying these bytes: the system writes them later.
    fn spill(&mut self) -> Result<(), MoveError> {
        self.files.write(&self.folder, self.fresh.drain())?;
        self.bytes = 0;
        self.check()
    }

    fn check(&self) -> Result<(), MoveError> {
        let spilled = self.files.bytes();
        if spilled <= SPILLED_MAX {
            return Ok(());
        }
        Err(MoveError::Bound(format!(
            "more rows change than can be followed: the keys that are not applied yet take {} GiB; move at a calmer time, \
             or freeze the shop",
            spilled >> 30
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mover::table::KeyPart;

    fn key(number: u64) -> Key {
        Key([KeyPart::Unsigned(number), KeyPart::Bytes(vec![7; 30])].into())
    }

    fn keys(folder: &tempfile::TempDir, bytes_max: usize) -> Keys {
        Keys::new(folder.path().into(), bytes_max)
    }

    fn all(keys: &mut Keys, step: usize) -> HashSet<TableKey> {
        let mut all = HashSet::new();
        loop {
            let part = keys.take(step).unwrap();
            assert!(part.len() <= step);
            if part.is_empty() {
                assert!(keys.is_empty());
                return all;
            }
            all.extend(part);
        }
    }

    #[test]
    fn a_key_is_kept_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut set = keys(&folder, 1 << 20);
        for _ in 0..3 {
            set.insert(0, key(1)).unwrap();
            set.insert(1, key(1)).unwrap();
        }
        assert_eq!(set.len(), 2);
        assert_eq!(all(&mut set, 1), HashSet::from([(0, key(1)), (1, key(1))]));
    }

    /// Whatever the bound, what was put in comes out, and files are gone by their names at once.
    #[test]
    fn what_does_not_fit_into_memory_comes_back() {
        for bytes_max in [1, 1_000, 10_000, 1 << 20] {
            let folder = tempfile::tempdir().unwrap();
            let mut set = keys(&folder, bytes_max);
            let expected: HashSet<_> = (0..1_000).map(|n| ((n % 3) as usize, key(n))).collect();
            for (table, key) in expected.clone() {
                set.insert(table, key).unwrap();
                assert!(set.bytes <= bytes_max);
            }
            assert_eq!(set.len(), 1_000);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            let mut taken: HashSet<_> = set.take(10).unwrap().into_iter().collect();
            assert_eq!(taken.len(), 10);
            // Some come while others are taken.
            set.insert(9, key(9)).unwrap();
            taken.extend(all(&mut set, 64));
            assert!(taken.remove(&(9, key(9))));
            assert_eq!(taken, expected, "{bytes_max} bytes");
            assert_eq!((set.bytes, set.files.bytes(), set.len()), (0, 0, 0));
            assert_eq!(set.files.files(), 0, "all of it is given back");
        }
    }

    /// With a bound that each key is too much for: what comes one by one, and what comes with thousands of other sets, is in
    /// one file.
    #[test]
    fn however_little_may_be_in_memory_files_are_few() {
        let folder = tempfile::tempdir().unwrap();
        let mut set = keys(&folder, 1);
        let mut expected = HashSet::new();
        for n in 0..3_000 {
            let mut open = keys(&folder, 1);
            for number in [2 * n, 2 * n + 1] {
                open.insert(0, key(number)).unwrap();
                expected.insert((0, key(number)));
            }
            set.append(&mut open).unwrap();
            assert_eq!((open.len(), open.files.files()), (0, 0));
            assert_eq!(set.files.files(), 1);
            if n % 1_000 == 0 {
                // Keys come while others are taken.
                for taken in set.take(3).unwrap() {
                    assert!(expected.remove(&taken));
                }
            }
        }
        assert_eq!(set.len(), expected.len() as u64);
        assert_eq!(all(&mut set, 500), expected);
        assert_eq!((set.files.files(), set.files.bytes()), (0, 0));
    }

    /// Bytes that are many are not written a second time: their file is the set's from then on, and keys come behind them.
    #[test]
    fn a_large_file_is_taken_over_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let large =
            |number| Key([KeyPart::Unsigned(number), KeyPart::Bytes(vec![7; 1 << 20])].into());
        let few = |from| {
            let mut few = keys(&folder, 1);
            for number in from..from + 3 {
                few.insert(0, key(number)).unwrap();
            }
            few
        };
        let mut set = few(0);
        let mut others = keys(&folder, 8 << 20);
        let mut expected: HashSet<_> = (0..6).map(|number| (0, key(number))).collect();
        for number in 0..40 {
            others.insert(1, large(number)).unwrap();
            expected.insert((1, large(number)));
        }
        set.append(&mut others).unwrap();
        assert_eq!((set.files.files(), others.files.files()), (2, 0));
        set.append(&mut few(3)).unwrap();
        assert_eq!(set.files.files(), 2, "what is little is copied");
        assert!(all(&mut set, 5) == expected, "keys are missing");
        assert_eq!((set.files.files(), set.files.bytes()), (0, 0));
    }

    #[test]
    fn a_set_takes_over_another() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (keys(&folder, 1_000), keys(&folder, 1_000));
        for n in 0..100 {
            one.insert(0, key(n)).unwrap();
            other.insert(0, key(n + 50)).unwrap();
        }
        one.append(&mut other).unwrap();
        assert!(other.is_empty());
        assert_eq!((other.bytes, other.files.bytes()), (0, 0));
        let expected: HashSet<_> = (0..150).map(|n| (0, key(n))).collect();
        assert_eq!(all(&mut one, 7), expected);
        one.insert(0, key(1)).unwrap();
        one.clear();
        assert!(one.is_empty());
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let mut set = Keys::new(Path::new("/no/such/folder").into(), 1);
        let fault = set.insert(0, key(1)).unwrap_err();
        assert!(fault.to_string().contains("/no/such/folder"), "{fault}");
    }
}
