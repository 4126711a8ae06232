//! A fleet from its first start to its last stop: nothing left behind, nothing forgotten, nobody beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tests::fleet::{Halt, running};
use tests::process::binary;
use tests::suite::Test;
use tests::{Fleet, tests};
use tokio::process::Command;

pub(crate) fn list() -> Vec<Test> {
    tests![
        shares: a_second_up_beside_a_running_one_is_refused;
        own: a_fleet_stops_whole_and_starts_again_with_its_orders,
            inv8_an_apply_killed_at_each_step_is_finished_by_the_next,
            up_without_a_usable_mysqld_says_so,
            up_with_a_taken_port_says_so,
            up_on_a_full_disk_says_so,
            up_on_a_disk_that_fills_meanwhile_says_so,
    ]
}

/// What `podctl up` promises.
const STOP_MAX: Duration = Duration::from_secs(20);
/// The mark of readiness is taken away as the first thing of an end.
const OUTLIVES: Duration = Duration::from_secs(3);

/// `podctl up` on the home of a running fleet ends at once, says who is there, and the fleet goes on.
async fn a_second_up_beside_a_running_one_is_refused(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let said = fleet
        .podctl
        .refused(&["up", "--edge-port", "0", "--no-demo"], 1)
        .await?;
    ensure!(
        said.contains("already") || said.contains("running"),
        "{said}"
    );
    ensure!(
        said.contains(&fleet.up_process()?.pid().to_string()),
        "who is there is not said: {said}"
    );
    ensure!(
        fleet.home().join("ready").exists(),
        "the other's mark of readiness was taken away"
    );
    shop.product("Mug", "1.00", 1)
        .await
        .context("the fleet goes on")?;
    Ok(())
}

/// Ctrl-C leaves no process within twenty seconds; so do SIGTERM and the end of its terminal, unless `nohup` began it; after
/// a kill -9 of `podctl up` the next start ends what was left. Each start has the shops, their tokens, products and orders
/// of before, on the same address.
async fn a_fleet_stops_whole_and_starts_again_with_its_orders() -> Result<()> {
    let fleet = Fleet::start().await?;
    let shop = fleet.shop(1).await?;
    let mug = shop.product("Mug", "1.00", 100).await?;
    let mut orders = Vec::new();
    let halts = [Halt::Interrupt, Halt::Terminate, Halt::HangUp, Halt::Kill];
    for (n, signal) in halts.into_iter().enumerate() {
        orders.push(shop.buy(&format!("life-{n}"), &[(&mug, 1)]).await?.id);
        let took = fleet
            .halt(signal)
            .await
            .with_context(|| format!("{signal:?}"))?;
        if !matches!(signal, Halt::Kill) {
            ensure!(took <= STOP_MAX, "{signal:?} took {took:?}");
            let left = running(&fleet)?;
            ensure!(left.is_empty(), "{signal:?} left: {left:#?}");
            ensure!(
                !fleet.home().join("ready").exists(),
                "{signal:?}: still marked as ready"
            );
        }
        let started = if n + 1 < halts.len() {
            fleet.start_again().await
        } else {
            fleet.start_again_for_good().await
        };
        started.with_context(|| format!("after {signal:?}"))?;
        let mut listed = shop
            .order_ids()
            .await
            .with_context(|| format!("after {signal:?}"))?;
        listed.reverse();
        assert_eq!(listed, orders, "after {signal:?}");
        let units: usize = running(&fleet)?.len();
        ensure!(
            units < 2 * 14,
            "processes of the former start run beside the new ones: {units}"
        );
    }
    fleet.up_process()?.hang_up()?;
    // It ends within less where it ends.
    tokio::time::sleep(OUTLIVES).await;
    ensure!(
        fleet.up_process()?.alive() && fleet.home().join("ready").exists(),
        "begun by nohup, it has ended with its terminal"
    );
    shop.buy("last", &[(&mug, 1)]).await?;
    assert_eq!(shop.available(&mug).await?, 95);
    fleet.stop().await
}

