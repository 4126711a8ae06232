//! Keeping the route table on disk, so that an edge starts without the catalog.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shared::error::chain;
use shared::routes::disk::{self, DiskError};
use tokio::time::sleep;

use crate::metrics::table_refused;
use crate::routes::Routes;

/// Changes come in bursts; a table of a million shops is 100 MB to write.
const QUIET: Duration = Duration::from_secs(5);
/// A write is followed by a pause this many times as long, so that a tenth of the time at most goes into writing.
const PAUSE_TIMES: u32 = 10;
/// The file's time says when the catalog last confirmed it; it is set this often.
const TOUCH: Duration = Duration::from_secs(60);

/// Starts from the file, if there is a good one. A bad one is set aside and alarmed, and the edge starts without.
pub(crate) fn load(routes: &Routes, path: &Path) {
    match disk::load(path) {
        Ok(table) => routes.start_from(table, age(path)),
        Err(error) if error.is_missing() => {
            tracing::info!(
                "no route table at {}: waiting for the catalog",
                path.display()
            );
        }
        Err(error) => {
            table_refused("file");
            let aside = if error.is_bad_file() {
                set_aside(path)
            } else {
                "it stays where it is".to_owned()
            };
            tracing::error!(
                "the route table on disk is of no use, {aside}: {}",
                chain(&error)
            );
        }
    }
}

fn set_aside(path: &Path) -> String {
    match disk::set_aside(path) {
        Ok(aside) => format!("it is kept as {}", aside.display()),
        Err(error) => format!("and it cannot be set aside ({})", chain(&error)),
    }
}

/// How old the file is. One from the future is new: clocks are wrong more often than files.
fn age(path: &Path) -> Duration {
    let modified = std::fs::metadata(path).and_then(|m| m.modified());
    let age = modified.map(|m| SystemTime::now().duration_since(m).unwrap_or_default());
    // Without a time nothing says that it is fresh.
    age.unwrap_or(Duration::MAX)
}

/// The file of a running edge.
pub(crate) struct Keeper {
    routes: Arc<Routes>,
    path: PathBuf,
    /// Incarnation and version that the file holds.
    written: Option<(u64, u64)>,
}

impl Keeper {
    pub(crate) fn new(routes: Arc<Routes>, path: PathBuf) -> Self {
        let written = position(&routes);
        Self {
            routes,
            path,
            written,
        }
    }

    /// Writes after changes, for ever.
    pub(crate) async fn run(&mut self) {
        loop {
            let changed = tokio::select! {
                () = self.routes.changed() => true,
                () = sleep(TOUCH) => false,
            };
            // The first table is written at once: without any, an edge cannot start while the catalog is down.
            if changed && self.written.is_some() {
                sleep(QUIET).await;
            }
            let began = tokio::time::Instant::now();
            self.save().await;
            sleep(began.elapsed() * PAUSE_TIMES).await;
        }
    }

    /// Writes the table if it is newer than the file, else sets the file's time.
    pub(crate) async fn save(&mut self) {
        let Some(now) = position(&self.routes) else {
            return;
        };
        if self.written == Some(now) {
            touch(&self.path, self.routes.age());
            return;
        }
        match self.write().await {
            Ok(Some(written)) => self.written = Some(written),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(
                    "the route table was not written, an edge that starts now starts with an older one: {}",
                    chain(&error)
                );
            }
        }
    }

    async fn write(&self) -> Result<Option<(u64, u64)>, DiskError> {
        let (routes, path) = (Arc::clone(&self.routes), self.path.clone());
        let age = self.routes.age();
        let write = move || {
            let Some(table) = routes.table().clone() else {
                return Ok(None);
            };
            let version = disk::save(&table, &path)?;
            touch(&path, age);
            Ok(Some((table.incarnation(), version)))
        };
        // A panic there is a bug; the next round tries again.
        tokio::task::spawn_blocking(write).await.unwrap_or(Ok(None))
    }
}

fn position(routes: &Routes) -> Option<(u64, u64)> {
    let table = routes.table();
    let table = table.as_ref()?;
    Some((table.incarnation(), table.version()))
}

fn touch(path: &Path, age: Duration) {
    let confirmed = SystemTime::now().checked_sub(age);
    let set = |time| File::open(path).and_then(|file| file.set_modified(time));
    if let Some(Err(error)) = confirmed.map(set) {
        tracing::warn!("cannot set the time of {}: {error}", path.display());
    }
}
