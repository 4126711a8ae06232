//! The index of the route table: from half of a hash to a number, eight bytes an entry.
//!
//! Open addressing with linear probing, and nothing stored beside the entries: a look-up touches one cache line of it,
//! most of the time, where a table with control bytes of its own touches two. With ten million shops each line comes from
//! memory, and that is what a look-up costs. The half of the hash that is stored gives the place of an entry again, so a
//! growing table reads no keys.

/// No entry: a value that is never stored.
const EMPTY: u64 = u64::MAX;
/// Three quarters full at most: the mean successful search then looks at two and a half neighbours.
const FULL: (usize, usize) = (3, 4);
/// Grows by half, so that it is half full at least.
const GROWTH: (usize, usize) = (3, 2);
/// The cells of the first growth: one cache line.
const FIRST: usize = 8;

/// The largest value; one is kept for [`EMPTY`].
pub(super) const VALUE_MAX: u32 = u32::MAX - 1;

/// A multimap from `u32` (half of a hash) to `u32`.
#[derive(Debug, Default)]
pub(super) struct Probe {
    cells: Box<[u64]>,
    len: usize,
}

const fn cell(half: u32, value: u32) -> u64 {
    (half as u64) << 32 | value as u64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of a cell are taken apart"
)]
const fn parts(cell: u64) -> (u32, u32) {
    ((cell >> 32) as u32, cell as u32)
}

impl Probe {
    pub(super) fn with_capacity(entries: usize) -> Self {
        let cells = match entries {
            0 => 0,
            _ => entries * FULL.1 / FULL.0 + FIRST,
        };
        Self {
            cells: vec![EMPTY; cells].into_boxed_slice(),
            len: 0,
        }
    }

    /// The cell at which the search for a half begins: its share of the table (Lemire's fast range), after a
    /// multiplication by 2^32 over the golden ratio (Knuth 6.4) for halves that are no good hash.
    fn home(&self, half: u32) -> usize {
        let spread = half.wrapping_mul(0x9e37_79b9);
        let home = (u64::from(spread) * self.cells.len() as u64) >> 32;
        usize::try_from(home).unwrap_or(0)
    }

    fn after(&self, index: usize) -> usize {
        let next = index + 1;
        if next == self.cells.len() { 0 } else { next }
    }

    /// Where the first entry is that has this half and a value of which `is` says so.
    fn position(&self, half: u32, mut is: impl FnMut(u32) -> bool) -> Option<usize> {
        if self.cells.is_empty() {
            return None;
        }
        let mut index = self.home(half);
        // A table that is never full has an empty cell to stop at.
        while self.cells[index] != EMPTY {
            let (held, value) = parts(self.cells[index]);
            if held == half && is(value) {
                return Some(index);
            }
            index = self.after(index);
        }
        None
    }

    /// The first value with this half of which `is` says so.
    pub(super) fn find(&self, half: u32, is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.position(half, is)
            .map(|index| parts(self.cells[index]).1)
    }

    /// Adds an entry. The value is at most [`VALUE_MAX`].
    pub(super) fn insert(&mut self, half: u32, value: u32) {
        if (self.len + 1) * FULL.1 > self.cells.len() * FULL.0 {
            self.grow();
        }
        self.place(cell(half, value));
        self.len += 1;
    }

    fn grow(&mut self) {
        let grown = (self.cells.len() * GROWTH.0 / GROWTH.1).max(FIRST);
        let grown = vec![EMPTY; grown].into_boxed_slice();
        let old = std::mem::replace(&mut self.cells, grown);
        for cell in old.into_iter().filter(|cell| *cell != EMPTY) {
            self.place(cell);
        }
    }

    fn place(&mut self, cell: u64) {
        let mut index = self.home(parts(cell).0);
        while self.cells[index] != EMPTY {
            index = self.after(index);
        }
        self.cells[index] = cell;
    }

    /// Gives an entry another value; `false` if it is not there.
    pub(super) fn replace(&mut self, half: u32, old: u32, new: u32) -> bool {
        let found = self.position(half, |value| value == old);
        if let Some(index) = found {
            self.cells[index] = cell(half, new);
        }
        found.is_some()
    }

    /// Takes an entry out; `false` if it is not there. Those behind it move up, so that no gap ends a search early.
    pub(super) fn remove(&mut self, half: u32, value: u32) -> bool {
        let Some(mut gap) = self.position(half, |held| held == value) else {
            return false;
        };
        let mut index = self.after(gap);
        while self.cells[index] != EMPTY {
            let home = self.home(parts(self.cells[index]).0);
            // Whether the way from its home to where it is passes the gap.
            let passes = if home <= index {
                home <= gap && gap < index
            } else {
                home <= gap || gap < index
            };
            if passes {
                self.cells[gap] = self.cells[index];
                gap = index;
            }
            index = self.after(index);
        }
        self.cells[gap] = EMPTY;
        self.len -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u32, u32),
        Remove(u32, u32),
        Replace(u32, u32, u32),
    }

    /// Few halves and few values, so that chains are long and wrap around.
    fn step() -> impl Strategy<Value = Step> {
        let half = prop_oneof![0..4_u32, Just(u32::MAX), Just(u32::MAX / 3), any::<u32>()];
        let value = || 0..6_u32;
        prop_oneof![
            3 => (half.clone(), value()).prop_map(|(h, v)| Step::Insert(h, v)),
            2 => (half.clone(), value()).prop_map(|(h, v)| Step::Remove(h, v)),
            1 => (half, value(), value()).prop_map(|(h, a, b)| Step::Replace(h, a, b)),
        ]
    }

    proptest! {
        #[test]
        fn it_holds_what_a_list_holds(steps in prop::collection::vec(step(), 0..200)) {
            let mut probe = Probe::default();
            let mut list: Vec<(u32, u32)> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(half, value) => {
                        probe.insert(half, value);
                        list.push((half, value));
                    }
                    Step::Remove(half, value) => {
                        let at = list.iter().position(|entry| *entry == (half, value));
                        prop_assert_eq!(probe.remove(half, value), at.is_some());
                        at.map(|at| list.swap_remove(at));
                    }
                    Step::Replace(half, old, new) => {
                        let at = list.iter().position(|entry| *entry == (half, old));
                        prop_assert_eq!(probe.replace(half, old, new), at.is_some());
                        if let Some(at) = at {
                            list[at].1 = new;
                        }
                    }
                }
                prop_assert_eq!(probe.len, list.len());
                for (half, value) in &list {
                    prop_assert_eq!(probe.find(*half, |v| v == *value), Some(*value));
                }
                // All values of one half are met, each as often as it is there.
                for half in 0..4 {
                    let mut met = Vec::new();
                    probe.find(half, |value| { met.push(value); false });
                    met.sort_unstable();
                    let mut held: Vec<u32> =
                        list.iter().filter(|e| e.0 == half).map(|e| e.1).collect();
                    held.sort_unstable();
                    prop_assert_eq!(met, held);
                }
            }
        }
    }
}
