//! One MySQL server without a fleet: for what is shown of MySQL and its driver alone.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::{Connection, Executor};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::process::free_port;
use crate::{Server, wait_until};

/// A copied data folder starts in about a second.
const START_MAX: Duration = Duration::from_secs(30);
const PASSWORD: &str = "only-on-the-loopback";

/// The server; it is killed with the value.
#[derive(Debug)]
pub struct BareMysql {
    _child: Child,
    _folder: TempDir,
    /// An account that may do everything in the database `scratch`.
    pub server: Server,
}

impl BareMysql {
    /// Starts it on a copy of the prepared data folder.
    pub async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("ph-")
            .tempdir()
            .context("make a folder")?;
        let (data, socket) = (folder.path().join("data"), folder.path().join("s.sock"));
        let template = output(&setup("mysql-data")).await?;
        let copy = Command::new("cp")
            .args(["-r", "--sparse=always", template.trim()])
            .arg(&data)
            .status()
            .await;
        ensure!(
            copy.context("copy the data folder")?.success(),
            "the data folder was not copied"
        );
        let port = free_port()?;
        let words = output(&setup("mysqld")).await?;
        let mut words = words.lines();
        let child = Command::new(words.next().context("setup/mysqld printed nothing")?)
            .args(words)
            .args([
                "--no-defaults",
                "--user=root",
                "--mysqlx=OFF",
                "--secure-file-priv=",
            ])
            .args(["--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M"])
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start mysqld")?;
        make_account(&socket).await?;
        let server = Server::account("127.0.0.1", port, "tester", PASSWORD, "scratch");
        Ok(Self {
            _child: child,
            _folder: folder,
            server,
        })
    }
}

async fn make_account(socket: &Path) -> Result<()> {
    let root = MySqlConnectOptions::new()
        .socket(socket)
        .username("root")
        .ssl_mode(MySqlSslMode::Disabled);
    let mut session = wait_until("mysqld answers", START_MAX, async || {
        MySqlConnection::connect_with(&root)
            .await
            .context("connect")
    })
    .await?;
    for sql in [
        "create database scratch",
        "create user tester@'%' identified by 'only-on-the-loopback'",
        "grant all on *.* to tester@'%' with grant option",
    ] {
        session.execute(sql).await.context(sql)?;
    }
    Ok(())
}

fn setup(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../infra/setup")
        .join(script)
}

async fn output(script: &Path) -> Result<String> {
    let output = Command::new(script).output().await;
    let output = output.with_context(|| format!("run {}", script.display()))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {stderr}", script.display());
    String::from_utf8(output.stdout).context("a script that prints text")
}
