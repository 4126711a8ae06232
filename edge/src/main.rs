//! `edge --config FILE`: routes requests to pods until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use edge::{App, Config};
use shared::config::EXIT_USAGE;
use shared::telemetry;

/// A request makes many small allocations; this allocator makes them cheap.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Routes each request to the pod of its shop.
#[derive(Parser)]
#[command(name = "edge", version)]
struct Arguments {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only say whether the configuration is right.
    #[arg(long)]
    check_config: bool,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no faults.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 });
        }
    };
    let config = match Config::load(&arguments.config) {
        Ok(config) => config,
        Err(faults) => return usage(&faults.to_string()),
    };
    if arguments.check_config {
        return ExitCode::SUCCESS;
    }
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config) -> anyhow::Result<()> {
    let telemetry = telemetry::init("edge", &config.log_settings())?;
    let app = App::build(config, telemetry)?;
    let (clients, admin) = app.addresses()?;
    for address in clients {
        tracing::info!(%address, "listening");
    }
    tracing::info!(address = %admin, port = "admin", "listening");
    app.serve()
}

#[expect(clippy::print_stderr, reason = "nothing else speaks yet")]
fn usage(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::from(EXIT_USAGE)
}
