//! `podctl`: reads the command line, does it, and says how it went.

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use infra::cli::{Cli, Command};
use infra::command::{self, Context};
use infra::output::note;
use shared::config::{EXIT_USAGE, Faults};

#[tokio::main]
pub(crate) async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let usage = error.use_stderr();
            // Help that nobody reads to its end is no fault.
            let _ = error.print();
            return if usage {
                EXIT_USAGE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match run(cli).await {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("podctl: {error:#}"));
            // A file that says what cannot be is as wrong as such a command line.
            if error.is::<Faults>() {
                EXIT_USAGE.into()
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let cx = Context::new(cli.global);
    match cli.command {
        Command::Up(wish) => command::fleet::up(&cx, wish).await?,
        Command::Down => command::fleet::down(&cx).await?,
        Command::Status => return command::status::run(&cx).await,
        Command::Doctor => return command::doctor::run(&cx).await,
        Command::Plan => command::fleet::plan(&cx).await?,
        Command::Apply => command::fleet::apply(&cx).await?,
        Command::Shop(shop) => command::shop::run(&cx, shop).await?,
        Command::Move(wish) => command::moves::run(&cx, wish).await?,
        Command::Pod(pod) => command::pod::run(&cx, pod).await?,
        Command::Process(process) => command::process::run(&cx, process).await?,
        Command::Serve(wish) => command::fleet::serve(&cx, wish).await?,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "podctl", &mut script);
            io::Write::write_all(&mut io::stdout(), &script)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the reader of our results went away (`podctl shop list | head`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
