//! SQL, embedded in order: `catalog/` for the control server's store, `pod/` for each pod's database.
//!
//! Forward only. A file that has been released is never changed: its checksum stands in the ledger of each database.
//! A MySQL statement that defines something commits by itself, so a crash can leave half a file behind: **every
//! statement is safe to run again**, and a file counts as applied only once the ledger says `finished_at`. A file of the
//! catalog is one transaction with its row of the ledger, so that it may also add a column. Read in order, the files
//! teach the domain: prose stands above each table.

use sha2::{Digest, Sha256};

/// One file of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Counts from 1 without a gap.
    pub version: u32,
    /// The file's name without number and ending.
    pub name: &'static str,
    /// The text of the file.
    pub sql: &'static str,
}

impl Migration {
    /// SHA-256 of the text in lower-case hex, as the ledger keeps it.
    pub fn checksum(&self) -> String {
        Sha256::digest(self.sql)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// The statements in order, without comment lines and without the semicolon. A statement ends with a `;` at the end
    /// of a line; a semicolon anywhere else is part of it. In `catalog/` a trigger's body ends with a line `end;`.
    pub fn statements(&self) -> Vec<String> {
        let mut statements = Vec::new();
        let mut current = String::new();
        for line in self.sql.lines() {
            let line = line.trim_end();
            if line.is_empty() || line.trim_start().starts_with("--") {
                continue;
            }
            if !current.is_empty() {
                current.push('\n');
            }
            current.push_str(line);
            let in_trigger = current.starts_with("create trigger") && line != "end;";
            if line.ends_with(';') && !in_trigger {
                current.pop();
                statements.push(std::mem::take(&mut current));
            }
        }
        if !current.is_empty() {
            statements.push(current);
        }
        statements
    }
}

/// Expands to a [`Migration`] of the file `<folder>/<number>_<name>.sql`.
macro_rules! migration {
    ($version:literal, $folder:literal, $number:literal, $name:literal) => {
        Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../", $folder, "/", $number, "_", $name, ".sql")),
        }
    };
}

/// The schema of a pod's MySQL database.
pub const POD: &[Migration] = &[
    migration!(1, "pod", "0001", "host"),
    migration!(2, "pod", "0002", "products"),
    migration!(3, "pod", "0003", "orders"),
    migration!(4, "pod", "0004", "payments"),
    migration!(5, "pod", "0005", "moves"),
    migration!(6, "pod", "0006", "move_checks"),
];

/// The schema of the catalog.
pub const CATALOG: &[Migration] = &[
    migration!(1, "catalog", "0001", "catalog"),
    migration!(2, "catalog", "0002", "moves"),
    migration!(3, "catalog", "0003", "kinds"),
];

