//! Transactions at a target that others write to: one that met a deadlock, or waited for a row in vain, is undone and done
//! again.
//!
//! A pod's writers lock the gaps beside a shop's rows, so this happens now and then to any move. What a transaction of a mover
//! writes does not depend on what it reads there: done again it is the same.

use super::error::MoveError;
use super::job::Job;
use super::session::Session;

/// How often one is done again: whoever is in the way so often does not go by itself.
const AGAIN_MAX: u32 = 5;

/// Tries of one transaction.
#[derive(Debug, Default)]
pub(super) struct Tries(u32);

impl Tries {
    /// After one that failed: it is undone, to be done again. Or its error, where that would not help.
    pub(super) async fn undo(
        &mut self,
        session: &mut Session,
        error: MoveError,
    ) -> Result<(), MoveError> {
        if self.are_over(&error) {
            return Err(error);
        }
        tracing::debug!("done again: {}", error.brief());
        session.rollback().await
    }

    fn are_over(&mut self, error: &MoveError) -> bool {
        self.0 += 1;
        !error.is_conflict() || self.0 > AGAIN_MAX
    }
}

/// Notes where a part stands, in a transaction that does nothing else.
pub(super) async fn note(
    session: &mut Session,
    job: &Job,
    part: &str,
    at: &[u8],
) -> Result<(), MoveError> {
    let mut tries = Tries::default();
    loop {
        let noted = async {
            session.begin_owned_at(job, part, at).await?;
            session.commit().await
        };
        match noted.await {
            Ok(()) => return Ok(()),
            Err(error) => tries.undo(session, error).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::{Error, ServerError};
    use shared::PodId;

    use super::*;

    fn said(code: u16) -> MoveError {
        MoveError::Lost {
            pod: PodId::new(1).unwrap(),
            doing: "delete rows",
            source: Error::Server(ServerError {
                code,
                message: String::new(),
                state: String::new(),
            }),
        }
    }

    #[test]
    fn a_conflict_is_tried_again_some_times_and_nothing_else_is() {
        for code in [1205, 1213] {
            let mut tries = Tries::default();
            for _ in 0..AGAIN_MAX {
                assert!(!tries.are_over(&said(code)), "{code}");
            }
            assert!(tries.are_over(&said(code)), "{code}");
        }
        for code in [1040, 1290, 1317] {
            assert!(Tries::default().are_over(&said(code)), "{code}");
        }
        assert!(Tries::default().are_over(&MoveError::Stopped));
    }
}
