//! The fleet's keys as the edge holds them, read again on SIGHUP.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use shared::config::{Secret, SecretError};
use shared::keys::{FleetKeys, KeyError};

/// Why keys that were rotated are not in use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    #[error("cannot read the fleet keys again")]
    Read(#[source] SecretError),
    #[error("the fleet keys cannot be used")]
    Parse(#[source] KeyError),
}

/// The keys in use. A request keeps those it began with.
pub(crate) struct Keys {
    source: Mutex<Secret>,
    now: ArcSwap<FleetKeys>,
}

impl Keys {
    pub(crate) fn new(source: Secret) -> Result<Self, KeyError> {
        let now = ArcSwap::from_pointee(FleetKeys::parse(source.expose())?);
        Ok(Self {
            source: Mutex::new(source),
            now,
        })
    }

    pub(crate) fn now(&self) -> Arc<FleetKeys> {
        self.now.load_full()
    }

    /// Reads them again. Keys that cannot be used change nothing.
    pub(crate) fn reload(&self) -> Result<(), ReloadError> {
        let mut source = self.source.lock();
        let again = source.reread().map_err(ReloadError::Read)?;
        let keys = FleetKeys::parse(again.expose()).map_err(ReloadError::Parse)?;
        *source = again;
        drop(source);
        self.now.store(Arc::new(keys));
        Ok(())
    }
}
