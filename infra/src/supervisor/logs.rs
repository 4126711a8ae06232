//! The logs of the units, bounded.
//!
//! A process writes straight into its file, opened for appending, so that it can go on when the supervisor is killed. A
//! file that is full is copied aside and emptied in place; a line written just then may be in neither.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::home_dir::{HomeDir, WriteError};

/// A unit keeps at most twice this: the file and the one before it. Some days of a quiet fleet; with fifteen units it
/// stays below a gigabyte.
const LOG_BYTES_MAX: u64 = 32 << 20;

/// Opens a unit's log for its process.
pub(super) fn open(home: &HomeDir, unit: &str) -> Result<File, WriteError> {
    let path = home.log_file(unit);
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .map_err(|fault| WriteError::new(&path, fault))
}

/// Brings every log back below its bound. One that cannot be (a full disk) is tried again the next time.
pub(super) fn bound(home: &HomeDir) {
    let Ok(entries) = std::fs::read_dir(home.path().join("logs")) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "log") {
            let _ = bound_one(&path, LOG_BYTES_MAX);
        }
    }
}

fn bound_one(path: &Path, bytes_max: u64) -> std::io::Result<()> {
    if std::fs::metadata(path)?.len() <= bytes_max {
        return Ok(());
    }
    let before = path.with_extension("log.1");
    let copied = std::fs::copy(path, &before);
    // Without room for a copy the bound still holds: what is lost is old.
    OpenOptions::new().write(true).open(path)?.set_len(0)?;
    copied.map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_full_log_is_set_aside_and_its_writer_goes_on_at_the_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let home = HomeDir::at(folder.path()).create().unwrap();
        let mut log = open(&home, "x").unwrap();
        let path = home.log_file("x");
        log.write_all(b"0123456789").unwrap();
        bound_one(&path, 10).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
        log.write_all(b"a").unwrap();
        bound_one(&path, 10).unwrap();
        log.write_all(b"b").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"b");
        assert_eq!(
            std::fs::read(path.with_extension("log.1")).unwrap(),
            b"0123456789a"
        );
    }
}
