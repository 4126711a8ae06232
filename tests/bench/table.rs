//! The route table alone: look-ups, changes, memory, and its file.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use shared::routes::wire::{Change, Header, Line, Now, Pod, PodStatus, Shop};
use shared::routes::{RouteTable, disk};
use shared::{Handle, Host, PlacementState};

use crate::{Options, process, report};

const LOOKUPS: usize = 2_000_000;
const CHANGES: u64 = 200_000;

/// The host of a shop in all benches.
pub(crate) fn host(shop: u64) -> String {
    format!("shop-{shop}.example")
}

fn shop(id: u64) -> Result<Shop> {
    Ok(Shop {
        id: id.try_into()?,
        handle: format!("shop-{id}").parse()?,
        hosts: vec![host(id).parse()?],
        pod: 1_u64.try_into()?,
        epoch: 1_u64.try_into()?,
        state: PlacementState::Serving,
    })
}

/// A table of so many shops, each with a handle and a domain, on one pod at an address.
pub(crate) fn build(shops: u64, pod: std::net::SocketAddr) -> Result<RouteTable> {
    let header = Header {
        incarnation: 1,
        version: 1,
        base_domain: "localhost".parse()?,
        platform_domain: "platform.example".parse()?,
    };
    let pod = Pod {
        id: 1_u64.try_into()?,
        name: "one".into(),
        status: PodStatus::Active,
        http: vec![pod],
    };
    let lines =
        std::iter::once(Ok(Line::Pod(pod))).chain((1..=shops).map(|id| shop(id).map(Line::Shop)));
    let mut bad = None;
    let lines = lines.map_while(|line| line.map_err(|error| bad = Some(error)).ok());
    let table = RouteTable::build(header, lines).context("build the table")?;
    match bad {
        Some(error) => Err(error),
        None => Ok(table),
    }
}

/// What a table takes, in a process that holds nothing else: `bench weigh FILE`.
pub(crate) fn weigh(path: &Path) -> Result<()> {
    let before = process::memory(std::process::id());
    let table = disk::load(path)?;
    let bytes = process::memory(std::process::id()) - before;
    report::say(&bytes.to_string());
    drop(table);
    Ok(())
}

fn weigh_apart(path: &Path) -> Result<u64> {
    let me = std::env::current_exe().context("find this program")?;
    let output = Command::new(me)
        .arg("weigh")
        .arg(path)
        .output()
        .context("weigh the table")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim()
        .parse()
        .with_context(|| format!("weigh the table: {text}"))
}

/// Prints the figures for each size.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut rows = Vec::new();
    for &shops in &options.shops {
        rows.push(measure(shops).with_context(|| format!("{shops} shops"))?);
    }
    let head = [
        "shops",
        "host look-up",
        "handle look-up",
        "a miss",
        "a change",
        "memory a shop",
        "save",
        "load",
    ];
    report::table(
        "The route table (each shop has a handle and a domain)",
        &head,
        &rows,
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "figures for a table")]
fn measure(shops: u64) -> Result<Vec<String>> {
    // CPU time, since the machine may be busy with other things.
    let now = || process::cpu(std::process::id());
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("routes.bin");
    disk::save(&build(shops, "127.0.0.1:9".parse()?)?, &path)?;
    let begun = now();
    let table = disk::load(&path)?;
    let load = now() - begun;
    let memory = weigh_apart(&path)?;
    let begun = now();
    disk::save(&table, &path)?;
    let save = now() - begun;

    let mut rng = rand::rngs::StdRng::seed_from_u64(1);
    let mut picks = || -> Vec<u64> { (0..LOOKUPS).map(|_| rng.random_range(1..=shops)).collect() };
    let hosts: Vec<Host> = picks()
        .into_iter()
        .map(|id| host(id).parse())
        .collect::<Result<_, _>>()?;
    let handles: Vec<Handle> = picks()
        .into_iter()
        .map(|id| format!("shop-{id}").parse())
        .collect::<Result<_, _>>()?;
    let absent: Vec<Host> = picks()
        .into_iter()
        .map(|id| format!("no-{id}.example").parse())
        .collect::<Result<_, _>>()?;
    let per = |begun: Duration, count: usize| (now() - begun).as_nanos() as f64 / count as f64;

    let begun = now();
    let found = hosts
        .iter()
        .filter(|host| black_box(table.lookup_host(host)).is_some())
        .count();
    let by_host = per(begun, LOOKUPS);
    let begun = now();
    let named = handles
        .iter()
        .filter(|name| black_box(table.lookup_handle(name)).is_some())
        .count();
    let by_handle = per(begun, LOOKUPS);
    let begun = now();
    let missed = absent
        .iter()
        .filter(|host| black_box(table.lookup_host(host)).is_none())
        .count();
    let miss = per(begun, LOOKUPS);
    anyhow::ensure!(
        [found, named, missed] == [LOOKUPS; 3],
        "a look-up was wrong"
    );

    let change = changes(&table, shops, &mut rng)?;
    Ok(vec![
        shops.to_string(),
        format!("{by_host:.0} ns"),
        format!("{by_handle:.0} ns"),
        format!("{miss:.0} ns"),
        format!("{change:.0} ns"),
        format!("{:.0} B", memory as f64 / shops as f64),
        format!("{:.2} s", save.as_secs_f64()),
        format!("{:.2} s", load.as_secs_f64()),
    ])
}

/// Nanoseconds of a change that moves a shop.
#[expect(clippy::cast_precision_loss, reason = "figures for a table")]
fn changes(table: &RouteTable, shops: u64, rng: &mut rand::rngs::StdRng) -> Result<f64> {
    let changes: Vec<Change> = (1..=CHANGES)
        .map(|n| {
            let mut moved = shop(rng.random_range(1..=shops))?;
            moved.epoch = (n + 1).try_into()?;
            Ok(Change {
                version: n + 1,
                now: Now::Shop(moved),
            })
        })
        .collect::<Result<_>>()?;
    let begun = process::cpu(std::process::id());
    for change in &changes {
        table.apply(change)?;
    }
    let took = process::cpu(std::process::id()) - begun;
    Ok(took.as_nanos() as f64 / CHANGES as f64)
}
