//! What a server says of itself: version, settings, rights.

use std::collections::{HashMap, HashSet};

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions as _, Executor as _};

use super::end;

pub(super) async fn version(raw: &mut MySqlConnection) -> Result<(String, String), sqlx::Error> {
    sqlx::query_as("select @@version, @@version_comment")
        .fetch_one(raw)
        .await
}

/// The global variables, names in lower case. Names and values come as text or as bytes, by the server's version.
pub(super) async fn variables(
    raw: &mut MySqlConnection,
) -> Result<HashMap<String, String>, sqlx::Error> {
    let rows: Vec<(String, String)> = sqlx::query_as(
        "select cast(variable_name as char) as name, cast(variable_value as char) as value \
         from performance_schema.global_variables",
    )
    .fetch_all(raw)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect())
}

/// Whether all processes of the pod together may open more than the server takes.
pub(super) fn too_few_connections(
    variables: &HashMap<String, String>,
    wanted: u32,
) -> Option<String> {
    let found: u32 = variables.get("max_connections")?.parse().ok()?;
    (found < wanted).then(|| {
        format!(
            "max_connections is {found}, and the pod's processes together may open {wanted}: raise it, or lower [pools] \
             write, read, replica or reserved, or correct processes"
        )
    })
}

/// What the application needs on its database.
const NEEDED: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

/// What it must not have: these get through `offline_mode` and `read_only`, which take a server out of service.
const TOO_MUCH: [&str; 2] = ["SUPER", "CONNECTION_ADMIN"];

pub(super) async fn wrong_rights(
    raw: &mut MySqlConnection,
    user: &str,
    database: &str,
) -> Result<Vec<String>, sqlx::Error> {
    let on_database: Vec<(String,)> = sqlx::query_as(
        "select cast(privilege_type as char) from information_schema.schema_privileges where ? like table_schema",
    )
    .bind(database)
    .fetch_all(&mut *raw)
    .await?;
    let global: Vec<(String,)> = sqlx::query_as(
        "select cast(privilege_type as char) from information_schema.user_privileges",
    )
    .fetch_all(raw)
    .await?;
    let global: HashSet<String> = global.into_iter().map(|(name,)| name).collect();
    let all: HashSet<String> = on_database
        .into_iter()
        .map(|(name,)| name)
        .chain(global.iter().cloned())
        .collect();
    let missing: Vec<&str> = NEEDED
        .into_iter()
        .filter(|right| !all.contains(*right))
        .collect();
    let too_much: Vec<&str> = TOO_MUCH
        .into_iter()
        .filter(|right| global.contains(*right))
        .collect();
    let mut faults = Vec::new();
    if !missing.is_empty() {
        faults.push(format!(
            "the account {user} lacks {} on {database}.*",
            missing.join(", ")
        ));
    }
    if !too_much.is_empty() {
        faults.push(format!(
            "the account {user} has {}, with which it would write to a server that is out of service; revoke it",
            too_much.join(", ")
        ));
    }
    Ok(faults)
}

/// Whether the monitor's account may ask what it must. A replica that follows nobody gives no row, which is fine here.
pub(super) async fn wrong_monitor(options: MySqlConnectOptions) -> Option<String> {
    let asked = async {
        let mut raw = options.connect().await?;
        raw.fetch_all(sqlx::raw_sql("show replica status")).await?;
        end(raw).await;
        Ok::<_, sqlx::Error>(())
    };
    asked.await.err().map(|error| {
        format!("the monitor's account may not ask for the state of replication: {error}")
    })
}
