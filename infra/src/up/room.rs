//! Room on the disk, looked at before anything is begun: a full disk in the middle of a start is told by ten logs at once.

use anyhow::{Context as _, ensure};

use crate::fleet_file::FleetFile;
use crate::home_dir::HomeDir;
use crate::observe::has_data;

/// A new server with its logs: data 80 MB, redo log 64 MB, temporary tables, the first binlogs.
const FRESH_SERVER_MB: u64 = 250;

/// What a running fleet needs in any case before it can be said to have room: binlogs and logs grow.
const SPARE_MB: u64 = 300;

pub(super) fn check(home: &HomeDir, fleet: &FleetFile) -> anyhow::Result<()> {
    let path = home.path();
    let disk = rustix::fs::statvfs(path)
        .with_context(|| format!("look at the disk of {}", path.display()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize) >> 20;
    let fresh: usize = fleet
        .pods
        .iter()
        .map(|pod| {
            pod.servers()
                .filter(|k| !has_data(&home.mysql(pod.id, *k)))
                .count()
        })
        .sum();
    ensure_room(path, free, needed(fresh as u64))
}

const fn needed(fresh_servers: u64) -> u64 {
    SPARE_MB + fresh_servers * FRESH_SERVER_MB
}

fn ensure_room(path: &std::path::Path, free: u64, needed: u64) -> anyhow::Result<()> {
    ensure!(
        free >= needed,
        "the disk of {} has {free} MB free, and this fleet needs {needed} MB to start: free some space, or put it elsewhere with --home",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_refused_with_both_figures() {
        let fault = ensure_room("/x".as_ref(), 299, needed(0))
            .unwrap_err()
            .to_string();
        assert!(
            fault.contains("/x") && fault.contains("299 MB") && fault.contains("300 MB"),
            "{fault}"
        );
        assert!(ensure_room("/x".as_ref(), 300, needed(0)).is_ok());
        assert!(needed(6) > needed(0));
    }
}
