//! The tools that copy a shop today, as an operator would call them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tests::status::{Mysql, MysqlServer};
use tokio::process::Command;

/// A program with everything that it needs to run.
#[derive(Debug, Clone)]
pub(super) struct Tools {
    /// Words before a client program's own: the loader of a private tree, if there is one.
    before: Vec<String>,
    /// The folder of `mysql` and `mysqldump`.
    clients: PathBuf,
    /// The folder that `tests/bench/peers` filled.
    peers: PathBuf,
}

/// A server that a tool works on.
#[derive(Debug, Clone)]
pub(super) struct Place {
    host: String,
    port: u16,
    user: String,
    password: String,
}

impl Place {
    pub(super) fn of(mysql: &Mysql, server: &MysqlServer) -> Result<Self> {
        let path = Path::new(&mysql.password_file);
        let password =
            std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Ok(Self {
            host: server.host.clone(),
            port: server.port,
            user: mysql.user.clone(),
            password: password.trim().to_owned(),
        })
    }

    fn client(&self, command: &mut Command) {
        command
            .args([
                format!("--host={}", self.host),
                format!("--port={}", self.port),
            ])
            .arg(format!("--user={}", self.user))
            .env("MYSQL_PWD", &self.password);
    }

    fn dumper(&self, command: &mut Command) {
        command
            .args(["-h", &self.host, "-P", &self.port.to_string()])
            .args(["-u", &self.user, "-p", &self.password]);
    }
}

impl Tools {
    /// Finds them.
    pub(super) async fn find() -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/setup/mysqld");
        let words = Command::new(script)
            .output()
            .await
            .context("setup/mysqld")?;
        let words = String::from_utf8(words.stdout).context("setup/mysqld")?;
        let mut words: Vec<String> = words.lines().map(str::to_owned).collect();
        let at = words.iter().position(|word| word.ends_with("/mysqld"));
        let server = PathBuf::from(words.remove(at.context("setup/mysqld names no mysqld")?));
        words.truncate(at.unwrap_or_default());
        let above = server.parent().and_then(Path::parent);
        Ok(Self {
            before: words,
            clients: above.context("mysqld has no folder above")?.join("bin"),
            peers: std::env::var_os("PODHOST_BENCH_PEERS")
                .map(PathBuf::from)
                .context("tests/bench/run fetches mydumper")?,
        })
    }

    fn client(&self, name: &str) -> Command {
        let program = self.clients.join(name);
        let mut command = match self.before.split_first() {
            Some((loader, rest)) => {
                let mut command = Command::new(loader);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.kill_on_drop(true);
        command
    }

    fn peer(&self, name: &str) -> Command {
        let tree = self.peers.join("tree");
        let libraries = tree.join("usr/lib/x86_64-linux-gnu");
        let paths = format!(
            "{}:{}",
            libraries.display(),
            tree.join("lib/x86_64-linux-gnu").display()
        );
        let mut command = Command::new(tree.join("usr/bin").join(name));
        command
            .env("LD_LIBRARY_PATH", paths)
            .env("MARIADB_PLUGIN_DIR", libraries.join("libmariadb3/plugin"))
            .kill_on_drop(true);
        command
    }

    /// `mysqldump --where | mysql`, into another database.
    pub(super) async fn mysqldump(
        &self,
        (from, database): (&Place, &str),
        (to, into): (&Place, &str),
        shop: u64,
        tables: &[&str],
    ) -> Result<Duration> {
        let begun = Instant::now();
        let mut dump = self.client("mysqldump");
        dump.arg("--no-defaults");
        from.client(&mut dump);
        dump.args([
            "--single-transaction",
            "--set-gtid-purged=OFF",
            "--no-tablespaces",
        ])
        .args(["--no-create-info", "--skip-triggers", "--hex-blob"])
        .arg(format!("--where=shop_id = {shop}"))
        .arg(database)
        .args(tables)
        .stdout(Stdio::piped());
        let mut dump = dump.spawn().context("start mysqldump")?;
        let pipe = dump.stdout.take().context("mysqldump's output")?;
        let mut load = self.client("mysql");
        load.arg("--no-defaults");
        to.client(&mut load);
        let pipe: Stdio = pipe.try_into().context("mysqldump's output")?;
        let loaded = load.arg(into).stdin(pipe).status().await.context("mysql")?;
        let dumped = dump.wait().await.context("mysqldump")?;
        ensure!(
            dumped.success() && loaded.success(),
            "mysqldump | mysql: {dumped}, {loaded}"
        );
        Ok(begun.elapsed())
    }

    /// `mydumper`, then `myloader`: a database that holds the shop alone, by two threads. The two cannot be piped.
    pub(super) async fn mydumper(
        &self,
        (from, database): (&Place, &str),
        (to, into): (&Place, &str),
        folder: &Path,
    ) -> Result<Duration> {
        let begun = Instant::now();
        let mut dump = self.peer("mydumper");
        from.dumper(&mut dump);
        dump.args(["-B", database, "-t", "2", "-r", "50000", "--no-locks", "-o"])
            .arg(folder);
        let mut load = self.peer("myloader");
        to.dumper(&mut load);
        load.args(["-B", into, "-t", "2", "-o", "-e", "-d"])
            .arg(folder);
        for (name, mut command) in [("mydumper", dump), ("myloader", load)] {
            let output = command.output().await.with_context(|| name.to_owned())?;
            let text = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{name}: {}: {text}", output.status);
        }
        Ok(begun.elapsed())
    }
}
