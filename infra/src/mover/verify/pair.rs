//! A session at each side, asked the same question at once.

use std::time::{Duration, Instant};

use mysql_async::Row;

use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::session::Session;

/// A session that says nothing is closed by its server after half a minute.
pub(crate) const SPEAK_EVERY: Duration = Duration::from_secs(10);

/// Two sessions.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) source: Session,
    pub(crate) target: Session,
    spoken: Instant,
}

impl Pair {
    /// Connects to both.
    pub(crate) async fn open(job: &Job) -> Result<Self, MoveError> {
        let (source, target) = tokio::try_join!(
            Session::open(job, &job.source),
            Session::open(job, &job.target)
        )?;
        Ok(Self {
            source,
            target,
            spoken: Instant::now(),
        })
    }

    /// The rows of one statement, at the source and at the target.
    pub(crate) async fn rows(
        &mut self,
        doing: &'static str,
        sql: &str,
    ) -> Result<(Vec<Row>, Vec<Row>), MoveError> {
        let both = tokio::try_join!(self.source.rows(doing, sql), self.target.rows(doing, sql))?;
        self.spoken = Instant::now();
        Ok(both)
    }

    /// Says something if both have been silent for a while.
    pub(crate) async fn keep_alive(&mut self) -> Result<(), MoveError> {
        if self.spoken.elapsed() < SPEAK_EVERY {
            return Ok(());
        }
        self.rows("keep a session", "select 1").await.map(drop)
    }

    /// Whether a session is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.source.is_lost() || self.target.is_lost()
    }
}
