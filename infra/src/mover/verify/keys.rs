//! Rows compared by their keys.

use std::collections::{HashMap, HashSet, VecDeque};

use mysql_async::Row;
use parking_lot::Mutex;

use super::Pair;
use crate::mover::apply::{Ledger, Place};
use crate::mover::error::MoveError;
use crate::mover::fingerprint;
use crate::mover::job::Job;
use crate::mover::session::bytes;
use crate::mover::table::{Key, Table};

/// Keys in one statement: some hundred kilobytes of text, some tens of milliseconds.
const KEYS_MAX: usize = 500;

/// Keys with the digests of their rows.
pub(super) type Digests = HashMap<Key, Vec<u8>>;

/// The key, then the digest.
pub(super) fn listed(table: &Table) -> String {
    format!("{}, {}", table.key_list(), fingerprint::row(table))
}

/// What is selected.
pub(super) fn selected(table: &Table) -> String {
    format!("select {}", listed(table))
}

/// The digest in a row of an answer to [`selected`].
pub(super) fn digest<'r>(job: &Job, table: &Table, row: &'r Row) -> Result<&'r [u8], MoveError> {
    let at = table.key_columns().count().max(1);
    let digest = bytes(row, at).filter(|digest| digest.len() == fingerprint::DIGEST_BYTES);
    digest.ok_or_else(|| {
        let key = Key::of_key_row(table, row);
        let key = key.map_or_else(|_| unreadable(job, table).to_string(), |key| key.to_string());
        MoveError::Diverged(format!(
            "the row {key} of {} has no fingerprint: a value is larger than the server lets through",
            table.name
        ))
    })
}

/// Reads an answer to [`selected`].
pub(super) fn digests(job: &Job, table: &Table, rows: &[Row]) -> Result<Digests, MoveError> {
    let pair = |row: &Row| {
        let key = Key::of_key_row(table, row).map_err(|_| unreadable(job, table))?;
        Ok((key, digest(job, table, row)?.to_vec()))
    };
    rows.iter().map(pair).collect()
}

pub(super) fn unreadable(job: &Job, table: &Table) -> MoveError {
    MoveError::SchemaChanged {
        pod: job.source.pod,
        text: format!("a key of {} cannot be read", table.name),
    }
}

/// Keys whose rows are not the same.
pub(super) fn different(source: &Digests, target: &Digests) -> Vec<Key> {
    let missing = target.keys().filter(|key| !source.contains_key(key));
    let unlike = source
        .iter()
        .filter(|(key, digest)| target.get(*key) != Some(digest))
        .map(|(key, _)| key);
    unlike.chain(missing).cloned().collect()
}

/// Compares rows by their keys, with all sessions at once. Gives those that differ; a key that the server takes for equal
/// to one of them is among them too.
pub(super) async fn compare(
    job: &Job,
    tables: &[Table],
    pairs: &mut [Pair],
    keys: &[Place],
) -> Result<HashSet<Place>, MoveError> {
    let mut by_table: HashMap<usize, Vec<&Key>> = HashMap::new();
    for (table, key) in keys {
        by_table.entry(*table).or_default().push(key);
    }
    let looks = by_table.iter().flat_map(|(table, keys)| {
        let parts = keys.chunks(KEYS_MAX);
        parts.map(|part| (*table, part))
    });
    let looks: Mutex<VecDeque<(usize, &[&Key])>> = Mutex::new(looks.collect());
    let found = Mutex::new(HashSet::new());
    let each = pairs.iter_mut().map(|pair| async {
        loop {
            let Some((at, keys)) = looks.lock().pop_front() else {
                return Ok::<(), MoveError>(());
            };
            let Some(table) = tables.get(at) else {
                return Ok(());
            };
            let sql = format!(
                "{} {} where {}",
                selected(table),
                table.by_key(),
                table.keys_in(job.shop, keys.iter().copied())
            );
            let (source, target) = pair.rows("compare keys", &sql).await?;
            let (source, target) = (digests(job, table, &source)?, digests(job, table, &target)?);
            let unlike = different(&source, &target);
            if unlike.is_empty() {
                continue;
            }
            let asked: HashSet<&Key> = keys.iter().copied().collect();
            let all_asked = unlike.iter().all(|key| asked.contains(key));
            let mut found = found.lock();
            found.extend(unlike.into_iter().map(|key| (at, key)));
            if !all_asked {
                // Keys that are one for the server and several here: which of them was meant is not ours to say.
                found.extend(keys.iter().map(|key| (at, (*key).clone())));
            }
        }
    });
    futures::future::try_join_all(each).await?;
    Ok(found.into_inner())
}

/// Judges a round, tells of true differences, and fails on one that was put in order before. Gives the number of keys that
/// were struck out.
pub(super) async fn judge(
    job: &Job,
    tables: &[Table],
    ledger: &Ledger,
    pair: &mut Pair,
    round: Vec<(Place, u64)>,
    different: &HashSet<Place>,
) -> Result<u64, MoveError> {
    /// Differences that are told one by one.
    const TOLD_MAX: usize = 20;
    let judged = ledger.judge(round, different);
    for key in judged.repair.iter().take(TOLD_MAX) {
        let told = describe(job, tables, pair, key).await?;
        tracing::warn!(move_id = %job.id, shop = %job.shop, "{told}; the row is applied anew");
    }
    match judged.lost.first() {
        Some(key) => Err(MoveError::Diverged(describe(job, tables, pair, key).await?)),
        None => Ok(judged.equal),
    }
}

/// What differs in one row, in a sentence.
pub(super) async fn describe(
    job: &Job,
    tables: &[Table],
    pair: &mut Pair,
    (at, key): &Place,
) -> Result<String, MoveError> {
    let Some(table) = tables.get(*at) else {
        return Ok(format!("a row {key} of an unknown table"));
    };
    let sql = format!(
        "select {} {} where {}",
        fingerprint::columns(table),
        table.by_key(),
        table.keys_in(job.shop, [key])
    );
    let (source, target) = pair.rows("compare columns", &sql).await?;
    let what = match (source.first(), target.first()) {
        (Some(_), None) => format!("is missing at pod {}", job.target.pod),
        (None, Some(_)) => format!("is at pod {} only", job.target.pod),
        (None, None) => "was different and is gone at both pods now".to_owned(),
        (Some(source), Some(target)) => {
            let unlike = table
                .columns
                .iter()
                .enumerate()
                .filter(|(at, _)| bytes(source, *at) != bytes(target, *at))
                .map(|(_, column)| column.name.as_str());
            let names: Vec<&str> = unlike.collect();
            if names.is_empty() {
                "was different and is equal now".to_owned()
            } else {
                format!("differs in {}", names.join(", "))
            }
        }
    };
    Ok(format!("the row {key} of {} {what}", table.name))
}