/// `podctl pod add` is killed as soon as its first step is announced, then `podctl apply` at the second, and so on to
/// the last; the apply after that finishes: the pod serves a shop, doctor finds nothing, and a further plan is empty.
async fn inv8_an_apply_killed_at_each_step_is_finished_by_the_next() -> Result<()> {
    let fleet = Fleet::start().await?;
    let mut kills = 0;
    let finished = loop {
        let args: &[&str] = if kills == 0 {
            &["pod", "add", "third"]
        } else {
            &["apply"]
        };
        match killed_at_step(&fleet, args, kills + 1).await? {
            Applied::Killed => kills += 1,
            Applied::Ended(code, said) => break (code, said),
        }
        ensure!(kills < 60, "an apply of sixty steps?");
    };
    ensure!(
        finished.0 == Some(0),
        "the last apply ended with {:?}:\n{}",
        finished.0,
        finished.1
    );
    ensure!(
        kills >= 5,
        "killed at {kills} steps only: are steps announced?\n{}",
        finished.1
    );
    let plan = fleet.podctl.ok(&["plan"]).await?;
    ensure!(
        !plan.contains("mysql-3"),
        "something is left to do:\n{plan}"
    );
    let shop = fleet.shop(3).await.context("a shop on the third pod")?;
    let mug = shop.product("Mug", "1.00", 2).await?;
    shop.buy("third", &[(&mug, 1)]).await?;
    fleet
        .podctl
        .ok(&["doctor"])
        .await
        .context("doctor is content")?;
    let status = fleet.status().await?;
    let pod = status.pod(3)?;
    assert_eq!(
        (
            pod.processes.len(),
            pod.mysql.replicas.len(),
            pod.status.as_str()
        ),
        (2, 2, "active")
    );
    // And a second apply of what is there does nothing.
    let again = fleet.podctl.ok(&["apply"]).await?;
    ensure!(
        !again.contains("mysql-3-1"),
        "a second apply did something: {again}"
    );
    fleet.stop().await
}

enum Applied {
    Killed,
    Ended(Option<i32>, String),
}

/// Runs an apply and kills it as soon as it announces its step of that number, counted from one.
async fn killed_at_step(fleet: &Fleet, args: &[&str], step: usize) -> Result<Applied> {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let mut child = fleet
        .podctl
        .command(args)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .context("start an apply")?;
    let mut lines = BufReader::new(child.stderr.take().context("its stderr")?).lines();
    let (mut steps, mut said) = (0, String::new());
    while let Some(line) = lines.next_line().await.context("read an apply's steps")? {
        said.push_str(&line);
        said.push('\n');
        steps += usize::from(line.starts_with("step "));
        if steps == step {
            child.kill().await.context("kill an apply")?;
            return Ok(Applied::Killed);
        }
    }
    let status = child.wait().await.context("wait for an apply")?;
    Ok(Applied::Ended(status.code(), said))
}

/// `podctl up` on an empty home with a given environment; its exit code and what it says.
async fn up(home: &Path, port: &str, mysqld: Option<&Path>) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(binary("podctl")?);
    command
        .args(["up", "--no-demo", "--edge-port", port, "--home"])
        .arg(home)
        .kill_on_drop(true);
    if let Some(mysqld) = mysqld {
        command.env("PODHOST_MYSQLD", mysqld);
    }
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
    let output = output
        .context("it neither failed nor ended")?
        .context("run podctl up")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

