//! A session at each side, asked the same question at once.

use mysql_async::Row;

use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::session::Session;

/// Two sessions.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) source: Session,
    pub(crate) target: Session,
}

impl Pair {
    /// Connects to both.
    pub(crate) async fn open(job: &Job) -> Result<Self, MoveError> {
        let (source, target) = tokio::try_join!(
            Session::open(job, &job.source),
            Session::open(job, &job.target)
        )?;
        Ok(Self { source, target })
    }

    /// The rows of one statement, at the source and at the target.
    pub(crate) async fn rows(
        &mut self,
        doing: &'static str,
        sql: &str,
    ) -> Result<(Vec<Row>, Vec<Row>), MoveError> {
        tokio::try_join!(self.source.rows(doing, sql), self.target.rows(doing, sql))
    }

    /// Makes sure that both can be used.
    pub(crate) async fn awake(&mut self) -> Result<(), MoveError> {
        tokio::try_join!(self.source.awake(), self.target.awake()).map(drop)
    }
}
