//! Following a move: a bar on a terminal, lines elsewhere. The move goes on whether somebody watches or not.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressStyle};
use shared::PlacementState;
use shared::moves::MoveState;

use super::{EVENTS_SHOWN, print};
use crate::api::{Move, MoveEventRow, MoveEvents};
use crate::client::{Control, Error};
use crate::command::Context;
use crate::output::{instant, note};

/// How often the bar moves: as often as people look.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Without a terminal, a line of progress that often: a log of an hour stays readable.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// A control server that was killed is back within a second; one that stays away longer is somebody's to look at.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries to reach it.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The end of a time of observation is waited for where it is as short as this; through a longer one the shop is at its new
/// pod, and nobody need wait.
const OBSERVE_WATCHED: Duration = Duration::from_secs(60);

/// Follows a move until the shop has arrived, and to its end where that is near.
pub async fn to_arrival(cx: &Context, control: &Control, it: &Move) -> anyhow::Result<()> {
    let short = Duration::from_millis(it.observe_ms) <= OBSERVE_WATCHED;
    let last = follow(control, it, |it| {
        // An order to clear rows is as closed as an undone move, and goes on.
        let clearing = it.clears && it.leftover_since.is_some();
        is_still(it.state) && !clearing || (it.state == MoveState::Observing && !short)
    })
    .await?;
    // The move is over, whether that can be asked or not.
    let shop = control.shop(&last.shop.id.to_string()).await;
    told(cx, &last, shop.ok().map(|shop| shop.state))
}

/// Whether nothing happens any more unless somebody orders it.
const fn is_still(state: MoveState) -> bool {
    match state {
        MoveState::Done | MoveState::Aborted | MoveState::Failed | MoveState::Paused => true,
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Aborting => false,
    }
}

/// The result on stdout, and a failure where the shop did not move.
fn told(cx: &Context, it: &Move, state: Option<PlacementState>) -> anyhow::Result<()> {
    match outcome(it, state) {
        Ok(text) => Ok(cx.out.result(it, |_| text)?),
        Err(next) => {
            if cx.out.is_json() {
                cx.out.result(it, |_| String::new())?;
            }
            Err(anyhow!("{}; {next}", print::headline(it)))
        }
    }
}

/// Where the shop is now and whether it sells there; or, where that is not what was wanted, what to do next.
fn outcome(it: &Move, state: Option<PlacementState>) -> Result<String, String> {
    let id = it.id;
    Err(match it.state {
        // It is over since another one began, whatever became of that.
        MoveState::Done if it.taken_back_by.is_some() => {
            format!("see `podctl move list --shop {}`", it.shop.handle)
        }
        MoveState::Done => return Ok(arrived(it, state)),
        MoveState::Observing => {
            return Ok(format!(
                "{3}; {2} keeps its copy until {1}: `podctl shop move {0} --to {2}` moves it back, \
                 `podctl move finish {0}` ends that",
                it.shop.handle,
                instant(print::observed_until(it)),
                it.source.name,
                arrived(it, state)
            ));
        }
        MoveState::Paused => format!("let it go on with `podctl move resume {id}`"),
        MoveState::Failed => format!(
            "begin it anew with `podctl move resume {id}`, or undo it with `podctl move abort {id}`"
        ),
        MoveState::Aborted if it.clears => return Ok(print::headline(it)),
        MoveState::Aborted => format!("{} is still at {}", it.shop.handle, it.source.name),
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Retiring
        | MoveState::Aborting => format!("follow it with `podctl move watch {id}`"),
    })
}

/// An operator's word on the shop holds at its new pod too.
fn arrived(it: &Move, state: Option<PlacementState>) -> String {
    let (shop, pod) = (&it.shop.handle, &it.target.name);
    match state {
        None => format!("{shop} is at {pod}"),
        Some(PlacementState::Serving) => format!("{shop} sells at {pod}"),
        Some(PlacementState::Frozen) => {
            format!(
                "{shop} is at {pod}, frozen (`podctl shop unfreeze {shop}` gives its writes back)"
            )
        }
        Some(PlacementState::Offline) => {
            format!("{shop} is at {pod}, offline (`podctl shop online {shop}` gives it back)")
        }
    }
}

