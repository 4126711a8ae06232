//! Sets of transactions as MySQL writes them: `uuid:1-5:7,uuid:tag:1-3`.

use std::collections::BTreeMap;

/// A set of transactions: per source (server id and tag), sorted ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GtidSet(BTreeMap<Box<str>, Vec<(u64, u64)>>);

/// The text is no set of transactions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a set of GTIDs")]
pub struct NotAGtidSet(String);

impl GtidSet {
    /// Reads MySQL's text; line breaks and spaces are allowed, as `SHOW` prints them.
    pub fn parse(text: &str) -> Result<Self, NotAGtidSet> {
        let bad = || NotAGtidSet(text.chars().take(80).collect());
        let mut set = Self::default();
        for member in text.split(',').map(str::trim).filter(|m| !m.is_empty()) {
            let mut parts = member.split(':').map(str::trim);
            let uuid = parts
                .next()
                .filter(|u| u.len() == 36)
                .ok_or_else(bad)?
                .to_ascii_lowercase();
            let mut source = uuid.clone();
            let mut intervals = 0;
            for part in parts {
                if part.starts_with(|c: char| c.is_ascii_digit()) {
                    let (from, to) = part.split_once('-').unwrap_or((part, part));
                    let (from, to) = (
                        from.parse().map_err(|_| bad())?,
                        to.parse().map_err(|_| bad())?,
                    );
                    if from == 0 || from > to {
                        return Err(bad());
                    }
                    set.add(&source, from, to);
                    intervals += 1;
                } else {
                    // A tag: the intervals after it are its own.
                    source = format!("{uuid}:{}", part.to_ascii_lowercase());
                }
            }
            if intervals == 0 {
                return Err(bad());
            }
        }
        Ok(set)
    }

    fn add(&mut self, source: &str, from: u64, to: u64) {
        let ranges = self.0.entry(source.into()).or_default();
        ranges.push((from, to));
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for &(from, to) in ranges.iter() {
            match merged.last_mut() {
                Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        *ranges = merged;
    }

    /// Whether every transaction of `other` is in this set.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.iter().all(|(source, wanted)| {
            self.0.get(source).is_some_and(|have| {
                wanted
                    .iter()
                    .all(|w| have.iter().any(|h| h.0 <= w.0 && w.1 <= h.1))
            })
        })
    }
}

/// As MySQL writes it, except that each tag has its source's id before it again.
impl std::fmt::Display for GtidSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (source, ranges)) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            f.write_str(source)?;
            for (from, to) in ranges {
                if from == to {
                    write!(f, ":{from}")?;
                } else {
                    write!(f, ":{from}-{to}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "bdbea337-ec7c-11f1-86a3-02fc00000001";
    const B: &str = "cdbea337-ec7c-11f1-86a3-02fc00000001";

    fn set(text: &str) -> GtidSet {
        GtidSet::parse(text).unwrap()
    }

    #[test]
    fn containing_is_by_source_tag_and_range() {
        let have = set(&format!("{A}:1-5:7-9:pod:1-3,\n{B}:1"));
        for inside in [
            format!("{A}:2-4"),
            format!("{A}:7"),
            format!("{B}:1,{A}:pod:3"),
            String::new(),
        ] {
            assert!(have.contains(&set(&inside)), "{inside}");
        }
        for outside in [
            format!("{A}:6"),
            format!("{A}:5-7"),
            format!("{B}:pod:1"),
            format!("{A}:pod:4"),
        ] {
            assert!(!have.contains(&set(&outside)), "{outside}");
        }
    }

    #[test]
    fn touching_ranges_are_one() {
        assert_eq!(set(&format!("{A}:1-3:4-5")), set(&format!("{A}:1-5")));
        assert_eq!(set(&format!("{A}:9:1-3,{A}:4-8")), set(&format!("{A}:1-9")));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "x",
            "x:1",
            A,
            &format!("{A}:"),
            &format!("{A}:0"),
            &format!("{A}:5-4"),
            &format!("{A}:1-x"),
        ] {
            assert!(GtidSet::parse(bad).is_err(), "{bad}");
        }
    }
}
