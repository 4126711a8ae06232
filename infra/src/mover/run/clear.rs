//! Rows that no move made, at a pod that does not own their shop: an operator's order to clear them, carried out like a leftover.
//!
//! They are dumped, then deleted as `retiring` does it, while the home there is this order's and `moved`. Whoever wrote them may
//! write again: from before the first dump on the pod's binlog is followed, and what was changed since is dumped anew before
//! any more goes: before each piece the binlog is read up to that moment. So no row goes that is in no dump, but one that is
//! changed while the very piece that has it is being deleted, some milliseconds; that is told.

use std::sync::Arc;
use std::time::Duration;

use shared::gtid::GtidSet;
use tokio::time::{Instant, sleep};

use super::Mover;
use crate::catalog::{Leftover, MoveDetail, MoveRow, now_ms};
use crate::mover::driver::{LOOK_EVERY, READ_WITHIN, job_of, take_in, unseen};
use crate::mover::error::MoveError;
use crate::mover::home::{self, Change};
use crate::mover::job::Job;
use crate::mover::session::{COMMIT_LIMIT, Session};
use crate::mover::step::{Step, step};
use crate::mover::table::{Table, discover};
use crate::mover::tail::Tail;
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
    tables: Arc<[Table]>,
    /// What the catalog knows.
    detail: MoveDetail,
}

