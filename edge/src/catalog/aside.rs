//! A table as it came over the network, written beside the state file while it is read, and kept if it is refused.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::metrics::table_refused;

/// Enough of a table to see what is wrong with it; the first faults are in the log besides.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// One table. Removed when it is dropped, unless it was kept.
pub(super) struct Aside {
    path: PathBuf,
    refused: PathBuf,
    file: Option<File>,
    room: usize,
}

impl Aside {
    pub(super) fn new(state_file: &Path) -> Self {
        let path = state_file.with_extension("incoming");
        // Without a file the table is taken or refused all the same.
        let file = File::create(&path).ok();
        Self {
            refused: state_file.with_extension("refused.ndjson"),
            path,
            file,
            room: BYTES_MAX,
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        let part = &bytes[..bytes.len().min(self.room)];
        self.room -= part.len();
        if self
            .file
            .as_mut()
            .is_some_and(|f| f.write_all(part).is_err())
        {
            self.file = None;
        }
    }

    /// Keeps it, in place of an earlier one, and raises the alarm.
    pub(super) fn keep(&mut self, reason: &'static str) {
        table_refused(reason);
        if self.file.take().is_some() && fs::rename(&self.path, &self.refused).is_ok() {
            tracing::error!(
                "the refused route table is kept as {}",
                self.refused.display()
            );
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
