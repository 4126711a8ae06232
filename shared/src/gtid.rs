//! Sets of transactions as MySQL writes them: `uuid:1-5:7:tag:1-3`.

use std::collections::BTreeMap;
use std::fmt;

/// The last number that a server gives to a transaction.
const NUMBER_MAX: u64 = i64::MAX as u64 - 1;

/// A tag has no more letters.
const TAG_MAX: usize = 32;

/// A set of transactions: per source (server id and tag), sorted ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GtidSet(BTreeMap<Box<str>, Ranges>);

/// First and last number of each range.
type Ranges = Vec<(u64, u64)>;

/// One transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gtid {
    /// The server's id, and the tag after a colon where there is one.
    source: Box<str>,
    number: u64,
}

/// The text is no set of transactions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a set of GTIDs")]
pub struct NotAGtidSet(String);

impl Gtid {
    /// A transaction as the binlog names it; `None` where no server could have given that name.
    pub fn new(server: [u8; 16], tag: Option<&str>, number: u64) -> Option<Self> {
        let server = uuid::Uuid::from_bytes(server).hyphenated();
        let source = match tag {
            None => server.to_string(),
            Some(tag) if is_tag(tag) => format!("{server}:{}", tag.to_ascii_lowercase()),
            Some(_) => return None,
        };
        (1..=NUMBER_MAX).contains(&number).then(|| Self {
            source: source.into(),
            number,
        })
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source, self.number)
    }
}

impl GtidSet {
    /// Reads MySQL's text; line breaks and spaces are allowed, as `SHOW` prints them.
    pub fn parse(text: &str) -> Result<Self, NotAGtidSet> {
        let bad = || NotAGtidSet(text.chars().take(80).collect());
        let mut set = Self::default();
        for member in text.split(',').map(str::trim).filter(|m| !m.is_empty()) {
            let mut parts = member.split(':').map(str::trim);
            let server = parts
                .next()
                .filter(|u| u.len() == 36)
                .and_then(|u| uuid::Uuid::try_parse(u).ok())
                .ok_or_else(bad)?
                .hyphenated()
                .to_string();
            let mut source = server.clone();
            let mut intervals = 0;
            for part in parts {
                if part.starts_with(|c: char| c.is_ascii_digit()) {
                    let (from, to) = part.split_once('-').unwrap_or((part, part));
                    let (from, to): (u64, u64) = (
                        from.trim().parse().map_err(|_| bad())?,
                        to.trim().parse().map_err(|_| bad())?,
                    );
                    if from == 0 || from > to || to > NUMBER_MAX {
                        return Err(bad());
                    }
                    set.add_range(&source, from, to);
                    intervals += 1;
                } else if is_tag(part) {
                    // The intervals after a tag are its own.
                    source = format!("{server}:{}", part.to_ascii_lowercase());
                } else {
                    return Err(bad());
                }
            }
            if intervals == 0 {
                return Err(bad());
            }
        }
        Ok(set)
    }

    /// Adds one transaction. Cheap where it follows the last one of its source.
    pub fn add(&mut self, gtid: &Gtid) {
        if let Some(ranges) = self.0.get_mut(&gtid.source)
            && let Some(last) = ranges.last_mut()
            && last.1.checked_add(1) == Some(gtid.number)
        {
            last.1 = gtid.number;
            return;
        }
        self.add_range(&gtid.source, gtid.number, gtid.number);
    }

    fn add_range(&mut self, source: &str, from: u64, to: u64) {
        let ranges = self.0.entry(source.into()).or_default();
        ranges.push((from, to));
        normalise(ranges);
    }

    /// Adds every transaction of `other`.
    pub fn union(&mut self, other: &Self) {
        for (source, more) in &other.0 {
            let ranges = self.0.entry(source.clone()).or_default();
            ranges.extend_from_slice(more);
            normalise(ranges);
        }
    }

    /// The transactions that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.by_source(|source, mine| {
            let theirs = other.0.get(source).map_or(&[][..], Vec::as_slice);
            let mut both = Vec::new();
            for a in mine {
                for b in theirs {
                    let (from, to) = (a.0.max(b.0), a.1.min(b.1));
                    if from <= to {
                        both.push((from, to));
                    }
                }
            }
            both
        })
    }

    /// The transactions of this set that `other` lacks.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.by_source(|source, mine| {
            let mut left = mine.to_vec();
            for taken in other.0.get(source).into_iter().flatten() {
                left = left
                    .into_iter()
                    .flat_map(|range| without(range, *taken))
                    .flatten()
                    .collect();
            }
            left
        })
    }

    fn by_source(&self, of: impl Fn(&str, &[(u64, u64)]) -> Ranges) -> Self {
        let sources = self.0.iter();
        Self(
            sources
                .map(|(source, ranges)| (source.clone(), of(source, ranges)))
                .filter(|(_, ranges)| !ranges.is_empty())
                .collect(),
        )
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

    /// Whether a transaction is in this set.
    pub fn has(&self, gtid: &Gtid) -> bool {
        self.0
            .get(&gtid.source)
            .is_some_and(|ranges| ranges.iter().any(|r| (r.0..=r.1).contains(&gtid.number)))
    }

    /// Whether there is no transaction in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many transactions there are.
    pub fn count(&self) -> u64 {
        let ranges = self.0.values().flatten();
        ranges.fold(0, |n, r| n.saturating_add(r.1 - r.0 + 1))
    }

    /// Per source its server's id, its tag, and first and last number of each range: what the replication protocol asks
    /// for.
    pub fn sources(&self) -> impl Iterator<Item = (uuid::Uuid, Option<&str>, &[(u64, u64)])> {
        self.0.iter().filter_map(|(source, ranges)| {
            let (server, tag) = split(source);
            let server = uuid::Uuid::try_parse(server).ok()?;
            Some((server, tag, ranges.as_slice()))
        })
    }
}

/// As MySQL's manual says: a letter or an underscore, then letters, digits and underscores.
fn is_tag(text: &str) -> bool {
    text.len() <= TAG_MAX
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn split(source: &str) -> (&str, Option<&str>) {
    source
        .split_once(':')
        .map_or((source, None), |(server, tag)| (server, Some(tag)))
}

/// Sorts, and makes one of ranges that touch.
fn normalise(ranges: &mut Ranges) {
    ranges.sort_unstable();
    let mut merged: Ranges = Vec::with_capacity(ranges.len());
    for &(from, to) in ranges.iter() {
        match merged.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    *ranges = merged;
}

/// What is left of a range, before and after what is taken away.
fn without(range: (u64, u64), taken: (u64, u64)) -> [Option<(u64, u64)>; 2] {
    if taken.1 < range.0 || range.1 < taken.0 {
        return [Some(range), None];
    }
    let before = (range.0 < taken.0).then(|| (range.0, taken.0 - 1));
    let after = (taken.1 < range.1).then(|| (taken.1 + 1, range.1));
    [before, after]
}

/// As MySQL writes it, in one line: a server's tags follow its own numbers.
impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut written = None;
        for (source, ranges) in &self.0 {
            let (server, tag) = split(source);
            if written != Some(server) {
                let comma = if written.is_some() { "," } else { "" };
                write!(f, "{comma}{server}")?;
                written = Some(server);
            }
            if let Some(tag) = tag {
                write!(f, ":{tag}")?;
            }
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
mod tests;
