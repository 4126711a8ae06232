//! `podctl` with fail points, for tests: `podctl-failpoints failpoints` prints their names, one a line.

use std::io::Write as _;
use std::process::ExitCode;

#[path = "main.rs"]
mod podctl;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() != Some("failpoints") {
        return podctl::main();
    }
    let mut names = String::new();
    for step in infra::mover::Step::ALL
        .iter()
        .filter(|step| step.by_driver())
    {
        names.push_str(step.as_str());
        names.push('\n');
    }
    match std::io::stdout().write_all(names.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
