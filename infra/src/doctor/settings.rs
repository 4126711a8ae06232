//! What each database server of a pod must be set to, and why.

/// What a global variable must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Exactly this (`ON` and `1` are the same).
    Is(&'static str),
    /// A number of at least this.
    AtLeast(u64),
}

/// A variable, its rule, and what goes wrong without it.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The variable.
    pub name: &'static str,
    /// What it must be.
    pub rule: Rule,
    /// Why.
    pub why: &'static str,
}

const fn is(name: &'static str, value: &'static str, why: &'static str) -> Setting {
    Setting {
        name,
        rule: Rule::Is(value),
        why,
    }
}

/// The settings of every server: each may become primary.
pub const EVERY_SERVER: &[Setting] = &[
    is(
        "gtid_mode",
        "ON",
        "moves, failover and session reads name transactions by GTID",
    ),
    is(
        "enforce_gtid_consistency",
        "ON",
        "a statement without a GTID cannot be followed",
    ),
    is(
        "binlog_format",
        "ROW",
        "a move reads changed rows from the binlog",
    ),
    is(
        "binlog_row_image",
        "FULL",
        "a move needs the keys of every changed row",
    ),
    is(
        "binlog_row_metadata",
        "FULL",
        "a move needs the names of the columns",
    ),
    is(
        "sync_binlog",
        "1",
        "an acknowledged commit could be lost in a crash",
    ),
    is(
        "innodb_flush_log_at_trx_commit",
        "1",
        "an acknowledged commit could be lost in a crash",
    ),
    is(
        "log_replica_updates",
        "ON",
        "a replica that becomes primary must hold the whole binlog",
    ),
    is(
        "replica_preserve_commit_order",
        "ON",
        "a replica would show commits out of order",
    ),
    is(
        "relay_log_recovery",
        "OFF",
        "ON throws away transactions that were acknowledged",
    ),
    is(
        "sync_relay_log",
        "1",
        "a replica could lose what it has acknowledged",
    ),
    is(
        "rpl_semi_sync_source_wait_point",
        "AFTER_SYNC",
        "others would see a commit that no replica has",
    ),
    is(
        "rpl_semi_sync_source_wait_for_replica_count",
        "1",
        "a commit must be on a second server",
    ),
    is(
        "rpl_semi_sync_source_wait_no_replica",
        "ON",
        "commits would go on without any replica",
    ),
    Setting {
        name: "rpl_semi_sync_source_timeout",
        // A day: whatever is shorter would some day fall back to asynchronous.
        rule: Rule::AtLeast(24 * 60 * 60 * 1000),
        why: "after it commits are acknowledged that no replica has",
    },
];

impl Rule {
    /// Whether a value keeps it.
    pub fn holds(self, value: &str) -> bool {
        match self {
            Self::Is(wanted) => word(value) == word(wanted),
            Self::AtLeast(least) => value.parse::<u64>().is_ok_and(|value| value >= least),
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Is(value) => f.write_str(value),
            Self::AtLeast(least) => write!(f, "at least {least}"),
        }
    }
}

/// MySQL shows a switch as `ON` or `1`, by variable and version.
pub(super) fn word(value: &str) -> String {
    match value.to_ascii_uppercase().as_str() {
        "1" | "ON" | "TRUE" | "YES" => "ON".into(),
        "0" | "OFF" | "FALSE" | "NO" => "OFF".into(),
        other => other.to_owned(),
    }
}
