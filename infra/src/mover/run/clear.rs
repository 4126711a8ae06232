//! Rows that no move made, at a pod that does not own their shop: an operator's order to clear them, carried out like a leftover.
//!
//! They are dumped, then deleted as `retiring` does it, while the home there is this order's and `moved`. Whoever wrote them may
//! write again: from before the first dump on the pod's binlog is followed, and what was changed since is dumped anew before
//! any more goes: before each piece the binlog is read up to that moment. So no row goes that is in no dump, but one that is
//! changed while the very piece that has it is being deleted, some milliseconds; that is told.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Mover;
use crate::catalog::{Leftover, MoveDetail, MoveRow};
use crate::mover::driver::job_of;
use crate::mover::error::MoveError;
use crate::mover::home::{self, Change};
use crate::mover::job::Job;
use crate::mover::session::Session;
use crate::mover::step::{Step, step};
use crate::mover::watched::{Account, LOOK_EVERY, Watched, is_news};
use crate::mover::{leftover, retire};
use crate::output::{count, the_pod};

/// After a change by somebody else nothing is dumped anew before none has come for so long, or for as long as the last dump and
/// what came of it took: a job that writes every few seconds would make a dump each time. Nobody waits for the end of this but
/// moves of the shop to that pod.
const QUIET: Duration = Duration::from_secs(10);

/// One run of it.
struct Clearing<'a> {
    mover: &'a Mover,
    left: &'a Leftover,
    /// Its source is the pod that is cleared.
    job: Job,
    pod_name: String,
    /// What the catalog knows.
    detail: MoveDetail,
    /// The last dump, where no row went after it: all that it has is in the next one too.
    vain: Option<PathBuf>,
}

/// Clears them. Run again it goes on with what is left.
pub(super) async fn clear_rows(
    mover: &Arc<Mover>,
    left: &Leftover,
    ordered: MoveRow,
) -> Result<(), MoveError> {
    let (detail, pod_name) = (ordered.detail.clone(), ordered.target_name.clone());
    let job = job_at(mover, left, ordered).await?;
    let mut session = Session::open(&job, &job.source).await?;
    step!(Step::ClearMark => {
        home::change(&mut session, &job, &Change::TakeToClear).await
    })
    .await?;
    let mut clearing = Clearing {
        mover,
        left,
        job,
        pod_name,
        detail,
        vain: None,
    };
    let watched = clearing.watch(&mut session).await?;
    loop {
        // Others need not wait until whoever writes there is quiet.
        let turn = mover.clearings.take(left.id, [left.pod; 2]).await;
        let began = Instant::now();
        if clearing.pass(&watched).await? {
            break;
        }
        drop(turn);
        // Who writes more often than a dump takes would have one made after the other.
        let quiet = QUIET.max(began.elapsed());
        clearing.until_quiet(&watched, quiet).await?;
    }
    let job = &clearing.job;
    let former = leftover::former(&mover.catalog, job).await?;
    step!(Step::ForgetSourceMarks => {
        leftover::forget_marks(job, &job.source, &former).await
    })
    .await?;
    // Rows may have taken long to delete, by sessions of their own.
    session.awake().await?;
    step!(Step::ClearRelease => {
        home::change(&mut session, job, &Change::Release).await
    })
    .await?;
    session.close().await;
    clearing.note(None).await?;
    step!(Step::ClearDone => {
        Ok(mover.catalog.leftover_done(left).await?)
    })
    .await
}

/// What works at the pod as at a source. Nothing is asked of the shop's own pod but its name and epoch, which the mark has.
async fn job_at(mover: &Arc<Mover>, left: &Leftover, ordered: MoveRow) -> Result<Job, MoveError> {
    let (owner, owner_epoch) = (ordered.source, ordered.source_epoch);
    let row = MoveRow {
        owner: left.owner,
        source: ordered.target,
        source_epoch: ordered.epoch,
        epoch: owner_epoch,
        ..ordered
    };
    let mut job = job_of(mover, &row).await?;
    job.target.pod = owner;
    Ok(job)
}

