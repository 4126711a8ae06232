//! Deletes a shop's rows at a pod that does not own it, in chunks that take about as long as a copied one.

use std::time::{Duration, Instant};

use shared::home::HomeState;

use crate::mover::error::MoveError;
use crate::mover::job::{End, Job};
use crate::mover::progress::Progress;
use crate::mover::session::{Session, text};
use crate::mover::size;
use crate::mover::table::Table;
use crate::mover::tail::Tail;
use crate::mover::throttle::Throttle;
use crate::mover::tries::Tries;
use crate::mover::watched::READ_WITHIN;

/// Where rows are deleted, and what the home must say there.
pub(crate) struct Deletion<'a> {
    pub(crate) job: &'a Job,
    pub(crate) end: &'a End,
    /// What sees changes by others there.
    pub(crate) watched_by: Option<&'a Tail>,
    /// Whose mark the transactions carry.
    pub(crate) part: &'static str,
    pub(crate) state: HomeState,
}

impl Deletion<'_> {
    /// Deletes all rows of the shop in these tables.
    pub(crate) async fn run(&self, tables: &[Table]) -> Result<(), MoveError> {
        let mut session = Session::open(self.job, self.end).await?;
        session.squeeze().await?;
        let throttle = Throttle::deleting(self.job, self.end);
        for table in tables {
            self.table(&mut session, &throttle, table).await?;
        }
        session.close().await;
        Ok(())
    }

    async fn table(
        &self,
        session: &mut Session,
        throttle: &Throttle,
        table: &Table,
    ) -> Result<(), MoveError> {
        let limits = &self.job.limits;
        let mut rows = limits.chunk_rows_min.max(1);
        loop {
            throttle.pass_gently().await?;
            session.awake().await?;
            let any = format!(
                "select 1 {} where shop_id = {} limit 1",
                table.by_key(),
                self.job.shop
            );
            if session.number("look for rows", &any).await?.is_none() {
                return Ok(());
            }
            if let Some(tail) = self.watched_by {
                let executed = session.gtid_executed().await?;
                tail.lets_go(&executed, READ_WITHIN).await?;
            }
            let mut tries = Tries::default();
            let (gone, took) = loop {
                match self.piece(session, table, rows).await {
                    Ok(done) => break done,
                    Err(error) => tries.undo(session, error).await?,
                }
            };
            throttle.worked(took);
            Progress::add(&self.job.progress.rows_deleted, gone);
            let (least, most) = (limits.chunk_rows_min.max(1), limits.chunk_rows_max.max(1));
            rows = size::next(rows, took, throttle.piece()).clamp(least.min(most), most);
        }
    }

    /// One transaction: how many rows it deleted, and how long that took without the commit, which waits for a replica,
    /// however few the rows are.
    async fn piece(
        &self,
        session: &mut Session,
        table: &Table,
        rows: u64,
    ) -> Result<(u64, Duration), MoveError> {
        session.begin_owned(self.job, self.part).await?;
        self.guard(session).await?;
        let sql = format!(
            "delete from {} where shop_id = {} order by {} limit {rows}",
            table.quoted,
            self.job.shop,
            table.order_by()
        );
        let began = Instant::now();
        let gone = session.exec("delete rows", &sql).await?;
        let took = began.elapsed();
        session.commit().await?;
        Ok((gone, took))
    }

    /// Inside the transaction, with the home's row held: whatever the catalog and the owner number say, the rows of a
    /// shop that this pod may serve are never deleted.
    async fn guard(&self, session: &mut Session) -> Result<(), MoveError> {
        let state = self.home(session).await?;
        if state.as_deref() == Some(self.state.as_str()) {
            return Ok(());
        }
        session.rollback().await?;
        let found = state.as_deref().unwrap_or("missing");
        Err(MoveError::Refused {
            reasons: vec![format!(
                "pod {}: the home of shop {} is {found} where it should be {}: no row is deleted; run `podctl doctor`",
                self.end.pod,
                self.job.shop,
                self.state.as_str()
            )],
        })
    }

    async fn home(&self, session: &mut Session) -> Result<Option<String>, MoveError> {
        let sql = format!(
            "select state from shop_home where shop_id = {} for share",
            self.job.shop
        );
        let rows = session.rows("read the home", &sql).await?;
        Ok(rows.first().and_then(|row| text(row, 0)))
    }
}