/// Clears them. Run again it goes on with what is left.
pub(super) async fn clear_rows(
    mover: &Arc<Mover>,
    left: &Leftover,
    ordered: MoveRow,
) -> Result<(), MoveError> {
    let (owner, owner_epoch) = (ordered.source, ordered.source_epoch);
    let (detail, pod_name) = (ordered.detail.clone(), ordered.target_name.clone());
    // Nothing is asked of the shop's own pod but its name.
    let row = MoveRow {
        owner: left.owner,
        source: ordered.target,
        source_epoch: ordered.epoch,
        epoch: owner_epoch,
        ..ordered
    };
    let mut job = job_of(mover, &row).await?;
    job.target.pod = owner;
    let mut session = Session::open(&job, &job.source).await?;
    step!(Step::ClearMark => {
        home::change(&mut session, &job, &Change::TakeToClear).await
    })
    .await?;
    let tables = discover(&mut session).await?.into();
    let executed = session.gtid_executed().await?;
    let mut clearing = Clearing {
        mover,
        left,
        job,
        pod_name,
        tables,
        detail,
    };
    let tail = clearing.watch(executed).await?;
    loop {
        // Others need not wait until whoever writes there is quiet.
        let turn = mover.clearings.take(left.id, [left.pod; 2]).await;
        let began = Instant::now();
        if clearing.pass(&tail).await? {
            break;
        }
        drop(turn);
        // Who writes more often than a dump takes would have one made after the other.
        clearing
            .until_quiet(&tail, QUIET.max(began.elapsed()))
            .await?;
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

impl Clearing<'_> {
    /// Follows the pod's binlog from where the last run had looked at it, or from now: nothing is dumped yet.
    async fn watch(&mut self, executed: GtidSet) -> Result<Tail, MoveError> {
        let known = self.detail.watched.as_deref();
        let Some(from) = known.and_then(|text| GtidSet::parse(text).ok()) else {
            return self.watch_from(executed).await;
        };
        let tail = Tail::source(&self.job, &self.tables, from.intersection(&executed)).await;
        match tail {
            // What it held nobody will know: it counts as a change, and what is there is dumped anew.
            Err(MoveError::Binlog { text, .. }) => {
                take_in(&mut self.detail, unseen(text, now_ms()));
                self.watch_from(executed).await
            }
            tail => tail,
        }
    }

    async fn watch_from(&mut self, executed: GtidSet) -> Result<Tail, MoveError> {
        self.detail.watched = Some(executed.to_string());
        step!(Step::ClearWatch => self.note(None).await).await?;
        Tail::source(&self.job, &self.tables, executed).await
    }

    /// Dumps what is there and deletes it; not to the end where somebody changed it meanwhile.
    async fn pass(&mut self, tail: &Tail) -> Result<bool, MoveError> {
        // All of them were committed before the dump begins. One that it may have is counted afterwards.
        let strays = self.read_to_the_end(tail).await?;
        // What ended the try before is over.
        self.mover.catalog.note_leftover(self.left, None).await?;
        let (job, tables) = (self.job.clone(), Arc::clone(&self.tables));
        let (dumps, of) = (self.mover.dumps()?, retire::Of::Cleared { strays });
        let dump = step!(Step::ClearDump => {
            retire::dump_rows(&job, &tables, &dumps, of).await
        })
        .await?;
        let dump = dump.display().to_string();
        if self.detail.record.dump.as_ref() != Some(&dump) {
            let pod = the_pod(&self.pod_name);
            let note = format!("what {pod} had of the shop is in {dump}");
            self.detail.record.dump = Some(dump);
            step!(Step::ClearNote => self.note(Some(&note)).await).await?;
        }
        // The dump may have taken long: nobody has looked at what was written since.
        if self.read_to_the_end(tail).await? != strays {
            return Ok(false);
        }
        let mut deleting = std::pin::pin!(step!(Step::ClearDelete => {
            retire::delete_rows(&job, &tables, Some(tail)).await
        }));
        loop {
            tokio::select! {
                done = &mut deleting => {
                    done?;
                    // A table whose rows were gone already may have new ones.
                    return Ok(self.read_to_the_end(tail).await? == strays);
                }
                () = sleep(LOOK_EVERY) => {
                    if self.look(tail).await? != strays {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Waits until nobody else changes the rows any more, and says so meanwhile.
    async fn until_quiet(&mut self, tail: &Tail, quiet: Duration) -> Result<(), MoveError> {
        let (catalog, left) = (&self.mover.catalog, self.left);
        let (mut known, mut since) = (0, Instant::now());
        loop {
            let strays = self.look(tail).await?;
            if strays != known {
                (known, since) = (strays, Instant::now());
                let text = format!(
                    "somebody writes rows of the shop at {}, {} by now; this goes on when none came for {} s: find who it is",
                    the_pod(&self.pod_name),
                    count(strays, "change"),
                    quiet.as_secs()
                );
                catalog.note_leftover(left, Some(&text)).await?;
            } else if since.elapsed() >= quiet {
                return Ok(catalog.note_leftover(left, None).await?);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Reads all that the pod has executed by now; gives how often others changed the rows.
    async fn read_to_the_end(&mut self, tail: &Tail) -> Result<u64, MoveError> {
        let mut session = Session::open(&self.job, &self.job.source).await?;
        let executed = session.gtid_executed().await?;
        tail.wait_for(&executed, READ_WITHIN).await?;
        let strays = self.look(tail).await?;
        // A transaction is in the binlog before it is committed. What is counted is there for whoever dumps it.
        session.wait_executed(&tail.seen(), COMMIT_LIMIT).await?;
        session.close().await;
        Ok(strays)
    }

    /// Takes in what the tail has seen; gives how often others changed the rows.
    async fn look(&mut self, tail: &Tail) -> Result<u64, MoveError> {
        let (strays, watched) = tail.take_strays()?;
        let found = take_in(&mut self.detail, strays);
        if found > 0 || tail.is_to_note(&watched) {
            self.detail.watched = Some(watched.to_string());
            let note = (found > 0).then(|| {
                format!(
                    "{} at {} while they are cleared: what is left is dumped anew",
                    count(found, "change"),
                    the_pod(&self.pod_name)
                )
            });
            if let Some(note) = &note {
                tracing::error!(id = %self.job.id, shop = self.job.shop.get(), "strays at the source: {note}");
            }
            step!(Step::ClearWatch => self.note(note.as_deref()).await).await?;
        }
        Ok(self.detail.strays_told())
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
