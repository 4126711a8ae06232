//! Configs that are wrong: every fault is named at once, the exit code says "usage", and nothing is started.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tests::own_pod::{OwnPod, refused};
use tests::suite::Test;
use tests::{Fleet, tests};
use tokio::process::Command;
use toml::{Table, Value};

pub(crate) fn list() -> Vec<Test> {
    tests![
        shares: three_faults_in_a_config_are_all_named,
            a_config_that_is_no_toml_names_its_line,
            check_config_accepts_what_the_fleet_rendered_and_binds_nothing,
            a_taken_port_is_named,
            a_user_without_rights_is_named;
        // What they change at a pod keeps other tests' processes from starting.
        alone: a_pod_names_each_server_setting_that_is_unsafe,
            a_schema_that_is_newer_than_the_binary_is_refused;
    ]
}

/// `EX_USAGE`.
const USAGE: i32 = 64;

/// For each binary: its rendered config, and where a copy for one test goes. Paths in a config start at its folder, so
/// the copy stands beside the original.
fn rendered(fleet: &Fleet, copy: &str) -> Result<Vec<(&'static str, Table, PathBuf)>> {
    let edge = fleet.edge_config()?;
    let pod = fleet.home().join("pod-1/pod-1.toml");
    let control = fleet.home().join("control/control.toml");
    [("edge", edge), ("pod", pod), ("podctl", control)]
        .into_iter()
        .map(|(binary, path)| {
            let text =
                fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let config = text.parse().with_context(|| path.display().to_string())?;
            Ok((binary, config, path.with_file_name(copy)))
        })
        .collect()
}

/// Runs a binary on a config; its exit code and what it says.
async fn run(binary: &str, config: &Path, check: bool) -> Result<(Option<i32>, String)> {
    if binary != "podctl" && !check {
        return refused(binary, config).await;
    }
    let mut command = Command::new(tests::process::binary(binary)?);
    if binary == "podctl" {
        command.arg("serve");
    }
    command.arg("--config").arg(config);
    if check {
        command.arg("--check-config");
    }
    let output = tokio::time::timeout(
        std::time::Duration::from_secs(20),
        command.kill_on_drop(true).output(),
    );
    let output = output.await.context("it does not end")?.context("run it")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

/// An unknown key, a value of the wrong type and a missing one, in the config of each binary: all three are in the
/// message, and the exit code is 64, with `--check-config` and without.
async fn three_faults_in_a_config_are_all_named(fleet: &Fleet) -> Result<()> {
    for (binary, mut config, path) in rendered(fleet, "three-faults.toml")? {
        let missing = if binary == "pod" {
            "key_file"
        } else {
            "fleet_key_file"
        };
        ensure!(
            config.remove(missing).is_some(),
            "{binary} has no {missing}"
        );
        config.insert("listne".into(), Value::String("x".into()));
        config.insert("listen".into(), Value::Integer(7));
        fs::write(&path, config.to_string()).context("write a config")?;
        for check in [true, false] {
            let (code, said) = run(binary, &path, check).await?;
            ensure!(code == Some(USAGE), "{binary}: {code:?}: {said}");
            for fault in [missing, "listne", "listen"] {
                ensure!(
                    said.contains(fault),
                    "{binary} does not name {fault}: {said}"
                );
            }
            ensure!(
                said.contains(&path.display().to_string()),
                "{binary} does not name the file: {said}"
            );
            ensure!(!said.contains("panicked"), "{said}");
        }
    }
    Ok(())
}

/// A file that is no TOML, and one that is not there.
async fn a_config_that_is_no_toml_names_its_line(_fleet: &Fleet) -> Result<()> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let broken = folder.path().join("broken.toml");
    fs::write(&broken, "pod = 1\nlisten = [\n").context("write a config")?;
    let absent = folder.path().join("absent.toml");
    for binary in ["edge", "pod", "podctl"] {
        let (code, said) = run(binary, &broken, true).await?;
        ensure!(
            code == Some(USAGE) && said.contains("broken.toml"),
            "{binary}: {code:?} {said}"
        );
        let (code, said) = run(binary, &absent, true).await?;
        ensure!(
            code == Some(USAGE) && said.contains("absent.toml"),
            "{binary}: {code:?} {said}"
        );
    }
    Ok(())
}

/// What `podctl` rendered passes, beside the processes that run on it.
async fn check_config_accepts_what_the_fleet_rendered_and_binds_nothing(
    fleet: &Fleet,
) -> Result<()> {
    for (binary, config, path) in rendered(fleet, "accepted.toml")? {
        fs::write(&path, config.to_string()).context("write a config")?;
        let (code, said) = run(binary, &path, true).await?;
        ensure!(code == Some(0), "{binary}: {code:?}: {said}");
    }
    Ok(())
}

