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
//! folder gets its name only once everything in it is on the disk: until then it is the `.part` of one run, and the next run
//! goes on with what that has written (`part`). Rows of a copy do not change under its mark. Where they do, by a stray, that is
//! another dump: its name ends in the number of the strays that it holds.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use packed::{Packing, Piece};
use part::{Form, Part, create};
use serde::{Deserialize, Serialize};

use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::leftover;
use crate::mover::progress::Progress;
use crate::mover::session::Session;
use crate::mover::step::{Step, step};
use crate::mover::table::{self, Limit, Table};
use crate::mover::throttle::Throttle;
use crate::output::count;

// A table's file.
mod packed;
// A dump that is not whole yet.
mod part;

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
    /// Changes after the fence that nobody should have made, and that it holds.
    strays: u64,
    tables: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    table: String,
    file: String,
    rows: u64,
    sha256: String,
}

/// What a dump is of: each has a name of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Of {
    /// The source's copy as it was at the fence, and as so many strays have changed it since. With another number it is
    /// another dump.
    Copy { strays: u64 },
    /// What a source had that was gone and came back: it may have sold meanwhile.
    Gone,
    /// What a move back found at its target, where it is undone or begun anew, as that has changed it: with what others wrote there.
    Back,
    /// Rows that no move made, as so many changes have left them since they were looked at first.
    Cleared { strays: u64 },
}

impl Of {
    fn name(self, job: &Job) -> String {
        let ending = match self {
            Self::Copy { strays: 0 } => String::new(),
            Self::Copy { strays } => format!("-strays-{strays}"),
            Self::Gone => "-gone".to_owned(),
            Self::Back => "-back".to_owned(),
            Self::Cleared { strays: 0 } => "-cleared".to_owned(),
            Self::Cleared { strays } => format!("-cleared-strays-{strays}"),
        };
        let (shop, pod, epoch) = (job.shop, job.source.pod, job.source_epoch.get());
        format!("shop-{shop}-pod-{pod}-epoch-{epoch}{ending}")
    }

    const fn strays(self) -> u64 {
        match self {
            Self::Copy { strays } | Self::Cleared { strays } => strays,
            Self::Gone | Self::Back => 0,
        }
    }

    /// Whose mark the transactions carry that delete the rows.
    const fn deleted_by(self) -> &'static str {
        match self {
            Self::Back => leftover::PART,
            Self::Copy { .. } | Self::Gone | Self::Cleared { .. } => super::PART,
        }
    }
}

/// Writes the source's rows of the shop into a folder below `dir`; gives its path. Run again it goes on, or does nothing.
pub(crate) async fn dump_rows(
    job: &Job,
    tables: &[Table],
    dir: &Path,
    of: Of,
) -> Result<PathBuf, MoveError> {
    let name = of.name(job);
    let whole = dir.join(format!("{name}.dump"));
    if whole.is_dir() {
        return Ok(whole);
    }
    let mut part = {
        let (dir, owner, every) = (dir.to_owned(), job.owner, job.limits.note_every);
        on_disk(&whole, move || Part::take_up(&dir, &name, owner, every)).await?
    };
    let mut session = Session::open(job, &job.source).await?;
    let partial = has_begun(&mut session, job, of).await?;
    let throttle = Throttle::deleting(job, &job.source);
    let mut entries = Vec::new();
    for (number, table) in tables.iter().enumerate() {
        let form = Form::of(number, table);
        if part.done(&form).is_none() {
            part = write_table(job, &mut session, &throttle, table, part, &form).await?;
        }
        entries.extend(part.done(&form).cloned());
    }
    session.close().await;
    part.has_only(&entries)
        .map_err(|error| failed(&whole, error))?;
    let manifest = Manifest {
        format: 1,
        move_id: job.id.to_string(),
        shop: job.shop.get(),
        pod: job.source.pod.to_string(),
        epoch: job.source_epoch.get(),
        made_at: shared_time(SystemTime::now()),
        partial,
        strays: of.strays(),
        tables: entries,
    };
    finish(&part.folder, &whole, &manifest, tables).map_err(|error| failed(&whole, error))?;
    Ok(whole)
}

/// Whether rows were deleted already that are dumped so: a deletion marks its transactions.
pub(crate) async fn has_begun(session: &mut Session, job: &Job, of: Of) -> Result<bool, MoveError> {
    let (id, part) = (job.id, of.deleted_by());
    let mark = format!("select 1 from move_mark where move_id = '{id}' and part = '{part}'");
    Ok(!session.rows("read the mark", &mark).await?.is_empty())
}

/// Reads a table in pieces, from where an earlier run came, while a thread packs and writes them; the file is on the disk at
/// the end.
async fn write_table(
    job: &Job,
    session: &mut Session,
    throttle: &Throttle,
    table: &Table,
    mut part: Part,
    form: &Form,
) -> Result<Part, MoveError> {
    let path = part.folder.join(&form.file);
    let (part, (file, begin)) = {
        let form = form.clone();
        on_disk(&path, move || part.open(&form).map(|open| (part, open))).await?
    };
    Progress::add(&job.progress.rows_dumped_before, begin.rows);
    let packing = Packing::start(part, form.clone(), file, begin.rows);
    let rows = Some(job.limits.chunk_rows_max);
    let bytes = job.limits.chunk_bytes_max.get() as u64;
    let mut after = begin.after;
    loop {
        let range = table.key_range(job.shop, after.as_ref(), None);
        let piece = step!(Step::DumpPiece => {
            throttle.pass_gently().await?;
            session.awake().await?;
            let began = Instant::now();
            let read = table::read(session, table, &range, Limit { rows, bytes }).await?;
            throttle.worked(began.elapsed());
            Ok(read)
        })
        .await?;
        Progress::add(&job.progress.rows_dumped, piece.count);
        after.clone_from(&piece.last);
        let more = piece.cut || piece.count >= job.limits.chunk_rows_max;
        let end = !more || after.is_none();
        let piece = Piece {
            lines: piece.lines(),
            rows: piece.count,
            last: piece.last,
            end,
        };
        // A writer that gave up says why below.
        if packing.pieces.send(piece).await.is_err() || end {
            break;
        }
    }
    drop(packing.pieces);
    let packed = packing.thread.await.map_err(std::io::Error::other);
    packed
        .and_then(|it| it)
        .map_err(|error| failed(&path, error))
}

/// Work on files that may be large.
async fn on_disk<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, MoveError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(std::io::Error::other)
        .and_then(|it| it)
        .map_err(|error| failed(path, error))
}

/// Writes what belongs to the tables' files, and gives the folder its name.
fn finish(
    folder: &Path,
    whole: &Path,
    manifest: &Manifest,
    tables: &[Table],
) -> std::io::Result<()> {
    let mut load = format!(
        "-- Shop {} as it was at pod {} at epoch {}, with {}. See manifest.json.\n{SETTINGS}\n",
        manifest.shop,
        manifest.pod,
        manifest.epoch,
        count(manifest.strays, "stray")
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
        let mut file = create(&folder.join(name))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
    }
    File::open(folder)?.sync_all()?;
    if let Err(error) = fs::rename(folder, whole) {
        // Another run, of a mover that was taken for dead, has ended it first, from the same rows: none is deleted
        // before there is a whole dump.
        if !whole.is_dir() {
            return Err(error);
        }
        fs::remove_dir_all(folder)?;
    }
    // Of no use any more; what a crash leaves of it here is in nobody's way.
    let _ = fs::remove_file(whole.join(part::REACHED));
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
