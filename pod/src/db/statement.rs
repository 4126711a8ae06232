//! Which statements may be sent.
//!
//! In a transaction most statements commit it implicitly and so drop the home's lock, **even when they are refused**
//! (tried on the server: CREATE, TRUNCATE, LOCK TABLES, FLUSH, BEGIN, SET autocommit, ANALYZE). So only a few kinds are
//! sent at all. On a replica a locking read or `get_lock` succeeds and means nothing, so those are refused in reads.

/// Why a statement is not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error(
        "the statement begins with {0:?} and was not sent: inside a transaction only SELECT, INSERT, UPDATE, DELETE, WITH, SAVEPOINT, ROLLBACK TO and RELEASE SAVEPOINT are, since any other may commit it implicitly"
    )]
    Kind(String),
    #[error("the statement begins with {0:?} and was not sent: a read sends only SELECT and WITH")]
    NotARead(String),
    #[error(
        "the statement contains {0:?} and was not sent: a read locks nothing and changes nothing"
    )]
    Locks(&'static str),
    #[error(
        "the statement contains {0:?} and was not sent: its lock would outlive the transaction"
    )]
    UserLock(&'static str),
    #[error(
        "the statement contains an executable comment (/*! */) and was not sent: its kind cannot be told"
    )]
    ExecutableComment,
    #[error(
        "the statement names the savepoint {GUARD_SAVEPOINT:?} and was not sent: it is the guard's own"
    )]
    GuardSavepoint,
}

/// The savepoint that the guard sets first and releases last: an implicit commit on the way takes it away.
pub(crate) const GUARD_SAVEPOINT: &str = "podhost_guard";

/// How a statement is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Send {
    /// Prepared, with bound values.
    Prepared,
    /// As text: the server does not prepare savepoints.
    Text,
}

const USER_LOCKS: [&str; 3] = ["get_lock", "release_lock", "release_all_locks"];

/// Whether a statement may be sent in a write transaction.
pub(crate) fn check_write(sql: &str) -> Result<Send, Refused> {
    let words = words(sql)?;
    if words.iter().any(|w| w == GUARD_SAVEPOINT) {
        return Err(Refused::GuardSavepoint);
    }
    if let Some(lock) = USER_LOCKS
        .into_iter()
        .find(|l| words.iter().any(|w| w == l))
    {
        return Err(Refused::UserLock(lock));
    }
    let word = |i: usize| words.get(i).map_or("", String::as_str);
    match (word(0), word(1)) {
        ("select" | "insert" | "update" | "delete" | "with", _) => Ok(Send::Prepared),
        ("savepoint", _) if words.len() == 2 => Ok(Send::Text),
        ("release", "savepoint") if words.len() == 3 => Ok(Send::Text),
        ("rollback", "to") if words.len() == 3 || (word(2) == "savepoint" && words.len() == 4) => {
            Ok(Send::Text)
        }
        (first, _) => Err(Refused::Kind(first.to_owned())),
    }
}

/// Whether a statement may be sent in a read.
pub(crate) fn check_read(sql: &str) -> Result<(), Refused> {
    let words = words(sql)?;
    let has = |pair: [&str; 2]| words.windows(2).any(|w| w[0] == pair[0] && w[1] == pair[1]);
    match words.first().map_or("", String::as_str) {
        "select" | "with" => {}
        first => return Err(Refused::NotARead(first.to_owned())),
    }
    for (pair, name) in [
        (["for", "update"], "for update"),
        (["for", "share"], "for share"),
        (["lock", "in"], "lock in share mode"),
    ] {
        if has(pair) {
            return Err(Refused::Locks(name));
        }
    }
    for name in [
        "get_lock",
        "release_lock",
        "release_all_locks",
        "into",
        "update",
        "delete",
        "insert",
    ] {
        if words.iter().any(|w| w == name) {
            return Err(Refused::Locks(name));
        }
    }
    Ok(())
}

