//! The process `podctl up` of a fleet.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::podctl::Podctl;
use crate::process::Process;

/// How `podctl up` is told to end.
#[derive(Debug, Clone, Copy)]
pub enum Halt {
    /// SIGTERM.
    Terminate,
    /// SIGINT, as Ctrl-C sends it.
    Interrupt,
    /// SIGHUP, as the end of its terminal sends it.
    HangUp,
    /// SIGKILL: it cannot stop anything any more.
    Kill,
}

/// What `podctl up` of a home prints, and why.
pub(super) fn up_log(folder: &Path) -> PathBuf {
    folder.join("up.log")
}

/// Whether it ends with its terminal.
#[derive(Debug, Clone, Copy)]
pub(super) enum Terminal {
    /// Also where the tests themselves were begun by `nohup`.
    EndsIt,
    /// It is begun by `nohup`.
    IsNothing,
}

/// Starts it on a home, on a free port, without demo shops.
pub(super) fn spawn_up(
    podctl: &Podctl,
    folder: &Path,
    home: &Path,
    terminal: Terminal,
) -> Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(up_log(folder))
        .context("make a log")?;
    let home = home.to_str().context("a home that is text")?;
    // Both become the program itself: the process is the one that is started here.
    let mut command = match terminal {
        Terminal::EndsIt => {
            let mut command = Command::new("env");
            command.arg("--default-signal=HUP");
            command
        }
        Terminal::IsNothing => Command::new("nohup"),
    };
    command
        .arg(podctl.binary())
        .args(["up", "--home", home, "--edge-port", "0", "--no-demo"])
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("make a log")?)
        .stderr(log);
    command.spawn().context("start podctl up")
}

/// SIGTERM, and waits for the end.
pub(super) fn stop_up(home: &Path, mut up: Child) -> Result<()> {
    if let Some(status) = up.try_wait().context("look at podctl up")? {
        bail!("podctl up had ended by itself: {status}");
    }
    Process::of(home, up.id())?.terminate()?;
    end_of(up, STOP_MAX)
}

/// What `podctl up` promises for its stop, and some for the machine.
pub(super) const STOP_MAX: Duration = Duration::from_secs(25);

/// Waits for the end of `podctl up`, kills it past the deadline.
pub(super) fn end_of(mut up: Child, deadline: Duration) -> Result<()> {
    let started = Instant::now();
    loop {
        if up.try_wait().context("wait for podctl up")?.is_some() {
            return Ok(());
        }
        if started.elapsed() > deadline {
            up.kill().context("kill podctl up")?;
            up.wait().context("wait for podctl up")?;
            bail!("podctl up did not stop within {deadline:?}");
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "runs on a blocking thread or in drop"
        )]
        std::thread::sleep(Duration::from_millis(20));
    }
}
