//! Processes of a fleet, known by a mark in their environment: the path of the fleet's home and the unit's name.
//!
//! A process id alone names whoever has it now. A mark is proof, also after the supervisor was killed between starting a
//! process and writing down its id; and a file descriptor of the process keeps a signal from reaching its successor.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::home_dir::HomeDir;

/// The variable that marks a process.
pub const MARK: &str = "PODHOST_UNIT";

/// How often an ending process is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What a unit's processes carry in [`MARK`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(String);

impl Mark {
    /// The mark of a unit's processes.
    pub fn new(home: &HomeDir, unit: &str) -> Self {
        Self(format!("{}:{unit}", home.path().display()))
    }

    /// The text in the environment.
    pub fn value(&self) -> &str {
        &self.0
    }
}

/// A process that somebody may end, held so that its id cannot pass to another.
#[derive(Debug)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// The unit it runs for.
    pub unit: String,
    handle: OwnedFd,
}

impl Process {
    /// The process of this id if it carries this mark.
    pub fn open(pid: u32, mark: &Mark) -> Option<Self> {
        Self::open_if(pid, |value| {
            (value == mark.0).then(|| value.rsplit(':').next().unwrap_or_default().to_owned())
        })
    }

    /// Opens first and looks then: what was looked at is what is held.
    fn open_if(pid: u32, unit_of: impl FnOnce(&str) -> Option<String>) -> Option<Self> {
        let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let handle = pidfd_open(raw, PidfdFlags::empty()).ok()?;
        let unit = unit_of(&mark_of(pid)?)?;
        Some(Self { pid, unit, handle })
    }

    /// SIGKILL. One that has ended already is fine.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)
    }

    /// Sends a signal. One that has ended already is fine.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        match pidfd_send_signal(&self.handle, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => anyhow::bail!(
                "process {} ({}) cannot be signalled: {errno}",
                self.pid,
                self.unit
            ),
        }
    }

    /// Waits until it is gone; false if it is still there after `within`.
    pub async fn gone(&self, within: Duration) -> bool {
        let began = tokio::time::Instant::now();
        while self.is_alive() {
            if began.elapsed() > within {
                return false;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        true
    }

    /// The kernel says so once the process has ended and let go of its files and ports.
    fn is_alive(&self) -> bool {
        let mut ended = [PollFd::new(&self.handle, PollFlags::IN)];
        let now = Timespec::default();
        poll(&mut ended, Some(&now)).is_ok_and(|count| count == 0)
    }
}

/// Every process of a fleet that carries its mark, whoever started it.
pub fn of_fleet(home: &HomeDir) -> anyhow::Result<Vec<Process>> {
    let prefix = format!("{}:", home.path().display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let pid = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        // A name without a further colon: a fleet may lie within another one's folder.
        let unit = |mark: &str| {
            mark.strip_prefix(&prefix)
                .filter(|unit| !unit.contains(['/', ':']))
                .map(str::to_owned)
        };
        found.extend(
            pid.filter(|pid| *pid != std::process::id())
                .and_then(|pid| Process::open_if(pid, unit)),
        );
    }
    Ok(found)
}

/// The mark of a process. None for other users' and for those without one.
fn mark_of(pid: u32) -> Option<String> {
    let environment =
        std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).ok()?;
    let prefix = format!("{MARK}=");
    environment
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok())
        .find_map(|entry| entry.strip_prefix(&prefix))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_marked_processes_are_found_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let home = HomeDir::at(folder.path());
        let mark = Mark::new(&home, "redis-1");
        let sleep = |mark: &str| {
            tokio::process::Command::new("sleep")
                .arg("60")
                .env(MARK, mark)
                .kill_on_drop(true)
                .spawn()
                .unwrap()
        };
        let mut ours = sleep(mark.value());
        let other = sleep(&format!("{}/other:redis-1", folder.path().display()));
        let pid = ours.id().unwrap();
        // The environment is there only once the program has been loaded.
        let found = loop {
            let found = of_fleet(&home).unwrap();
            if !found.is_empty() {
                break found;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        assert_eq!(
            found
                .iter()
                .map(|p| (p.pid, p.unit.as_str()))
                .collect::<Vec<_>>(),
            [(pid, "redis-1")]
        );
        assert!(
            Process::open(other.id().unwrap(), &mark).is_none(),
            "another fleet's"
        );
        let process = Process::open(pid, &mark).unwrap();
        assert!(!process.gone(Duration::from_millis(30)).await);
        process.kill().unwrap();
        ours.wait().await.unwrap();
        assert!(process.gone(Duration::from_secs(5)).await);
        process.kill().unwrap();
    }
}
