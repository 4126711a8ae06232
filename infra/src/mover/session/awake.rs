//! A session that was left alone: its server closes it after half a minute.

use std::time::Duration;

use super::Session;
use super::connect;
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
        *self = connect::primary(&self.end, &self.stop).await?;
        self.greet().await
    }
}