async fn follow(
    control: &Control,
    it: &Move,
    over: impl Fn(&Move) -> bool,
) -> anyhow::Result<Move> {
    let id = it.id.to_string();
    let mut view = View::new();
    // None until the last ones of before are told.
    let mut after = None;
    let mut lost_since: Option<Instant> = None;
    loop {
        let answer = match after {
            None => control.last_move_events(&id, EVENTS_SHOWN).await,
            Some(after) => control.move_events(&id, after, LOOK_EVERY).await,
        };
        let MoveEvents {
            events,
            next,
            before,
            r#move,
        } = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let since = *lost_since.get_or_insert_with(Instant::now);
                if !passes(&error) || since.elapsed() > PATIENCE {
                    view.end();
                    return Err(anyhow!(error).context("the move goes on by itself"));
                }
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
        };
        lost_since = None;
        let fresh = !events.is_empty();
        if let Some(text) = print::earlier(&r#move, before) {
            view.say(&text);
        }
        view.show(&r#move, &events);
        after = Some(next).max(after);
        // A full page has more behind it.
        if over(&r#move) && !(fresh && more_events(&events, &r#move)) {
            view.end();
            return Ok(r#move);
        }
    }
}

/// Whether the last event told is not the one that brought the state.
fn more_events(events: &[MoveEventRow], it: &Move) -> bool {
    events.last().is_some_and(|event| event.state != it.state)
}

/// Whether the control server may answer in a moment.
fn passes(error: &Error) -> bool {
    error.is_unreachable()
        || matches!(error, Error::Refused(problem) if [429, 503].contains(&problem.status))
}

/// Where the watching shows.
struct View {
    bar: Option<ProgressBar>,
    line_at: Instant,
    last: Option<String>,
}

impl View {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{spinner} {prefix} {bar:20} {wide_msg}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self {
            bar,
            line_at: Instant::now(),
            last: None,
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => note(text),
        }
    }

    fn show(&mut self, it: &Move, events: &[MoveEventRow]) {
        for event in events {
            let more = event.note.as_deref().map(|n| format!(" ({n})"));
            let text = format!(
                "{} {}{}",
                instant(event.at),
                event.state,
                more.unwrap_or_default()
            );
            self.say(&text);
        }
        let mut text = print::progress_line(it).unwrap_or_default();
        if let Some(waits) = &it.waits {
            text = format!("waits: {waits}");
        }
        if let Some(bar) = &self.bar {
            let (done, all) = position(it);
            bar.set_length(all);
            bar.set_position(done);
            bar.set_prefix(it.state.to_string());
            bar.set_message(text);
        } else if !text.is_empty()
            && self.line_at.elapsed() >= LINE_EVERY
            && self.last.as_deref() != Some(&text)
        {
            note(&format!("{}: {text}", it.state));
            self.line_at = Instant::now();
            self.last = Some(text);
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How much of the present state's work is done.
fn position(it: &Move) -> (u64, u64) {
    let now = it.progress.as_ref().map(|p| &p.now);
    let (done, all) = match it.state {
        MoveState::Preparing => (0, 0),
        MoveState::Copying => now.map_or((0, 0), |n| (n.rows_copied, n.rows_expected)),
        MoveState::CatchingUp => now.map_or((0, 0), |n| {
            (
                n.keys_applied,
                n.keys_applied.saturating_add(n.keys_pending),
            )
        }),
        MoveState::Verifying => now.map_or((0, 0), |n| (n.rows_compared, print::rows_there(it))),
        MoveState::Retiring => now.map_or((0, 0), |n| (n.rows_deleted, print::rows_there(it))),
        MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Observing
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Aborting
        | MoveState::Aborted
        | MoveState::Failed => (1, 1),
    };
    (done.min(all.max(1)), all.max(1))
}

#[cfg(test)]
mod tests {
    use super::super::print::tests::a_move;
    use super::*;

    #[test]
    fn the_bar_never_runs_over() {
        let mut it = a_move("copying");
        assert_eq!(position(&it), (1000, 4000));
        if let Some(progress) = &mut it.progress {
            progress.now.rows_copied = 5000;
        }
        assert_eq!(position(&it), (4000, 4000));
    }

    /// `done` is said of two things.
    #[test]
    fn a_move_that_was_taken_back_is_no_arrival() {
        let mut it = a_move("done");
        let sells = Some(PlacementState::Serving);
        assert_eq!(outcome(&it, sells), Ok("milk sells at two".into()));
        it.taken_back_by = Some(it.id);
        assert_eq!(
            outcome(&it, sells),
            Err("see `podctl move list --shop milk`".into())
        );
        assert!(print::headline(&it).contains("it was taken back by move"));
    }

    /// An order to clear rows ends as it should in the state in which a move has failed its shop.
    #[test]
    fn rows_that_were_cleared_are_what_was_wanted() {
        let mut it = a_move("aborted");
        assert!(outcome(&it, Some(PlacementState::Serving)).is_err());
        it.clears = true;
        let told = outcome(&it, Some(PlacementState::Serving)).unwrap();
        assert!(
            told.contains("the rows of milk at two are cleared"),
            "{told}"
        );
    }

    #[test]
    fn a_shop_that_an_operator_stopped_does_not_sell_where_it_arrived() {
        for (state, parts) in [
            (
                Some(PlacementState::Frozen),
                ["is at two, frozen", "shop unfreeze milk"],
            ),
            (
                Some(PlacementState::Offline),
                ["is at two, offline", "shop online milk"],
            ),
            (None, ["milk is at two", ""]),
        ] {
            for of_move in ["done", "observing"] {
                let text = outcome(&a_move(of_move), state).unwrap();
                let told = parts.iter().all(|part| text.contains(part));
                assert!(told && !text.contains("sells"), "{text}");
            }
        }
        let observed = outcome(&a_move("observing"), Some(PlacementState::Serving)).unwrap();
        for part in [
            "sells at two",
            "until 2026-01-31T12:15:00.000Z",
            "move finish milk",
        ] {
            assert!(observed.contains(part), "{observed}");
        }
    }

    #[test]
    fn watching_ends_where_nothing_happens_by_itself() {
        for state in MoveState::ALL {
            let waits_for_somebody = matches!(state, MoveState::Paused | MoveState::Failed);
            assert_eq!(
                is_still(state),
                waits_for_somebody || !state.is_open(),
                "{state}"
            );
        }
    }
}
