//! The end of the source's copy: dumped, then deleted in chunks.
//!
//! The dump is whole, and on the disk, before the first row goes. The home stays, with the mark to the new owner.

use delete::Deletion;
use shared::home::HomeState;

use super::error::MoveError;
use super::job::Job;
use super::table::Table;
use super::tail::Tail;
use super::watched::Watched;

// Deletes a shop's rows at a pod that does not own it.
pub(crate) mod delete;
// Writes a shop's rows to files.
mod dump;
// Which dumps are there, and how old.
mod prune;

pub(crate) use dump::{Of, dump_rows, has_begun};
pub(crate) use prune::{Found, found};

/// The mark of the transactions that delete them.
const PART: &str = "retire";

/// Deletes the shop's rows at the source. Run again it goes on with what is left. No piece goes before all that was written there
/// until then is known.
pub(crate) async fn delete_rows(job: &Job, watched: &Watched) -> Result<(), MoveError> {
    delete(job, watched.tables(), Some(watched.tail())).await
}

/// The same where nobody watches: the source was gone, and has come back.
pub(crate) async fn delete_gone(job: &Job, tables: &[Table]) -> Result<(), MoveError> {
    delete(job, tables, None).await
}

async fn delete(job: &Job, tables: &[Table], watched_by: Option<&Tail>) -> Result<(), MoveError> {
    let deletion = Deletion {
        job,
        end: &job.source,
        watched_by,
        part: PART,
        state: HomeState::Moved,
    };
    deletion.run(tables).await
}
