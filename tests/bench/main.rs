//! Benches: what the edge, a pod and a move cost, beside what they replace, measured in one run on one machine.
//!
//! `tests/bench/run` builds what is needed and calls this. CPU time per request is the figure that means something on a
//! shared machine: it is read from the scheduler, for all threads of a process. Latency is measured at a fixed rate, from
//! the moment at which a request was due. Rounds of all candidates are interleaved; tables show medians and the ratio.

mod bare;
mod candidates;
mod edge;
mod generator;
mod moves;
mod origin;
mod pod;
mod process;
mod raw;
mod report;
mod same;
mod table;

use std::time::Duration;

use anyhow::{Context, Result, bail};

/// What the command line says.
#[derive(Debug, Clone)]
struct Options {
    /// Seconds of each measurement.
    each: Duration,
    rounds: usize,
    /// Requests a second where the rate is fixed.
    rate: u32,
    /// Connections of the load.
    connections: usize,
    /// Sizes of the route table.
    shops: Vec<u64>,
    /// The size of the shop that is copied.
    mib: u64,
    /// Moves of the shop that sells.
    moves: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            each: Duration::from_secs(4),
            rounds: 5,
            rate: 2000,
            connections: 64,
            shops: vec![100_000, 1_000_000],
            mib: 1024,
            moves: 50,
        }
    }
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self::default();
        for pair in words.chunks(2) {
            let [key, value] = pair else {
                bail!("{} wants a value", pair[0]);
            };
            let number = || {
                value
                    .parse::<u32>()
                    .with_context(|| format!("{key} wants a number"))
            };
            match key.as_str() {
                "--seconds" => options.each = Duration::from_secs(number()?.into()),
                "--rounds" => options.rounds = number()?.try_into()?,
                "--rate" => options.rate = number()?,
                "--connections" => options.connections = number()?.try_into()?,
                "--mib" => options.mib = number()?.into(),
                "--moves" => options.moves = number()?.try_into()?,
                "--shops" => {
                    let sizes: Result<Vec<u64>, _> = value.split(',').map(str::parse).collect();
                    options.shops = sizes.context("--shops wants numbers with commas between")?;
                }
                _ => bail!("unknown option {key}"),
            }
        }
        Ok(options)
    }
}

const USAGE: &str = "usage: tests/bench/run [table|edge|pod|moves|all] [--seconds N] [--rounds N] [--rate N] \
                     [--connections N] [--shops N,N] [--mib N] [--moves N]";

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (what, rest) = words.split_first().context(USAGE)?;
    match (what.as_str(), rest) {
        // Parts of a bench that want a process of their own.
        ("weigh", [file]) => return table::weigh(file.as_ref()),
        ("handler", [address, body]) => return bare::serve(address, body).await,
        _ => {}
    }
    let options = Options::parse(rest).context(USAGE)?;
    report::say(&report::machine());
    match what.as_str() {
        "table" => table::run(&options)?,
        "edge" => edge::run(&options).await?,
        "pod" => pod::run(&options).await?,
        "moves" => moves::run(&options).await?,
        "all" => {
            table::run(&options)?;
            edge::run(&options).await?;
            pod::run(&options).await?;
            moves::run(&options).await?;
        }
        _ => bail!(USAGE),
    }
    Ok(())
}
