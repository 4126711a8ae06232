//! Reads rows at one side and loads them at the other: the only way in which a shop's values travel.

use bytes::{BufMut as _, Bytes, BytesMut};
use mysql_async::Row;

use super::{Key, Kind, Table, json};
use crate::mover::error::MoveError;
use crate::mover::session::{Session, bytes, number, text};

/// The server's warning for an ENUM without a value: it has one, whose number is 0.
const TRUNCATED: u64 = 1265;
/// How a session is strict, and how it is when an ENUM without a value must be stored.
const STRICT: &str = "set sql_mode = concat('STRICT_ALL_TABLES,', @@sql_mode)";
const LENIENT: &str =
    "set sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION'";
/// Warnings that an error shows.
const WARNINGS_SHOWN: usize = 3;

/// Values of ENUM columns that are none of their list, at once: each is a warning of the load, whose answer counts warnings in
/// 16 bits. The row that goes over it is the last one; no row has as many columns as are left to 65,535.
const ZEROS_MAX: u64 = 60_000;

/// How much may be read at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// Rows; `None` where the predicate bounds them.
    pub(crate) rows: Option<u64>,
    /// Bytes; the row that goes over it is the last one, so a larger one goes alone.
    pub(crate) bytes: u64,
}

/// Rows of one table in the form in which they are loaded.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// How many.
    pub(crate) count: u64,
    /// One line for each.
    data: BytesMut,
    /// The same, once all are read: sent without being copied, again if it must be.
    lines: Bytes,
    /// The key of the last one.
    pub(crate) last: Option<Key>,
    /// Whether a limit other than that of rows ended the reading: there may be more.
    pub(crate) cut: bool,
    /// Values of ENUM columns that are none of the list: each makes a warning when it is loaded.
    zeros: u64,
}

impl Rows {
    /// Their size on the way.
    pub(crate) fn bytes(&self) -> u64 {
        (self.data.len() + self.lines.len()) as u64
    }

    /// The lines themselves, once all are read.
    pub(crate) fn lines(&self) -> Bytes {
        self.lines.clone()
    }

    /// Whether the next row is for another time.
    fn is_full(&self, limit: Limit) -> bool {
        self.count > 0 && (self.bytes() >= limit.bytes || self.zeros >= ZEROS_MAX)
    }

    fn push(&mut self, plan: &Plan<'_>, row: &Row) {
        for (at, is_enum) in plan.enums.iter().enumerate() {
            if at > 0 {
                self.data.put_u8(b'\t');
            }
            match bytes(row, at) {
                None => self.data.extend_from_slice(b"\\N"),
                Some(value) => {
                    self.zeros += u64::from(*is_enum && value == b"0");
                    escape(value, &mut self.data);
                }
            }
        }
        self.data.put_u8(b'\n');
        self.count += 1;
    }
}

/// What is the same for all rows of a table.
struct Plan<'a> {
    table: &'a Table,
    /// For each written column, whether it is an ENUM.
    enums: Vec<bool>,
    key: Vec<usize>,
    /// Where the questions about JSON begin.
    questions: usize,
}

impl<'a> Plan<'a> {
    fn new(table: &'a Table) -> Self {
        let enums = table.written();
        Self {
            table,
            enums: enums.map(|c| matches!(c.kind, Kind::Enum { .. })).collect(),
            key: table.key_positions(),
            questions: table.written().count()
                + table.key_columns().filter(|c| c.generated).count(),
        }
    }

    fn key_of(&self, row: &Row) -> Option<Key> {
        Key::of_row(self.table, &self.key, row).ok()
    }

    /// What of a row does not survive as text.
    fn refusal(&self, row: &Row) -> Option<String> {
        let found = json::columns(self.table)
            .enumerate()
            .find_map(|(at, column)| {
                text(row, self.questions + at)
                    .filter(|types| !types.is_empty())
                    .map(|types| (column, types))
            });
        found.map(|(column, types)| {
            json::refusal(self.table, column, self.key_of(row).as_ref(), &types)
        })
    }
}

