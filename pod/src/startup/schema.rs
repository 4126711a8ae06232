//! What the database contains: whose it is, which schema it has, how its tables are keyed.

use std::collections::BTreeMap;

use migrations::{Migration, POD, POD_TABLES_LOCAL};
use shared::PodId;
use sqlx::mysql::MySqlConnection;

pub(super) async fn wrong_identity(
    raw: &mut MySqlConnection,
    pod: PodId,
) -> Result<Option<String>, sqlx::Error> {
    let found: Option<(u64,)> =
        sqlx::query_as("select cast(pod as unsigned) from pod_identity where one = 1")
            .fetch_optional(raw)
            .await?;
    Ok(match found {
        None => Some("pod_identity is empty: the database has not been given to a pod; `podctl apply` does that".into()),
        Some((found,)) if found != u64::from(pod.get()) => Some(format!(
            "the database is pod {found}'s, and this process is pod {pod}'s: one of `pod` and `mysql.primary` in the config is wrong"
        )),
        Some(_) => None,
    })
}

/// A line of the ledger.
#[derive(Debug, sqlx::FromRow)]
struct Applied {
    version: i64,
    name: String,
    checksum: String,
    finished: bool,
}

pub(super) async fn wrong_ledger(raw: &mut MySqlConnection) -> Result<Vec<String>, sqlx::Error> {
    let applied: Vec<Applied> = sqlx::query_as(
        "select cast(version as signed) as version, name, checksum, finished_at is not null as finished \
         from schema_ledger order by version",
    )
    .fetch_all(raw)
    .await?;
    Ok(compare(POD, &applied))
}

/// Older, newer, half done or another file: this program was built for one schema.
fn compare(wanted: &[Migration], applied: &[Applied]) -> Vec<String> {
    let by_version: BTreeMap<i64, &Applied> = applied.iter().map(|a| (a.version, a)).collect();
    let mut faults = Vec::new();
    for migration in wanted {
        let Migration { version, name, .. } = migration;
        match by_version.get(&i64::from(*version)) {
            None => faults.push(format!(
                "the schema is older than this program: migration {version} ({name}) is missing; `podctl apply` migrates"
            )),
            Some(a) if !a.finished => faults.push(format!(
                "migration {version} ({name}) was begun and not finished; `podctl apply` goes on with it"
            )),
            Some(a) if a.checksum.trim() != migration.checksum() => faults.push(format!(
                "migration {version} was applied from another text ({}): the schema is another program's",
                a.name
            )),
            Some(_) => {}
        }
    }
    let newest = wanted
        .iter()
        .map(|m| i64::from(m.version))
        .max()
        .unwrap_or(0);
    for a in applied.iter().filter(|a| a.version > newest) {
        faults.push(format!(
            "the schema is newer than this program: it has migration {} ({}), which this program does not know; start the newer program",
            a.version, a.name
        ));
    }
    faults
}

/// Tenant tables without a primary key, or with a unique key that does not begin with `shop_id`: a statement could meet
/// another tenant's row through such a key (a `replace` removes it; tried). Tables that `table_kind` registers as the
/// pod's own, or as the same on all pods, are none.
pub(super) async fn wrong_keys(
    raw: &mut MySqlConnection,
    database: &str,
) -> Result<Vec<String>, sqlx::Error> {
    let tables: Vec<(String, Option<String>, Option<String>)> = sqlx::query_as(
        "select cast(t.table_name as char), cast(s.index_name as char), cast(s.column_name as char) \
         from information_schema.tables t left join information_schema.statistics s \
         on s.table_schema = t.table_schema and s.table_name = t.table_name and s.non_unique = 0 and s.seq_in_index = 1 \
         where t.table_schema = ? and t.table_type = 'BASE TABLE' order by 1, 2",
    )
    .bind(database)
    .fetch_all(&mut *raw)
    .await?;
    Ok(judge_keys(&tables, &registered(raw).await?))
}

/// The tables that `table_kind` names. There are none in a schema that is older than it, which is a fault of its own.
async fn registered(raw: &mut MySqlConnection) -> Result<Vec<String>, sqlx::Error> {
    const NO_SUCH_TABLE: u16 = 1146;
    let rows: Result<Vec<(String,)>, _> = sqlx::query_as("select name from table_kind")
        .fetch_all(raw)
        .await;
    match rows {
        Ok(rows) => Ok(rows.into_iter().map(|(name,)| name).collect()),
        Err(sqlx::Error::Database(fault))
            if fault
                .try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
                .is_some_and(|fault| fault.number() == NO_SUCH_TABLE) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

fn judge_keys(
    tables: &[(String, Option<String>, Option<String>)],
    registered: &[String],
) -> Vec<String> {
    let mut faults = Vec::new();
    let tenant = |table: &str| {
        !POD_TABLES_LOCAL.contains(&table) && !registered.iter().any(|name| name == table)
    };
    let mut primary: BTreeMap<&str, bool> = BTreeMap::new();
    for (table, index, column) in tables.iter().filter(|(table, ..)| tenant(table)) {
        *primary.entry(table).or_default() |= index.as_deref() == Some("PRIMARY");
        if let Some(index) = index
            && column.as_deref() != Some("shop_id")
        {
            faults.push(format!(
                "the unique key {index} of table {table} begins with {}, not with shop_id: another tenant's row could be met through it",
                column.as_deref().unwrap_or("an expression")
            ));
        }
    }
    for (table, _) in primary.iter().filter(|(_, has)| !**has) {
        faults.push(format!("table {table} has no primary key"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied() -> Vec<Applied> {
        POD.iter()
            .map(|m| Applied {
                version: i64::from(m.version),
                name: m.name.into(),
                checksum: m.checksum(),
                finished: true,
            })
            .collect()
    }

    #[test]
    fn another_schema_is_named_by_what_is_wrong_with_it() {
        assert_eq!(compare(POD, &applied()), Vec::<String>::new());
        let mut older = applied();
        older.pop();
        assert!(compare(POD, &older)[0].contains("older than this program"));
        let mut newer = applied();
        newer.push(Applied {
            version: 99,
            name: "later".into(),
            checksum: String::new(),
            finished: true,
        });
        assert!(compare(POD, &newer)[0].contains("newer than this program"));
        let mut half = applied();
        half[0].finished = false;
        half[1].checksum = "x".into();
        let faults = compare(POD, &half);
        assert!(
            faults[0].contains("not finished") && faults[1].contains("another text"),
            "{faults:?}"
        );
    }

    /// Invariant 7, on the real tables.
    #[test]
    fn inv7_a_unique_key_without_shop_id_first_is_a_fault() {
        let row = |table: &str, index: &str, column: &str| {
            (
                table.to_owned(),
                Some(index.to_owned()),
                Some(column.to_owned()),
            )
        };
        let good = [
            row("product", "PRIMARY", "shop_id"),
            row("pod_identity", "PRIMARY", "one"),
        ];
        assert_eq!(judge_keys(&good, &[]), Vec::<String>::new());
        let bad = [
            row("product", "PRIMARY", "shop_id"),
            row("product", "code", "code"),
            ("heap".to_owned(), None, None),
        ];
        let faults = judge_keys(&bad, &[]);
        assert!(
            faults[0].contains("unique key code of table product")
                && faults[1].contains("table heap has no primary key")
        );
        let faults = judge_keys(&bad, &["product".into()]);
        assert_eq!(faults, ["table heap has no primary key"]);
    }
}
