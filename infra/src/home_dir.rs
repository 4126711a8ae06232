//! The home folder of a local fleet, `.podhost/`: what lies where, how files in it are written, and who may run it.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use shared::PodId;

mod lock;
mod write;

pub use lock::{FleetLock, Locked};
pub use write::{WriteError, write_atomically, write_durably};

/// The folder's name.
pub const NAME: &str = ".podhost";

/// Only its owner may look into a fleet: it holds sockets and secrets.
const FOLDER_MODE: u32 = 0o700;

/// Linux keeps a socket's path in 108 bytes, one of them for the end (`sockaddr_un`).
const SOCKET_PATH_MAX: usize = 107;

/// The longest path of a socket within a home.
const LONGEST_SOCKET: &str = "pod-4294967295/mysql-9/mysqld.sock";

/// A home folder. Holds only its path: nothing is kept open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeDir(PathBuf);

/// No home folder where one was looked for.
#[derive(Debug, thiserror::Error)]
pub enum NotFound {
    /// Neither here nor above.
    #[error(
        "there is no {NAME} folder in {} or above it: start a fleet with `podctl up`, or name its home with --home",
        .0.display()
    )]
    Above(PathBuf),
    /// Not where the operator said.
    #[error("{} is no fleet's home (it has no fleet.toml): start one there with `podctl up --home {}`", .0.display(), .0.display())]
    Named(PathBuf),
}

impl HomeDir {
    /// The home at this path, whether it is there or not.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The home that `wish` names, else the nearest [`NAME`] in `from` or above it.
    pub fn find(wish: Option<&Path>, from: &Path) -> Result<Self, NotFound> {
        if let Some(wish) = wish {
            let home = Self(from.join(wish));
            return if home.fleet_file().is_file() {
                Ok(home.real())
            } else {
                Err(NotFound::Named(wish.to_owned()))
            };
        }
        from.ancestors()
            .map(|folder| Self(folder.join(NAME)))
            .find(|home| home.fleet_file().is_file())
            .map(Self::real)
            .ok_or_else(|| NotFound::Above(from.to_owned()))
    }

    /// The home that `podctl up` starts: the one that [`Self::find`] gives, else a new one.
    pub fn find_or_new(wish: Option<&Path>, from: &Path) -> Self {
        Self::find(wish, from)
            .unwrap_or_else(|_| Self(from.join(wish.unwrap_or_else(|| Path::new(NAME)))))
    }

    /// By its real path: the fleet's processes are known by it, whatever way an operator came.
    fn real(self) -> Self {
        Self(std::fs::canonicalize(&self.0).unwrap_or(self.0))
    }

    /// Makes the folders that every fleet has.
    pub fn create(self) -> anyhow::Result<Self> {
        make_folder(&self.0)?;
        let home = self.real();
        for folder in ["units", "run", "logs", "secrets", "control", "edge"] {
            make_folder(&home.0.join(folder))?;
        }
        anyhow::ensure!(
            home.0.join(LONGEST_SOCKET).as_os_str().len() <= SOCKET_PATH_MAX,
            "the path {} is too long for the sockets in it (a socket's path has at most {SOCKET_PATH_MAX} bytes): choose a shorter one with --home",
            home.0.display()
        );
        Ok(home)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The wish: which pods there shall be.
    pub fn fleet_file(&self) -> PathBuf {
        self.0.join("fleet.toml")
    }

    /// Held by flock while `podctl up` runs.
    pub fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Held by flock while an apply runs.
    pub fn apply_lock_file(&self) -> PathBuf {
        self.0.join("apply.lock")
    }

    /// There while everything serves.
    pub fn ready_file(&self) -> PathBuf {
        self.0.join("ready")
    }

    /// There once the demo shops have their products.
    pub fn demo_file(&self) -> PathBuf {
        self.0.join("demo")
    }

    /// What the supervisor shall run, a file each.
    pub fn units(&self) -> PathBuf {
        self.0.join("units")
    }

    /// The wish for one unit.
    pub fn unit_file(&self, unit: &str) -> PathBuf {
        self.units().join(format!("{unit}.toml"))
    }

    /// What the supervisor runs for a unit just now.
    pub fn run_file(&self, unit: &str) -> PathBuf {
        self.0.join("run").join(format!("{unit}.json"))
    }

    /// What a unit wrote to its standard error.
    pub fn log_file(&self, unit: &str) -> PathBuf {
        self.0.join("logs").join(format!("{unit}.log"))
    }

    /// The folder of all secrets.
    pub fn secrets(&self) -> PathBuf {
        self.0.join("secrets")
    }

    /// A secret's file.
    pub fn secret_file(&self, name: &str) -> PathBuf {
        self.secrets().join(name)
    }

    /// The control server's configuration.
    pub fn control_config(&self) -> PathBuf {
        self.0.join("control").join("control.toml")
    }

    /// The catalog.
    pub fn catalog(&self) -> PathBuf {
        self.0.join("control").join("catalog.sqlite")
    }

    /// The folder of an edge.
    pub fn edge(&self, unit: &str) -> PathBuf {
        self.0.join("edge").join(unit)
    }

    /// The folder of a pod.
    pub fn pod(&self, pod: PodId) -> PathBuf {
        self.0.join(format!("pod-{pod}"))
    }

    /// The configuration of a pod's n-th process.
    pub fn pod_config(&self, pod: PodId, process: u16) -> PathBuf {
        self.pod(pod).join(format!("pod-{process}.toml"))
    }

    /// There once the pod has been put into service for the first time; from then on its status is the operator's.
    pub fn pod_activated(&self, pod: PodId) -> PathBuf {
        self.pod(pod).join("activated")
    }

    /// The folder of a pod's k-th MySQL server.
    pub fn mysql(&self, pod: PodId, server: u16) -> PathBuf {
        self.pod(pod).join(format!("mysql-{server}"))
    }

    /// Where that server listens for clients on this machine.
    pub fn mysql_socket(&self, pod: PodId, server: u16) -> PathBuf {
        self.mysql(pod, server).join("mysqld.sock")
    }

    /// The folder of a pod's Redis.
    pub fn redis(&self, pod: PodId) -> PathBuf {
        self.pod(pod).join("redis")
    }
}

/// Makes a folder and those above it, readable by its owner alone. One that is there stays as it is.
pub fn make_folder(path: &Path) -> Result<(), WriteError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(path)
        .map_err(|fault| WriteError::new(path, fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_home_above_is_found() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("a/b/c");
        std::fs::create_dir_all(&below).unwrap();
        let missing = HomeDir::find(None, &below).unwrap_err();
        assert!(missing.to_string().contains("podctl up"), "{missing}");
        let home = root.path().join("a").join(NAME);
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(home.join("fleet.toml"), "").unwrap();
        assert_eq!(HomeDir::find(None, &below).unwrap(), HomeDir::at(&home));
        // A named one is taken or refused, never searched for.
        assert!(HomeDir::find(Some(&below), &below).is_err());
        assert_eq!(
            HomeDir::find(Some(&home), root.path()).unwrap(),
            HomeDir::at(&home)
        );
        // Only `up` makes a new one.
        assert_eq!(
            HomeDir::find_or_new(Some(Path::new("x")), root.path()),
            HomeDir::at(root.path().join("x"))
        );
    }

    #[test]
    fn a_home_too_deep_for_sockets_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let deep = HomeDir::at(root.path().join("d".repeat(100)));
        let fault = deep.create().unwrap_err().to_string();
        assert!(fault.contains("too long"), "{fault}");
        assert!(HomeDir::at(root.path().join("ok")).create().is_ok());
    }
}