/// The tables of a pod's database that are the pod's own: they have no `shop_id`, and a move leaves them alone. Every
/// other table is a tenant table: its primary key and its unique keys begin with `shop_id`. `shop_home` has a `shop_id`
/// too, and is excepted by name where tables are copied: it says what *this* pod may do.
pub const POD_TABLES_LOCAL: &[&str] = &[
    "pod_identity",
    "pod_lease",
    "schema_ledger",
    "table_kind",
    "move_mark",
    "move_check",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What a `create table` statement says of its keys, in the one style of these files: one column or key a line.
    struct Table {
        name: String,
        /// The first column of the primary key and of each unique key.
        unique_firsts: Vec<String>,
        has_primary: bool,
    }

    fn table(statement: &str) -> Option<Table> {
        let rest = statement.strip_prefix("create table if not exists ")?;
        let (name, body) = rest.split_once('(')?;
        let mut unique_firsts = Vec::new();
        let mut has_primary = false;
        for line in body.lines().map(str::trim) {
            let words: Vec<&str> = line
                .split([' ', ',', '(', ')'])
                .filter(|w| !w.is_empty())
                .collect();
            let key_line = line.starts_with("primary key") || line.starts_with("unique");
            if key_line {
                let columns = line.split_once('(').map_or("", |(_, c)| c);
                let first = columns.split([',', ')']).next().unwrap_or("").trim();
                unique_firsts.push(first.to_owned());
            } else if line.contains(" primary key") || line.contains(" unique") {
                unique_firsts.push(words[0].to_owned());
            }
            has_primary |= line.contains("primary key");
        }
        Some(Table {
            name: name.trim().to_owned(),
            unique_firsts,
            has_primary,
        })
    }

    fn all() -> impl Iterator<Item = &'static Migration> {
        POD.iter().chain(CATALOG)
    }

    #[test]
    fn versions_count_from_one_without_a_gap() {
        for list in [POD, CATALOG] {
            for (index, migration) in list.iter().enumerate() {
                assert_eq!(migration.version as usize, index + 1, "{}", migration.name);
            }
        }
    }

    /// A crash in the middle of a file is mended by running all of it again. Of the catalog's files a crash leaves nothing.
    #[test]
    fn every_statement_can_be_run_again() {
        const WHOLE: &[&str] = &["alter table ", "update "];
        const REPEATABLE: &[&str] = &[
            "create table if not exists ",
            "create index if not exists ",
            "create unique index if not exists ",
            "create trigger if not exists ",
            "create view if not exists ",
            "insert ignore into ",
            "insert or ignore into ",
        ];
        for (files, more) in [(POD, &[][..]), (CATALOG, WHOLE)] {
            for migration in files {
                for statement in migration.statements() {
                    let mut starts = REPEATABLE.iter().chain(more);
                    assert!(
                        starts.any(|start| statement.starts_with(start)),
                        "{}: not safe to run twice: {statement}",
                        migration.name
                    );
                }
            }
        }
    }

    /// Invariant 7: a statement cannot meet another tenant's row through a key. (A pod checks the same of the real
    /// tables when it starts.)
    #[test]
    fn inv7_tenant_tables_are_keyed_by_shop_first() {
        let mut tenant_tables = 0;
        for statement in POD.iter().flat_map(Migration::statements) {
            let Some(table) = table(&statement) else {
                continue;
            };
            assert!(table.has_primary, "{} has no primary key", table.name);
            if POD_TABLES_LOCAL.contains(&table.name.as_str()) {
                continue;
            }
            tenant_tables += 1;
            for first in &table.unique_firsts {
                assert_eq!(first, "shop_id", "a key of {} begins with it", table.name);
            }
            assert!(
                statement.contains("\n  shop_id bigint unsigned not null"),
                "{} has another shop_id",
                table.name
            );
        }
        assert!(tenant_tables >= 8, "the parser above reads the files");
    }

    #[test]
    fn each_table_is_explained_by_prose_above_it() {
        for migration in all() {
            let mut above = "";
            for line in migration.sql.lines() {
                if line.starts_with("create table") {
                    assert!(above.starts_with("-- "), "{}: {line}", migration.name);
                }
                above = line;
            }
        }
    }

    #[test]
    fn statements_lose_comments_and_keep_inner_semicolons() {
        let migration = Migration {
            version: 1,
            name: "x",
            sql: "-- why; really\ncreate table if not exists a (\n  b int -- c; d\n);\n\ninsert ignore into a values (';');\nselect 1",
        };
        assert_eq!(
            migration.statements(),
            [
                "create table if not exists a (\n  b int -- c; d\n)",
                "insert ignore into a values (';')",
                "select 1",
            ]
        );
        let trigger = Migration {
            sql: "create trigger if not exists t before update on a begin\n  select 1;\nend;\nselect 2;",
            ..migration
        };
        assert_eq!(trigger.statements().len(), 2);
    }

    #[test]
    fn a_checksum_is_of_the_whole_text() {
        let a = Migration {
            version: 1,
            name: "a",
            sql: "abc",
        };
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            a.checksum(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
