//! Processes by pid: signals, and which of them belong to a fleet.
//!
//! A process belongs to a fleet when its command line, working folder, environment or an open file names the fleet's
//! home. Open files are needed: Redis rewrites its command line. Nothing else is ever signalled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait_until;

/// What is killed gives its memory back first: a database server has some hundred megabytes.
const KILLED_MAX: Duration = Duration::from_secs(20);

/// The folder of the built binaries: a test is in its `deps`, a bench in itself.
pub fn bin_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe().context("find the test binary")?;
    let dir = exe.parent().and_then(|dir| {
        if dir.ends_with("deps") {
            dir.parent()
        } else {
            Some(dir)
        }
    });
    Ok(dir
        .context("the test binary has no folder above")?
        .to_owned())
}

/// A built binary of the workspace.
pub fn binary(name: &str) -> Result<PathBuf> {
    let path = bin_dir()?.join(name);
    ensure!(
        path.is_file(),
        "{} is not built; tests/run builds it",
        path.display()
    );
    Ok(path)
}

/// One process of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(Pid);

impl Process {
    /// The process, if it belongs to that home: a pid from a stale file could be anybody's.
    pub fn of(home: &Path, pid: u32) -> Result<Self> {
        ensure!(
            belongs(pid, home),
            "pid {pid} is no process of {}",
            home.display()
        );
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        raw.map(Self).with_context(|| format!("{pid} is no pid"))
    }

    /// The number.
    pub fn pid(self) -> u32 {
        self.0.as_raw_nonzero().get().unsigned_abs()
    }

    /// SIGKILL, and waits until it is gone.
    pub async fn kill(self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.gone(KILLED_MAX).await
    }

    /// SIGTERM.
    pub fn terminate(self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// SIGINT.
    pub fn interrupt(self) -> Result<()> {
        self.signal(Signal::INT)
    }

    /// SIGHUP, as the end of a terminal sends it.
    pub fn hang_up(self) -> Result<()> {
        self.signal(Signal::HUP)
    }

    /// SIGSTOP; the guard lets it run again when dropped.
    pub fn freeze(self) -> Result<Frozen> {
        self.signal(Signal::STOP)?;
        Ok(Frozen(self))
    }

    /// Whether it runs (a zombie does not).
    pub fn alive(self) -> bool {
        alive(self.pid())
    }

    /// Waits until it is gone.
    pub async fn gone(self, deadline: Duration) -> Result<()> {
        wait_until(
            &format!("process {} is gone", self.pid()),
            deadline,
            async || {
                ensure!(
                    !self.alive(),
                    "it is still there: {}",
                    command_line(self.pid())
                );
                Ok(())
            },
        )
        .await
    }

    fn signal(self, signal: Signal) -> Result<()> {
        kill_process(self.0, signal).with_context(|| format!("send {signal:?} to {}", self.pid()))
    }
}

/// A process under SIGSTOP.
#[derive(Debug)]
pub struct Frozen(Process);

impl Frozen {
    /// SIGCONT.
    pub fn thaw(self) {}
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // It may have been killed meanwhile: then there is nothing to thaw.
        let _ = self.0.signal(Signal::CONT);
    }
}

/// The processes of a home that run now, with their command lines.
pub fn processes_of(home: &Path) -> Result<Vec<(u32, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("read /proc")? {
        let name = entry.context("read /proc")?.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        if pid != std::process::id() && alive(pid) && belongs(pid, home) {
            found.push((pid, command_line(pid)));
        }
    }
    Ok(found)
}

/// SIGKILL to whatever of a home still runs; says what it was.
pub fn kill_all_of(home: &Path) -> Result<Vec<(u32, String)>> {
    let left = processes_of(home)?;
    for (pid, _) in &left {
        if let Ok(process) = Process::of(home, *pid) {
            process.signal(Signal::KILL)?;
        }
    }
    Ok(left)
}

/// SIGCONT to everything of a home: what a failed test left frozen.
pub fn thaw_all_of(home: &Path) -> Result<()> {
    for (pid, _) in processes_of(home)? {
        if let Ok(process) = Process::of(home, pid) {
            process.signal(Signal::CONT)?;
        }
    }
    Ok(())
}

fn alive(pid: u32) -> bool {
    // The state follows the name, which is in brackets and may hold anything.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    matches!(state, Some(state) if state != 'Z' && state != 'X')
}

fn belongs(pid: u32, home: &Path) -> bool {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let needle = home.as_os_str().as_encoded_bytes();
    let names_home = |file: &str| {
        fs::read(proc.join(file))
            .is_ok_and(|bytes| bytes.windows(needle.len()).any(|part| part == needle))
    };
    let link_into_home = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(home));
    names_home("cmdline")
        || names_home("environ")
        || link_into_home(&proc.join("cwd"))
        || fs::read_dir(proc.join("fd"))
            .is_ok_and(|fds| fds.flatten().any(|fd| link_into_home(&fd.path())))
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .replace('\0', " ")
        .trim()
        .to_owned()
}

/// A port that nobody listens on now. Another process may take it before it is used; the tests that need a port by
/// number try again then.
pub fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("bind a free port")?;
    let port = listener.local_addr().context("read the bound port")?.port();
    if port == 0 {
        bail!("the system gave port 0");
    }
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A process is found by an open file in the home even when its command line does not name it, is killed by pid,
    /// and is then no longer found; others are refused.
    #[tokio::test]
    async fn only_processes_of_the_home_are_found_and_signalled() {
        let home = tempfile::tempdir().unwrap();
        let log = fs::File::create(home.path().join("log")).unwrap();
        let mut child = Command::new("sleep")
            .arg("60")
            .stdout(Stdio::from(log))
            .spawn()
            .unwrap();
        let found = processes_of(home.path()).unwrap();
        assert_eq!(found, vec![(child.id(), "sleep 60".to_owned())]);
        let process = Process::of(home.path(), child.id()).unwrap();
        let frozen = process.freeze().unwrap();
        assert!(process.alive(), "a frozen process is still there");
        frozen.thaw();
        process.kill().await.unwrap();
        assert!(
            processes_of(home.path()).unwrap().is_empty(),
            "a zombie is no process"
        );
        child.wait().unwrap();
        assert!(Process::of(home.path(), 1).is_err());
    }
}
