//! The binlog's files.

use super::{Session, number};
use crate::mover::error::MoveError;

/// A file that is read for a move shall not be longer than this before the move's own part: a server reads a file from its
/// beginning to whoever asks for the transactions after a set of them, and skips what is in the set, at some hundred
/// megabytes a second of a core. Three readers of a move begin so, and each run that takes it up does.
const FILE_MAX: u64 = 4 << 20;

impl Session {
    /// Lets the server begin another file if the last one is long. An account that may not do it goes on without.
    ///
    /// <https://dev.mysql.com/doc/refman/en/flush.html#flush-binary-logs>: what commits meanwhile is waited for, as at each
    /// change of files.
    pub(crate) async fn begin_file(&mut self) -> Result<(), MoveError> {
        let files = self.rows("list the binlogs", "show binary logs").await;
        let began = match files {
            Ok(files) => {
                let last = files.last().and_then(|row| number(row, 1));
                if last.is_none_or(|bytes| bytes <= FILE_MAX) {
                    return Ok(());
                }
                let sql = "flush local binary logs";
                self.exec("begin a binlog file", sql).await.map(drop)
            }
            Err(error) => Err(error),
        };
        match began {
            Err(MoveError::Sql { source, .. }) => {
                tracing::info!(pod = %self.server.end.pod, "the last binlog file is read from its beginning: {source}");
                Ok(())
            }
            began => began,
        }
    }
}