/// The bare words of a statement in lower case: without quoted texts, quoted names, comments and signs.
fn words(sql: &str) -> Result<Vec<String>, Refused> {
    let mut words = Vec::new();
    let mut rest = sql;
    while let Some(c) = rest.chars().next() {
        rest = match c {
            '\'' | '"' | '`' => after_quote(&rest[1..], c),
            '#' => after(rest, "\n"),
            '-' if begins_comment(rest) => after(rest, "\n"),
            '/' if rest.starts_with("/*!") => return Err(Refused::ExecutableComment),
            '/' if rest.starts_with("/*") => after(&rest[2..], "*/"),
            c if c.is_alphanumeric() || c == '_' => {
                let end = rest
                    .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))
                    .unwrap_or(rest.len());
                words.push(rest[..end].to_ascii_lowercase());
                &rest[end..]
            }
            // A second statement: the server would not prepare it, and text is sent only where nothing follows.
            ';' => {
                words.push(";".into());
                &rest[1..]
            }
            c => &rest[c.len_utf8()..],
        };
    }
    Ok(words)
}

/// MySQL takes `--` for a comment only before white space or the end: `1--get_lock('a', 1)` is a subtraction.
fn begins_comment(text: &str) -> bool {
    text.strip_prefix("--").is_some_and(|rest| {
        rest.chars()
            .next()
            .is_none_or(|c| c.is_whitespace() || c.is_control())
    })
}

fn after<'a>(text: &'a str, end: &str) -> &'a str {
    text.find(end).map_or("", |i| &text[i + end.len()..])
}

/// The text after the quote that ends here; a doubled or escaped quote does not end it.
fn after_quote(text: &str, quote: char) -> &str {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && quote != '`' {
            chars.next();
        } else if c == quote {
            if chars.peek().is_some_and(|(_, next)| *next == quote) {
                chars.next();
            } else {
                return &text[at + 1..];
            }
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_send_rows_and_savepoints_only() {
        for good in [
            "select 1",
            "  insert into t values ('create table')",
            "-- why\nupdate t set a = 1",
            "/* why */ delete from t",
            "with x as (select 1 as n) select n from x for update",
            "(select 1) union (select 2)",
        ] {
            assert_eq!(check_write(good), Ok(Send::Prepared), "{good}");
        }
        for good in [
            "savepoint a",
            "rollback to a",
            "ROLLBACK TO SAVEPOINT a",
            "release savepoint a",
        ] {
            assert_eq!(check_write(good), Ok(Send::Text), "{good}");
        }
        for bad in [
            "create table t (a int)",
            "truncate t",
            "lock tables t write",
            "flush tables",
            "begin",
            "start transaction",
            "commit",
            "rollback",
            "rollback and chain",
            "set autocommit = 1",
            "analyze table t",
            "replace into t values (1)",
            "call p()",
            "/* x */ alter table t add b int",
            "savepoint a; commit",
            "",
        ] {
            assert!(matches!(check_write(bad), Err(Refused::Kind(_))), "{bad}");
        }
        assert_eq!(
            check_write("/*! create table t (a int) */"),
            Err(Refused::ExecutableComment)
        );
        assert_eq!(
            check_write("select 1 /*!50000 into outfile 'x' */"),
            Err(Refused::ExecutableComment)
        );
        assert_eq!(
            check_write("select Get_Lock('a', 1)"),
            Err(Refused::UserLock("get_lock"))
        );
        assert_eq!(
            check_write("select 1--get_lock('a', 1)"),
            Err(Refused::UserLock("get_lock")),
            "a subtraction is no comment"
        );
        assert_eq!(
            check_write("release savepoint podhost_guard"),
            Err(Refused::GuardSavepoint)
        );
    }

    #[test]
    fn reads_lock_nothing() {
        for good in [
            "select a from t where b = 'for update'",
            "with x as (select 1) select 1 from x",
            "select `update` from t",
        ] {
            assert_eq!(check_read(good), Ok(()), "{good}");
        }
        for bad in [
            "select 1 from t for update",
            "select 1 from t FOR\n SHARE",
            "select 1 lock in share mode",
            "select get_lock('a', 1)",
            "select 1 into @a",
            "with x as (select 1) delete from t",
            "update t set a = 1",
            "set @a = 1",
        ] {
            assert!(check_read(bad).is_err(), "{bad}");
        }
    }
}
