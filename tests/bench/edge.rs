//! Part 1: the edge beside nginx with Lua, HAProxy and Envoy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rand::RngExt;

use crate::candidates::{self, Candidate};
use crate::generator::{Pace, Requests, load};
use crate::report::{self, median, percentile, us};
use crate::{Options, origin, table};

/// Envoy holds a virtual host for each shop: with 100,000 its configuration takes gigabytes and minutes.
const ENVOY_SHOPS_MAX: u64 = 10_000;
/// Connections and caches are warm after this.
const WARM: Duration = Duration::from_millis(500);

/// A candidate that listens has seen its pod after this.
const READY_MAX: Duration = Duration::from_secs(10);

/// What the rounds of one candidate saw.
#[derive(Debug, Default)]
struct Rounds {
    cpu_us: Vec<f64>,
    busy_cpu_us: Vec<f64>,
    busy_rate: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
}

fn requests(shops: u64) -> Requests {
    Arc::new(move || {
        let host = table::host(rand::rng().random_range(1..=shops));
        format!("GET /api/v1/products/0198 HTTP/1.1\r\nhost: {host}\r\nuser-agent: bench\r\naccept: */*\r\n\r\n")
            .into_bytes()
    })
}

/// Starts all candidates, loads them in turn, prints the tables.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let work = tempfile::tempdir().context("make a folder")?;
    let pod = origin::start().await?;
    let mut all: Vec<Candidate> = Vec::new();
    let mut first = Vec::new();
    let mut add = async |candidate: Candidate| {
        first.push(serves(&candidate).await?);
        all.push(candidate);
        anyhow::Ok(())
    };
    for &shops in &options.shops {
        add(candidates::nginx(work.path(), pod, shops)?).await?;
        add(candidates::haproxy(work.path(), pod, shops)?).await?;
        add(candidates::edge(work.path(), pod, shops)?).await?;
    }
    let smallest = options
        .shops
        .iter()
        .copied()
        .min()
        .unwrap_or(ENVOY_SHOPS_MAX);
    add(candidates::envoy(
        work.path(),
        pod,
        smallest.min(ENVOY_SHOPS_MAX),
    )?)
    .await?;
    let memory: Vec<u64> = all
        .iter()
        .map(|candidate| candidate.process.memory())
        .collect();

    let mut rounds: Vec<Rounds> = all.iter().map(|_| Rounds::default()).collect();
    let mut direct = Rounds::default();
    for _ in 0..options.rounds {
        measure(options, pod, smallest, None, &mut direct)
            .await
            .context("the origin itself")?;
        for (candidate, rounds) in all.iter().zip(&mut rounds) {
            let name = || format!("{} with {} shops", candidate.name, candidate.shops);
            let at = candidate.at;
            measure(options, at, candidate.shops, Some(candidate), rounds)
                .await
                .with_context(name)?;
        }
    }
    print(options, &all, &rounds, &direct);
    print_memory(&all, &memory, &first);
    Ok(())
}

/// Waits for the first answer (health checks of the pod must have passed) and says how long after the start it came.
async fn serves(candidate: &Candidate) -> Result<Duration> {
    let once = async || {
        let each = Duration::from_millis(10);
        load(
            candidate.at,
            1,
            each,
            Pace::Closed,
            requests(candidate.shops),
        )
        .await
        .map(|_| ())
    };
    tests::wait_until(&format!("{} serves", candidate.name), READY_MAX, once).await?;
    Ok(candidate.process.begun.elapsed())
}

async fn measure(
    options: &Options,
    at: SocketAddr,
    shops: u64,
    of: Option<&Candidate>,
    rounds: &mut Rounds,
) -> Result<()> {
    let cpu = || {
        of.map(|candidate| candidate.process.cpu())
            .unwrap_or_default()
    };
    load(at, options.connections, WARM, Pace::Closed, requests(shops)).await?;
    for pace in [Pace::PerSecond(options.rate), Pace::Closed] {
        let before = cpu();
        let seen = load(at, options.connections, options.each, pace, requests(shops)).await?;
        #[expect(clippy::cast_precision_loss, reason = "a count of some seconds")]
        let each = us(cpu() - before) / seen.answers as f64;
        match pace {
            Pace::Closed => {
                rounds.busy_cpu_us.push(each);
                rounds.busy_rate.push(seen.per_second());
            }
            Pace::PerSecond(_) => {
                rounds.cpu_us.push(each);
                rounds.p50_us.push(us(percentile(&seen.latencies, 0.5)));
                rounds.p99_us.push(us(percentile(&seen.latencies, 0.99)));
            }
        }
    }
    Ok(())
}

fn print(options: &Options, all: &[Candidate], rounds: &[Rounds], direct: &Rounds) {
    let (p50, p99) = (median(&direct.p50_us), median(&direct.p99_us));
    let lua = all
        .iter()
        .zip(rounds)
        .find(|(c, _)| c.name.starts_with("nginx"))
        .map(|(_, r)| r);
    let (lua_slow, lua_busy) =
        lua.map_or((0.0, 0.0), |r| (median(&r.cpu_us), median(&r.busy_cpu_us)));
    let rows: Vec<Vec<String>> = all
        .iter()
        .zip(rounds)
        .map(|(candidate, r)| {
            let (slow, busy) = (median(&r.cpu_us), median(&r.busy_cpu_us));
            vec![
                candidate.name.clone(),
                candidate.shops.to_string(),
                format!("{busy:.1}"),
                format!("{:.2}", busy / lua_busy),
                format!("{slow:.1}"),
                format!("{:.2}", slow / lua_slow),
                format!("{:.0}", median(&r.p50_us) - p50),
                format!("{:.0}", median(&r.p99_us) - p99),
                format!("{:.0}", median(&r.busy_rate)),
            ]
        })
        .collect();
    let title = format!(
        "Routers, {} connections, median of {} rounds: CPU us a request when busy and at {}/s (and against the first \
         row), latency added at {}/s in us (without a router: p50 {p50:.0}, p99 {p99:.0}), requests a second when busy",
        options.connections, options.rounds, options.rate, options.rate
    );
    let rate = format!("CPU at {}/s", options.rate);
    let head = [
        "router",
        "shops",
        "CPU busy",
        "ratio",
        &rate,
        "ratio",
        "added p50",
        "added p99",
        "a second",
    ];
    report::table(&title, &head, &rows);
}

#[expect(clippy::cast_precision_loss, reason = "figures for a table")]
fn print_memory(all: &[Candidate], memory: &[u64], first: &[Duration]) {
    let rows: Vec<Vec<String>> = all
        .iter()
        .zip(memory)
        .zip(first)
        .map(|((candidate, bytes), first)| {
            let of_kind = all
                .iter()
                .zip(memory)
                .filter(|(other, _)| other.name == candidate.name);
            let smaller = of_kind.min_by_key(|(other, _)| other.shops);
            let per = smaller
                .filter(|(other, _)| other.shops < candidate.shops)
                .map(|(other, less)| {
                    bytes.saturating_sub(*less) as f64 / (candidate.shops - other.shops) as f64
                });
            vec![
                candidate.name.clone(),
                candidate.shops.to_string(),
                format!("{:.0} MiB", *bytes as f64 / f64::from(1 << 20)),
                per.map_or_else(String::new, |per| format!("{per:.0} B")),
                format!("{:.2} s", first.as_secs_f64()),
            ]
        })
        .collect();
    let head = [
        "router",
        "shops",
        "memory",
        "for each more",
        "from start to the first answer",
    ];
    report::table("Memory, and loading the table from disk", &head, &rows);
}
