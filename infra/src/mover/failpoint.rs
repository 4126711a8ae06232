//! Fail points, in the binary `podctl-failpoints` alone: `PODHOST_FAILPOINT=<step>:<before|after>:<what>`.
//!
//! `what` is `stop` (waits while the file is there), `kill` (SIGKILL to itself), `error` (the step seems to have failed,
//! which after it means that nobody knows), `fail` (it cannot be done at all), `twice` (the step is done two times). It happens once: `PODHOST_FAILPOINT_FILE`
//! names a file that is made when it happens, and while that file is there it does not happen again. So a control server
//! that is started again by its supervisor with the same environment goes on.
//!
//! With `PODHOST_FAILPOINT_DIR` there may be one for each shop at a time, without a new start: a file
//! `<shop>.<step>.<place>` whose text is `what`. It is renamed to `....happened` when it happens; a stopped step goes on
//! when that is taken away. `<shop>.statement` stops before a statement at a pod, by its number: its text is how many
//! there are up to that one. While `<shop>.deaf` is there, what drives the shop's move does not hear that it was lost; a
//! run that finds `<shop>.patient` at its beginning has no bounds for its fence and its pause, ends nothing that holds a
//! home, and its sessions may say nothing for as long, so that it is not late after a stop. While `<shop>.blind-at-<pod>` is
//! there, what reads that pod's binlog for the shop comes no further, as behind a huge transaction of somebody else.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::error::MoveError;
use super::limits::MoveLimits;
use super::step::Step;

/// How often a stopped driver looks whether it may go on.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Longer than any test.
const PATIENCE_S: u32 = 3_600;
const PATIENCE: Duration = Duration::from_secs(PATIENCE_S as u64);

/// Where in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Before,
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Stop,
    Kill,
    Error,
    Fail,
    Twice,
}

#[derive(Debug)]
struct Point {
    step: Step,
    place: Place,
    what: What,
    file: PathBuf,
}

fn point() -> Option<&'static Point> {
    static POINT: OnceLock<Option<Point>> = OnceLock::new();
    POINT
        .get_or_init(|| {
            let text = std::env::var("PODHOST_FAILPOINT").ok()?;
            let file = std::env::var_os("PODHOST_FAILPOINT_FILE")?;
            let point = parse(&text, Path::new(&file));
            if point.is_none() {
                tracing::error!("PODHOST_FAILPOINT={text} names no fail point");
            }
            point
        })
        .as_ref()
}

fn parse(text: &str, file: &Path) -> Option<Point> {
    let mut words = text.split(':');
    let word = words.next()?;
    let step = *Step::ALL.iter().find(|s| s.as_str() == word)?;
    let place = match words.next()? {
        "before" => Place::Before,
        "after" => Place::After,
        _ => return None,
    };
    let what = what(words.next()?)?;
    words.next().is_none().then(|| Point {
        step,
        place,
        what,
        file: file.to_owned(),
    })
}

fn what(word: &str) -> Option<What> {
    match word {
        "stop" => Some(What::Stop),
        "kill" => Some(What::Kill),
        "error" => Some(What::Error),
        "fail" => Some(What::Fail),
        "twice" => Some(What::Twice),
        _ => None,
    }
}

/// Whether it happens: the first to make the file.
fn happens(point: &Point) -> bool {
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&point.file);
    made.is_ok()
}

tokio::task_local! {
    /// The shop whose move a task drives.
    static SHOP: u64;
}

/// Runs a task whose fail points may be a shop's own.
pub(crate) async fn of_shop<T>(shop: u64, work: impl Future<Output = T>) -> T {
    SHOP.scope(shop, work).await
}

/// The shop's own point at a place, if it is there; it has happened then.
fn own(step: Step, place: Place, wanted: impl Fn(What) -> bool) -> Option<(What, PathBuf)> {
    let place = match place {
        Place::Before => "before",
        Place::After => "after",
    };
    let path = of_own(&format!("{}.{place}", step.as_str()))?;
    let what = what(std::fs::read_to_string(&path).ok()?.trim()).filter(|what| wanted(*what))?;
    let happened = path.with_extension(format!("{place}.happened"));
    std::fs::rename(&path, &happened).ok()?;
    Some((what, happened))
}

