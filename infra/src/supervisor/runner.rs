//! One unit's runner: a loop between the wish and the process.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use time::OffsetDateTime;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Event, logs};
use crate::home_dir::HomeDir;
use crate::mysqld::admin;
use crate::unit::proc::{MARK, Mark};
use crate::unit::{Desired, Kind, RunState, State, Stop, Unit};

/// What dies is back well within a second.
const PAUSE_MIN: Duration = Duration::from_millis(200);

/// What dies again and again is tried this often, for ever: the cause may be mended from outside.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The control server is tried more often than that, for ever: it may have died in the middle of a move, and a shop's
/// writes wait until the next one takes that up.
const CONTROL_PAUSE_MAX: Duration = Duration::from_millis(500);

/// A process that lived so long died of something new.
const LIVED: Duration = Duration::from_secs(10);

pub(super) struct Runner {
    home: HomeDir,
    wishes: watch::Receiver<Unit>,
    events: mpsc::UnboundedSender<Event>,
    name: String,
    restarts: u64,
    pause: Duration,
    last_exit: Option<String>,
}

/// A process and the wish it was started for.
struct Running {
    child: Child,
    unit: Unit,
    since: Instant,
    started_ms: u64,
}

/// What a runner does next.
enum Next {
    Start,
    Rest,
    Pause,
}

impl Runner {
    pub(super) fn new(
        home: HomeDir,
        wishes: watch::Receiver<Unit>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let name = wishes.borrow().name.clone();
        Self {
            home,
            wishes,
            events,
            name,
            restarts: 0,
            pause: PAUSE_MIN,
            last_exit: None,
        }
    }

    /// Runs until nobody wishes anything any more; by then it has ended its process.
    pub(super) async fn run(mut self) {
        let mut next = Next::Start;
        loop {
            let unit = self.wishes.borrow_and_update().clone();
            // Nobody wishes anything any more: the supervisor was cut off.
            if unit.desired == Desired::Stopped || self.wishes.has_changed().is_err() {
                next = Next::Rest;
            }
            match next {
                Next::Start => next = self.start_and_watch(unit).await,
                Next::Rest => {
                    self.say(State::Stopped, None);
                    if self.wishes.changed().await.is_err() {
                        return;
                    }
                    self.pause = PAUSE_MIN;
                    next = Next::Start;
                }
                Next::Pause => {
                    self.say(State::Waiting, None);
                    // A new wish is followed at once.
                    let _ = tokio::time::timeout(self.pause, self.wishes.changed()).await;
                    self.pause = (self.pause * 2).min(pause_max(unit.kind));
                    self.restarts += 1;
                    next = Next::Start;
                }
            }
        }
    }

    async fn start_and_watch(&mut self, unit: Unit) -> Next {
        let mut running = match self.spawn(unit) {
            Ok(running) => running,
            Err(fault) => {
                self.report(format!("cannot be started: {fault:#}"));
                return Next::Pause;
            }
        };
        self.say(State::Running, Some(&running));
        loop {
            tokio::select! {
                exit = running.child.wait() => {
                    self.died(&running, exit);
                    return Next::Pause;
                }
                changed = self.wishes.changed() => {
                    let wish = self.wishes.borrow_and_update().clone();
                    let same = wish.desired == Desired::Running
                        && wish.command == running.unit.command
                        && wish.revision == running.unit.revision;
                    if same && changed.is_ok() {
                        continue;
                    }
                    self.say(State::Stopping, Some(&running));
                    self.end(&mut running).await;
                    return Next::Start;
                }
            }
        }
    }

    fn spawn(&self, unit: Unit) -> anyhow::Result<Running> {
        let (program, arguments) = unit.command.split_first().context("its command is empty")?;
        let log = logs::open(&self.home, &unit.name)?;
        let child = Command::new(program)
            .args(arguments)
            .env(MARK, Mark::new(&self.home, &unit.name).value())
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A group of its own: Ctrl-C on the terminal reaches the supervisor alone, which ends them in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("run {program}"))?;
        let started_ms = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
        let started_ms = u64::try_from(started_ms).unwrap_or_default();
        Ok(Running {
            child,
            unit,
            since: Instant::now(),
            started_ms,
        })
    }

    fn died(&mut self, running: &Running, exit: std::io::Result<ExitStatus>) {
        if running.since.elapsed() >= LIVED {
            self.pause = PAUSE_MIN;
        }
        let how = match exit {
            Ok(status) => status.to_string(),
            Err(fault) => fault.to_string(),
        };
        self.report(format!(
            "died ({how}), is started again in {:?}",
            self.pause
        ));
        self.last_exit = Some(how);
    }

    fn report(&mut self, what: String) {
        let log = self.home.log_file(&self.name);
        let _ = self.events.send(format!(
            "{} {what}; its log is {}",
            self.name,
            log.display()
        ));
        self.last_exit = Some(what);
    }

    /// Ends the process as its unit says, and with SIGKILL when its patience is over.
    async fn end(&mut self, running: &mut Running) {
        let Some(pid) = pid_of(&running.child) else {
            return;
        };
        let ask = match running.unit.stop {
            Stop::Term => true,
            Stop::Mysql => admin::may_be_asked_to_end(&self.home, &running.unit).await,
        };
        if ask {
            let _ = kill_process(pid, Signal::TERM);
            let patience = running.unit.kind.patience();
            if let Ok(exit) = tokio::time::timeout(patience, running.child.wait()).await {
                self.last_exit = exit.ok().map(|status| status.to_string());
                return;
            }
            self.report(format!("did not end within {patience:?} and is killed"));
        }
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = running.child.wait().await;
    }

    /// Writes down how far the unit is. A fault (a full disk) must not end a server.
    fn say(&self, state: State, running: Option<&Running>) {
        let run = RunState {
            pid: running.and_then(|running| running.child.id()),
            started_ms: running.map(|running| running.started_ms),
            restarts: self.restarts,
            state,
            revision: running
                .map(|running| running.unit.revision.clone())
                .unwrap_or_default(),
            last_exit: self.last_exit.clone(),
        };
        if let Err(fault) = run.save(&self.home, &self.name) {
            let _ = self.events.send(format!("{}: {fault:#}", self.name));
        }
    }
}

/// The longest pause between two starts.
const fn pause_max(kind: Kind) -> Duration {
    match kind {
        Kind::Control => CONTROL_PAUSE_MAX,
        Kind::Mysql | Kind::Redis | Kind::Pod | Kind::Edge => PAUSE_MAX,
    }
}

/// The id of a child that has not been waited for: nobody else can have it.
fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}
