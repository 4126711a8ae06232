//! `podctl move`, and what `podctl shop` may do with a shop's place.

use std::time::Duration;

use clap::{Args, Subcommand};
use shared::config::parse_duration;

use crate::api::OBSERVE_MAX_MS;

/// What may be done with a move. A move is named by its id, the beginning of it, or its shop (its open or latest move).
#[derive(Debug, Subcommand)]
pub enum MoveCommand {
    /// All moves, open ones first
    List {
        /// Only those of this shop
        #[arg(long)]
        shop: Option<String>,
        /// Only those from or to this pod
        #[arg(long)]
        pod: Option<String>,
        /// Only those that are not over
        #[arg(long)]
        open: bool,
    },
    /// One move with what happened to it
    Show {
        /// Id, the beginning of it, or the shop
        #[arg(value_name = "MOVE")]
        reference: String,
        /// Every event that is kept, not only the last fifty
        #[arg(long)]
        all: bool,
    },
    /// Follow a move until the shop has arrived, and through a time of observation of a minute at most; fails if it did not move
    Watch {
        /// Id, the beginning of it, or the shop
        #[arg(value_name = "MOVE")]
        reference: String,
    },
    /// Stop it where it touches nobody's writes
    Pause {
        /// Id, the beginning of it, or the shop
        #[arg(value_name = "MOVE")]
        reference: String,
    },
    /// Let a paused move go on; begin a failed one anew
    Resume {
        /// Id, the beginning of it, or the shop
        #[arg(value_name = "MOVE")]
        reference: String,
    },
    /// Undo it: the shop stays where it was
    Abort {
        /// Id, the beginning of it, or the shop
        #[arg(value_name = "MOVE")]
        reference: String,
    },
    /// End the time of observation: the copy at the former pod is dumped and deleted, or given up with that pod
    Finish {
        /// Id, the beginning of it, or the shop
        #[arg(value_name = "MOVE")]
        reference: String,
        /// Also if that copy was changed so many times after the shop had left: as many as `move show` tells and you looked at
        #[arg(
            long,
            value_name = "NUMBER",
            default_value_t = 0,
            hide_default_value = true
        )]
        despite_strays: u64,
        /// The former pod is gone for good: end the move without it. What it has of the shop is deleted should it come back
        #[arg(long, conflicts_with = "despite_strays")]
        source_gone: bool,
    },
}

/// `podctl shop move`.
#[derive(Debug, Clone, Args)]
pub struct ShopMove {
    /// Handle, id or host
    pub shop: String,
    /// The pod it goes to, by name or id
    #[arg(long, value_name = "POD")]
    pub to: String,
    /// How it is done
    #[command(flatten)]
    pub how: MoveHow,
    /// To a former pod whose copy was changed so many times after the shop had left: as many as `move show` tells and you
    /// looked at. The move undoes them, and no dump has them
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub despite_strays: u64,
    /// Only say whether it could be done, with sizes and an estimate
    #[arg(long, conflicts_with = "watch")]
    pub dry_run: bool,
}

/// `podctl shop isolate`.
#[derive(Debug, Clone, Args)]
pub struct ShopIsolate {
    /// Handle, id or host
    pub shop: String,
    /// How it is done
    #[command(flatten)]
    pub how: MoveHow,
}

/// How a move is done.
#[derive(Debug, Clone, Args)]
pub struct MoveHow {
    /// Why; kept in the shop's history
    #[arg(long)]
    pub reason: Option<String>,
    /// How long the former pod keeps its copy, so that the shop can move back at once [default: `moves.observe` of fleet.toml, 15m]
    #[arg(long, value_name = "TIME", value_parser = observe)]
    pub observe: Option<Duration>,
    /// Follow it as `podctl move watch` does; fails if the shop does not move
    #[arg(long)]
    pub watch: bool,
}

/// `podctl shop clear`.
#[derive(Debug, Clone, Args)]
pub struct ShopClearAt {
    /// Handle, id or host
    pub shop: String,
    /// The pod that has the rows, by name or id; not the one that owns the shop
    #[arg(long, value_name = "POD")]
    pub at: String,
    /// Why; kept with the order
    #[arg(long)]
    pub reason: Option<String>,
}

/// `podctl shop pin`.
#[derive(Debug, Clone, Args)]
pub struct ShopPin {
    /// Handle, id or host
    pub shop: String,
    /// The pod, by name or id [default: where the shop is]
    #[arg(long)]
    pub pod: Option<String>,
    /// For whoever wants to move it
    #[arg(long)]
    pub reason: Option<String>,
}

fn observe(text: &str) -> Result<Duration, String> {
    let max = Duration::from_millis(OBSERVE_MAX_MS);
    match parse_duration(text) {
        Some(time) if time <= max => Ok(time),
        Some(_) => Err(format!("it is at most {}h", max.as_secs() / 3600)),
        None => Err("it is a time like 0s, 15m or 24h".into()),
    }
}
