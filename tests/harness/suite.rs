//! The list of tests, the fleet they share, and the run.
//!
//! Tests that `share` a fleet run beside each other on it, each with shops of its own. Tests that break something run
//! `alone` on the same fleet, and the fleet must have recovered before the next one starts. Tests with a fleet of
//! their `own` start it themselves. The shared fleet is started by the first test that needs it; a closing test, which
//! cannot be filtered out, stops it and fails when something remains.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, RwLock, watch};

use crate::Fleet;
use crate::fleet::say;

/// Two cores carry two tests; more would only make deadlines tight.
const THREADS: usize = 2;
/// No test takes nearly as long; a hang is cut here and its place named.
const TEST_MAX: Duration = Duration::from_secs(300);
/// The same for a long test: an hour, and what comes before and after.
const LONG_MAX: Duration = Duration::from_secs(90 * 60);
/// How often each test runs, one after the other; once without it. `tests/run --times` sets it.
const TIMES: &str = "PODHOST_TEST_TIMES";
/// A test that takes longer is told at the end of a run.
const SLOW: Duration = Duration::from_secs(5);

/// The body of a test on a shared fleet.
pub type OnFleet = for<'a> fn(&'a Fleet) -> LocalBoxFuture<'a, Result<()>>;
/// The body of a test without one.
pub type OnNothing = fn() -> LocalBoxFuture<'static, Result<()>>;

#[derive(Clone, Copy)]
enum Body {
    Shares(OnFleet),
    Alone(OnFleet),
    Own(OnNothing),
}

/// A test of the list.
#[derive(Clone, Copy)]
pub struct Test {
    name: &'static str,
    body: Body,
    long: bool,
}

impl std::fmt::Debug for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Test {
    /// Runs beside others on the shared fleet.
    pub const fn shares(name: &'static str, body: OnFleet) -> Self {
        Self {
            name,
            body: Body::Shares(body),
            long: false,
        }
    }

    /// Breaks something of the shared fleet.
    pub const fn alone(name: &'static str, body: OnFleet) -> Self {
        Self {
            name,
            body: Body::Alone(body),
            long: false,
        }
    }

    /// Needs no fleet or one of its own.
    pub const fn own(name: &'static str, body: OnNothing) -> Self {
        Self {
            name,
            body: Body::Own(body),
            long: false,
        }
    }

    /// Runs only with `tests/run --all`.
    #[must_use]
    pub const fn long(mut self) -> Self {
        self.long = true;
        self
    }
}

