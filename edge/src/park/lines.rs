//! Things that stand in line at places, each at one place at most: to join, to leave and to be the next cost the same
//! however many stand there.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Lines of `T` at places `P`, in the order of `O`.
#[derive(Debug)]
pub(crate) struct Lines<P, O, T> {
    lines: HashMap<P, BTreeSet<(O, T)>>,
    stands: HashMap<T, (P, O)>,
}

impl<P: Copy + Eq + Hash, O: Copy + Ord, T: Copy + Ord + Hash> Lines<P, O, T> {
    pub(crate) fn new() -> Self {
        Self {
            lines: HashMap::new(),
            stands: HashMap::new(),
        }
    }

    /// Puts one there, wherever it stood before; with `None` it stands nowhere. Returns whether that is a change.
    pub(crate) fn put(&mut self, one: T, at: Option<(P, O)>) -> bool {
        let before = match at {
            Some(at) => self.stands.insert(one, at),
            None => self.stands.remove(&one),
        };
        if before == at {
            return false;
        }
        if let Some((place, order)) = before
            && let Some(line) = self.lines.get_mut(&place)
        {
            line.remove(&(order, one));
            if line.is_empty() {
                self.lines.remove(&place);
            }
        }
        if let Some((place, order)) = at {
            self.lines.entry(place).or_default().insert((order, one));
        }
        true
    }

    /// Where one stands.
    pub(crate) fn place(&self, one: T) -> Option<P> {
        self.stands.get(&one).map(|(place, _)| *place)
    }

    /// The first one there.
    pub(crate) fn first(&self, place: P) -> Option<(O, T)> {
        self.lines.get(&place)?.first().copied()
    }

    /// Those that stand there, the last one first.
    pub(crate) fn last_first(&self, place: P) -> impl Iterator<Item = (O, T)> {
        let line = self.lines.get(&place);
        line.into_iter().flat_map(|line| line.iter().rev().copied())
    }

    /// Where one stands, and in which order.
    #[cfg(test)]
    pub(crate) fn stands(&self, one: T) -> Option<(P, O)> {
        self.stands.get(&one).copied()
    }

    /// How many stand anywhere.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.stands.len()
    }

    /// The places at which somebody stands.
    #[cfg(test)]
    pub(crate) fn places(&self) -> impl Iterator<Item = P> {
        self.lines.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stands_at_one_place_and_who_leaves_is_passed_by() {
        let mut lines = Lines::new();
        for (order, one) in [(3, 'c'), (1, 'a'), (2, 'b')] {
            assert!(lines.put(one, Some((1, order))));
        }
        assert!(!lines.put('a', Some((1, 1))), "it stands there");
        assert_eq!(lines.first(1), Some((1, 'a')));
        assert!(lines.put('a', Some((2, 9))));
        assert_eq!(
            (lines.place('a'), lines.first(1)),
            (Some(2), Some((2, 'b')))
        );
        assert!(lines.put('b', None) && !lines.put('b', None));
        assert_eq!(lines.last_first(1).collect::<Vec<_>>(), [(3, 'c')]);
        lines.put('c', None);
        assert_eq!((lines.first(1), lines.len()), (None, 1));
        assert_eq!(lines.places().collect::<Vec<_>>(), [2], "nothing is left");
    }
}
