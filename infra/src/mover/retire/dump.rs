//! The dump of a shop's rows: a folder with one file for each table, and what is needed to load them again.
//!
//! `<table>.tsv.gz` holds a table's rows in the form in which a move carries them: one line a row, values between tabs, `\\`,
//! `\t`, `\n` and `\N` as `load data` reads them, every other byte as it is. `load.sql` loads the files into the same
//! tables again and makes no value another one; `manifest.json` says what it is, with rows and checksums. To load it,
//! from within the folder:
//!
//! ```text
//! sha256sum --check sha256
//! gunzip --keep *.tsv.gz
//! mysql --local-infile=1 --default-character-set=utf8mb4 podhost < load.sql
//! ```
//!
//! The rows take the place of rows with the same keys, so a shop that still sells at that pod must not be loaded over. The
//! folder gets its name only once everything in it is on the disk: until then it is the `.part` of one run, by its owner
//! number, and what a crash left is begun anew by the next. A run that was stopped and goes on late has a folder of its
//! own, which cannot take the place of a whole dump.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::session::Session;
use crate::mover::table::{self, Limit, Table};
use crate::mover::throttle::Throttle;

/// Pieces of a table between the server and the disk: one being written, one waiting.
const PIECES: usize = 2;
/// A dump is seldom read, and the rows of a pod wait for it.
const LEVEL: Compression = Compression::fast();
/// What the session that loads a dump must be like.
const SETTINGS: &str = "set sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION', \
    time_zone = '+00:00', foreign_key_checks = 0, unique_checks = 1;";

/// What a dump is.
#[derive(Debug, Serialize)]
struct Manifest {
    format: u32,
    move_id: String,
    shop: u64,
    pod: String,
    epoch: u64,
    made_at: String,
    /// Rows were already being deleted when it was made: an earlier dump, at another control server, has the others.
    partial: bool,
    tables: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    table: String,
    file: String,
    rows: u64,
    sha256: String,
}

/// What a dump is of: each has a name of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Of {
    /// The source's copy as it was at the fence.
    Copy,
    /// What a source had that was gone and came back: it may have sold meanwhile.
    Gone,
}

/// Writes the source's rows of the shop into a folder below `dir`; gives its path. Run again it does nothing.
pub(crate) async fn dump_rows(
    job: &Job,
    tables: &[Table],
    dir: &Path,
    of: Of,
) -> Result<PathBuf, MoveError> {
    let ending = match of {
        Of::Copy => "",
        Of::Gone => "-gone",
    };
    let name = format!(
        "shop-{}-pod-{}-epoch-{}{ending}",
        job.shop,
        job.source.pod,
        job.source_epoch.get()
    );
    let whole = dir.join(format!("{name}.dump"));
    if whole.is_dir() {
        return Ok(whole);
    }
    let part = dir.join(format!("{name}.{}.part", job.owner));
    begin(dir, &name, job.owner).map_err(|error| failed(&part, error))?;
    let mut session = Session::open(job, &job.source).await?;
    let begun = format!(
        "select 1 from move_mark where move_id = '{}' and part = 'retire'",
        job.id
    );
    let partial = !session.rows("read the mark", &begun).await?.is_empty();
    let throttle = Throttle::deleting(job, &job.source);
    let mut entries = Vec::new();
    for (number, table) in tables.iter().enumerate() {
        let file = file_name(number, &table.name);
        let path = part.join(&file);
        let (rows, sha256) = write_table(job, &mut session, &throttle, table, &path).await?;
        entries.push(Entry {
            table: table.name.clone(),
            file,
            rows,
            sha256,
        });
    }
    session.close().await;
    let manifest = Manifest {
        format: 1,
        move_id: job.id.to_string(),
        shop: job.shop.get(),
        pod: job.source.pod.to_string(),
        epoch: job.source_epoch.get(),
        made_at: shared_time(SystemTime::now()),
        partial,
        tables: entries,
    };
    finish(&part, &whole, &manifest, tables).map_err(|error| failed(&part, error))?;
    Ok(whole)
}

/// Takes dumps away that are older than they are to be kept, and what a crash left of unfinished ones as old. Ends early
/// where it is to stop.
pub(crate) fn prune_dumps(
    dir: &Path,
    kept: Duration,
    stop: impl Fn() -> bool,
) -> std::io::Result<u64> {
    let mut gone = 0;
    for entry in fs::read_dir(dir)? {
        if stop() {
            break;
        }
        let path = entry?.path();
        let ending = path.extension().and_then(|e| e.to_str());
        if !matches!(ending, Some("dump" | "part")) || !path.is_dir() {
            continue;
        }
        let age = fs::metadata(&path)?.modified()?.elapsed();
        if age.is_ok_and(|age| age > kept) {
            fs::remove_dir_all(&path)?;
            gone += 1;
        }
    }
    Ok(gone)
}

/// A name for a table's file: tables may be called anything.
fn file_name(number: usize, table: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    let word: String = table.chars().map(plain).collect();
    format!("{number:03}-{word}.tsv.gz")
}

/// Makes the folder of this run; what earlier ones left is of no use.
fn begin(dir: &Path, name: &str, owner: u64) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let file = entry.file_name();
        let of_run = file.to_str().and_then(|file| {
            file.strip_prefix(name)?
                .strip_prefix('.')?
                .strip_suffix(".part")
        });
        // Of a later run nothing is touched.
        if of_run.is_some_and(|run| run.parse().is_ok_and(|run: u64| run <= owner)) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    fs::DirBuilder::new()
        .mode(0o700)
        .create(dir.join(format!("{name}.{owner}.part")))
}

