//! The settings that a pod's MySQL servers must have, with the reason for each: one table for the pod's start-up check
//! and for `podctl doctor`. Nothing here talks to a server.

use std::collections::HashMap;
use std::fmt;

/// The oldest server that has everything the pod asks for (`SHOW REPLICA STATUS`, `rpl_semi_sync_source_*`).
pub const VERSION_MIN: (u64, u64, u64) = (8, 0, 26);

/// What a setting must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// One of these words, whatever their case.
    Is(&'static [&'static str]),
    /// A number that is at least this.
    AtLeast(u64),
}

/// One setting, as `SHOW GLOBAL VARIABLES` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub name: &'static str,
    /// What it must be.
    pub wanted: Wanted,
    /// What goes wrong otherwise.
    pub why: &'static str,
}

/// The role of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Takes writes.
    Primary,
    /// Follows it.
    Replica,
}

const fn is(name: &'static str, wanted: &'static [&'static str], why: &'static str) -> Setting {
    Setting {
        name,
        wanted: Wanted::Is(wanted),
        why,
    }
}

/// For every server of a pod: any of them may become the primary.
pub const EVERY: &[Setting] = &[
    is(
        "gtid_mode",
        &["ON"],
        "tokens, moves and failovers name transactions by GTID",
    ),
    is(
        "enforce_gtid_consistency",
        &["ON"],
        "a statement without a GTID could not be followed",
    ),
    is(
        "log_bin",
        &["ON", "1"],
        "replicas and moves read the binlog",
    ),
    is(
        "binlog_format",
        &["ROW"],
        "a statement may do something else on a replica",
    ),
    is(
        "binlog_row_image",
        &["FULL"],
        "a move needs the keys before and after each change",
    ),
    is(
        "binlog_row_metadata",
        &["FULL"],
        "a move must know columns by name and sign",
    ),
    is(
        "binlog_transaction_compression",
        &["OFF"],
        "a compressed transaction that cannot be read would be skipped",
    ),
    is(
        "local_infile",
        &["ON", "1"],
        "a move loads a shop's rows by it; `set global local_infile = on`, and the same in the server's defaults file",
    ),
    is(
        "sync_binlog",
        &["1"],
        "an acknowledged write would be lost with the power",
    ),
    is(
        "innodb_flush_log_at_trx_commit",
        &["1"],
        "an acknowledged write would be lost with the power",
    ),
    is(
        "replica_preserve_commit_order",
        &["ON", "1"],
        "a replica would show a later write without an earlier one",
    ),
    is(
        "relay_log_recovery",
        &["OFF", "0"],
        "ON throws received, acknowledged writes away when all servers die (200 of 200, tried)",
    ),
    is(
        "sync_relay_log",
        &["1"],
        "a received, acknowledged write would be lost with the power",
    ),
    is(
        "rpl_semi_sync_source_wait_point",
        &["AFTER_SYNC"],
        "others would see a write that no replica has",
    ),
    is(
        "rpl_semi_sync_source_wait_no_replica",
        &["ON", "1"],
        "without replicas a primary would acknowledge what it alone has",
    ),
    Setting {
        name: "rpl_semi_sync_source_timeout",
        // The longest that MySQL takes: 49 days.
        wanted: Wanted::AtLeast(4_294_967_295),
        why: "after it a primary acknowledges what no replica has",
    },
    Setting {
        name: "rpl_semi_sync_source_wait_for_replica_count",
        wanted: Wanted::AtLeast(1),
        why: "a write is acknowledged once a replica has it",
    },
];

/// Besides, for a replica.
pub const REPLICA: &[Setting] = &[
    is(
        "super_read_only",
        &["ON", "1"],
        "a stray write would make it differ from the primary for good",
    ),
    is(
        "rpl_semi_sync_replica_enabled",
        &["ON", "1"],
        "the primary waits for its acknowledgement",
    ),
    is(
        "rpl_semi_sync_source_enabled",
        &["OFF", "0"],
        "the source side left on in a replica stops its applier for ever",
    ),
];

/// A setting that is not as it must be. `Display` is a sentence with the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongSetting {
    /// The setting.
    pub setting: Setting,
    /// What the server says; `None` where it does not know the variable.
    pub found: Option<String>,
}

