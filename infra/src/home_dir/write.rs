//! Files that are there whole or not at all, and faults of the disk in words.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A file that could not be written. `Display` says what to do where there is something to do.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {fault}{}", .path.display(), advice(.fault))]
pub struct WriteError {
    path: PathBuf,
    fault: std::io::Error,
}

impl WriteError {
    pub(crate) fn new(path: &Path, fault: std::io::Error) -> Self {
        Self {
            path: path.to_owned(),
            fault,
        }
    }
}

fn advice(fault: &std::io::Error) -> &'static str {
    if fault.kind() == ErrorKind::StorageFull || fault.kind() == ErrorKind::QuotaExceeded {
        "; the disk is full: free some space, or put the fleet elsewhere with --home"
    } else if fault.kind() == ErrorKind::PermissionDenied {
        "; the fleet's home must belong to who runs it"
    } else {
        ""
    }
}

/// Replaces a file in one step: a reader sees the old one or the new one. For state that a crash of the machine may lose.
pub fn write_atomically(path: &Path, contents: &[u8], mode: u32) -> Result<(), WriteError> {
    replace(path, contents, mode, false).map_err(|fault| WriteError::new(path, fault))
}

/// As [`write_atomically`], and on the disk when it returns.
pub fn write_durably(path: &Path, contents: &[u8], mode: u32) -> Result<(), WriteError> {
    replace(path, contents, mode, true).map_err(|fault| WriteError::new(path, fault))
}

fn replace(path: &Path, contents: &[u8], mode: u32, durable: bool) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Two writers of one file in one process are two threads: the thread tells them apart.
    let writer = format!("{}-{:?}", std::process::id(), std::thread::current().id());
    let part = folder.join(format!(".{name}.{writer}.part"));
    let written =
        write_new(&part, contents, mode, durable).and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        // The fault that matters is the first one.
        let _ = std::fs::remove_file(&part);
        return written;
    }
    if durable {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn write_new(path: &Path, contents: &[u8], mode: u32, durable: bool) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)?;
    file.write_all(contents)?;
    if durable { file.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_with_its_mode_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write_durably(&path, b"one", 0o600).unwrap();
        write_atomically(&path, b"two", 0o600).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_full_disk_is_said_in_words() {
        // A device that is always full.
        let fault = std::fs::write("/dev/full", b"x").unwrap_err();
        let text = WriteError::new(Path::new("/x/y"), fault).to_string();
        assert!(
            text.contains("/x/y") && text.contains("free some space"),
            "{text}"
        );
    }
}
