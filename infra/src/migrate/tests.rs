//! The runner, on the ledger alone and on a real SQLite file.

use super::*;

const TWO: &[Migration] = &[
    Migration {
        version: 1,
        name: "one",
        sql: "create table if not exists a (b bigint);",
    },
    Migration {
        version: 2,
        name: "two",
        sql: "create table if not exists c (d bigint);",
    },
];

fn entry_of(file: &Migration, finished: bool) -> Entry {
    Entry {
        version: file.version,
        checksum: file.checksum(),
        finished,
    }
}

#[test]
fn what_is_pending_follows_from_the_ledger() {
    let versions = |ledger: &[Entry]| {
        pending(TWO, ledger).map(|todo| todo.iter().map(|m| m.version).collect::<Vec<_>>())
    };
    assert_eq!(versions(&[]).unwrap(), [1, 2]);
    assert_eq!(versions(&[entry_of(&TWO[0], true)]).unwrap(), [2]);
    assert_eq!(
        versions(&[entry_of(&TWO[0], true), entry_of(&TWO[1], false)]).unwrap(),
        [2]
    );
    let changed = Entry {
        checksum: "0".repeat(64),
        ..entry_of(&TWO[0], true)
    };
    assert!(matches!(
        versions(&[changed]).unwrap_err(),
        MigrateError::Changed { version: 1, .. }
    ));
    let newer = Entry {
        version: 3,
        ..entry_of(&TWO[0], true)
    };
    assert!(matches!(
        versions(&[newer]).unwrap_err(),
        MigrateError::Newer { found: 3, known: 2 }
    ));
}

/// A catalog without a table.
async fn empty() -> (tempfile::TempDir, SqlitePool) {
    let dir = tempfile::tempdir().unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(dir.path().join("catalog.sqlite"))
        .foreign_keys(false)
        .create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    (dir, pool)
}

#[tokio::test]
async fn a_file_that_fails_leaves_nothing_and_the_next_run_goes_on() {
    const BAD: &[Migration] = &[
        TWO[0],
        Migration {
            version: 2,
            name: "two",
            sql: "create table if not exists c (d bigint);\nno such statement;",
        },
    ];
    let (_dir, pool) = empty().await;
    let error = catalog_files(&pool, BAD).await.unwrap_err();
    assert!(matches!(
        error,
        MigrateError::Statement {
            version: 2,
            statement: 2,
            ..
        }
    ));
    let tables: Vec<String> =
        sqlx::query_scalar("select name from sqlite_master where type = 'table' order by name")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(tables, ["a", "schema_ledger"]);
    let applied = catalog_files(&pool, TWO).await.unwrap();
    assert_eq!(
        applied,
        [Applied {
            version: 2,
            name: "two"
        }]
    );
    assert_eq!(catalog_files(&pool, TWO).await.unwrap(), []);
}

/// Before they had a column only their detail told orders to clear rows from moves.
#[tokio::test]
async fn moves_of_an_older_catalog_get_their_kind() {
    let (_dir, pool) = empty().await;
    catalog_files(&pool, &migrations::CATALOG[..2])
        .await
        .unwrap();
    // (As it was written then, and what a person could make look like it.)
    for (id, state, detail) in [
        (
            "a clear",
            "aborted",
            r#"{"reason":null,"clears":true,"recopy":false}"#,
        ),
        (
            "a move",
            "aborted",
            r#"{"reason":null,"clears":false,"recopy":false}"#,
        ),
        (
            "an open one",
            "copying",
            r#"{"reason":null,"clears":false}"#,
        ),
        (
            "a reason",
            "aborted",
            r#"{"reason":"\"clears\":true","clears":false}"#,
        ),
        ("an old one", "done", "{}"),
    ] {
        let insert = sqlx::query(
            "insert into move (id, shop, source_pod, target_pod, source_epoch, epoch, state, owner, detail, actor, \
             created_ms, changed_ms) values ($1, 1, 1, 2, 1, 2, $2, 1, $3, 'ops', 1, 1)",
        );
        let done = insert.bind(id).bind(state).bind(detail).execute(&pool);
        done.await.unwrap();
    }
    catalog(&pool).await.unwrap();
    let kinds: Vec<(String, String)> = sqlx::query_as("select id, kind from move order by id")
        .fetch_all(&pool)
        .await
        .unwrap();
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    let expected = [
        ("a clear", "clear"),
        ("a move", "move"),
        ("a reason", "move"),
        ("an old one", "move"),
        ("an open one", "move"),
    ];
    assert_eq!(kinds, expected);
}
