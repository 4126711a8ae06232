//! A dump that is not whole yet: its folder, and how far it has come. Whoever takes the dump up goes on from there.
//!
//! The folder is one run's, by its owner number. The next run gives it its own name: a run that was taken for dead and goes
//! on late finds its folder gone, and the file that it has open is no file of the dump any more, since what is noted of it
//! was copied.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Entry;
use super::packed::Summed;
use crate::mover::table::{Key, Table};

/// Where in the folder it is noted; in a whole dump it is of no use.
pub(super) const REACHED: &str = "reached.json";
/// What becomes the one above once it is on the disk.
const NEXT: &str = "reached.json.new";
/// The part of a file that is kept, until it takes that file's place.
const KEPT: &str = "kept.new";

/// How far a dump has come. What it names is on the disk.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reached {
    /// Tables that are done.
    done: Vec<Done>,
    /// The one that is being written.
    open: Option<Open>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    #[serde(flatten)]
    entry: Entry,
    schema: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Open {
    file: String,
    schema: String,
    /// As much of the file.
    bytes: u64,
    rows: u64,
    /// The key of the last of those rows.
    after: Vec<u8>,
}

/// A table as it is dumped: rows that were written under another definition are not gone on with.
#[derive(Debug, Clone)]
pub(super) struct Form {
    table: String,
    pub(super) file: String,
    schema: String,
}

impl Form {
    pub(super) fn of(number: usize, table: &Table) -> Self {
        Self {
            table: table.name.clone(),
            file: file_name(number, &table.name),
            schema: table.fingerprint_of_schema(),
        }
    }
}

/// Where a table's rows go on.
#[derive(Debug, Default)]
pub(super) struct Begin {
    pub(super) rows: u64,
    pub(super) after: Option<Key>,
}

/// The folder.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) folder: PathBuf,
    reached: Reached,
    every: Duration,
    noted: Instant,
}

impl Part {
    /// Takes up what earlier runs of this dump have left, the newest that says how far it came; the others go. Later runs'
    /// are not touched.
    pub(super) fn take_up(dir: &Path, name: &str, owner: u64, every: Duration) -> io::Result<Self> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let run = entry.file_name().to_str().and_then(|it| run_of(it, name));
            runs.extend(
                run.filter(|run| *run <= owner)
                    .map(|run| (run, entry.path())),
            );
        }
        runs.sort_by_key(|(run, _)| std::cmp::Reverse(*run));
        let folder = dir.join(format!("{name}.{owner}.part"));
        let mut kept = false;
        for (_, path) in runs {
            if kept || read(&path).is_none() {
                fs::remove_dir_all(&path)?;
                continue;
            }
            if path != folder {
                fs::rename(&path, &folder)?;
            }
            kept = true;
        }
        let reached = read(&folder).unwrap_or_default();
        if !kept {
            fs::DirBuilder::new().mode(0o700).create(&folder)?;
        }
        remove_others(&folder, |file| reached.names(file))?;
        Ok(Self {
            folder,
            reached,
            every,
            noted: Instant::now(),
        })
    }

    /// What is known of a table that is done.
    pub(super) fn done(&self, form: &Form) -> Option<&Entry> {
        let done = self.reached.done.iter();
        let mut done = done.filter(|it| (&it.entry.file, &it.schema) == (&form.file, &form.schema));
        done.next().map(|it| &it.entry)
    }

    /// The file of a table that is not, and from where its rows go on.
    pub(super) fn open(&mut self, form: &Form) -> io::Result<(Summed, Begin)> {
        let path = self.folder.join(&form.file);
        if let Some(open) = self.reached.open.take()
            && (&open.file, &open.schema) == (&form.file, &form.schema)
            && let Ok(after) = Key::from_bytes(&open.after)
            && let Some(file) = kept(&path, &self.folder.join(KEPT), open.bytes)?
        {
            let begin = Begin {
                rows: open.rows,
                after: Some(after),
            };
            return Ok((file, begin));
        }
        self.reached.done.retain(|it| it.entry.file != form.file);
        if path.exists() {
            fs::remove_file(&path)?;
        }
        Ok((Summed::new(create(&path)?), Begin::default()))
    }

    /// Takes away what is of no table any more.
    pub(super) fn has_only(&self, entries: &[Entry]) -> io::Result<()> {
        remove_others(&self.folder, |file| {
            file == REACHED || entries.iter().any(|it| it.file == file)
        })
    }

    /// Whether it is time to note how far it came.
    pub(super) fn is_to_note(&self) -> bool {
        self.noted.elapsed() >= self.every
    }

    /// So much of a table's file is on the disk.
    pub(super) fn note_open(
        &mut self,
        form: &Form,
        bytes: u64,
        rows: u64,
        after: &Key,
    ) -> io::Result<()> {
        self.reached.open = Some(Open {
            file: form.file.clone(),
            schema: form.schema.clone(),
            bytes,
            rows,
            after: after.to_bytes(),
        });
        self.note()
    }

    /// All of a table's is.
    pub(super) fn note_done(&mut self, form: Form, rows: u64, sha256: String) -> io::Result<()> {
        self.reached.open = None;
        self.reached.done.push(Done {
            entry: Entry {
                table: form.table,
                file: form.file,
                rows,
                sha256,
            },
            schema: form.schema,
        });
        // Of small tables there may be many.
        if self.is_to_note() {
            self.note()
        } else {
            Ok(())
        }
    }

    fn note(&mut self) -> io::Result<()> {
        let json = serde_json::to_vec(&self.reached).map_err(io::Error::other)?;
        let next = self.folder.join(NEXT);
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&next)?;
        file.write_all(&json)?;
        file.sync_all()?;
        fs::rename(&next, self.folder.join(REACHED))?;
        File::open(&self.folder)?.sync_all()?;
        self.noted = Instant::now();
        Ok(())
    }
}

impl Reached {
    fn names(&self, file: &str) -> bool {
        let open = self.open.iter().map(|it| &it.file);
        let mut all = self.done.iter().map(|it| &it.entry.file).chain(open);
        file == REACHED || all.any(|it| it == file)
    }
}

fn remove_others(folder: &Path, is_of_it: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(&is_of_it) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Nothing where it cannot be read: it is written before it is named, so that this is a folder without one.
fn read(folder: &Path) -> Option<Reached> {
    serde_json::from_slice(&fs::read(folder.join(REACHED)).ok()?).ok()
}

/// The run whose part of a dump a folder is.
fn run_of(folder: &str, name: &str) -> Option<u64> {
    let run = folder.strip_prefix(name)?.strip_prefix('.')?;
    run.strip_suffix(".part")?.parse().ok()
}

/// The first bytes of a file as a new one in its place; `None` if it has fewer.
fn kept(path: &Path, new: &Path, bytes: u64) -> io::Result<Option<Summed>> {
    let mut old = File::open(path)?.take(bytes);
    let mut file = Summed::new(create(new)?);
    if io::copy(&mut old, &mut file)? < bytes {
        fs::remove_file(new)?;
        return Ok(None);
    }
    file.sync()?;
    fs::rename(new, path)?;
    Ok(Some(file))
}

/// A new file that only its owner may read: these are a merchant's customers.
pub(super) fn create(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
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

#[cfg(test)]
mod tests;
