//! The list of tests, the fleets they take turns on, and the run.
//!
//! Tests run beside each other, each with a fleet to itself for its time. Most take one of the run's fleets, which are
//! started when they are first needed, and stay. A test that `shares` one leaves it as it found it, but for shops of its
//! own. A test that breaks something works `alone`: after it the fleet must recover, and is used no more if it does
//! not. Tests with a fleet of their `own`, or with none, start it themselves. A closing test, which cannot be filtered
//! out, stops the fleets and fails when something remains.

use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::Fleet;
use crate::fleet::{Left, say};

mod turns;
use turns::{Turn, Turns};

/// Two cores carry two tests; more would only make deadlines tight.
const THREADS: usize = 2;
/// A fleet for each of them: beside one that breaks something, others go on.
const FLEETS: usize = THREADS;
/// No test that shares a fleet takes nearly as long; a hang is cut here.
const SHARES_MAX: Duration = Duration::from_secs(300);
/// One that breaks something waits in several places, each with a bound and a word on what never came: they come first.
const BREAKS_MAX: Duration = Duration::from_secs(600);
/// The same for a long test: an hour, and what comes before and after.
const LONG_MAX: Duration = Duration::from_secs(90 * 60);
/// How often each test runs, one after the other; once without it. `tests/run --times` sets it.
const TIMES: &str = "PODHOST_TEST_TIMES";
/// A test that takes longer is told at the end of a run.
const SLOW: Duration = Duration::from_secs(5);

/// The body of a test on one of the run's fleets.
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
    /// Takes one of the run's fleets as it is, and leaves it so.
    pub const fn shares(name: &'static str, body: OnFleet) -> Self {
        Self {
            name,
            body: Body::Shares(body),
            long: false,
        }
    }

    /// Breaks something of one of the run's fleets.
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

/// What the tests of a run have in common.
struct Suite {
    runtime: Runtime,
    turns: Turns,
    /// Held by the test that breaks something: two of them on two cores would miss each other's bounds of time.
    breaks: tokio::sync::Mutex<()>,
    /// Tests that need one of them and have not ended.
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
    let suite = Arc::new(Suite {
        runtime,
        turns: Turns::new(FLEETS),
        breaks: tokio::sync::Mutex::default(),
        left: watch::channel(0).0,
        times: times()?,
        took: Mutex::new(Vec::new()),
    });
    let (mut on_fleet, mut own) = (Vec::new(), Vec::new());
    for test in tests {
        let trial = trial(test, &suite);
        let runs = !args.is_filtered_out(&trial) && (args.list || !args.is_ignored(&trial));
        match test.body {
            Body::Shares(_) | Body::Alone(_) if runs => on_fleet.push(trial),
            Body::Own(_) => own.push(trial),
            Body::Shares(_) | Body::Alone(_) => {}
        }
    }
    own.retain(|trial| !args.is_filtered_out(trial));
    if !on_fleet.is_empty() && !args.list {
        suite.left.send_replace(on_fleet.len());
        on_fleet.push(closing(&suite));
    }
    // First, so that never more fleets run than tests, and one more.
    own.append(&mut on_fleet);
    // The names were filtered above, so that the closing test stays.
    args.filter = None;
    args.skip.clear();
    let conclusion = libtest_mimic::run(&args, own);
    print_slowest(&suite);
    Ok(conclusion.exit_code())
}

fn trial(test: Test, suite: &Arc<Suite>) -> Trial {
    let suite = Arc::clone(suite);
    // `e2e::routing::x` is `routing::x` for its reader.
    let name = test
        .name
        .split_once("::")
        .map_or(test.name, |(_, rest)| rest);
    Trial::test(name, move || {
        let counted = Counted {
            suite: &suite,
            counts: !matches!(test.body, Body::Own(_)),
        };
        let ended = suite.runtime.block_on(body(test, &suite));
        drop(counted);
        ended.map_err(|e| {
            // Said again at the end; a developer need not wait for that.
            say(&format!("{}: {e:#}", test.name));
            Failed::from(format!("{e:#}"))
        })
    })
    .with_ignored_flag(test.long)
}

async fn body(test: Test, suite: &Suite) -> Result<()> {
    match test.body {
        Body::Own(run) => repeated(test, suite, async || own(test, suite, run).await).await,
        Body::Shares(run) | Body::Alone(run) => {
            let alone = matches!(test.body, Body::Alone(_));
            let _held = match alone {
                true => Some(suite.breaks.lock().await),
                false => None,
            };
            // All runs on one fleet: many runs of one test start no second one.
            let mut turn = suite.turns.next().await?;
            let once = async || on_fleet(test, suite, &mut turn, run).await;
            repeated(test, suite, once).await
        }
    }
}

