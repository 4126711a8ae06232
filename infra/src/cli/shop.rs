//! `podctl shop`.

use clap::{Args, Subcommand};
use shared::{Handle, Host, PlacementState};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::moves::{ShopClearAt, ShopIsolate, ShopMove, ShopPin};

/// What may be done with a shop.
#[derive(Debug, Subcommand)]
pub enum ShopCommand {
    /// Make a shop
    Create(ShopCreate),
    /// All shops
    List {
        /// Only those of this pod
        #[arg(long)]
        pod: Option<String>,
        /// Only those in this state
        #[arg(long, value_parser = state)]
        state: Option<PlacementState>,
    },
    /// One shop
    Show {
        /// Handle, id or host
        shop: String,
    },
    /// Every change of its placement
    History {
        /// Handle, id or host
        shop: String,
    },
    /// Which pod owns it, or owned it at an instant
    Where {
        /// Handle, id or host
        shop: String,
        /// The instant, as in 2026-01-31T12:00:00Z [default: now]
        #[arg(long, value_name = "TIME", value_parser = instant)]
        at: Option<OffsetDateTime>,
    },
    /// Make, list and revoke merchant tokens
    Token(TokenArgs),
    /// Stop its writes until `unfreeze`
    Freeze(Change),
    /// Give its writes back
    Unfreeze(Change),
    /// Stop it altogether until `online`
    Offline(Change),
    /// Give it back
    Online(Change),
    /// Move it to another pod while it sells
    Move(ShopMove),
    /// Move it to a pod of its own: an empty one, or one that is added
    Isolate(ShopIsolate),
    /// Dump and delete what another pod has of it that no move left there: rows for whose sake a move there is refused.
    /// The order cannot be taken back
    Clear(ShopClearAt),
    /// Keep it where it is, or bound for one pod: no move takes it elsewhere
    Pin(ShopPin),
    /// Let it be moved again
    Unpin {
        /// Handle, id or host
        shop: String,
    },
    /// The names that reach it
    #[command(subcommand)]
    Host(HostCommand),
}

/// `podctl shop create`.
#[derive(Debug, Args)]
pub struct ShopCreate {
    /// Its short name: a-z, 0-9 and '-', with a letter
    pub handle: Handle,
    /// The pod, by name or id [default: its bucket's pod, or the emptiest that fits]
    #[arg(long)]
    pub pod: Option<String>,
    /// A further domain that reaches it; may be given several times
    #[arg(long, value_parser = host)]
    pub host: Vec<Host>,
    /// Pin it to a region
    #[arg(long)]
    pub region: Option<String>,
    /// What it pays for [default: standard]
    #[arg(long)]
    pub plan: Option<String>,
    /// The currency it sells in, ISO 4217 [default: USD]
    #[arg(long)]
    pub currency: Option<String>,
}

/// A change of what a shop may do.
#[derive(Debug, Args)]
pub struct Change {
    /// Handle, id or host
    pub shop: String,
    /// Why; kept in the shop's history
    #[arg(long)]
    pub reason: Option<String>,
}

/// `podctl shop host`.
#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Let a domain reach the shop
    Add {
        /// Handle, id or host
        shop: String,
        /// The domain
        #[arg(value_parser = host)]
        host: Host,
    },
    /// Take a domain away from it
    Remove {
        /// Handle, id or host
        shop: String,
        /// The domain
        #[arg(value_parser = host)]
        host: Host,
    },
}

/// `podctl shop token`: a new one, unless a word says otherwise.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct TokenArgs {
    /// List or revoke instead
    #[command(subcommand)]
    pub command: Option<TokenCommand>,
    /// Handle, id or host of the shop that gets a new token
    #[arg(required = true)]
    pub shop: Option<String>,
    /// What the token is for
    #[arg(long)]
    pub label: Option<String>,
}

/// `podctl shop token list|revoke`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Its tokens, without their texts
    List {
        /// Handle, id or host
        shop: String,
    },
    /// End a token at once
    Revoke {
        /// Handle, id or host
        shop: String,
        /// The token's id, from the list
        id: String,
    },
}

fn state(word: &str) -> Result<PlacementState, String> {
    PlacementState::parse(word).ok_or_else(|| "it is serving, frozen or offline".into())
}

fn host(text: &str) -> Result<Host, String> {
    // A port is no part of the name that a shop is reached by.
    if text.contains(':') {
        return Err("a host is a name without a port".into());
    }
    Host::from_authority(text).map_err(|e| e.to_string())
}

fn instant(text: &str) -> Result<OffsetDateTime, String> {
    OffsetDateTime::parse(text, &Rfc3339)
        .map_err(|e| format!("{e}; write it as RFC 3339, like 2026-01-31T12:00:00Z"))
}
