//! Reads tables from the server's own description, and names what cannot be moved.

use std::collections::{BTreeMap, BTreeSet};

use migrations::POD_TABLES_LOCAL;
use mysql_async::Row;

use super::{Column, Kind, Shape, Table, named};
use crate::mover::error::MoveError;
use crate::mover::session::{Session, number, text};

// One column, from its description.
mod column;
use column::{column, definition};

/// The first column of a tenant table's keys.
const SHOP: &str = "shop_id";

/// What a pod's database looks like.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The shop's tables, by name. One with a fault may be missing.
    pub(crate) tables: Vec<Table>,
    /// Tables that are the same on all pods.
    pub(crate) references: Vec<String>,
    /// What cannot be moved and why, with the way out.
    pub(crate) faults: Vec<String>,
}

/// The shop's tables; an error that names every fault if there is one.
pub(crate) async fn discover(session: &mut Session) -> Result<Vec<Table>, MoveError> {
    let survey = survey(session).await?;
    if survey.faults.is_empty() {
        return Ok(survey.tables);
    }
    Err(MoveError::Refused {
        reasons: survey.faults,
    })
}

/// Makes sure that a pod's tables are those that the move began with: none more, none less, none defined otherwise.
pub(crate) async fn unchanged(session: &mut Session, tables: &[Table]) -> Result<(), MoveError> {
    let pod = session.end().pod;
    let now = discover(session).await?;
    let changed = |text: String| MoveError::SchemaChanged { pod, text };
    for table in tables {
        let Some(found) = now.iter().find(|found| found.name == table.name) else {
            return Err(changed(format!("table {} is gone", table.name)));
        };
        if found.fingerprint_of_schema() != table.fingerprint_of_schema() {
            let then = table.shape.differences(&found.shape, "first", "last");
            return Err(changed(format!(
                "table {}: {}",
                table.name,
                then.join("; ")
            )));
        }
    }
    let new = |found: &&Table| tables.iter().all(|table| table.name != found.name);
    match now.iter().find(new) {
        Some(table) => Err(changed(format!("table {} is new", table.name))),
        None => Ok(()),
    }
}

const TABLES: &str = "select table_name, engine, avg_row_length from information_schema.tables \
    where table_schema = database() and table_type = 'BASE TABLE' order by table_name";

const COLUMNS: &str = "select c.table_name, c.column_name, c.data_type, c.column_type, c.character_set_name, \
    c.collation_name, c.is_nullable, c.column_default, c.extra, c.generation_expression, c.srs_id \
    from information_schema.columns c join information_schema.tables t \
    on t.table_schema = c.table_schema and t.table_name = c.table_name and t.table_type = 'BASE TABLE' \
    where c.table_schema = database() order by c.table_name, c.ordinal_position";

const UNIQUES: &str = "select table_name, index_name, column_name, sub_part, expression, collation \
    from information_schema.statistics where table_schema = database() and non_unique = 0 \
    order by table_name, index_name, seq_in_index";

const CHECKS: &str = "select t.table_name, c.constraint_name, c.check_clause, t.enforced \
    from information_schema.check_constraints c join information_schema.table_constraints t \
    on t.constraint_schema = c.constraint_schema and t.constraint_name = c.constraint_name \
    and t.constraint_type = 'CHECK' where c.constraint_schema = database()";

const FOREIGN: &str = "select r.table_name, r.constraint_name, r.update_rule, r.delete_rule, \
    r.referenced_table_name, k.column_name, k.referenced_column_name \
    from information_schema.referential_constraints r join information_schema.key_column_usage k \
    on k.constraint_schema = r.constraint_schema and k.constraint_name = r.constraint_name \
    and k.table_name = r.table_name where r.constraint_schema = database() \
    order by r.table_name, r.constraint_name, k.ordinal_position";

const TRIGGERS: &str = "select event_object_table, trigger_name from information_schema.triggers \
    where event_object_schema = database()";

const KINDS: &str = "select name, kind from table_kind";

/// One part of a unique key.
struct KeyRow {
    column: Option<String>,
    prefix: Option<u64>,
    expression: Option<String>,
    falling: bool,
}