/// Copies a value so that the loader reads it back.
fn escape(value: &[u8], out: &mut BytesMut) {
    let mut rest = value;
    while let Some(at) = memchr::memchr3(b'\\', b'\t', b'\n', rest) {
        out.extend_from_slice(&rest[..at]);
        let word: &[u8] = match rest[at] {
            b'\t' => b"\\t",
            b'\n' => b"\\n",
            _ => b"\\\\",
        };
        out.extend_from_slice(word);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Reads the rows of a predicate (which names the shop), in the key's order.
pub(crate) async fn read(
    session: &mut Session,
    table: &Table,
    predicate: &str,
    limit: Limit,
) -> Result<Rows, MoveError> {
    let plan = Plan::new(table);
    let mut sql = format!(
        "select {}{} {} where {predicate} order by {}",
        table.select_list(),
        json::questions(table),
        table.by_key(),
        table.order_by()
    );
    if let Some(rows) = limit.rows {
        sql.push_str(&format!(" limit {rows}"));
    }
    let mut rows = Rows::default();
    let mut last: Option<Row> = None;
    let mut broken = None;
    let mut take = |row: Row| {
        // Only a row that is there says that there is more.
        if rows.is_full(limit) {
            rows.cut = true;
            return false;
        }
        if let Some(reason) = plan.refusal(&row) {
            broken = Some(reason);
            return false;
        }
        rows.push(&plan, &row);
        last = Some(row);
        true
    };
    session.each_row("read rows", &sql, &mut take).await?;
    if let Some(reason) = broken {
        return Err(MoveError::Refused {
            reasons: vec![reason],
        });
    }
    rows.lines = std::mem::take(&mut rows.data).freeze();
    rows.last = last.as_ref().and_then(|row| plan.key_of(row));
    Ok(rows)
}

/// Writes rows at the other side, in the session's transaction. Each takes the place of whatever has its key or one of
/// its unique values there. A value that the server would change on its way in is an error.
pub(crate) async fn load(
    session: &mut Session,
    table: &Table,
    rows: &Rows,
) -> Result<(), MoveError> {
    if rows.count == 0 {
        return Ok(());
    }
    let (count, zeros, last) = (rows.count, rows.zeros, rows.last.as_ref());
    if zeros > 0 {
        session
            .exec("allow an ENUM without a value", LENIENT)
            .await?;
    }
    let sql = table.load_statement();
    #[cfg(feature = "failpoints")]
    crate::mover::failpoint::statement("load rows").await;
    let done = match session.load("load rows", &sql, rows.lines.clone()).await {
        Err(MoveError::Sql { source, .. }) => {
            return Err(refused(table, count, last, &source.to_string()));
        }
        done => done?,
    };
    let records = format!("Records: {count} ");
    let whole = done.info.starts_with(&records) && done.info.contains("Skipped: 0 ");
    if !whole || done.warnings > 0 {
        let warnings = warnings(session).await?;
        let expected = warnings.len() as u64 == zeros
            && warnings.iter().all(|(code, _)| *code == TRUNCATED)
            && u64::from(done.warnings) == zeros;
        if !(whole && expected) {
            let shown: Vec<String> = warnings
                .into_iter()
                .take(WARNINGS_SHOWN)
                .map(|(code, text)| format!("{code} {text}"))
                .collect();
            let said = format!("{}; {}", done.info, shown.join("; "));
            return Err(refused(table, count, last, &said));
        }
    }
    if zeros > 0 {
        session.exec("be strict again", STRICT).await?;
    }
    Ok(())
}

async fn warnings(session: &mut Session) -> Result<Vec<(u64, String)>, MoveError> {
    let rows = session.rows("read the warnings", "show warnings").await?;
    let of = |row: &Row| {
        (
            number(row, 1).unwrap_or(0),
            text(row, 2).unwrap_or_default(),
        )
    };
    Ok(rows.iter().map(of).collect())
}

fn refused(table: &Table, count: u64, last: Option<&Key>, said: &str) -> MoveError {
    let last = last.map_or_else(|| "?".to_owned(), Key::to_string);
    MoveError::Refused {
        reasons: vec![format!(
            "table {}: the target does not take the rows as they are ({count} rows up to {last}): {said}; \
             mend the value at the source, then start the move again",
            table.name
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to a load counts its warnings in 16 bits.
    #[test]
    fn a_chunk_ends_before_its_warnings_cannot_be_counted() {
        let limit = Limit {
            rows: None,
            bytes: 1 << 20,
        };
        let with = |count, zeros| Rows {
            count,
            zeros,
            ..Rows::default()
        };
        assert!(!with(1, ZEROS_MAX - 1).is_full(limit) && with(1, ZEROS_MAX).is_full(limit));
        // InnoDB's limit of columns, of which one is the shop.
        let widest = 1017 - 1;
        assert!(ZEROS_MAX - 1 + widest < u64::from(u16::MAX));
        // A row that is too much by itself goes alone.
        assert!(!with(0, 0).is_full(Limit { bytes: 0, ..limit }));
    }

    #[test]
    fn what_the_loader_would_take_for_a_sign_is_escaped() {
        let mut out = BytesMut::new();
        escape(b"a\tb\nc\\N\0d", &mut out);
        assert_eq!(&out[..], b"a\\tb\\nc\\\\N\0d");
    }
}
