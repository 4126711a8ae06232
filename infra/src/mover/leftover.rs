//! What a move leaves at its target, when it is begun anew or aborted: rows of a shop that another pod owns, and marks.
//!
//! They are deleted as a retired source's are, while the home says `incoming` (or `moved`, where a move back was aborted
//! before it changed that) and names this operation: whoever of an earlier run wakes up late finds another owner number
//! there, and can add nothing. The home itself goes last, and is not changed here.

use std::path::Path;

use shared::home::HomeState;
use shared::moves::MoveId;

use super::error::MoveError;
use super::job::{End, Job};
use super::retire::{self, delete::Deletion};
use super::session::Session;
use super::step::{Step, step};
use super::table::Table;
use crate::catalog::Catalog;

/// So many former moves of a shop are looked at for marks: each takes away what those before it have left, so that there are
/// few, those that were taken back one after the other.
const FORMER_MAX: u32 = 100;

/// The mark of the transactions that delete a copy.
pub(crate) const PART: &str = "leftover";

/// Dumps what a move back found at its target, before that is deleted: there may be strays among it that nothing else has.
pub(crate) async fn dump_back(
    job: &Job,
    tables: &[Table],
    dumps: &Path,
) -> Result<String, MoveError> {
    let of_target = Job {
        source: job.target.clone(),
        source_epoch: job.target_epoch,
        ..job.clone()
    };
    let dump = step!(Step::BackDump => {
        retire::dump_rows(&of_target, tables, dumps, retire::Of::Back).await
    })
    .await?;
    Ok(dump.display().to_string())
}

/// Deletes the shop's rows at the target, whose home must be in this state, then the marks of this move and of former ones.
/// Run again it goes on with what is left.
pub(crate) async fn delete_rows(
    job: &Job,
    tables: &[Table],
    state: HomeState,
    former: &[MoveId],
) -> Result<(), MoveError> {
    let deletion = Deletion {
        job,
        end: &job.target,
        watched_by: None,
        part: PART,
        state,
    };
    deletion.run(tables).await?;
    forget_marks(job, &job.target, former).await
}

/// Takes a move's marks away at a pod, when it has nothing to take up there any more, and those of former ones.
pub(crate) async fn forget_marks(job: &Job, end: &End, former: &[MoveId]) -> Result<(), MoveError> {
    let mut session = Session::open(job, end).await?;
    session.forget_marks(job, former).await?;
    session.close().await;
    Ok(())
}

/// The shop's moves that are over and left nothing but marks: one that was taken back, or whose other pod was away, had no
/// occasion to take them away. (What deletes a leftover is told by marks of its move.)
pub(crate) async fn former(catalog: &Catalog, job: &Job) -> Result<Vec<MoveId>, MoveError> {
    Ok(catalog.moves_over(job.shop, FORMER_MAX).await?)
}
