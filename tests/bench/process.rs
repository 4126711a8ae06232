//! Processes that are measured: started on a core of their own, their CPU time and memory read from `/proc`.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Loading a million hosts takes the slowest candidate some seconds.
const START_MAX: Duration = Duration::from_secs(120);

/// A candidate without requests ends at once.
const STOP_MAX: Duration = Duration::from_secs(2);

/// A started process; ended when dropped.
#[derive(Debug)]
pub(crate) struct Measured {
    child: Child,
    /// When it was started.
    pub(crate) begun: Instant,
}

/// All cores of the machine, whichever this process may use.
pub(crate) fn cores() -> usize {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpuinfo
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count()
        .max(1)
}

/// The core for what is measured: the last one. The load has the others.
fn measured_core() -> Option<usize> {
    (cores() > 1).then(|| cores() - 1)
}

impl Measured {
    /// Starts a command pinned to the measured core and waits until it listens.
    pub(crate) fn start(
        mut words: Vec<String>,
        env: &[(&str, String)],
        log: &Path,
        listens: SocketAddr,
    ) -> Result<Self> {
        if let Some(core) = measured_core() {
            let pin = ["taskset".to_owned(), "-c".to_owned(), core.to_string()];
            words.splice(0..0, pin);
        }
        Self::begin(&words, env, log, listens)
    }

    /// The same on whichever core is free: beside a fleet there is none to be had alone.
    pub(crate) fn start_anywhere(
        words: &[String],
        log: &Path,
        listens: SocketAddr,
    ) -> Result<Self> {
        Self::begin(words, &[], log, listens)
    }

    fn begin(
        words: &[String],
        env: &[(&str, String)],
        log: &Path,
        listens: SocketAddr,
    ) -> Result<Self> {
        let output = File::create(log).context("make a log file")?;
        let begun = Instant::now();
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("share a log file")?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", words.join(" ")))?;
        loop {
            if TcpStream::connect(listens).is_ok() {
                return Ok(Self { child, begun });
            }
            let ended = child.try_wait().context("look at a candidate")?;
            if ended.is_some() || begun.elapsed() > START_MAX {
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("{} does not listen on {listens}:\n{said}", words.join(" "));
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time so far.
    pub(crate) fn cpu(&self) -> Duration {
        family(self.pid()).into_iter().map(cpu).sum()
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        family(self.pid()).into_iter().map(memory).sum()
    }
}

impl Drop for Measured {
    /// Asks first: nginx ends its worker itself then, which nobody would wait for otherwise.
    fn drop(&mut self) {
        let pid = i32::try_from(self.pid())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let asked = Instant::now();
        while asked.elapsed() < STOP_MAX && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process and its children (nginx works in one).
fn family(pid: u32) -> Vec<u32> {
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|text| text.parse().ok());
    std::iter::once(pid).chain(children).collect()
}

/// CPU time of all threads of a process. `schedstat` counts nanoseconds, `stat` hundredths of a second.
pub(crate) fn cpu(pid: u32) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Duration::ZERO;
    };
    let of = |thread: std::io::Result<fs::DirEntry>| -> Option<u64> {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(threads.filter_map(of).sum())
}

/// Resident memory of a process in bytes.
pub(crate) fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|text| {
        text.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    kib.unwrap_or_default() * 1024
}

/// An address that was free a moment ago.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    listener.local_addr().context("find a free port")
}
