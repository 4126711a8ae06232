//! The guarded transaction as a closure sees it.

use shared::{Epoch, ShopId};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::{Query, QueryAs};
use sqlx::{FromRow, MySql};

use crate::{Entity, Error, Event};

/// An open write transaction of one shop: its home is locked and allows the write until the end.
#[derive(Debug)]
pub struct Tx {
    shop: ShopId,
    epoch: Epoch,
}

impl Tx {
    /// The tenant: bind it into every statement on shop data.
    pub const fn shop(&self) -> ShopId {
        self.shop
    }

    /// The epoch under which this transaction acts.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Runs a statement; the rows it **matched** (not: changed; the driver asks the server for found rows).
    pub async fn execute(&mut self, _query: Query<'_, MySql, MySqlArguments>) -> Result<u64, Error> {
        todo!()
    }

    /// The one row of a query.
    pub async fn fetch_one<O>(&mut self, _query: QueryAs<'_, MySql, O, MySqlArguments>) -> Result<O, Error>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        todo!()
    }

    /// The row of a query, if there is one.
    pub async fn fetch_optional<O>(&mut self, _query: QueryAs<'_, MySql, O, MySqlArguments>) -> Result<Option<O>, Error>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        todo!()
    }

    /// The rows of a query; give it a `limit`.
    pub async fn fetch_all<O>(&mut self, _query: QueryAs<'_, MySql, O, MySqlArguments>) -> Result<Vec<O>, Error>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        todo!()
    }

    /// Adds a domain event: a row of this transaction, written as its last statement, so that events of
    /// transactions that wait for one another stand in commit order.
    pub fn outbox(&mut self, _event: Event) {
        todo!()
    }

    /// Drops a cached thing in both layers and in the pod's other processes once this transaction has committed.
    pub fn changed(&mut self, _entity: &'static Entity, _id: &str) {
        todo!()
    }
}