/// The config as it is, while the process that it belongs to runs: the port is taken, which is said with its number,
/// and is a failure and not a wrong config.
async fn a_taken_port_is_named(fleet: &Fleet) -> Result<()> {
    for (binary, mut config, path) in rendered(fleet, "taken.toml")? {
        if binary == "edge" {
            let own = path.with_extension("bin");
            config.insert(
                "state_file".into(),
                Value::String(own.display().to_string()),
            );
        }
        if binary == "podctl" {
            // A second control server on the same catalog is refused before it looks at its port.
            let own = path.with_extension("sqlite");
            config.insert("catalog".into(), Value::String(own.display().to_string()));
        }
        let listen = match config.get("listen") {
            Some(Value::Array(list)) => list.first().cloned(),
            other => other.cloned(),
        };
        let listen = listen
            .and_then(|l| l.as_str().map(str::to_owned))
            .context("a listen address")?;
        fs::write(&path, config.to_string()).context("write a config")?;
        let (code, said) = run(binary, &path, false).await?;
        ensure!(code == Some(1), "{binary}: {code:?}: {said}");
        ensure!(
            said.contains(&listen),
            "{binary} does not name {listen}: {said}"
        );
        ensure!(!said.contains("panicked"), "{said}");
    }
    Ok(())
}

/// Three unsafe settings on a replica: a new pod process does not start on it, and names all three.
async fn a_pod_names_each_server_setting_that_is_unsafe(fleet: &Fleet) -> Result<()> {
    let pod = fleet.shop(2).await?.pod;
    let replicas = fleet.replicas(2).await?;
    let replica = replicas.first().context("a replica")?;
    let settings = [
        ("sync_binlog", "1", "0"),
        ("sync_relay_log", "1", "10000"),
        ("binlog_row_image", "'FULL'", "'MINIMAL'"),
    ];
    for (name, _, bad) in settings {
        replica.run(&format!("set global {name} = {bad}")).await?;
    }
    let started = OwnPod::start(fleet, pod, |_| {}).await;
    for (name, good, _) in settings {
        replica.run(&format!("set global {name} = {good}")).await?;
    }
    let said = format!(
        "{:#}",
        started.err().context("it started on unsafe settings")?
    );
    for (name, ..) in settings {
        ensure!(said.contains(name), "{name} is not named: {said}");
    }
    OwnPod::start(fleet, pod, |_| {})
        .await
        .context("with the settings back")?;
    Ok(())
}

/// A database user that may read and nothing else: named with what it lacks; and a wrong password: named without it.
async fn a_user_without_rights_is_named(fleet: &Fleet) -> Result<()> {
    let pod = fleet.shop(1).await?.pod;
    let primary = fleet.primary(1).await?;
    let folder = tempfile::tempdir().context("make a folder")?;
    let file = folder.path().join("password");
    let password = "a-password-of-the-test";
    fs::write(&file, password).context("write a password")?;
    primary
        .run(&format!(
            "create user if not exists weak@'%' identified by '{password}'; grant select on podhost.* to weak@'%'"
        ))
        .await?;
    let replicas = fleet.replicas(1).await?;
    for replica in &replicas {
        tests::wait_until(
            "the account is at the replicas",
            std::time::Duration::from_secs(5),
            async || {
                let found = replica
                    .number("select count(*) from mysql.user where user = 'weak'")
                    .await?;
                ensure!(found == 1);
                Ok(())
            },
        )
        .await?;
    }
    let use_account = |user: &str| {
        let (user, file) = (user.to_owned(), file.display().to_string());
        move |config: &mut Table| {
            if let Some(Value::Table(mysql)) = config.get_mut("mysql") {
                mysql.insert("user".into(), Value::String(user.clone()));
                mysql.insert("password_file".into(), Value::String(file.clone()));
            }
        }
    };
    let weak = OwnPod::start(fleet, pod, use_account("weak")).await;
    primary.run("drop user weak@'%'").await?;
    let said = format!("{:#}", weak.err().context("it started without rights")?);
    ensure!(said.contains("weak"), "the user is not named: {said}");
    for right in ["INSERT", "UPDATE", "DELETE"] {
        ensure!(
            said.contains(right),
            "that it lacks {right} is not said: {said}"
        );
    }
    let wrong = OwnPod::start(fleet, pod, use_account("podhost_app")).await;
    let said = format!(
        "{:#}",
        wrong.err().context("it started with a wrong password")?
    );
    ensure!(
        said.contains("podhost_app") && !said.contains(password),
        "{said}"
    );
    Ok(())
}

/// A migration in the ledger that the binary does not know: it does not start, and says which and what to do.
async fn a_schema_that_is_newer_than_the_binary_is_refused(fleet: &Fleet) -> Result<()> {
    let pod = fleet.shop(2).await?.pod;
    let primary = fleet.primary(2).await?;
    primary
        .run(
            "insert into schema_ledger (version, name, checksum, started_at, finished_at) \
             values (9999, 'from the future', repeat('0', 64), now(), now())",
        )
        .await?;
    let started = OwnPod::start(fleet, pod, |_| {}).await;
    primary
        .run("delete from schema_ledger where version = 9999")
        .await?;
    let said = format!(
        "{:#}",
        started.err().context("it started on a newer schema")?
    );
    ensure!(said.contains("9999"), "the migration is not named: {said}");
    Ok(())
}
