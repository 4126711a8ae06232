//! How many rows of a table are the shop's, without reading them.

use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::session::{Session, number};
use crate::mover::table::Table;

/// By what the optimizer finds between the ends of the shop's part of the key. It looks there for this very shop only where an
/// index is offered, not forced: with `force index` it takes the table's average over all of its shops. And it never says that
/// more than half of a table is one shop's: where it says so much, the rows of all others are asked for too.
pub(super) async fn of_shop(
    source: &mut Session,
    job: &Job,
    table: &Table,
) -> Result<u64, MoveError> {
    let shop = job.shop;
    let own = planned(source, table, &format!("where shop_id = {shop}")).await?;
    if own <= 1 {
        // The optimizer knows no part with nothing in it.
        return is_there(source, job, table).await.map(u64::from);
    }
    let all = planned(source, table, "").await?;
    if own < all / 2 {
        return Ok(own);
    }
    let before = planned(source, table, &format!("where shop_id < {shop}")).await?;
    let after = planned(source, table, &format!("where shop_id > {shop}")).await?;
    Ok(most(own, all, before.saturating_add(after)))
}

/// Pure: what is nobody else's, and never less than what was found.
fn most(own: u64, all: u64, others: u64) -> u64 {
    own.max(all.saturating_sub(others))
}

async fn planned(source: &mut Session, table: &Table, which: &str) -> Result<u64, MoveError> {
    let sql = format!(
        "explain format = traditional select 1 from {} use index (primary) {which}",
        table.quoted
    );
    let plan = source.rows("estimate the rows", &sql).await?;
    Ok(plan.first().and_then(|row| number(row, 9)).unwrap_or(0))
}

async fn is_there(source: &mut Session, job: &Job, table: &Table) -> Result<bool, MoveError> {
    let sql = format!(
        "select 1 {} where shop_id = {} limit 1",
        table.by_key(),
        job.shop
    );
    let rows = source.rows("look for a row", &sql).await?;
    Ok(!rows.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shop_of_more_than_half_a_table_is_what_the_others_are_not() {
        // As MySQL 9.7 says of 2997 rows beside 39: half of what it takes the table for.
        assert_eq!(most(2021, 4043, 40), 4003);
        // A small table is counted exactly, and parts with nothing in them count as one.
        assert_eq!(most(3, 3, 2), 3);
    }
}
