//! The MySQL server program: which one is used, and a data folder to begin with. Both are the business of the scripts in
//! `infra/setup`, which a person can run too; here is what they said.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::process::Command;

// Database servers over SQL, as the fleet's own steps need them.
pub mod admin;

// Making three empty servers a pod's: accounts, schema, identity, replication.
pub(crate) mod provision;

/// Words of the server's command, one a line.
const MYSQLD: &str = "PODHOST_MYSQLD";

/// A server program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mysqld {
    /// The command up to where the server's own options begin.
    pub words: Vec<String>,
    /// For example 9.7.4.
    pub version: String,
}

impl Mysqld {
    /// The program that `words` name, else the one that `infra/setup/mysqld` finds. One that is missing, too old or no
    /// MySQL is refused in the script's words.
    pub async fn find(words: &[String]) -> anyhow::Result<Self> {
        let named = (!words.is_empty()).then(|| words.join("\n"));
        let version = script("mysqld", &["--version"], named.as_deref()).await?;
        let words = script("mysqld", &[], named.as_deref()).await?;
        let words = words.lines().map(str::to_owned).collect();
        Ok(Self {
            words,
            version: version.trim().to_owned(),
        })
    }

    /// A freshly initialised data folder of this server, to be copied. Takes some seconds the first time.
    pub async fn fresh_data(&self) -> anyhow::Result<PathBuf> {
        Ok(script("mysql-data", &[], Some(&self.words.join("\n")))
            .await?
            .trim()
            .into())
    }
}

/// Where the scripts are: `PODHOST_SETUP`, else where this program was built.
fn setup_folder() -> PathBuf {
    std::env::var_os("PODHOST_SETUP").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("setup"),
        PathBuf::from,
    )
}

/// Runs a script and gives what it prints; what it says on stderr is the fault if it fails.
async fn script(name: &str, arguments: &[&str], mysqld: Option<&str>) -> anyhow::Result<String> {
    let path = setup_folder().join(name);
    let mut command = Command::new(&path);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if let Some(words) = mysqld {
        command.env(MYSQLD, words);
    }
    let ran = command.output().await;
    let ran = ran.with_context(|| format!("run {}", path.display()))?;
    if !ran.status.success() {
        bail!("{}", String::from_utf8_lossy(&ran.stderr).trim());
    }
    String::from_utf8(ran.stdout).with_context(|| format!("read what {} prints", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_is_none_is_refused_with_its_reason() {
        let missing = Mysqld::find(&["/no/such/mysqld".into()])
            .await
            .unwrap_err()
            .to_string();
        assert!(missing.contains("/no/such/mysqld"), "{missing}");
        let folder = tempfile::tempdir().unwrap();
        let maria = folder.path().join("mysqld");
        std::fs::write(
            &maria,
            "#!/bin/sh\necho 'mysqld  Ver 10.11.6-MariaDB for debian-linux-gnu on x86_64'\n",
        )
        .unwrap();
        std::fs::set_permissions(&maria, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let words = [maria.display().to_string()];
        let fault = Mysqld::find(&words).await.unwrap_err().to_string();
        assert!(fault.contains("is MariaDB"), "{fault}");
        std::fs::write(
            &maria,
            "#!/bin/sh\necho 'mysqld  Ver 8.0.25 for Linux on x86_64'\n",
        )
        .unwrap();
        let fault = Mysqld::find(&words).await.unwrap_err().to_string();
        assert!(
            fault.contains("8.0.25") && fault.contains("8.0.26"),
            "{fault}"
        );
    }
}