/// A new file that only its owner may read: these are a merchant's customers.
fn create(path: &Path) -> std::io::Result<File> {
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Reads a table in pieces while a thread packs and writes them; the file is on the disk at the end.
async fn write_table(
    job: &Job,
    session: &mut Session,
    throttle: &Throttle,
    table: &Table,
    path: &Path,
) -> Result<(u64, String), MoveError> {
    let file = create(path).map_err(|error| failed(path, error))?;
    let (pieces, mut waiting) = mpsc::channel::<bytes::Bytes>(PIECES);
    let packing = tokio::task::spawn_blocking(move || {
        let mut out = GzEncoder::new(Summed::new(file), LEVEL);
        while let Some(piece) = waiting.blocking_recv() {
            out.write_all(&piece)?;
        }
        out.finish()?.finish()
    });
    let limit = Limit {
        rows: Some(job.limits.chunk_rows_max),
        bytes: job.limits.chunk_bytes_max.get() as u64,
    };
    let (mut count, mut after) = (0, None);
    loop {
        throttle.pass_gently().await?;
        session.awake().await?;
        let range = table.key_range(job.shop, after.as_ref(), None);
        let began = Instant::now();
        let rows = table::read(session, table, &range, limit).await?;
        throttle.worked(began.elapsed());
        let more = rows.cut || rows.count >= job.limits.chunk_rows_max;
        count += rows.count;
        after = rows.last.clone();
        // A writer that gave up says why below.
        if pieces.send(rows.lines()).await.is_err() || !more || after.is_none() {
            break;
        }
    }
    drop(pieces);
    let packed = packing.await.map_err(std::io::Error::other);
    let sum = packed
        .and_then(|it| it)
        .map_err(|error| failed(path, error))?;
    Ok((count, sum))
}

/// A file that is summed as it is written.
struct Summed {
    file: BufWriter<File>,
    sum: Sha256,
}

impl Summed {
    fn new(file: File) -> Self {
        Self {
            file: BufWriter::new(file),
            sum: Sha256::new(),
        }
    }

    /// Everything is on the disk; the checksum in hex.
    fn finish(self) -> std::io::Result<String> {
        let file = self.file.into_inner().map_err(|error| error.into_error())?;
        file.sync_all()?;
        let digest = self.sum.finalize();
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl std::io::Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Writes what belongs to the tables' files, and gives the folder its name.
fn finish(part: &Path, whole: &Path, manifest: &Manifest, tables: &[Table]) -> std::io::Result<()> {
    let mut load = format!(
        "-- Shop {} as it was at pod {} at epoch {}. See manifest.json.\n{SETTINGS}\n",
        manifest.shop, manifest.pod, manifest.epoch
    );
    let mut sums = String::new();
    for (entry, table) in manifest.tables.iter().zip(tables) {
        let file = entry.file.trim_end_matches(".gz");
        load.push_str(&table.load_statement().replacen(
            "infile 'rows'",
            &format!("infile '{file}'"),
            1,
        ));
        load.push_str(";\n");
        sums.push_str(&format!("{}  {}\n", entry.sha256, entry.file));
    }
    let json = serde_json::to_string_pretty(manifest).map_err(std::io::Error::other)?;
    for (name, text) in [
        ("load.sql", &load),
        ("sha256", &sums),
        ("manifest.json", &json),
    ] {
        let mut file = create(&part.join(name))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
    }
    File::open(part)?.sync_all()?;
    if let Err(error) = fs::rename(part, whole) {
        // Another run, of a mover that was taken for dead, has ended it first, from the same rows: none is deleted
        // before there is a whole dump.
        if !whole.is_dir() {
            return Err(error);
        }
        fs::remove_dir_all(part)?;
    }
    match whole.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

fn shared_time(at: SystemTime) -> String {
    let at = time::OffsetDateTime::from(at);
    at.format(&time::format_description::well_known::Rfc3339)
        .unwrap_or_default()
}

fn failed(path: &Path, source: std::io::Error) -> MoveError {
    MoveError::File {
        doing: format!("write the dump {}", path.display()),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_its_table_whatever_that_is_called() {
        assert_eq!(file_name(0, "shop_order"), "000-shop_order.tsv.gz");
        assert_eq!(file_name(12, "a/../b c`é"), "012-a----b-c--.tsv.gz");
    }

    /// A run takes away what earlier ones left of the same dump, and nothing else.
    #[test]
    fn a_run_begins_its_own_folder_and_leaves_a_later_ones_alone() {
        let dir = tempfile::tempdir().unwrap();
        let there = |name: &str| dir.path().join(name).is_dir();
        for name in ["a.1.part", "a.2.part", "a.3.part", "a.dump", "ab.1.part"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("a.2.part/file"), "x").unwrap();
        begin(dir.path(), "a", 2).unwrap();
        assert!(!there("a.1.part") && there("a.2.part"));
        assert!(!dir.path().join("a.2.part/file").exists());
        assert!(there("a.3.part") && there("a.dump") && there("ab.1.part"));
    }

    #[test]
    fn old_dumps_go_and_everything_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.dump", "b.part", "c"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("d.dump"), "a file").unwrap();
        let prune = |kept, stop| prune_dumps(dir.path(), kept, || stop).unwrap();
        assert_eq!(prune(Duration::from_secs(60), false), 0);
        assert_eq!(prune(Duration::ZERO, true), 0);
        assert_eq!(prune(Duration::ZERO, false), 2);
        assert!(dir.path().join("c").is_dir() && dir.path().join("d.dump").is_file());
    }
}
