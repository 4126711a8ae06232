//! The end-to-end tests: real processes, in the order of the README.

use std::process::ExitCode;

use anyhow::Result;

mod routing;

fn main() -> Result<ExitCode> {
    tests::suite::run([routing::list()].concat())
}
