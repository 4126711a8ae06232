//! The end-to-end tests: real processes, in the order of the README.

use std::process::ExitCode;

use anyhow::Result;

mod routing;
mod sqlx_faults;

fn main() -> Result<ExitCode> {
    tests::suite::run([routing::list(), sqlx_faults::list()].concat())
}
