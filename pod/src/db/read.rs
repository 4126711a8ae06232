//! Reads as a closure sees them.

use shared::{Epoch, ShopId};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::QueryAs;
use sqlx::{FromRow, MySql};

use crate::Error;

/// A read-only snapshot of one shop's rows on one server.
#[derive(Debug)]
pub struct Reader {
    shop: ShopId,
    epoch: Epoch,
}

impl Reader {
    /// The tenant: bind it into every statement on shop data.
    pub const fn shop(&self) -> ShopId {
        self.shop
    }

    /// The epoch under which this read acts.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
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
}
