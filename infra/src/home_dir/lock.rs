//! One `podctl up` per home. The kernel ends the lock with its holder, so a killed one leaves nothing to clean up.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::WriteError;

/// Somebody who only looks at the lock holds it for an instant; whoever wants it tries again for this long.
const LOOKERS: Duration = Duration::from_millis(300);

/// How often it tries.
const TRY_EVERY: Duration = Duration::from_millis(30);

/// A held lock. Dropping it gives it back.
#[derive(Debug)]
pub struct FleetLock {
    _file: File,
}

/// Why a lock is not ours.
#[derive(Debug, thiserror::Error)]
pub enum Locked {
    /// Somebody else has it.
    #[error("held by process {0}")]
    By(u32),
    /// The lock file cannot be had.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl FleetLock {
    /// Takes the lock and writes this process's id into its file.
    pub async fn take(path: &Path) -> Result<Self, Locked> {
        let fault = |fault| WriteError::new(path, fault);
        let mut file = open(path).map_err(fault)?;
        let began = tokio::time::Instant::now();
        while let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if errno != Errno::WOULDBLOCK {
                return Err(fault(errno.into()).into());
            }
            if began.elapsed() > LOOKERS {
                return Err(Locked::By(read_pid(&mut file).unwrap_or(0)));
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
        file.set_len(0)
            .and_then(|()| write!(file, "{}", std::process::id()))
            .map_err(fault)?;
        Ok(Self { _file: file })
    }

    /// Who holds the lock, if anybody does.
    pub fn holder(path: &Path) -> Option<u32> {
        let mut file = File::open(path).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => read_pid(&mut file),
            Ok(()) | Err(_) => None,
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert_eq!(FleetLock::holder(&path), None);
        let first = FleetLock::take(&path).await.unwrap();
        let Locked::By(pid) = FleetLock::take(&path).await.unwrap_err() else {
            panic!("held by somebody")
        };
        assert_eq!(pid, std::process::id());
        assert_eq!(FleetLock::holder(&path), Some(std::process::id()));
        drop(first);
        assert_eq!(FleetLock::holder(&path), None);
        assert!(FleetLock::take(&path).await.is_ok());
    }
}
