//! What stands in a pod's database: whose it is, its schema, its tables.

use migrations::{Migration, POD, POD_TABLES_LOCAL};
use shared::PodId;

use super::Found;
use crate::api;
use crate::doctor::facts::{Contents, Identity, LedgerRow, Pod, Table};

pub(super) fn contents(id: PodId, pod: &Pod, known: Option<&api::Pod>, found: &mut Found) {
    let name = known.map_or_else(|| format!("pod {id}"), |pod| pod.name.clone());
    let Contents {
        identity,
        homes: _,
        ledger: rows,
        tables,
    } = match &pod.contents {
        Ok(contents) => contents,
        Err(why) => {
            found.error(
                "identity",
                &name,
                format!("its database cannot be read: {why}"),
                "`podctl process list` shows whether its servers run; their logs are in logs/mysql-*.log",
            );
            return;
        }
    };
    identified(id, &name, identity.as_ref(), known, found);
    ledger(&name, rows, POD, found);
    for table in tables {
        keyed(&name, table, found);
    }
}

fn identified(
    id: PodId,
    name: &str,
    identity: Option<&Identity>,
    known: Option<&api::Pod>,
    found: &mut Found,
) {
    let Some(identity) = identity else {
        found.error(
            "identity",
            name,
            "its database says of itself that it is nobody's",
            "finish its set-up with `podctl apply`",
        );
        return;
    };
    if identity.pod != u64::from(id.get()) {
        found.error(
            "identity",
            name,
            format!("its database is that of pod {}", identity.pod),
            "two pods' addresses are mixed up: compare `podctl pod show` with fleet.toml; nothing may be written here",
        );
    }
    if !identity.reconciled {
        found.error(
            "identity",
            name,
            "its database was restored or lost writes, and is not reconciled: it takes no writes",
            "compare its homes with the catalog (the placement findings here), then set reconciled_incarnation to \
             incarnation in pod_identity",
        );
    }
    let Some(known) = known else { return };
    if identity.term > known.term {
        found.error(
            "identity",
            name,
            format!(
                "its database has seen term {}, the catalog {}",
                identity.term, known.term
            ),
            "the catalog is older than the pod: restore a newer copy of the catalog",
        );
    } else if identity.term < known.term {
        found.warning(
            "identity",
            name,
            format!("its primary was not opened under term {} yet", known.term),
            "the control server opens it once a replica holds all that it has: see the replica findings",
        );
    }
}

fn ledger(name: &str, rows: &[LedgerRow], files: &[Migration], found: &mut Found) {
    let mut wrong = Vec::new();
    for file in files {
        let version = file.version;
        match rows.iter().find(|row| row.version == version) {
            None => wrong.push(format!("{version} ({}) is missing", file.name)),
            Some(row) if !row.finished => {
                wrong.push(format!("{version} ({}) is half applied", file.name))
            }
            Some(row) if row.checksum != file.checksum() => {
                wrong.push(format!(
                    "{version} ({}) was applied with another text (its checksum differs)",
                    file.name
                ));
            }
            Some(_) => {}
        }
    }
    let newer = rows
        .iter()
        .filter(|row| files.iter().all(|file| file.version != row.version));
    wrong.extend(newer.map(|row| format!("{} is unknown to this podctl", row.version)));
    if !wrong.is_empty() {
        found.error(
            "schema",
            name,
            format!("schema version {}", wrong.join("; ")),
            "`podctl apply` brings an older one up to date; for a newer one use the podctl that made it; a released file \
             must never change",
        );
    }
}

fn keyed(name: &str, table: &Table, found: &mut Found) {
    let Table {
        name: table_name,
        has_shop,
        primary_first,
        unique_elsewhere,
    } = table;
    if POD_TABLES_LOCAL.contains(&table_name.as_str()) {
        return;
    }
    let subject = format!("{name}: {table_name}");
    let fix = "give every tenant table a primary key and unique keys that begin with shop_id, or register \
               the table in `table_kind` (`local` if it is the pod's own, `reference` if it is the same on all pods)";
    if !has_shop {
        found.error(
            "table",
            subject,
            "it has no shop_id: a move would leave its rows behind",
            fix,
        );
        return;
    }
    let mut wrong = Vec::new();
    match primary_first.as_deref() {
        Some("shop_id") => {}
        Some(column) => wrong.push(format!("its primary key begins with {column}")),
        None => wrong.push("it has no primary key".into()),
    }
    if !unique_elsewhere.is_empty() {
        wrong.push(format!(
            "these unique keys do not begin with shop_id: {}",
            unique_elsewhere.join(", ")
        ));
    }
    if !wrong.is_empty() {
        found.error("table", subject, wrong.join("; "), fix);
    }
}
