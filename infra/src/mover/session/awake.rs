//! What a new connection is told and asked, also when it takes the place of one that was left alone: its server closes
//! that after half a minute.

use std::time::Duration;

use super::{Session, connect, fault, number};
use crate::mover::error::MoveError;

/// A session that has been silent for that long says something before it is relied on.
const SILENT_MAX: Duration = Duration::from_secs(10);

impl Session {
    /// Makes sure that the session can be used, outside of transactions: one that was silent for long says something, and
    /// one that is gone is made anew, to the same primary under the same term.
    pub(crate) async fn awake(&mut self) -> Result<(), MoveError> {
        if !self.is_lost() {
            if self.spoken.elapsed() < SILENT_MAX {
                return Ok(());
            }
            let kept = self.number("keep a session", "select 1").await;
            match kept {
                Ok(_) => return Ok(()),
                Err(MoveError::Stopped) => return Err(MoveError::Stopped),
                Err(_) => {}
            }
        }
        self.renew().await
    }

    /// Another connection to the same primary under the same term, like the one before.
    pub(super) async fn renew(&mut self) -> Result<(), MoveError> {
        let squeezed = self.squeezed;
        *self = connect::primary(&self.server.end, &self.stop).await?;
        self.greet().await?;
        if squeezed {
            self.squeeze().await?;
        }
        Ok(())
    }

    /// Compresses what this session's transactions leave in the binlog. Each is one event then, which a replica writes to
    /// its relay log and brings to the disk at once, and not every 8 KiB of it: the acknowledgement of a chunk comes in a
    /// tenth of the time. Whoever reads binlogs here reads such events, or fails. An account that may not switch it on goes
    /// on without.
    pub(crate) async fn squeeze(&mut self) -> Result<(), MoveError> {
        let sql = "set binlog_transaction_compression = 1";
        match self.exec("compress its transactions", sql).await {
            Ok(_) => self.squeezed = true,
            Err(MoveError::Sql { source, .. }) => {
                tracing::info!(pod = %self.server.end.pod, "a mover's transactions are not compressed: {source}");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Makes sure that it is the primary that is meant, and takes writes.
    pub(super) async fn greet(&mut self) -> Result<(), MoveError> {
        let sql = "select pod, term, @@global.read_only from pod_identity where one = 1";
        let rows = self.rows("ask whose database it is", sql).await?;
        let row = rows.first();
        let number = |at: usize| row.and_then(|r| number(r, at));
        self.server.end.is_greeted_by(number(0), number(1))?;
        if number(2) != Some(0) {
            return Err(fault::read_only(self.server.end.pod));
        }
        Ok(())
    }
}
