//! `podctl move`.

use serde::Serialize;

use super::Context;
use super::pod::or_known_pods;
use crate::api::{MOVES_MAX, Move, MoveEventRow, MoveEvents, MoveFinish, MoveList, MoveQuery};
use crate::cli::MoveCommand;
use crate::client::Control;
use crate::output::table;

pub mod print;
pub mod watch;

/// Runs one.
pub async fn run(cx: &Context, command: MoveCommand) -> anyhow::Result<()> {
    let control = cx.control()?;
    match command {
        MoveCommand::List { shop, pod, open } => list(cx, &control, shop, pod, open).await,
        MoveCommand::Show { reference, all } => show(cx, &control, &reference, all).await,
        MoveCommand::Watch { reference } => {
            let it = control.move_show(&reference).await?;
            watch::to_arrival(cx, &control, &it).await
        }
        MoveCommand::Pause { reference } => order(cx, &control, &reference, "pause").await,
        MoveCommand::Resume { reference } => order(cx, &control, &reference, "resume").await,
        MoveCommand::Abort { reference } => order(cx, &control, &reference, "abort").await,
        MoveCommand::Finish {
            reference,
            despite_strays,
            source_gone,
        } => {
            let wish = MoveFinish {
                despite_strays,
                source_gone,
            };
            let it = control.move_finish(&reference, &wish).await?;
            Ok(cx.out.result(&it, print::ordered)?)
        }
    }
}

async fn list(
    cx: &Context,
    control: &Control,
    shop: Option<String>,
    pod: Option<String>,
    open: bool,
) -> anyhow::Result<()> {
    if let Some(pod) = &pod {
        or_known_pods(control, pod, control.pod(pod).await).await?;
    }
    let query = MoveQuery {
        shop,
        pod,
        open: open.then_some(true),
        limit: Some(MOVES_MAX),
    };
    let moves = control.moves(&query).await?;
    Ok(cx.out.result(&MoveList { moves }, |list| {
        let none = if open {
            "no move is open; `podctl move list` shows those that are over"
        } else {
            "no moves; begin one with `podctl shop move <shop> --to <pod>`"
        };
        let rows = list.moves.iter().map(print::row).collect();
        table(
            none,
            ["id", "shop", "from", "to", "state", "ordered", "note"],
            rows,
        )
    })?)
}

/// The last events of a move say where it stands; one that is stuck has hundreds of them.
const EVENTS_SHOWN: u32 = 50;

/// What `show` answers.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    it: Move,
    /// How many came before the first one here.
    events_before: u64,
    events: Vec<MoveEventRow>,
}

async fn show(cx: &Context, control: &Control, reference: &str, all: bool) -> anyhow::Result<()> {
    // The server keeps fewer than it is asked for here.
    let last = if all { u32::MAX } else { EVENTS_SHOWN };
    let MoveEvents {
        events,
        before,
        r#move,
        ..
    } = control.last_move_events(reference, last).await?;
    let shown = Shown {
        it: r#move,
        events_before: before,
        events,
    };
    Ok(cx.out.result(&shown, |shown| {
        print::whole(&shown.it, &shown.events, shown.events_before)
    })?)
}

async fn order(
    cx: &Context,
    control: &Control,
    reference: &str,
    order: &str,
) -> anyhow::Result<()> {
    let it = control.move_order(reference, order).await?;
    Ok(cx.out.result(&it, print::ordered)?)
}
