//! What a move leaves at its target, when it is begun anew or aborted: rows of a shop that another pod owns, and marks.
//!
//! They are deleted as a retired source's are, while the home says `incoming` (or `moved`, where a move back was aborted
//! before it changed that) and names this operation: whoever of an earlier run wakes up late finds another owner number
//! there, and can add nothing. The home itself goes last, and is not changed here.

use shared::home::HomeState;
use shared::moves::MoveId;

use super::error::MoveError;
use super::job::Job;
use super::retire::delete::Deletion;
use super::session::Session;
use super::table::Table;

/// Deletes the shop's rows at the target, whose home must be in this state, then the marks of this move. Run again it goes
/// on with what is left.
pub(crate) async fn delete_rows(
    job: &Job,
    tables: &[Table],
    state: HomeState,
) -> Result<(), MoveError> {
    let deletion = Deletion {
        job,
        end: &job.target,
        part: "leftover",
        state,
    };
    deletion.run(tables).await?;
    forget_marks(job, &job.target, None).await
}

/// Takes a move's marks away at a pod, when it has nothing to take up there any more. The mark of this very transaction
/// tells it from others' and goes too. `former` is a move that this one took back: it was closed with its marks.
pub(crate) async fn forget_marks(
    job: &Job,
    end: &super::job::End,
    former: Option<MoveId>,
) -> Result<(), MoveError> {
    let mut session = Session::open(job, end).await?;
    session.begin_owned(job, "forget").await?;
    let former = former.unwrap_or(job.id);
    let sql = format!(
        "delete from move_mark where move_id in ('{}', '{former}')",
        job.id
    );
    session.exec("forget the marks", &sql).await?;
    session.commit().await?;
    session.close().await;
    Ok(())
}
