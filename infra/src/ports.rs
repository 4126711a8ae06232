//! Ports of a fleet's processes on this machine.
//!
//! They are chosen once and remembered, from a range that the kernel gives to nobody else's outgoing connections. A
//! port that a fleet has chosen stays its own, also while the fleet is down: several fleets of one user share a folder
//! in which a file per port names the home that has it and what for. Choosing for the same again gives the same port,
//! so that a plan made anew after a crash is the same plan.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use rand::RngExt as _;
use rustix::fs::{FlockOperation, flock};

use crate::home_dir::{HomeDir, make_folder, write_atomically};

/// Below what Linux uses for outgoing connections (32768 and up), above what people choose by hand.
const FIRST: u16 = 20_000;

/// How many ports there are; a fleet of three pods takes about thirty.
const COUNT: u16 = 12_000;

/// Chooses ports for one fleet.
#[derive(Debug)]
pub struct Ports {
    folder: PathBuf,
    home: String,
    /// What the fleet has already, by what for.
    has: BTreeMap<String, u16>,
    _lock: File,
}

impl Ports {
    /// Opens the user's register; other fleets wait meanwhile, so that two of them never choose the same port.
    pub fn open(home: &HomeDir) -> anyhow::Result<Self> {
        Self::open_in(home, &cache_folder()?.join("ports"))
    }

    fn open_in(home: &HomeDir, folder: &Path) -> anyhow::Result<Self> {
        make_folder(folder)?;
        let path = folder.join("lock");
        let lock = File::create(&path).with_context(|| format!("open {}", path.display()))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let home = home.path().to_string_lossy().into_owned();
        let mut has = BTreeMap::new();
        for entry in
            std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?
        {
            let port = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let Some((port, (owner, what))) =
                port.and_then(|port| Some((port, owner(folder, port)?)))
            else {
                continue;
            };
            if owner == home {
                has.insert(what, port);
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            home,
            has,
            _lock: lock,
        })
    }

    /// The fleet's port for something: the one that it has, else a free one, which is its own from now on.
    pub fn choose(&mut self, what: &str) -> anyhow::Result<u16> {
        if let Some(port) = self.has.get(what) {
            return Ok(*port);
        }
        let start = rand::rng().random_range(0..COUNT);
        let port = (0..COUNT)
            .map(|step| FIRST + (start + step) % COUNT)
            .find(|port| !is_taken(&self.folder, *port) && is_free(*port))
            .with_context(|| format!("no port from {FIRST} to {} is free", FIRST + COUNT - 1))?;
        let text = format!("{}\n{what}", self.home);
        write_atomically(&self.folder.join(port.to_string()), text.as_bytes(), 0o600)?;
        self.has.insert(what.to_owned(), port);
        Ok(port)
    }
}

/// The home that has a port, and what for.
fn owner(folder: &Path, port: u16) -> Option<(String, String)> {
    let text = std::fs::read_to_string(folder.join(port.to_string())).ok()?;
    let (home, what) = text.split_once('\n')?;
    Some((home.to_owned(), what.to_owned()))
}

/// Whether some fleet has it. A home that was deleted has none.
fn is_taken(folder: &Path, port: u16) -> bool {
    owner(folder, port).is_some_and(|(home, _)| Path::new(&home).is_dir())
}

/// Whether nobody listens there.
pub fn is_free(port: u16) -> bool {
    // The standard library sets SO_REUSEADDR, so that connections that are closing down do not count.
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Says what to do about a port that somebody else has.
pub fn ensure_free(port: u16, what: &str, way_out: &str) -> anyhow::Result<()> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Ok(()),
        Err(fault) if fault.kind() == ErrorKind::AddrInUse => {
            anyhow::bail!(
                "port {port} ({what}) is taken by another program (`ss -ltnp sport = :{port}` shows it): stop it, {way_out}"
            )
        }
        Err(fault) => {
            ensure!(
                fault.kind() != ErrorKind::PermissionDenied,
                "port {port} ({what}) may only be used by root: {way_out}"
            );
            Err(fault).with_context(|| format!("listen on port {port} ({what})"))
        }
    }
}

/// What belongs to the user and not to one fleet: downloads, the template of data folders, the register of ports.
pub fn cache_folder() -> anyhow::Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    Ok(cache
        .context("neither HOME nor XDG_CACHE_HOME is set")?
        .join("podhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleets_never_share_a_port_until_one_is_deleted() {
        let root = tempfile::tempdir().unwrap();
        let register = root.path().join("ports");
        let fleet = |name: &str| HomeDir::at(root.path().join(name)).create().unwrap();
        let (a, b) = (fleet("a"), fleet("b"));
        let choose = |home: &HomeDir| {
            let mut ports = Ports::open_in(home, &register).unwrap();
            (0..20)
                .map(|n| ports.choose(&format!("unit-{n}")).unwrap())
                .collect::<Vec<_>>()
        };
        let (first, second) = (choose(&a), choose(&b));
        assert!(
            first
                .iter()
                .all(|port| is_taken(&register, *port) && !second.contains(port))
        );
        assert_eq!(choose(&a), first, "the same again");
        std::fs::remove_dir_all(a.path()).unwrap();
        assert!(first.iter().all(|port| !is_taken(&register, *port)));
    }

    #[test]
    fn a_taken_port_is_named_with_the_way_out() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(!is_free(port));
        let text = ensure_free(port, "edge-1", "or choose another with --edge-port")
            .unwrap_err()
            .to_string();
        assert!(
            text.contains(&port.to_string())
                && text.contains("edge-1")
                && text.contains("--edge-port"),
            "{text}"
        );
    }
}
