//! The copy of one large shop, three ways.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tests::{Fleet, Server, wait_until};

use super::tools::{Place, Tools};
use super::{Shown, fill, move_shop, number, retire};
use crate::Options;
use crate::report::{self, median};

/// Where the other tools copy to, and where the shop lies alone.
const INTO: &str = "bench_copy";
const ALONE: &str = "bench_alone";
/// Replicas apply what the last round left before the next one begins.
const SETTLE_MAX: Duration = Duration::from_secs(300);

/// Both pods, and what the tools are told.
struct Ends<'f> {
    fleet: &'f Fleet,
    pods: [u32; 2],
    primaries: Vec<Server>,
    places: Vec<Place>,
    tools: Tools,
}

pub(super) async fn run(options: &Options, fleet: &Fleet) -> Result<()> {
    let status = fleet.status().await?;
    let (mut primaries, mut places) = (Vec::new(), Vec::new());
    let pods = [1, 2];
    for pod in pods {
        let mysql = &status.pod(pod)?.mysql;
        primaries.push(fleet.primary(pod).await?);
        places.push(Place::of(mysql, &mysql.primary)?);
    }
    let tools = Tools::find().await?;
    let ends = Ends {
        fleet,
        pods,
        primaries,
        places,
        tools,
    };
    let shop = fleet.shop(1).await?;
    for server in &ends.primaries {
        fill::tables(server).await?;
    }
    let rows = fill::fill(&ends.primaries[0], shop.id.get(), options.mib).await?;
    ends.alone().await?;
    ends.settle().await?;
    let bytes = ends.bytes().await?;
    let mut took: [Vec<Took>; 3] = Default::default();
    let mut moves = Vec::new();
    for round in 0..options.rounds {
        let (from, to) = (round % 2, (round + 1) % 2);
        took[1].push(ends.mysqldump(from, to, shop.id.get(), rows).await?);
        took[2].push(ends.mydumper(to).await?);
        let (mover, shown) = ends.mover(&shop.handle, to, rows).await?;
        took[0].push(mover);
        moves.push(shown);
    }
    print(options, rows, bytes, &took);
    states(&moves)
}

/// Where a move's time went.
fn states(moves: &[Shown]) -> Result<()> {
    let of = |state: &str| -> Result<String> {
        let took: Result<Vec<f64>> = moves.iter().map(|shown| shown.within(state)).collect();
        Ok(format!("{:.2}", median(&took?)))
    };
    let names = [
        "preparing",
        "copying",
        "catching_up",
        "verifying",
        "fenced",
        "cutover",
        "retiring",
    ];
    let row: Result<Vec<String>> = names.iter().map(|name| of(name)).collect();
    report::table("Seconds of these moves in each state", &names, &[row?]);
    Ok(())
}

/// What a way took.
#[derive(Debug, Clone, Copy)]
struct Took {
    /// Until it was done.
    done: f64,
    /// Until both replicas of the target had everything too.
    even: f64,
}

impl Took {
    fn of(done: Duration, even: Duration) -> Self {
        Self {
            done: done.as_secs_f64(),
            even: even.as_secs_f64(),
        }
    }

    fn medians(all: &[Self]) -> Self {
        let of = |each: fn(&Self) -> f64| median(&all.iter().map(each).collect::<Vec<_>>());
        Self {
            done: of(|took| took.done),
            even: of(|took| took.even),
        }
    }
}

fn print(options: &Options, rows: u64, bytes: u64, took: &[Vec<Took>; 3]) {
    #[expect(clippy::cast_precision_loss, reason = "a count of some million rows")]
    let (all, mib) = (rows as f64, bytes as f64 / 1024.0 / 1024.0);
    let of = Took::medians(&took[1]);
    let ways = [
        "podctl shop move, from `preparing` to the new owner, every row compared",
        "mysqldump --where | mysql, nothing compared",
        "mydumper, myloader of a database with that shop alone, nothing compared",
    ];
    let row = |way: &str, took: &[Took]| {
        let Took { done, even } = Took::medians(took);
        vec![
            way.to_owned(),
            format!("{done:.1}"),
            format!("{:.0}", all / done),
            format!("{:.2}", of.done / done),
            format!("{even:.1}"),
            format!("{:.2}", of.even / even),
        ]
    };
    let rows: Vec<_> = ways.iter().zip(took).map(|(w, t)| row(w, t)).collect();
    let title = format!(
        "Copy of one shop, {all:.0} rows, {mib:.0} MiB with indexes, median of {} rounds",
        options.rounds
    );
    let head = [
        "way",
        "seconds",
        "rows a second",
        "speed",
        "seconds until replicas have it",
        "speed",
    ];
    report::table(&title, &head, &rows);
}