impl fmt::Display for WrongSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { name, wanted, why } = self.setting;
        match &self.found {
            Some(found) => write!(f, "{name} is {found}, ")?,
            None => write!(
                f,
                "{name} is not known to the server (is the plugin loaded?), "
            )?,
        }
        match wanted {
            Wanted::Is(words) => write!(f, "must be {}", words[0])?,
            Wanted::AtLeast(least) => write!(f, "must be at least {least}")?,
        }
        write!(f, ": {why}")
    }
}

/// Compares a server's variables (names in lower case) with the tables.
pub fn wrong_settings(role: Role, variables: &HashMap<String, String>) -> Vec<WrongSetting> {
    let more: &[Setting] = match role {
        Role::Primary => &[],
        Role::Replica => REPLICA,
    };
    let right = |setting: &Setting, found: &str| match setting.wanted {
        Wanted::Is(words) => words.iter().any(|w| w.eq_ignore_ascii_case(found)),
        Wanted::AtLeast(least) => found.parse::<u64>().is_ok_and(|n| n >= least),
    };
    EVERY
        .iter()
        .chain(more)
        .filter_map(|setting| {
            let found = variables.get(setting.name);
            let wrong = found.is_none_or(|f| !right(setting, f));
            wrong.then(|| WrongSetting {
                setting: *setting,
                found: found.cloned(),
            })
        })
        .collect()
}

/// Why a server's version will not do; `None` if it does. `version` is `@@version`, `comment` `@@version_comment`.
pub fn wrong_version(version: &str, comment: &str) -> Option<String> {
    let both = format!("{version} {comment}").to_ascii_lowercase();
    if both.contains("mariadb") {
        return Some(format!(
            "the server is MariaDB ({version}), whose GTIDs and replication work differently; Podhost needs MySQL {} or newer",
            show(VERSION_MIN)
        ));
    }
    let number = version.split(['-', '+', ' ']).next().unwrap_or("");
    let mut parts = number.split('.').map(str::parse::<u64>);
    let mut next = || parts.next().and_then(Result::ok);
    match (next(), next(), next()) {
        (Some(a), Some(b), Some(c)) if (a, b, c) >= VERSION_MIN => None,
        _ => Some(format!(
            "the server is MySQL {version}; Podhost needs {} or newer",
            show(VERSION_MIN)
        )),
    }
}

fn show((a, b, c): (u64, u64, u64)) -> String {
    format!("{a}.{b}.{c}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> HashMap<String, String> {
        EVERY
            .iter()
            .chain(REPLICA)
            .map(|s| {
                let value = match s.wanted {
                    Wanted::Is(words) => words[0].to_owned(),
                    Wanted::AtLeast(n) => n.to_string(),
                };
                (s.name.to_owned(), value)
            })
            .collect()
    }

    #[test]
    fn each_wrong_setting_is_named_with_its_reason() {
        assert_eq!(wrong_settings(Role::Replica, &good()), []);
        for setting in EVERY.iter().chain(REPLICA) {
            for bad in [Some("7x"), None] {
                let mut variables = good();
                variables.remove(setting.name);
                if let Some(bad) = bad {
                    variables.insert(setting.name.into(), bad.into());
                }
                let wrong = wrong_settings(Role::Replica, &variables);
                assert_eq!(wrong.len(), 1, "{}", setting.name);
                let text = wrong[0].to_string();
                assert!(
                    text.contains(setting.name) && text.contains(setting.why),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn versions() {
        for good in ["8.0.26", "8.4.0-log", "9.7.4-2"] {
            assert_eq!(wrong_version(good, "(Debian)"), None, "{good}");
        }
        for (bad, comment) in [
            ("8.0.25", ""),
            ("5.7.44", ""),
            ("", ""),
            ("11.4.2-MariaDB", ""),
            ("10.11.6", "mariadb.org"),
        ] {
            assert!(wrong_version(bad, comment).is_some(), "{bad}");
        }
    }
}