impl Clearing<'_> {
    /// Follows the pod's binlog from where the last run had looked at it, or from now: nothing is dumped yet.
    async fn watch(&mut self, session: &mut Session) -> Result<Watched, MoveError> {
        let of = retire::Of::Cleared { strays: 0 };
        if !retire::has_begun(session, &self.job, of).await? {
            self.vain = self.detail.record.dump.as_ref().map(PathBuf::from);
        }
        if self.detail.watched.is_none() {
            let executed = session.gtid_executed().await?;
            self.detail.watched = Some(executed.to_string());
            step!(Step::ClearWatch => self.note(None).await).await?;
        }
        let (job, from) = (self.job.clone(), self.detail.watched.clone());
        Watched::open(&job, from.as_deref(), self).await
    }

    /// Dumps what is there and deletes it; not to the end where somebody changed it meanwhile.
    async fn pass(&mut self, watched: &Watched) -> Result<bool, MoveError> {
        // All of them were committed before the dump begins. One that it may have is counted afterwards.
        let strays = watched.read_to_the_end(self).await?;
        // What ended the try before is over.
        self.mover.catalog.note_leftover(self.left, None).await?;
        let (job, dumps) = (self.job.clone(), self.mover.dumps()?);
        let of = retire::Of::Cleared { strays };
        let dump = step!(Step::ClearDump => {
            retire::dump_rows(&job, watched.tables(), &dumps, of).await
        })
        .await?;
        self.note_dump(&dump.display().to_string()).await?;
        if let Some(vain) = self.vain.take().filter(|vain| *vain != dump) {
            // One that cannot be removed is kept like all others.
            let _ = tokio::fs::remove_dir_all(vain).await;
        }
        let deleting = step!(Step::ClearDelete => {
            retire::delete_rows(&job, watched).await
        });
        let before = job.progress.now().rows_deleted;
        let gone = watched.until_gone(self, strays, deleting).await?;
        if job.progress.now().rows_deleted == before {
            self.vain = Some(dump);
        }
        Ok(gone)
    }

    async fn note_dump(&mut self, dump: &str) -> Result<(), MoveError> {
        if self.detail.record.dump.as_deref() == Some(dump) {
            return Ok(());
        }
        self.detail.record.dump = Some(dump.to_owned());
        let pod = the_pod(&self.pod_name);
        let note = format!("what {pod} had of the shop is in {dump}");
        step!(Step::ClearNote => self.note(Some(&note)).await).await
    }

    /// Waits until nobody else changes the rows any more, and says so meanwhile.
    async fn until_quiet(&mut self, watched: &Watched, quiet: Duration) -> Result<(), MoveError> {
        let text = format!(
            "somebody writes rows of the shop at {}; this goes on when nobody did for {} s: find who it is",
            the_pod(&self.pod_name),
            quiet.as_secs()
        );
        let (mut known, mut since) = (0, Instant::now());
        while since.elapsed() < quiet {
            let strays = watched.look(self).await?;
            if strays != known {
                (known, since) = (strays, Instant::now());
                // (Again and again it is no news.)
                let catalog = &self.mover.catalog;
                catalog.note_leftover(self.left, Some(&text)).await?;
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(self.mover.catalog.note_leftover(self.left, None).await?)
    }

    async fn note(&mut self, news: Option<&str>) -> Result<(), MoveError> {
        let now = self.job.progress.now();
        now.keep_in(&mut self.detail.record);
        let noted = self
            .mover
            .catalog
            .note_cleared(self.left, &self.detail, news);
        Ok(noted.await?)
    }
}

impl Account for Clearing<'_> {
    fn detail(&self) -> &MoveDetail {
        &self.detail
    }

    async fn keep(&mut self, detail: MoveDetail, found: u64) -> Result<(), MoveError> {
        let told = detail.strays_told();
        self.detail = detail;
        let news = is_news(told.saturating_sub(found), told).then(|| {
            format!(
                "{} at {} while rows are cleared: what is left is dumped anew",
                count(told, "change"),
                the_pod(&self.pod_name)
            )
        });
        if let Some(news) = &news {
            let shop = self.job.shop.get();
            tracing::error!(id = %self.job.id, shop, "strays at a pod that is not the shop's: {news}");
        }
        step!(Step::ClearWatch => self.note(news.as_deref()).await).await
    }

    async fn look_on(&mut self) {}
}
