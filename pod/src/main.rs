//! A process of a pod: the host with the commerce application on it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use pod::config::Config;
use pod::{Host, shop};
use shared::config::EXIT_USAGE;
use shared::telemetry;
use tokio::signal::unix::{SignalKind, signal};

/// A request makes many small allocations; this allocator makes them cheap.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs one process of a pod until SIGTERM or SIGINT.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// The config file, as `podctl` renders it.
    #[arg(long, value_name = "FILE", required_unless_present = "print_routes")]
    config: Option<PathBuf>,
    /// Reads the config file, names everything that is wrong with it, and ends.
    #[arg(long)]
    check_config: bool,
    /// Prints each route as `METHOD /path who` and ends.
    #[arg(long, hide = true)]
    print_routes: bool,
}

fn main() -> ExitCode {
    let args = Args::try_parse().unwrap_or_else(|error| {
        // clap's own exit code for usage is 2; ours is 64. Help and version are no errors.
        let code = if error.use_stderr() {
            i32::from(EXIT_USAGE)
        } else {
            0
        };
        drop(error.print());
        std::process::exit(code);
    });
    if args.print_routes {
        print_routes();
        return ExitCode::SUCCESS;
    }
    let path = args.config.unwrap_or_default();
    let (config, limits) = match Config::load_with(&path, "shop", shop::Limits::read) {
        Ok(read) => read,
        Err(faults) => {
            say(&faults.to_string());
            return ExitCode::from(EXIT_USAGE);
        }
    };
    if args.check_config {
        return ExitCode::SUCCESS;
    }
    match run(config, limits) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("pod: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(config: Config, limits: shop::Limits) -> anyhow::Result<()> {
    let telemetry = telemetry::init("pod", &config.telemetry)?;
    let drain = config.limits.drain;
    tracing::info!(
        pod = config.pod.get(),
        name = config.name,
        process = config.process,
        "starting"
    );
    let (mut term, mut int) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let mut stop = Box::pin(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    });
    // The database may be waited for, and a signal must not be.
    let host = tokio::select! {
        built = Host::build_with(config, Some(telemetry.metrics())) => Some(built?),
        () = &mut stop => None,
    };
    if let Some(host) = host {
        let host = shop::jobs(limits)
            .into_iter()
            .fold(host.mount(shop::routes(limits)), Host::job);
        host.serve(stop).await?;
    }
    telemetry.shutdown(drain);
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this is what was asked for")]
fn print_routes() {
    for row in shop::routes(shop::Limits::default()).rows() {
        println!("{} {} {}", row.method, row.path, row.who.as_str());
    }
}

#[expect(
    clippy::print_stderr,
    reason = "before logs are set up, and for people"
)]
fn say(text: &str) {
    eprintln!("{text}");
}
