//! Start-up checks: whether this database is this pod's, and whether its servers keep the promises that the pod makes.
//!
//! All faults are listed at once. A server that cannot be reached is no fault: the primary is waited for, since at the
//! start of a fleet everything starts at the same time; a replica that is away is out until the monitor sees it.

use std::time::Duration;

use shared::backoff::Backoff;
use shared::config::Endpoint;
use shared::mysql::{Role, wrong_settings, wrong_version};
use sqlx::mysql::MySqlConnection;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::time::{sleep, timeout};

use crate::App;
use crate::db::{number, options};

// What the database must contain.
mod schema;
// What a server says of itself.
mod server;

/// A server answers these questions in milliseconds; one that takes so long is not there.
const SERVER_WAIT: Duration = Duration::from_secs(10);

/// Between tries to reach the primary.
const AGAIN: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(3));

/// Everything that is wrong, one sentence a line.
#[derive(Debug, thiserror::Error)]
#[error("the pod cannot run on its database:{}", lines(.0))]
pub(crate) struct Unfit(Vec<String>);

fn lines(faults: &[String]) -> String {
    faults
        .iter()
        .map(|fault| format!("\n  - {fault}"))
        .collect()
}

/// Why a server could not be asked.
enum Unasked {
    /// It is not there, or not yet.
    Away(sqlx::Error),
    /// It is there and will not have us, or does not understand.
    Refused(String),
}

impl Unasked {
    fn of(at: &Endpoint, error: sqlx::Error) -> Self {
        match number(&error) {
            // Starting, stopping, too many connections, offline mode.
            None | Some(1040 | 1053 | 1203 | 1226 | 3032) => Self::Away(error),
            Some(1045) => Self::Refused(format!(
                "{at} refuses the account: {error}; is the password this pod's?"
            )),
            Some(1044 | 1049) => Self::Refused(format!(
                "{at} has no such database, or the account no rights on it: {error}"
            )),
            Some(1142 | 1143 | 1227) => {
                Self::Refused(format!("{at}: the account lacks a right: {error}"))
            }
            Some(1146) => Self::Refused(format!(
                "{at}: {error}: the database has not been prepared for a pod; `podctl apply` migrates it"
            )),
            Some(_) => Self::Refused(format!("{at}: {error}")),
        }
    }
}

/// Checks everything; waits for the primary.
pub(crate) async fn check(app: &App) -> Result<(), Unfit> {
    let primary = &app.config().mysql.primary;
    let mut attempt = 0;
    let mut faults = loop {
        match ask(app, primary, Role::Primary).await {
            Ok(faults) => break faults,
            Err(Unasked::Refused(fault)) => break vec![fault],
            Err(Unasked::Away(error)) => {
                attempt += 1;
                let wait = AGAIN.delay(attempt, &mut rand::rng());
                tracing::warn!(server = %primary, %error, "the primary cannot be asked yet; waiting for it");
                sleep(wait).await;
            }
        }
    };
    for replica in &app.config().mysql.replicas {
        match ask(app, &replica.at, Role::Replica).await {
            Ok(found) => faults.extend(found),
            Err(Unasked::Refused(fault)) => faults.push(fault),
            Err(Unasked::Away(error)) => {
                tracing::warn!(server = %replica.at, %error, "a replica cannot be asked; it answers no reads until it can");
            }
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Unfit(faults))
    }
}

async fn ask(app: &App, at: &Endpoint, role: Role) -> Result<Vec<String>, Unasked> {
    match timeout(SERVER_WAIT, ask_all(app, at, role)).await {
        Ok(Ok(faults)) => Ok(faults),
        Ok(Err(error)) => Err(Unasked::of(at, error)),
        Err(_) => Err(Unasked::Away(sqlx::Error::PoolTimedOut)),
    }
}

async fn ask_all(app: &App, at: &Endpoint, role: Role) -> Result<Vec<String>, sqlx::Error> {
    let config = app.config();
    let mysql = &config.mysql;
    let account =
        options(mysql, at, &mysql.user, mysql.password.expose()).disable_statement_logging();
    let mut raw: MySqlConnection = account.connect().await?;
    let raw = &mut raw;
    let (version, comment) = server::version(raw).await?;
    if let Some(fault) = wrong_version(&version, &comment) {
        // Its answers to the rest would mislead.
        return Ok(vec![format!("{at}: {fault}")]);
    }
    let variables = server::variables(raw).await?;
    let mut faults: Vec<String> = wrong_settings(role, &variables)
        .iter()
        .map(ToString::to_string)
        .collect();
    let wanted = match role {
        Role::Primary => config.pools.at_primary(),
        Role::Replica => config.pools.at_replica(),
    };
    faults.extend(server::too_few_connections(&variables, wanted));
    faults.extend(server::wrong_rights(raw, &mysql.user, &mysql.database).await?);
    faults.extend(schema::wrong_identity(raw, config.pod).await?);
    if let Role::Primary = role {
        faults.extend(schema::wrong_ledger(raw).await?);
        faults.extend(schema::wrong_keys(raw, &mysql.database).await?);
    }
    let monitor = options(
        mysql,
        at,
        &mysql.monitor_user,
        mysql.monitor_password.expose(),
    );
    faults.extend(server::wrong_monitor(monitor.database("").disable_statement_logging()).await);
    Ok(faults
        .into_iter()
        .map(|fault| format!("{at}: {fault}"))
        .collect())
}

/// Ends a connection; that it could not be ended well is nobody's concern.
async fn end(raw: MySqlConnection) {
    let _ = raw.close().await;
}