/// Runs a test as often as is asked for, until it fails.
async fn repeated(
    test: Test,
    suite: &Suite,
    mut once: impl AsyncFnMut() -> Result<()>,
) -> Result<()> {
    let times = suite.times;
    for number in 1..=times {
        if times > 1 {
            say(&format!("run {number} of {times}: {}", test.name));
        }
        let ended = once().await;
        ended.map_err(|e| match times {
            1 => e,
            _ => e.context(format!("run {number} of {times}")),
        })?;
    }
    Ok(())
}

async fn own(test: Test, suite: &Suite, run: OnNothing) -> Result<()> {
    let left = Left::default();
    timed(test, suite, left.of(run())).await?;
    let faults = left.faults();
    ensure!(
        faults.is_empty(),
        "a fleet that was not stopped:\n{}",
        faults.join("\n")
    );
    Ok(())
}

async fn on_fleet(test: Test, suite: &Suite, turn: &mut Turn<'_>, run: OnFleet) -> Result<()> {
    let fleet = turn.fleet().await?;
    let mut ended = timed(test, suite, run(fleet)).await;
    // One that shares a fleet leaves it as it was only where it comes to its end.
    if ended.is_err() || matches!(test.body, Body::Alone(_)) {
        let recovered = fleet.restore_all().await;
        turn.broken = recovered.is_err();
        let recovered = recovered.context("the fleet has recovered after the test");
        let recovered = match recovered {
            Ok(()) => fleet.finish_moves().await.context("its moves are ended"),
            Err(e) => Err(e),
        };
        if let (Err(_), Err(e)) = (&ended, &recovered) {
            say(&format!("{}: {e:#}", test.name));
        }
        ended = ended.and(recovered);
    }
    if ended.is_err() {
        fleet.keep();
    }
    ended
}

/// A test from its turn to its end: what it waited for before is not its own time.
async fn timed(test: Test, suite: &Suite, run: impl Future<Output = Result<()>>) -> Result<()> {
    let limit = match test.body {
        _ if test.long => LONG_MAX,
        Body::Shares(_) => SHARES_MAX,
        Body::Alone(_) | Body::Own(_) => BREAKS_MAX,
    };
    let started = Instant::now();
    // A panic is a failure like others: what is put in order after a test is so after that too.
    let ended = AssertUnwindSafe(tokio::time::timeout(limit, run))
        .catch_unwind()
        .await;
    suite.took.lock().push((started.elapsed(), test.name));
    let ended = ended.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        anyhow!("panicked: {}", text.unwrap_or("without a message"))
    })?;
    ended.unwrap_or_else(|_| Err(anyhow!("did not end within {limit:?}")))
}

/// Counts a test of the run's fleets as done, also when it panics.
struct Counted<'a> {
    suite: &'a Suite,
    counts: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if self.counts {
            self.suite.left.send_modify(|left| *left -= 1);
        }
    }
}

fn closing(suite: &Arc<Suite>) -> Trial {
    let suite = Arc::clone(suite);
    Trial::test("the_shared_fleets_leave_nothing_behind", move || {
        let mut left = suite.left.subscribe();
        let wait = suite.runtime.block_on(left.wait_for(|left| *left == 0));
        wait.map_err(|e| Failed::from(e.to_string()))?;
        let mut faults = Vec::new();
        for fleet in suite.turns.started() {
            match fleet {
                Ok(fleet) => faults.extend(fleet.shut_down().err().map(|e| format!("{e:#}"))),
                Err(e) => faults.push(e.clone()),
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(faults.join("\n").into())
    })
}

/// The slow tests, so that the suite stays quick.
fn print_slowest(suite: &Suite) {
    let mut took = suite.took.lock().clone();
    took.sort_unstable_by(|a, b| b.cmp(a));
    for (time, name) in took.iter().filter(|(time, _)| *time > SLOW) {
        say(&format!("{:6.1} s  {name}", time.as_secs_f64()));
    }
}

fn times() -> Result<u32> {
    match std::env::var(TIMES) {
        // None would pass without a look.
        Ok(text) => text
            .parse()
            .map(NonZeroU32::get)
            .with_context(|| format!("{TIMES}={text}")),
        Err(_) => Ok(1),
    }
}
