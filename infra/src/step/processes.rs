//! Processes: a wish for each, then waiting until it serves.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::home_dir::{FleetLock, HomeDir, make_folder};
use crate::layout::Wanted;
use crate::mysqld::admin::Server;
use crate::observe::{World, runs};
use crate::unit::{Desired, Kind, RunState, State, Unit, wait_for};

/// The supervisor sees a wish within milliseconds and starts a process at once.
const STARTED_WITHIN: Duration = Duration::from_secs(10);

/// A database server that was killed first recovers; the others start in a second or two. All may start at once on two
/// cores.
const SERVES_WITHIN: Duration = Duration::from_secs(60);

/// How often a starting process is asked.
const ASK_EVERY: Duration = Duration::from_millis(30);

/// One question.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

pub(super) async fn all_serve(world: &World, units: &[&Wanted]) -> anyhow::Result<bool> {
    for wanted in units {
        if !runs(&world.home, &wanted.unit) || serves(&world.home, &wanted.unit).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Starts what does not run, all at once; what runs with another configuration is started again one after the other, so
/// that the rest serves meanwhile.
pub(super) async fn start(world: &World, units: &[&Wanted]) -> anyhow::Result<()> {
    ensure!(
        FleetLock::holder(&world.home.lock_file()).is_some(),
        "no `podctl up` runs this fleet ({}), so nothing starts its processes: start it, it applies fleet.toml by itself",
        world.home.path().display()
    );
    let lives = |wanted: &&Wanted| {
        RunState::load(&world.home, &wanted.unit.name)
            .is_some_and(|run| run.state == State::Running)
    };
    let (live, dead): (Vec<&Wanted>, Vec<&Wanted>) = units.iter().copied().partition(lives);
    for wanted in &dead {
        wish(world, &wanted.unit)?;
    }
    futures::future::try_join_all(dead.iter().map(|wanted| wait(world, &wanted.unit))).await?;
    for wanted in live {
        wish(world, &wanted.unit)?;
        wait(world, &wanted.unit).await?;
    }
    Ok(())
}

fn wish(world: &World, unit: &Unit) -> anyhow::Result<()> {
    if unit.kind == Kind::Redis {
        let pod = unit.pod.context("a cache without a pod")?;
        make_folder(&world.home.redis(pod))?;
    }
    unit.save(&world.home)
}

async fn wait(world: &World, unit: &Unit) -> anyhow::Result<()> {
    wait_for(&world.home, unit, State::Running, STARTED_WITHIN).await?;
    let began = tokio::time::Instant::now();
    let run = || RunState::load(&world.home, &unit.name);
    let restarts = run().map_or(0, |run| run.restarts);
    loop {
        let Err(fault) = serves(&world.home, unit).await else {
            return Ok(());
        };
        // One that ended twice will not serve: its reason is in its log, and said now.
        let ended = run().filter(|run| run.restarts > restarts && run.state == State::Waiting);
        if ended.is_some() || began.elapsed() > SERVES_WITHIN {
            bail!(
                "{} does not serve: {}",
                unit.name,
                why(world, unit, ended, &fault)
            );
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// The last words of a unit's log say more than a refused connection.
fn why(world: &World, unit: &Unit, ended: Option<RunState>, fault: &anyhow::Error) -> String {
    let path = world.home.log_file(&unit.name);
    let log = std::fs::read_to_string(&path).unwrap_or_default();
    let lines: Vec<_> = log.lines().rev().take(5).collect();
    let last: String = lines
        .into_iter()
        .rev()
        .map(|line| format!("\n  {line}"))
        .collect();
    let exit = ended
        .and_then(|run| run.last_exit)
        .unwrap_or_else(|| format!("{fault:#}"));
    format!("{exit}; the end of {}:{last}", path.display())
}

/// Asks a unit whether it serves.
pub(crate) async fn serves(home: &HomeDir, unit: &Unit) -> anyhow::Result<()> {
    let facts = &unit.facts;
    match unit.kind {
        Kind::Mysql => {
            let server = Server::of(unit).context("a database server without a socket")?;
            server.connect(home).await?.close().await;
            Ok(())
        }
        Kind::Redis => redis_answers(facts.port.context("a cache without a port")?).await,
        Kind::Control => answers(facts.http.as_deref(), "/healthz").await,
        Kind::Pod | Kind::Edge => answers(facts.admin.as_deref(), "/readyz").await,
    }
}

async fn answers(base: Option<&str>, path: &str) -> anyhow::Result<()> {
    let url = format!("{}{path}", base.context("a unit without an address")?);
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(ANSWER_WITHIN)
        .build()?;
    let answer = client.get(&url).send().await?;
    let status = answer.status();
    ensure!(
        status.is_success(),
        "{url} answers {status}: {}",
        answer.text().await.unwrap_or_default().trim()
    );
    Ok(())
}

/// Redis answers PING once it has loaded.
async fn redis_answers(port: u16) -> anyhow::Result<()> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).await?;
        ensure!(
            answer == *b"+PONG\r\n",
            "it answers {:?}",
            String::from_utf8_lossy(&answer)
        );
        Ok(())
    };
    tokio::time::timeout(ANSWER_WITHIN, ask)
        .await
        .context("it does not answer")?
}

/// Ends a unit and forgets its wish.
pub(super) async fn remove(world: &World, name: &str) -> anyhow::Result<()> {
    let Some(mut unit) = Unit::load(&world.home, name)? else {
        return Ok(());
    };
    if FleetLock::holder(&world.home.lock_file()).is_some() {
        unit.desired = Desired::Stopped;
        unit.save(&world.home)?;
        wait_for(&world.home, &unit, State::Stopped, unit.kind.patience() * 2).await?;
    }
    let path = world.home.unit_file(name);
    std::fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))
}
