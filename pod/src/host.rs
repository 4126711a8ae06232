//! Build, mount, serve.

use std::time::Duration;

use futures::future::BoxFuture;

use crate::config::Config;
use crate::{App, Error, Routes, Shop};

/// What a job does for one shop.
pub type JobRun = dyn Fn(App, Shop) -> BoxFuture<'static, Result<(), Error>> + Send + Sync;

/// Work that no request asks for. It runs in one process of the pod at a time, for one shop at a time, only for shops
/// whose home here is `serving` (not `ready`). It must be safe to run twice: which process runs it is decided by a
/// clock; what it may write is decided by the fence of each transaction.
pub struct Job {
    /// The name in logs and metrics.
    pub name: &'static str,
    /// How often to look for due shops.
    pub every: Duration,
    /// A query whose one column is `shop_id`: the shops that have something due. With a `limit`.
    pub due: &'static str,
    /// What to do for one.
    pub run: Box<JobRun>,
}

/// A pod process that is built: checked, bound, not running.
#[derive(Debug)]
pub struct Host {
    app: App,
}

impl Host {
    /// Start-up checks, listeners bound, nothing running.
    pub async fn build(_config: Config) -> anyhow::Result<Self> {
        todo!()
    }

    /// The state, for jobs and tests of an application.
    pub const fn app(&self) -> &App {
        &self.app
    }

    /// Adds an application's routes.
    #[must_use]
    pub fn mount(self, _routes: Routes) -> Self {
        todo!()
    }

    /// Adds a job.
    #[must_use]
    pub fn job(self, _job: Job) -> Self {
        todo!()
    }

    /// Serves until `shutdown` ends, then drains.
    pub async fn serve(self, _shutdown: impl Future<Output = ()> + Send + 'static) -> anyhow::Result<()> {
        todo!()
    }
}