impl Ends<'_> {
    /// The shop in a database of its own, for `mydumper`; it is the only one in these tables.
    async fn alone(&self) -> Result<()> {
        let server = &self.primaries[0];
        server.run(&format!("create database {ALONE}")).await?;
        for table in fill::TABLES {
            server
                .run(&format!(
                    "create table {ALONE}.{table} like podhost.{table}; \
                     insert into {ALONE}.{table} table podhost.{table}"
                ))
                .await?;
        }
        Ok(())
    }

    async fn bytes(&self) -> Result<u64> {
        let server = &self.primaries[0];
        for table in fill::TABLES {
            server
                .run(&format!("analyze table podhost.{table}"))
                .await?;
        }
        number(
            &server
                .text(
                    "select cast(sum(data_length + index_length) as char) from information_schema.tables \
                     where table_schema = 'podhost' and table_name like 'bench%'",
                )
                .await?,
        )
    }

    /// An empty database to copy into, at one end.
    async fn empty(&self, at: usize) -> Result<()> {
        let server = &self.primaries[at];
        server
            .run(&format!(
                "drop database if exists {INTO}; create database {INTO}"
            ))
            .await?;
        for table in fill::TABLES {
            server
                .run(&format!("create table {INTO}.{table} like podhost.{table}"))
                .await?;
        }
        self.settle().await
    }

    /// Waits until every replica has what its primary has.
    async fn even(&self) -> Result<()> {
        for (pod, primary) in self.pods.iter().zip(&self.primaries) {
            let all = primary.gtid_executed().await?.replace('\n', "");
            for replica in self.fleet.replicas(*pod).await? {
                let sql = format!("select gtid_subset('{all}', @@global.gtid_executed)");
                wait_until("a replica has everything", SETTLE_MAX, async || {
                    ensure!(replica.number(&sql).await? == 1, "it is behind");
                    Ok(())
                })
                .await?;
            }
        }
        Ok(())
    }

    /// The same, and throws the binlogs away: they would fill the disk.
    async fn settle(&self) -> Result<()> {
        self.even().await?;
        for (pod, primary) in self.pods.iter().zip(&self.primaries) {
            for server in self.fleet.replicas(*pod).await?.iter().chain([primary]) {
                let last = server.texts("show binary logs").await?;
                let last = last.last().context("a server without binlogs")?;
                server
                    .run(&format!("flush binary logs; purge binary logs to '{last}'"))
                    .await?;
            }
        }
        Ok(())
    }

    async fn mysqldump(&self, from: usize, to: usize, shop: u64, rows: u64) -> Result<Took> {
        self.empty(to).await?;
        let begun = Instant::now();
        let took = self
            .tools
            .mysqldump(
                (&self.places[from], "podhost"),
                (&self.places[to], INTO),
                shop,
                &fill::TABLES,
            )
            .await?;
        self.even().await?;
        let even = begun.elapsed();
        self.arrived(to, INTO, rows).await?;
        Ok(Took::of(took, even))
    }

    async fn mydumper(&self, to: usize) -> Result<Took> {
        self.empty(to).await?;
        let folder = tempfile::tempdir().context("a folder for mydumper")?;
        let begun = Instant::now();
        let took = self
            .tools
            .mydumper(
                (&self.places[0], ALONE),
                (&self.places[to], INTO),
                &folder.path().join("dump"),
            )
            .await?;
        self.even().await?;
        Ok(Took::of(took, begun.elapsed()))
    }

    async fn mover(&self, handle: &str, to: usize, rows: u64) -> Result<(Took, Shown)> {
        self.empty(to).await?;
        let begun = Instant::now();
        let shown = move_shop(self.fleet, handle, self.pods[to]).await?;
        self.even().await?;
        let even = begun.elapsed();
        let took = Duration::from_secs_f64(shown.to_the_owner()?);
        self.arrived(to, "podhost", rows).await?;
        let shown = retire(self.fleet, handle).await?;
        self.settle().await?;
        Ok((Took::of(took, even), shown))
    }

    async fn arrived(&self, at: usize, database: &str, rows: u64) -> Result<()> {
        let mut found = 0;
        for table in fill::TABLES {
            let sql = format!("select count(*) from {database}.{table}");
            found += number(&self.primaries[at].text(&sql).await?)?;
        }
        ensure!(found == rows, "{found} rows arrived of {rows}");
        Ok(())
    }
}
