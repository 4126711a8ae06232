//! Whether JSON survives as text.
//!
//! A server gives a document out as text and takes it in as text, while it keeps types that text has no form for: a
//! DECIMAL comes back as DOUBLE, a date as a string, bytes as a string, a number without sign as one with sign. The
//! source counts such values in each document as it is read; a document that has any is refused with its key, never
//! changed silently. (Documents that came to the server as text have none.)

use mysql_async::Row;
use shared::ShopId;

use super::{Column, Key, Kind, Table};
use crate::mover::session::text;

/// Types that a document keeps when it is written as text and read again; of the whole numbers those without sign only
/// where they would not fit with one.
const KEPT: &str = "'OBJECT','ARRAY','STRING','INTEGER','DOUBLE','BOOLEAN','NULL'";

/// An expression that says which types a document loses on its way as text; NULL or empty if none.
fn lost_types(column: &Column) -> String {
    format!(
        "(select group_concat(distinct json_type(v.v)) from json_table(json_extract(json_array({name}), '$**[*]', \
         '$**.*'), '$[*]' columns (v json path '$')) v where json_type(v.v) not in ({KEPT}) and not \
         (json_type(v.v) = 'UNSIGNED INTEGER' and v.v > 9223372036854775807))",
        name = column.quoted
    )
}

/// The columns of a table that need the question.
pub(super) fn columns(table: &Table) -> impl Iterator<Item = &Column> {
    table.written().filter(|column| column.kind == Kind::Json)
}

/// The questions about all JSON columns, to stand behind the select list; with a comma before each.
pub(super) fn questions(table: &Table) -> String {
    let mut sql = String::new();
    for column in columns(table) {
        sql.push_str(", ");
        sql.push_str(&lost_types(column));
    }
    sql
}

/// What to `select` to find one row of the shop with such a document, each with its column.
pub(crate) fn json_questions(table: &Table, shop: ShopId) -> Vec<(String, &Column)> {
    let of = |column| {
        let lost = lost_types(column);
        let sql = format!(
            "{}, {lost} {} where shop_id = {shop} and {} is not null and {lost} is not null limit 1",
            table.key_list(),
            table.by_key(),
            column.quoted
        );
        (sql, column)
    };
    columns(table).map(of).collect()
}

/// What such a row means for a move.
pub(crate) fn json_refusal(table: &Table, column: &Column, row: &Row) -> String {
    let key = Key::of_key_row(table, row).ok();
    let types = text(row, row.len() - 1).unwrap_or_default();
    refusal(table, column, key.as_ref(), &types)
}

/// The sentence about a document that no text can carry.
pub(super) fn refusal(table: &Table, column: &Column, key: Option<&Key>, types: &str) -> String {
    format!(
        "table {}, column {}, row {}: the JSON document holds values of type {types}, which the server can neither give \
         out nor take in exactly; write the document again as text \
         (`update .. set {c} = cast(cast({c} as char) as json)`), then move",
        table.name,
        column.name,
        key.map_or_else(|| "?".to_owned(), Key::to_string),
        c = column.quoted
    )
}
