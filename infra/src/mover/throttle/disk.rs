//! The room of a server's disk, where it is on this machine.

use std::path::PathBuf;

use crate::mover::session::{Session, text};

/// The room of a disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Free {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl Free {
    /// Of the disk with this folder.
    pub(crate) fn of(folder: &std::path::Path) -> Option<Self> {
        let stat = rustix::fs::statvfs(folder).ok()?;
        Some(Self {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }

    pub(super) fn percent(self) -> u64 {
        (u128::from(self.free) * 100 / u128::from(self.total.max(1)))
            .try_into()
            .unwrap_or(100)
    }
}

/// The data folder of a server, if the server is on this machine: only there its disk can be seen.
pub(crate) async fn data_folder(session: &mut Session) -> Option<PathBuf> {
    let sql = "select @@global.datadir, @@global.server_uuid";
    let rows = session.rows("ask for the data folder", sql).await.ok()?;
    let row = rows.first()?;
    let (folder, uuid) = (PathBuf::from(text(row, 0)?), text(row, 1)?);
    let named = std::fs::read_to_string(folder.join("auto.cnf")).ok()?;
    named.contains(&uuid).then_some(folder)
}
