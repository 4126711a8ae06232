//! The guarded transaction as a closure sees it.

use shared::{Epoch, ShopId};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::{Query, QueryAs};
use sqlx::{Execute, FromRow, MySql, SqlStr};
use uuid::Uuid;

use crate::cache::Key;
use crate::db::fault::{Fault, Lost};
use crate::db::guard::Guard;
use crate::db::statement::{Send as Sent, check_write};
use crate::outbox::rows;
use crate::{Entity, Error, Event};

/// Events that one transaction may write: a checkout writes one; memory per transaction is bounded.
const EVENTS_MAX: usize = 100;

/// Things that one transaction may drop from the cache.
const CHANGED_MAX: usize = 1_000;

/// An open write transaction of one shop: its home is locked and allows the write until the end.
#[derive(Debug)]
pub struct Tx {
    pub(super) guard: Guard,
    shop: ShopId,
    epoch: Epoch,
    request: Uuid,
    events: Vec<Event>,
    pub(super) changed: Vec<Key>,
}

impl Tx {
    pub(super) const fn new(guard: Guard, shop: ShopId, epoch: Epoch, request: Uuid) -> Self {
        Self {
            guard,
            shop,
            epoch,
            request,
            events: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// The tenant: bind it into every statement on shop data.
    pub const fn shop(&self) -> ShopId {
        self.shop
    }

    /// The epoch under which this transaction acts.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The request (or the job's run) for which it acts.
    pub const fn request(&self) -> Uuid {
        self.request
    }

    /// Runs a statement; the rows it **matched**. sqlx asks the server for found rows instead of changed ones, so an
    /// `update` to equal values counts, and `on duplicate key update` to equal values gives 1, not 0: never tell "new"
    /// from "old" by it.
    pub async fn execute(&mut self, query: Query<'_, MySql, MySqlArguments>) -> Result<u64, Error> {
        Ok(self.send("execute a statement", query).await?.1)
    }

    /// The one row of a query; a bug if there is none.
    pub async fn fetch_one<O>(
        &mut self,
        query: QueryAs<'_, MySql, O, MySqlArguments>,
    ) -> Result<O, Error>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        self.fetch_optional(query)
            .await?
            .ok_or_else(|| Error::bug("a query that always has a row has none"))
    }

    /// The first row of a query, if there is one.
    pub async fn fetch_optional<O>(
        &mut self,
        query: QueryAs<'_, MySql, O, MySqlArguments>,
    ) -> Result<Option<O>, Error>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        Ok(self.fetch_all(query).await?.into_iter().next())
    }

    /// The rows of a query; give it a `limit` (10,000 rows are an error).
    pub async fn fetch_all<O>(
        &mut self,
        query: QueryAs<'_, MySql, O, MySqlArguments>,
    ) -> Result<Vec<O>, Error>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        let (rows, _) = self.send("query", query).await?;
        decode(&rows)
    }

    /// Adds a domain event: a row of this transaction, written as its last statement, when all its row locks are held.
    /// So of two transactions that wait for one another, the second one's event stands behind the first one's.
    pub fn outbox(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Drops a cached thing in both layers and in the pod's other processes once this transaction has committed.
    pub fn changed(&mut self, entity: &'static Entity, id: &str) {
        self.changed
            .push(Key::new(self.shop, self.epoch, entity, id));
    }

    /// Writes the events that were added, and checks the bounds.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        if self.events.len() > EVENTS_MAX || self.changed.len() > CHANGED_MAX {
            return Err(Error::bug(format!(
                "a transaction writes {} events (at most {EVENTS_MAX}) and drops {} cached things (at most {CHANGED_MAX})",
                self.events.len(),
                self.changed.len()
            )));
        }
        if self.events.is_empty() {
            return Ok(());
        }
        let events = std::mem::take(&mut self.events);
        let mut insert = rows::insert(self.shop, self.epoch, &events);
        self.execute(insert.build()).await?;
        Ok(())
    }

    async fn send<'q>(
        &mut self,
        what: &'static str,
        mut query: impl Execute<'q, MySql>,
    ) -> Result<(Vec<MySqlRow>, u64), Error> {
        let arguments = query
            .take_arguments()
            .map_err(|e| Error::bug(format!("a value cannot be bound: {e}")))?;
        let sql: SqlStr = query.sql();
        let arguments = match check_write(sql.as_str()) {
            Ok(Sent::Prepared) => Some(arguments.unwrap_or_default()),
            Ok(Sent::Text) => None,
            Err(refused) => {
                // What the closure goes on to do would lack this statement: nothing of it may commit.
                self.guard.poison(Fault::Statement {
                    what: "send a statement",
                    source: sqlx::Error::Protocol(refused.to_string()),
                });
                return Err(Error::bug(refused.to_string()));
            }
        };
        Ok(self.guard.run(what, sql, arguments).await?)
    }
}

/// Rows as values.
pub(super) fn decode<O>(rows: &[MySqlRow]) -> Result<Vec<O>, Error>
where
    O: for<'r> FromRow<'r, MySqlRow>,
{
    rows.iter()
        .map(O::from_row)
        .collect::<Result<_, _>>()
        .map_err(|source| Fault::of("decode a row", source, Lost::Within).into())
}