/// All that the server says, by table.
#[derive(Default)]
struct Said {
    columns: BTreeMap<String, Vec<Row>>,
    uniques: BTreeMap<String, BTreeMap<String, Vec<KeyRow>>>,
    checks: BTreeMap<String, Vec<Row>>,
    foreign: BTreeMap<String, Vec<Row>>,
    triggers: BTreeMap<String, Vec<Row>>,
}

fn by_table(rows: Vec<Row>) -> BTreeMap<String, Vec<Row>> {
    let mut map: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in rows {
        map.entry(text(&row, 0).unwrap_or_default())
            .or_default()
            .push(row);
    }
    map
}

/// Looks at all tables of the database.
pub(crate) async fn survey(session: &mut Session) -> Result<Survey, MoveError> {
    let doing = "describe the tables";
    let kinds = session.rows(doing, KINDS).await?;
    let kinds: BTreeMap<String, String> = kinds
        .iter()
        .filter_map(|row| Some((text(row, 0)?, text(row, 1)?)))
        .collect();
    let tables = session.rows(doing, TABLES).await?;
    let mut said = Said {
        columns: by_table(session.rows(doing, COLUMNS).await?),
        checks: by_table(session.rows(doing, CHECKS).await?),
        foreign: by_table(session.rows(doing, FOREIGN).await?),
        triggers: by_table(session.rows(doing, TRIGGERS).await?),
        uniques: BTreeMap::new(),
    };
    for row in session.rows(doing, UNIQUES).await? {
        let of = |at| text(&row, at);
        let indexes = said.uniques.entry(of(0).unwrap_or_default()).or_default();
        indexes
            .entry(of(1).unwrap_or_default())
            .or_default()
            .push(KeyRow {
                column: of(2),
                prefix: number(&row, 3),
                expression: of(4),
                falling: of(5).as_deref() == Some("D"),
            });
    }
    let mut survey = Survey::default();
    let mut names = BTreeSet::new();
    for row in &tables {
        let name = text(row, 0).unwrap_or_default();
        names.insert(name.clone());
        match kinds.get(&name).map(String::as_str) {
            Some("reference") => {
                survey.references.push(name);
                continue;
            }
            Some(_) => continue,
            None if POD_TABLES_LOCAL.contains(&name.as_str()) || name == "shop_home" => continue,
            None => {}
        }
        let engine = text(row, 1).unwrap_or_default();
        if !engine.eq_ignore_ascii_case("innodb") {
            survey.faults.push(format!(
                "table {name}: its engine is {engine}, which has no transactions; `alter table {name} engine = innodb`"
            ));
            continue;
        }
        let table = describe(
            &name,
            number(row, 2).unwrap_or(0),
            &said,
            &mut survey.faults,
        );
        survey.tables.extend(table);
    }
    Ok(survey)
}

/// One tenant table; `None` if its key is not one by which its rows can be found.
fn describe(name: &str, row_bytes: u64, said: &Said, faults: &mut Vec<String>) -> Option<Table> {
    let mut shape = Shape::default();
    let rows = said.columns.get(name).map_or(&[][..], Vec::as_slice);
    let mut columns = Vec::with_capacity(rows.len());
    for row in rows {
        match column(row) {
            Some(column) => columns.push(column),
            None => faults.push(format!(
                "table {name}, column {}: its type {} is not known to this program; take the column out, or move with a newer program",
                text(row, 1).unwrap_or_default(),
                text(row, 3).unwrap_or_default()
            )),
        }
        shape.put(
            format!("column {}", text(row, 1).unwrap_or_default()),
            definition(row),
        );
    }
    let empty = BTreeMap::new();
    let uniques = said.uniques.get(name).unwrap_or(&empty);
    for (index, parts) in uniques {
        shape.put(format!("unique key {index}"), parts_text(parts));
    }
    for row in said.checks.get(name).into_iter().flatten() {
        let clause = text(row, 2).unwrap_or_default();
        let enforced = text(row, 3).unwrap_or_default();
        let constraint = text(row, 1).unwrap_or_default();
        shape.put(
            format!("check {constraint}"),
            format!("{clause}, enforced {enforced}"),
        );
    }
    foreign(name, said, &mut shape, faults);
    for row in said.triggers.get(name).into_iter().flatten() {
        faults.push(format!(
            "table {name}: the trigger {} would run again for each row that is moved; drop it, and let the application do its work",
            text(row, 1).unwrap_or_default()
        ));
    }
    let (key, falling) = primary(name, &columns, uniques.get("PRIMARY"), faults)?;
    others(name, uniques, faults);
    let (table_name, quoted) = named(name);
    Some(Table {
        name: table_name,
        quoted,
        columns,
        key,
        falling,
        row_bytes,
        shape,
    })
}

