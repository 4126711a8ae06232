//! Ports of a fleet's processes on this machine.
//!
//! They are chosen once and remembered in the units, from a range that the kernel gives to nobody else's outgoing
//! connections. A port that a fleet has chosen stays its own, also while the fleet is down: several fleets of one user share a
//! folder in which a file per port names the home that has it.

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
    home: PathBuf,
    folder: PathBuf,
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
        Ok(Self { home: home.path().to_owned(), folder: folder.to_owned(), _lock: lock })
    }

    /// A free port, the fleet's from now on.
    pub fn choose(&self) -> anyhow::Result<u16> {
        let start = rand::rng().random_range(0..COUNT);
        let port = (0..COUNT)
            .map(|step| FIRST + (start + step) % COUNT)
            .find(|port| !self.is_anothers(*port) && is_free(*port))
            .with_context(|| format!("no port from {FIRST} to {} is free", FIRST + COUNT - 1))?;
        self.keep(port)?;
        Ok(port)
    }

    /// Remembers that the fleet has a port.
    fn keep(&self, port: u16) -> anyhow::Result<()> {
        let home = self.home.as_os_str().as_encoded_bytes();
        Ok(write_atomically(&self.folder.join(port.to_string()), home, 0o600)?)
    }

    /// Whether a fleet has it, this one included. A home that was deleted has none.
    fn is_anothers(&self, port: u16) -> bool {
        std::fs::read_to_string(self.folder.join(port.to_string()))
            .is_ok_and(|home| Path::new(&home).is_dir())
    }
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
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| {
        std::env::home_dir().map(|home| home.join(".cache"))
    });
    Ok(cache.context("neither HOME nor XDG_CACHE_HOME is set")?.join("podhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleets_never_share_a_port_until_one_is_deleted() {
        let root = tempfile::tempdir().unwrap();
        let register = root.path().join("ports");
        let fleet = |name: &str| {
            HomeDir::at(root.path().join(name)).create().unwrap()
        };
        let (a, b) = (fleet("a"), fleet("b"));
        let first: Vec<_> = {
            let ports = Ports::open_in(&a, &register).unwrap();
            (0..20).map(|_| ports.choose().unwrap()).collect()
        };
        let ports = Ports::open_in(&b, &register).unwrap();
        assert!(first.iter().all(|port| ports.is_anothers(*port)));
        assert!((0..20).all(|_| !first.contains(&ports.choose().unwrap())));
        std::fs::remove_dir_all(a.path()).unwrap();
        assert!(first.iter().all(|port| !ports.is_anothers(*port)));
    }

    #[test]
    fn a_taken_port_is_named_with_the_way_out() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(!is_free(port));
        let text = ensure_free(port, "edge-1", "or choose another with --edge-port").unwrap_err().to_string();
        assert!(text.contains(&port.to_string()) && text.contains("edge-1") && text.contains("--edge-port"), "{text}");
    }
}
