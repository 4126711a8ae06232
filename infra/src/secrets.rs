//! The fleet's secrets: a file each, made once, readable by their owner alone. Nobody prints them, nobody else stores
//! them.

use std::path::PathBuf;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use secrecy::{ExposeSecret as _, SecretString};
use shared::PodId;
use shared::config::SecretRef;
use shared::keys::FleetKeys;

use crate::home_dir::{HomeDir, write_durably};

/// The file of the keys that edges sign with.
pub const FLEET_KEY: &str = "fleet-key";

/// The file of the operators' token.
pub const OPERATOR_TOKEN: &str = "operator-token";

/// The file of the edges' token.
pub const EDGE_TOKEN: &str = "edge-token";

/// 192 bits: nobody guesses them. In base64 they are 32 letters, the longest password that MySQL takes for replication.
const RANDOM_BYTES: usize = 24;

/// Readable by its owner alone.
const SECRET_MODE: u32 = 0o600;

/// An account of a pod's database servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// May do everything: the control server's steps and `podctl`.
    Operator,
    /// Reads and writes rows: the pod's processes.
    App,
    /// Looks at replication: the pod's processes.
    Monitor,
    /// Fetches binlogs: replicas.
    Replication,
}

impl Account {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Operator, Self::App, Self::Monitor, Self::Replication];

    /// The user's name on the server.
    pub const fn user(self) -> &'static str {
        match self {
            Self::Operator => "podhost_operator",
            Self::App => "podhost_app",
            Self::Monitor => "podhost_monitor",
            Self::Replication => "podhost_repl",
        }
    }

    /// Its password's file.
    pub fn password_file(self, home: &HomeDir, pod: PodId) -> PathBuf {
        home.secret_file(&format!("pod-{pod}-mysql-{}", self.user()))
    }

    /// Its password.
    pub fn password(self, home: &HomeDir, pod: PodId) -> anyhow::Result<SecretString> {
        Ok(SecretRef::File(self.password_file(home, pod)).read()?)
    }
}

/// The token by which a pod's processes are known to the control server.
pub fn pod_token(pod: PodId) -> String {
    format!("pod-{pod}-token")
}

/// A pod's keys, made from the fleet's.
pub fn pod_key(pod: PodId) -> String {
    format!("pod-{pod}-key")
}

/// The names of a fleet's secrets.
pub fn of_fleet() -> Vec<String> {
    [FLEET_KEY, OPERATOR_TOKEN, EDGE_TOKEN]
        .map(str::to_owned)
        .to_vec()
}

/// The names of a pod's secrets.
pub fn of_pod(pod: PodId) -> Vec<String> {
    let passwords = Account::ALL.map(|account| format!("pod-{pod}-mysql-{}", account.user()));
    [pod_token(pod), pod_key(pod)]
        .into_iter()
        .chain(passwords)
        .collect()
}

/// Makes what is missing of the fleet's secrets. One that is there is never changed.
pub fn make_fleet(home: &HomeDir) -> anyhow::Result<()> {
    for name in of_fleet() {
        make(home, &name, || {
            Ok(if name == FLEET_KEY {
                FleetKeys::generate("k1")?.to_text()
            } else {
                random()
            })
        })?;
    }
    Ok(())
}

/// Makes what is missing of a pod's secrets.
pub fn make_pod(home: &HomeDir, pod: PodId) -> anyhow::Result<()> {
    for name in of_pod(pod) {
        make(home, &name, || {
            Ok(if name == pod_key(pod) {
                fleet_keys(home)?.pod(pod).to_text()
            } else {
                random()
            })
        })?;
    }
    Ok(())
}

/// A token's text.
pub fn token(home: &HomeDir, name: &str) -> anyhow::Result<SecretString> {
    Ok(SecretRef::File(home.secret_file(name)).read()?)
}

fn fleet_keys(home: &HomeDir) -> anyhow::Result<FleetKeys> {
    let text = token(home, FLEET_KEY)?;
    FleetKeys::parse(text.expose_secret()).context("read the fleet's keys")
}

fn make(
    home: &HomeDir,
    name: &str,
    text: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let path = home.secret_file(name);
    if path.exists() {
        return Ok(());
    }
    Ok(write_durably(&path, text()?.as_bytes(), SECRET_MODE)?)
}

/// Letters, digits, `-` and `_` only: it can stand in a header and in SQL.
fn random() -> String {
    BASE64.encode(rand::random::<[u8; RANDOM_BYTES]>())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn secrets_are_made_once_differ_and_are_their_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let home = HomeDir::at(folder.path()).create().unwrap();
        let pod = PodId::new(3).unwrap();
        let read_all = || {
            make_fleet(&home).unwrap();
            make_pod(&home, pod).unwrap();
            let names = of_fleet().into_iter().chain(of_pod(pod));
            names
                .map(|name| std::fs::read_to_string(home.secret_file(&name)).unwrap())
                .collect::<Vec<_>>()
        };
        let first = read_all();
        assert_eq!(first.len(), 9);
        assert_eq!(
            first
                .iter()
                .collect::<std::collections::BTreeSet<_>>()
                .len(),
            9
        );
        assert_eq!(read_all(), first);
        for entry in std::fs::read_dir(home.secrets()).unwrap() {
            assert_eq!(
                entry.unwrap().metadata().unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
    }
}
