//! A table's file: packed, summed and written by a thread while the next rows are read.
//!
//! Each time that it is noted how far the file has come a member of the gzip file ends; `gunzip` makes one of them all.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::part::{Form, Part};
use crate::mover::table::Key;

/// Pieces of a table between the server and the disk: one being written, one waiting.
const PIECES: usize = 2;
/// A dump is seldom read, and the rows of a pod wait for it.
const LEVEL: Compression = Compression::fast();

/// Rows of the table.
pub(super) struct Piece {
    pub(super) lines: Bytes,
    pub(super) rows: u64,
    /// The key of the last one; none where there is none.
    pub(super) last: Option<Key>,
    /// No more come.
    pub(super) end: bool,
}

/// The thread, and the way to it. Ended by the last piece; without that, it leaves the table as it was noted.
pub(super) struct Packing {
    pub(super) pieces: mpsc::Sender<Piece>,
    pub(super) thread: JoinHandle<io::Result<Part>>,
}

impl Packing {
    /// Writes a table's file from where it stands: so many rows.
    pub(super) fn start(part: Part, form: Form, file: Summed, rows: u64) -> Self {
        let (pieces, waiting) = mpsc::channel(PIECES);
        let thread = tokio::task::spawn_blocking(move || pack(part, form, file, rows, waiting));
        Self { pieces, thread }
    }
}

fn pack(
    mut part: Part,
    form: Form,
    file: Summed,
    mut rows: u64,
    mut waiting: mpsc::Receiver<Piece>,
) -> io::Result<Part> {
    let mut out = GzEncoder::new(file, LEVEL);
    while let Some(piece) = waiting.blocking_recv() {
        out.write_all(&piece.lines)?;
        rows += piece.rows;
        if piece.end {
            let sha256 = out.finish()?.finish()?;
            part.note_done(form, rows, sha256)?;
            return Ok(part);
        }
        if let Some(after) = piece.last.filter(|_| part.is_to_note()) {
            let mut file = out.finish()?;
            file.sync()?;
            part.note_open(&form, file.bytes, rows, &after)?;
            out = GzEncoder::new(file, LEVEL);
        }
    }
    Err(io::Error::other("its rows were not read to the end"))
}

/// A file that is summed as it is written.
#[derive(Debug)]
pub(super) struct Summed {
    file: BufWriter<File>,
    sum: Sha256,
    bytes: u64,
}

impl Summed {
    pub(super) fn new(file: File) -> Self {
        Self {
            file: BufWriter::new(file),
            sum: Sha256::new(),
            bytes: 0,
        }
    }

    /// Everything is on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }

    /// The same, and the checksum in hex.
    fn finish(mut self) -> io::Result<String> {
        self.sync()?;
        let digest = self.sum.finalize();
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
