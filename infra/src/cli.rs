//! The command line of `podctl`: what may be typed. What it does is elsewhere; nothing here has an effect.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use shared::config::parse_duration;

mod moves;
mod pod;
mod shop;

pub use moves::{MoveCommand, MoveHow, ShopClearAt, ShopIsolate, ShopMove, ShopPin};
pub use pod::{PodAdd, PodCommand};
pub use shop::{Change, HostCommand, ShopCommand, ShopCreate, TokenArgs, TokenCommand};

const AFTER_HELP: &str = "\
Shops are named by handle, id or host; pods by name or id; moves by id, the beginning of it, or the shop.
Exit status: 0 done, 1 failed, 64 not understood. Results go to stdout, everything else to stderr.";

/// Runs a fleet of pods.
#[derive(Debug, Parser)]
#[command(name = "podctl", version, about, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "For every command")]
pub struct Global {
    /// The fleet's home folder [default: the nearest `.podhost` here or above]
    #[arg(long, global = true, value_name = "DIR", env = "PODHOST_HOME")]
    pub home: Option<PathBuf>,
    /// A control server, http://host:port, instead of the home's; may be given several times
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "PODHOST_CONTROL",
        value_delimiter = ','
    )]
    pub control: Vec<String>,
    /// The file with the operator's token [default: the home's; --control needs it]
    #[arg(long, global = true, value_name = "FILE", env = "PODHOST_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    // The longest call waits for a shop's writes in flight and a step at its pod, each bounded by seconds.
    /// How long a call to the control server may take
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    /// JSON on stdout, for machines
    #[arg(long, global = true)]
    pub json: bool,
}

/// The commands, in the order a newcomer meets them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the fleet of the home folder in the foreground, and keep it running
    Up(Up),
    /// Stop a running fleet
    Down,
    /// What runs, where, and what it serves
    Status,
    /// Compare placements, hosts, schemas, settings and replicas with what they should be
    Doctor,
    /// Print the difference between fleet.toml and the fleet
    Plan,
    /// Make the fleet what fleet.toml says; an interrupted apply is finished by the next
    Apply,
    /// Shops: the tenants
    #[command(subcommand)]
    Shop(ShopCommand),
    /// Moves of shops between pods (`podctl shop move` begins one)
    #[command(subcommand)]
    Move(MoveCommand),
    /// Pods: full stacks that own shops
    #[command(subcommand)]
    Pod(PodCommand),
    /// The processes of the local fleet
    #[command(subcommand)]
    Process(ProcessCommand),
    /// Run the control server (`podctl up` does this for a local fleet)
    Serve(Serve),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// `podctl up`.
#[derive(Debug, Args)]
pub struct Up {
    /// The edge's port on 127.0.0.1; 0 picks a free one and remembers it [default: fleet.toml's, 8080 in a new home]
    #[arg(long, value_name = "PORT")]
    pub edge_port: Option<u16>,
    /// Make no demo shops in a new home
    #[arg(long)]
    pub no_demo: bool,
    /// The words that start mysqld, instead of PODHOST_MYSQLD, the PATH and infra/setup/mysqld
    #[arg(long, value_name = "WORD", num_args = 1..)]
    pub mysqld: Vec<String>,
}

/// `podctl serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Its configuration [default: control/control.toml in the home]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only read the configuration and name every fault in it
    #[arg(long)]
    pub check_config: bool,
}

/// `podctl process`.
#[derive(Debug, Subcommand)]
pub enum ProcessCommand {
    /// All processes
    List,
    /// Stop one until it is started again
    Stop {
        /// `mysql-1-1`, `pod-1-2`, `edge-1`, ...
        unit: String,
    },
    /// Start one that was stopped
    Start {
        /// `mysql-1-1`, `pod-1-2`, `edge-1`, ...
        unit: String,
    },
    /// Kill one with SIGKILL; `podctl up` starts it again
    Kill {
        /// `mysql-1-1`, `pod-1-2`, `edge-1`, ...
        unit: String,
    },
}

/// A longer wait than this is no wait any more.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

fn duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Some(time) if !time.is_zero() && time <= TIMEOUT_MAX => Ok(time),
        Some(_) => Err("it is more than nothing and at most 10m".into()),
        None => Err("it is a time like 500ms, 30s or 5m".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("podctl").chain(line.split(' ')))
    }

    #[test]
    fn the_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_token_is_new_by_default_and_flags_stand_anywhere() {
        let cli = parse("shop token milk --json --label till").unwrap();
        assert!(cli.global.json);
        let Command::Shop(ShopCommand::Token(token)) = cli.command else {
            panic!("not a token command")
        };
        assert_eq!(token.shop.as_deref(), Some("milk"));
        assert!(token.command.is_none());
        let cli = parse("--json shop token revoke milk 0197").unwrap();
        let Command::Shop(ShopCommand::Token(token)) = cli.command else {
            panic!("not a token command")
        };
        assert!(matches!(
            token.command,
            Some(TokenCommand::Revoke { shop, id }) if shop == "milk" && id == "0197"
        ));
    }

    #[test]
    fn what_cannot_be_understood_names_the_word() {
        for (line, part) in [
            ("shop create Milk", "handle"),
            ("shop create 12", "handle"),
            ("shop create milk --host bad_/host", "host"),
            ("shop token", "<SHOP>"),
            ("shop where milk --at yesterday", "RFC 3339"),
            ("pod add Third_Pod", "pod name"),
            ("pod add third --max-shops 0", "--max-shops"),
            ("--timeout 0s status", "more than nothing"),
            ("--timeout 30 status", "like 500ms"),
            ("shop move milk", "--to"),
            ("shop move milk --to 2 --observe soon", "like 0s"),
            ("shop move milk --to 2 --observe 9000h", "at most"),
            ("shop move milk --to 2 --dry-run --watch", "cannot be used"),
            ("move finish", "<MOVE>"),
            ("shops", "'shop'"),
        ] {
            let text = parse(line).unwrap_err().to_string();
            assert!(text.contains(part), "{line}: {text}");
        }
    }
}