/// No `mysqld` where one is named, MariaDB, a MySQL that is too old: each a sentence with what was found and what is
/// wanted; no process and no half-made pod is left, and the same home starts once that is mended.
async fn up_without_a_usable_mysqld_says_so() -> Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("ph-")
        .tempdir()
        .context("make a folder")?;
    let home = folder.path().join("home");
    for (name, prints, wanted) in [
        ("absent", None, "absent"),
        (
            "mariadbd",
            Some(
                "mysqld  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)",
            ),
            "MariaDB",
        ),
        (
            "old",
            Some("mysqld  Ver 5.7.44 for Linux on x86_64 (MySQL Community Server (GPL))"),
            "5.7.44",
        ),
    ] {
        let path = folder.path().join(name);
        if let Some(version) = prints {
            // The program that a name on the PATH may lead to: its version line is all that is asked of it.
            fs::write(&path, format!("#!/bin/sh\necho '{version}'\n")).context("write a script")?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("make it run")?;
        }
        let (code, said) = up(&home, "0", Some(&path)).await?;
        ensure!(code == Some(1), "{name}: {code:?}: {said}");
        ensure!(
            said.contains(wanted),
            "{name}: {wanted} is not said: {said}"
        );
        ensure!(!said.contains("panicked"), "{said}");
        let left = tests::process::processes_of(folder.path())?;
        ensure!(left.is_empty(), "{name} left: {left:?}");
    }
    Ok(())
}

/// The edge's port is taken: said with its number, and everything that was started for it is stopped again.
async fn up_with_a_taken_port_says_so() -> Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("ph-")
        .tempdir()
        .context("make a folder")?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").context("take a port")?;
    let port = taken
        .local_addr()
        .context("read the port")?
        .port()
        .to_string();
    let (code, said) = up(&folder.path().join("home"), &port, None).await?;
    ensure!(code == Some(1), "{code:?}: {said}");
    ensure!(said.contains(&port), "the port is not named: {said}");
    ensure!(
        !folder.path().join("home/run/mysql-1-1.json").exists(),
        "servers were started before the ports were looked at"
    );
    let left = tests::process::processes_of(folder.path())?;
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

/// The home is on a disk without room for a fleet: said as such before anything is begun.
async fn up_on_a_full_disk_says_so() -> Result<()> {
    let said = up_on_a_disk_of("24m", "true").await?;
    ensure!(said.contains("MB free"), "{said}");
    Ok(())
}

/// The disk has room, and somebody else fills it while the first servers' data is copied: said as such, and what was
/// started by then is ended.
async fn up_on_a_disk_that_fills_meanwhile_says_so() -> Result<()> {
    // All that is left but little; again if somebody was quicker to take a part of it.
    let fill = "(until find \"$1\" -name data.part | grep -q .; do sleep 0.01; done; \
                for n in 1 2 3 4 5 6 7 8; do \
                left=$(df --output=avail --block-size=1M \"$1\" | tail -n 1); \
                fallocate -l \"$((left - 4))M\" \"$1/filler\" && break; done) &";
    up_on_a_disk_of("1900m", fill).await.map(drop)
}

/// `podctl up` with its home on a small disk of its own, and something to do beside it: it fails with a sentence about the
/// disk and leaves no process. What it says.
async fn up_on_a_disk_of(size: &str, beside: &str) -> Result<String> {
    let folder = tempfile::Builder::new()
        .prefix("ph-")
        .tempdir()
        .context("make a folder")?;
    let home = folder.path().join("home");
    fs::create_dir(&home).context("make a home")?;
    // A mount namespace of its own: the small disk is gone with the process.
    let script = format!(
        "mount -t tmpfs -o size={size} tmpfs \"$1\" || exit 99\n{beside}\n\
         exec \"$2\" up --no-demo --edge-port 0 --home \"$1\""
    );
    let run = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, "sh"])
        .arg(&home)
        .arg(binary("podctl")?)
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(90), run).await;
    let output = output
        .context("it neither failed nor ended")?
        .context("run podctl up")?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(
        output.status.code() == Some(1),
        "{:?}: {said}",
        output.status.code()
    );
    ensure!(
        said.contains("No space left") || said.to_lowercase().contains("disk"),
        "{said}"
    );
    ensure!(!said.contains("panicked"), "{said}");
    let left = tests::process::processes_of(folder.path())?;
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(said)
}