/// The tests of a module: `tests![shares: a, b; alone: c; own: d]`. A test that is not listed is dead code, which the
/// compiler reports.
#[macro_export]
macro_rules! tests {
    ($($kind:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        vec![$($($crate::one_test!($kind $name)),+),+]
    };
}

/// One entry of [`tests!`].
#[macro_export]
macro_rules! one_test {
    (shares $name:ident) => {
        $crate::suite::Test::shares(concat!(module_path!(), "::", stringify!($name)), |fleet| {
            Box::pin($name(fleet))
        })
    };
    (alone $name:ident) => {
        $crate::suite::Test::alone(concat!(module_path!(), "::", stringify!($name)), |fleet| {
            Box::pin($name(fleet))
        })
    };
    (own $name:ident) => {
        $crate::suite::Test::own(concat!(module_path!(), "::", stringify!($name)), || {
            Box::pin($name())
        })
    };
    (long $name:ident) => {
        $crate::suite::Test::own(concat!(module_path!(), "::", stringify!($name)), || {
            Box::pin($name())
        })
        .long()
    };
}

/// The fleet of the tests that share one.
struct SharedFleet {
    runtime: Runtime,
    fleet: OnceCell<Result<Fleet, String>>,
    /// Read by tests beside each other, written by one that breaks something.
    quiet: RwLock<()>,
    left: watch::Sender<usize>,
    /// How often each test runs.
    times: u32,
    took: Mutex<Vec<(Duration, &'static str)>>,
}

/// Runs what the command line asks for.
pub fn run(tests: Vec<Test>) -> Result<ExitCode> {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("start a runtime")?;
    let shared = Arc::new(SharedFleet {
        runtime,
        fleet: OnceCell::new(),
        quiet: RwLock::new(()),
        left: watch::channel(0).0,
        times: times()?,
        took: Mutex::new(Vec::new()),
    });
    let (mut on_fleet, mut own) = (Vec::new(), Vec::new());
    for test in tests {
        let trial = trial(test, &shared);
        let runs = !args.is_filtered_out(&trial) && (args.list || !args.is_ignored(&trial));
        match test.body {
            Body::Shares(_) | Body::Alone(_) if runs => on_fleet.push(trial),
            Body::Own(_) => own.push(trial),
            Body::Shares(_) | Body::Alone(_) => {}
        }
    }
    own.retain(|trial| !args.is_filtered_out(trial));
    if !on_fleet.is_empty() && !args.list {
        shared.left.send_replace(on_fleet.len());
        on_fleet.push(closing(&shared));
    }
    on_fleet.append(&mut own);
    // The names were filtered above, so that the closing test stays.
    args.filter = None;
    args.skip.clear();
    let conclusion = libtest_mimic::run(&args, on_fleet);
    print_slowest(&shared);
    Ok(conclusion.exit_code())
}

fn trial(test: Test, shared: &Arc<SharedFleet>) -> Trial {
    let shared = Arc::clone(shared);
    // `e2e::routing::x` is `routing::x` for its reader.
    let name = test
        .name
        .split_once("::")
        .map_or(test.name, |(_, rest)| rest);
    Trial::test(name, move || {
        let counted = Counted {
            shared: &shared,
            counts: !matches!(test.body, Body::Own(_)),
        };
        let ended = shared.runtime.block_on(body(test, &shared));
        drop(counted);
        ended.map_err(|e| {
            // Said again at the end; a developer need not wait for that.
            say(&format!("{}: {e:#}", test.name));
            Failed::from(format!("{e:#}"))
        })
    })
    .with_ignored_flag(test.long)
}

/// Runs a test as often as is asked for, until it fails. The home of the fleet on which it failed is kept.
async fn body(test: Test, shared: &SharedFleet) -> Result<()> {
    for number in 1..=shared.times {
        if shared.times > 1 {
            say(&format!("run {number} of {}: {}", shared.times, test.name));
        }
        let ended = once(test, shared).await;
        if ended.is_err()
            && !matches!(test.body, Body::Own(_))
            && let Some(Ok(fleet)) = shared.fleet.get()
        {
            fleet.keep();
        }
        ended.with_context(|| format!("run {number} of {}", shared.times))?;
    }
    Ok(())
}

async fn once(test: Test, shared: &SharedFleet) -> Result<()> {
    match test.body {
        Body::Own(run) => timed(test, shared, run()).await,
        Body::Shares(run) => {
            let fleet = shared.fleet().await?;
            let _beside_others = shared.quiet.read().await;
            timed(test, shared, run(fleet)).await
        }
        Body::Alone(run) => {
            let fleet = shared.fleet().await?;
            let _alone = shared.quiet.write().await;
            let ended = timed(test, shared, run(fleet)).await;
            let recovered = fleet
                .restore()
                .await
                .context("the fleet has recovered after the test");
            ended.and(recovered)
        }
    }
}

/// A test from its turn to its end: what it waited for before is not its own time.
async fn timed(
    test: Test,
    shared: &SharedFleet,
    run: impl Future<Output = Result<()>>,
) -> Result<()> {
    let limit = if test.long { LONG_MAX } else { TEST_MAX };
    let started = Instant::now();
    let ended = tokio::time::timeout(limit, run).await;
    shared.took.lock().push((started.elapsed(), test.name));
    ended.unwrap_or_else(|_| Err(anyhow!("did not end within {limit:?}")))
}

/// Counts a test of the shared fleet as done, also when it panics.
struct Counted<'a> {
    shared: &'a SharedFleet,
    counts: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if self.counts {
            self.shared.left.send_modify(|left| *left -= 1);
        }
    }
}

impl SharedFleet {
    async fn fleet(&self) -> Result<&Fleet> {
        let start = || async { Fleet::start().await.map_err(|e| format!("{e:#}")) };
        // A fleet that does not start fails every test at once instead of being tried by each.
        let started = self.fleet.get_or_init(start).await;
        started
            .as_ref()
            .map_err(|e| anyhow!("the shared fleet did not start: {e}"))
    }
}

fn closing(shared: &Arc<SharedFleet>) -> Trial {
    let shared = Arc::clone(shared);
    Trial::test("the_shared_fleet_leaves_nothing_behind", move || {
        let mut left = shared.left.subscribe();
        let wait = shared.runtime.block_on(left.wait_for(|left| *left == 0));
        wait.map_err(|e| Failed::from(e.to_string()))?;
        match shared.fleet.get() {
            Some(Ok(fleet)) => fleet
                .shut_down()
                .map_err(|e| Failed::from(format!("{e:#}"))),
            Some(Err(e)) => Err(e.clone().into()),
            None => Ok(()),
        }
    })
}

/// The slow tests, so that the suite stays quick.
fn print_slowest(shared: &SharedFleet) {
    let mut took = shared.took.lock().clone();
    took.sort_unstable_by(|a, b| b.cmp(a));
    for (time, name) in took.iter().filter(|(time, _)| *time > SLOW) {
        say(&format!("{:6.1} s  {name}", time.as_secs_f64()));
    }
}

fn times() -> Result<u32> {
    match std::env::var(TIMES) {
        Ok(text) => text.parse().with_context(|| format!("{TIMES}={text}")),
        Err(_) => Ok(1),
    }
}
