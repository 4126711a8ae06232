//! Whether the rows that a move left at its source are those it brought to its target.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shared::ShopId;

use crate::{Server, wait_until};

/// Rows of a shop, a text each, by table.
pub type Copies = BTreeMap<String, Vec<String>>;

/// Every row of a shop at a server: of each table whose primary key begins with `shop_id` and that is not the pod's own. A
/// row's text has all of its columns in hex, so that nothing is lost in a character set.
pub async fn rows_of(server: &Server, shop: ShopId) -> Result<Copies> {
    let tables = server
        .texts(
            "select k.table_name from information_schema.key_column_usage k \
             where k.table_schema = database() and k.constraint_name = 'PRIMARY' \
             and k.ordinal_position = 1 and k.column_name = 'shop_id' \
             and not exists (select 1 from table_kind t where t.name = k.table_name)",
        )
        .await?;
    ensure!(tables.len() >= 10, "a shop has rows in: {tables:?}");
    let mut copies = Copies::new();
    for table in tables {
        let columns = server
            .texts(&format!(
                "select concat('ifnull(hex(cast(`', replace(column_name, '`', '``'), '` as binary)), ''null'')') \
                 from information_schema.columns where table_schema = database() \
                 and table_name = '{table}' order by ordinal_position"
            ))
            .await?;
        let row = columns.join(", ");
        let sql = format!("select concat_ws(',', {row}) from `{table}` where shop_id = {shop}");
        let mut rows = server
            .texts(&sql)
            .await
            .with_context(|| format!("read the shop's rows of {table}"))?;
        rows.sort_unstable();
        copies.insert(table, rows);
    }
    Ok(copies)
}

/// How many rows of a shop a server has, of all tables.
pub async fn rows_left(server: &Server, shop: ShopId) -> Result<usize> {
    let rows = rows_of(server, shop).await?;
    Ok(rows.values().map(Vec::len).sum())
}

/// Waits until no row of a shop changes by itself any more: each event is relayed, and each payment settled.
pub async fn rows_rest(primary: &Server, shop: ShopId, deadline: Duration) -> Result<()> {
    let due = format!(
        "select (select count(*) from outbox where shop_id = {shop} and waiting is not null) \
              + (select count(*) from payment where shop_id = {shop} and due_at is not null)"
    );
    wait_until("every job is done", deadline, async || {
        let left = primary.number(&due).await?;
        ensure!(left == 0, "{left} jobs are due");
        Ok(())
    })
    .await
}

/// What one side has and the other has not, in words; empty where they are the same.
pub fn differences(one: &Copies, other: &Copies) -> Vec<String> {
    let tables = one.keys().chain(other.keys());
    let mut found: Vec<String> = tables
        .filter_map(|table| {
            let (a, b) = (one.get(table)?, other.get(table)?);
            let only_a = a.iter().filter(|row| b.binary_search(row).is_err()).count();
            let only_b = b.iter().filter(|row| a.binary_search(row).is_err()).count();
            (only_a + only_b > 0 || a.len() != b.len())
                .then(|| format!("{table}: {only_a} rows at the one alone, {only_b} at the other"))
        })
        .collect();
    if !one.keys().eq(other.keys()) {
        found.push("they have other tables".to_owned());
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(rows: &[&str]) -> Copies {
        let rows = rows.iter().map(|row| (*row).to_owned()).collect();
        Copies::from([("product".to_owned(), rows)])
    }

    /// A row that is missing, more or changed is found.
    #[test]
    fn differences_are_found() {
        let one = copies(&["01,AA", "01,BB"]);
        assert!(differences(&one, &one).is_empty());
        for other in [
            &["01,AA"][..],
            &["01,AA", "01,BB", "01,CC"],
            &["01,AA", "01,BC"],
        ] {
            assert_eq!(differences(&one, &copies(other)).len(), 1, "{other:?}");
        }
        assert_eq!(
            differences(&one, &Copies::new()),
            ["they have other tables"]
        );
    }
}