fn parts_text(parts: &[KeyRow]) -> String {
    let part = |part: &KeyRow| {
        let what = part.column.as_deref().or(part.expression.as_deref());
        let prefix = part.prefix.map_or_else(String::new, |n| format!("({n})"));
        let falling = if part.falling { " desc" } else { "" };
        format!("{}{prefix}{falling}", what.unwrap_or("?"))
    };
    parts.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// The primary key: it must begin with the shop, and a row must be found by it exactly.
fn primary(
    name: &str,
    columns: &[Column],
    parts: Option<&Vec<KeyRow>>,
    faults: &mut Vec<String>,
) -> Option<(Vec<usize>, Vec<bool>)> {
    let first = parts.and_then(|parts| parts.first());
    if first.is_none_or(|part| part.column.as_deref() != Some(SHOP)) {
        faults.push(format!(
            "table {name}: its primary key does not begin with {SHOP}, and it is not registered; give it such a key, or \
             register it where it is made: `insert into table_kind (name, kind) values ('{name}', 'reference')` if it is \
             the same on all pods, `'local'` if it is this pod's own"
        ));
        return None;
    }
    let mut key = Vec::new();
    let mut falling = Vec::new();
    let mut fault = |column: &str, why: &str| {
        faults.push(format!(
            "table {name}, column {column}: {why}; give the table another primary key"
        ));
    };
    for part in parts.into_iter().flatten() {
        let at = columns
            .iter()
            .position(|c| Some(&c.name) == part.column.as_ref())?;
        let column = &columns[at];
        if key.is_empty()
            && (column.data_type != "bigint" || column.kind != (Kind::Int { unsigned: true }))
        {
            fault(
                &column.name,
                "it is no `bigint unsigned`, as ids of shops are",
            );
        }
        if matches!(column.kind, Kind::Float | Kind::Double) {
            fault(
                &column.name,
                "a float in a primary key finds its row by chance",
            );
        }
        if part.prefix.is_some() {
            fault(
                &column.name,
                "only a prefix of it is in the primary key, so the key does not name one value",
            );
        }
        key.push(at);
        falling.push(part.falling);
    }
    Some((key, falling))
}

/// The other unique keys: each must be within the shop.
fn others(name: &str, uniques: &BTreeMap<String, Vec<KeyRow>>, faults: &mut Vec<String>) {
    for (index, parts) in uniques.iter().filter(|(index, _)| *index != "PRIMARY") {
        let first = parts.first().and_then(|part| part.column.as_deref());
        if first != Some(SHOP) {
            faults.push(format!(
                "table {name}: the unique key {index} does not begin with {SHOP}: writing a row there could remove \
                 another shop's; put {SHOP} in front of it"
            ));
        }
    }
}

/// Plain foreign keys move; those that change rows by themselves do so without a word in the binlog.
fn foreign(name: &str, said: &Said, shape: &mut Shape, faults: &mut Vec<String>) {
    let mut lines: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for row in said.foreign.get(name).into_iter().flatten() {
        let of = |at| text(row, at).unwrap_or_default();
        let line = format!("to {} on update {} on delete {}", of(4), of(2), of(3));
        let entry = lines.entry(of(1)).or_insert_with(|| (line, Vec::new()));
        entry.1.push(format!("{} -> {}", of(5), of(6)));
        let acts = |rule: String| !matches!(rule.as_str(), "NO ACTION" | "RESTRICT");
        if entry.1.len() == 1 && (acts(of(2)) || acts(of(3))) {
            faults.push(format!(
                "table {name}: the foreign key {} changes rows by itself (on update {}, on delete {}), which a move could \
                 miss; make it `restrict`, and let the application do it",
                of(1),
                of(2),
                of(3)
            ));
        }
    }
    for (constraint, (line, columns)) in lines {
        shape.put(
            format!("foreign key {constraint}"),
            format!("({}) {line}", columns.join(", ")),
        );
    }
}
