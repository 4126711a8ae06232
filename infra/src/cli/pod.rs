//! `podctl pod`.

use clap::{Args, Subcommand};
use shared::PodId;

use crate::fleet_file::{NAME_RULE, SHOPS_PER_POD_MAX, is_name};

/// What may be done with a pod.
#[derive(Debug, Subcommand)]
pub enum PodCommand {
    /// Add a pod to fleet.toml and bring it up
    Add(PodAdd),
    /// All pods
    List,
    /// One pod with its servers
    Show {
        /// Name or id
        pod: String,
    },
    /// Give it no more shops; those it has stay
    Drain {
        /// Name or id
        pod: String,
        /// Why; kept in the audit
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let it take shops again
    Undrain {
        /// Name or id
        pod: String,
        /// Why; kept in the audit
        #[arg(long)]
        reason: Option<String>,
    },
}

/// `podctl pod add`. What is not given is fleet.toml's default.
#[derive(Debug, Args)]
pub struct PodAdd {
    /// Its name: a-z, 0-9 and '-', with a letter first [default: `pod-` and its id]
    #[arg(value_parser = name)]
    pub name: Option<String>,
    /// Its number [default: the next free one]
    #[arg(long)]
    pub id: Option<PodId>,
    /// Where it is
    #[arg(long)]
    pub region: Option<String>,
    /// The budget it draws on
    #[arg(long)]
    pub pool: Option<String>,
    /// Its size
    #[arg(long)]
    pub class: Option<String>,
    /// How many shops it takes
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=SHOPS_PER_POD_MAX))]
    pub max_shops: Option<u64>,
}

fn name(text: &str) -> Result<String, String> {
    if is_name(text) {
        Ok(text.into())
    } else {
        Err(format!("a pod name is {NAME_RULE}"))
    }
}