/// What is to happen at a place.
pub(crate) async fn at(step: Step, place: Place) -> Result<(), MoveError> {
    if let Some((what, file)) = own(step, place, |what| what != What::Twice) {
        return happen(step, what, &file).await;
    }
    let Some(point) = point().filter(|p| p.step == step && p.place == place) else {
        return Ok(());
    };
    if point.what == What::Twice || !happens(point) {
        return Ok(());
    }
    happen(step, point.what, &point.file).await
}

async fn happen(step: Step, what: What, file: &Path) -> Result<(), MoveError> {
    tracing::warn!(step = step.as_str(), ?what, "fail point");
    match what {
        What::Twice => {}
        What::Kill => {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
        }
        What::Error => {
            return Err(MoveError::Waits(format!("fail point {}", step.as_str())));
        }
        What::Fail => {
            return Err(MoveError::Diverged(format!("fail point {}", step.as_str())));
        }
        What::Stop => {
            while file.exists() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
    Ok(())
}

/// Stops before a statement that changes something at a pod, if it is the one that the shop's file counts down to.
pub(crate) async fn statement(doing: &str) {
    // A copy's streams write at once.
    static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let counted = {
        let _turn = TURN.lock();
        counted()
    };
    let Some(file) = counted else { return };
    tracing::warn!(doing, "fail point");
    while file.exists() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn counted() -> Option<PathBuf> {
    let file = of_own("statement")?;
    let left: u64 = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
    if left > 1 {
        std::fs::write(&file, (left - 1).to_string()).ok()?;
        return None;
    }
    let happened = file.with_extension("statement.happened");
    std::fs::rename(&file, &happened).ok()?;
    Some(happened)
}

/// A file of the shop whose move this task drives.
fn of_own(name: &str) -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os("PODHOST_FAILPOINT_DIR")?);
    let shop = SHOP.try_with(|shop| *shop).ok()?;
    Some(dir.join(format!("{shop}.{name}")))
}

/// The limits of a run.
pub(crate) fn limits(limits: &Arc<MoveLimits>) -> Arc<MoveLimits> {
    if !patient() {
        return Arc::clone(limits);
    }
    Arc::new(MoveLimits {
        fence_bound: PATIENCE,
        fence_kill_after: PATIENCE,
        pause_bound: PATIENCE,
        ..MoveLimits::clone(limits)
    })
}

/// How long a session may say nothing.
pub(crate) fn silence_s(seconds: u32) -> u32 {
    if patient() { PATIENCE_S } else { seconds }
}

fn patient() -> bool {
    of_own("patient").is_some_and(|file| file.exists())
}

/// What a keeper heard; never, where the shop's driver is deaf.
pub(crate) async fn unless_deaf<T>(keeper: impl Future<Output = T>) -> T {
    let heard = keeper.await;
    if of_own("deaf").is_some_and(|file| file.exists()) {
        tracing::warn!("fail point: not heard");
        std::future::pending::<()>().await;
    }
    heard
}

/// Comes back when what reads a pod's binlog for a shop may go on.
pub(crate) async fn while_blind(shop: u64, pod: u32) {
    let Some(dir) = std::env::var_os("PODHOST_FAILPOINT_DIR") else {
        return;
    };
    let file = PathBuf::from(dir).join(format!("{shop}.blind-at-{pod}"));
    while file.exists() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether a step is to be done a second time.
pub(crate) fn again(step: Step) -> bool {
    own(step, Place::After, |what| what == What::Twice).is_some()
        || point().is_some_and(|p| p.step == step && p.what == What::Twice && happens(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_can_be_named() {
        for step in Step::ALL {
            let text = format!("{}:after:kill", step.as_str());
            assert!(parse(&text, Path::new("f")).is_some_and(|p| p.step == *step));
        }
        for bad in [
            "",
            "fence",
            "fence:after",
            "fence:in:kill",
            "fence:after:kill:x",
            "fance:after:kill",
        ] {
            assert!(parse(bad, Path::new("f")).is_none(), "{bad}");
        }
    }
}
