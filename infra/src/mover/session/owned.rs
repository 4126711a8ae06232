//! Transactions of a mover: each holds the home, which must name the move and the owner, and writes the move's mark.

use std::sync::atomic::Ordering;

use mysql_async::prelude::Queryable as _;
use shared::moves::MoveId;

use super::{COMMIT_LIMIT, Session, bytes, literal, number, text};
use crate::mover::error::MoveError;
use crate::mover::job::Job;

impl Session {
    /// Begins a transaction; homes are changed in such a one, by `home.rs` alone.
    pub(crate) async fn begin(&mut self) -> Result<(), MoveError> {
        self.exec("begin", "begin").await.map(drop)
    }

    /// Begins a transaction that may change rows of the shop: it holds the home, which must name this move and this
    /// owner, whatever its state, and it writes the move's mark for `part` first.
    pub(crate) async fn begin_owned(&mut self, job: &Job, part: &str) -> Result<(), MoveError> {
        self.begin_marked(job, part, None).await
    }

    /// The same; besides, notes in the mark where that part stands.
    pub(crate) async fn begin_owned_at(
        &mut self,
        job: &Job,
        part: &str,
        at: &[u8],
    ) -> Result<(), MoveError> {
        self.begin_marked(job, part, Some(at)).await
    }

    async fn begin_marked(
        &mut self,
        job: &Job,
        part: &str,
        at: Option<&[u8]>,
    ) -> Result<(), MoveError> {
        self.begin().await?;
        let home = format!(
            "select move_id, owner from shop_home where shop_id = {} for share",
            job.shop
        );
        let rows = self.rows("read the home", &home).await?;
        let found = rows.first().map(|row| (text(row, 0), number(row, 1)));
        let ours = found.as_ref().is_some_and(|(id, owner)| {
            id.as_deref() == Some(job.id.to_string().as_str()) && *owner == Some(job.owner)
        });
        if !ours {
            let found = match found {
                None => "there is none".to_owned(),
                Some((id, owner)) => format!(
                    "move {}, owner {}",
                    id.as_deref().unwrap_or("none"),
                    owner.unwrap_or(0)
                ),
            };
            self.rollback().await?;
            return Err(MoveError::NotOwner {
                pod: self.server.end.pod,
                found,
            });
        }
        self.mark(job, part, at).await
    }

    /// Writes the mark of a part: what tells this transaction from everybody else's.
    pub(crate) async fn mark(
        &mut self,
        job: &Job,
        part: &str,
        at: Option<&[u8]>,
    ) -> Result<(), MoveError> {
        let (id, part) = (job.id, literal(part.as_bytes()));
        let (value, keep) = match at {
            Some(at) => (literal(at), "at = new.at, "),
            None => ("null".to_owned(), ""),
        };
        let sql = format!(
            "insert into move_mark (move_id, part, changes, at) values ('{id}', _utf8mb4 {part}, 1, {value}) as new \
             on duplicate key update {keep}changes = move_mark.changes + 1"
        );
        self.exec("write the mark", &sql).await.map(drop)
    }

    /// Where a part of this move stands at this pod.
    pub(crate) async fn marked(
        &mut self,
        job: &Job,
        part: &str,
    ) -> Result<Option<Vec<u8>>, MoveError> {
        let sql = format!(
            "select at from move_mark where move_id = '{}' and part = _utf8mb4 {}",
            job.id,
            literal(part.as_bytes())
        );
        let rows = self.rows("read the mark", &sql).await?;
        Ok(rows
            .first()
            .and_then(|row| bytes(row, 0))
            .map(<[u8]>::to_vec))
    }

    /// Takes the marks of this move and of former ones away. The mark of this very transaction tells it from others' and goes
    /// too.
    pub(crate) async fn forget_marks(
        &mut self,
        job: &Job,
        former: &[MoveId],
    ) -> Result<(), MoveError> {
        self.begin_owned(job, "forget").await?;
        let ids = std::iter::once(&job.id).chain(former);
        let ids: Vec<String> = ids.map(|id| format!("'{id}'")).collect();
        let sql = format!(
            "delete from move_mark where move_id in ({})",
            ids.join(", ")
        );
        self.exec("forget the marks", &sql).await?;
        self.commit().await
    }

    /// Commits, and waits for the acknowledgement. After an error nobody knows whether it is committed: what the mark
    /// says decides.
    pub(crate) async fn commit(&mut self) -> Result<(), MoveError> {
        let doing = "commit";
        #[cfg(feature = "failpoints")]
        crate::mover::failpoint::statement(doing).await;
        let mut asked = self.take(doing)?;
        asked.is_commit();
        let answer = self
            .bounded(COMMIT_LIMIT, asked.conn.query_drop("commit"))
            .await;
        self.settle(doing, COMMIT_LIMIT, asked, answer)?;
        self.server.end.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Undoes the transaction.
    pub(crate) async fn rollback(&mut self) -> Result<(), MoveError> {
        self.exec("roll back", "rollback").await.map(drop)
    }
}
