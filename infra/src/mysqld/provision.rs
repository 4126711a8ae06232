//! Making empty servers a pod's: accounts, schema and identity on the first, from which the others fetch them.
//!
//! Every part can be run again; the identity comes last, so that a server that has one has all the rest.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use secrecy::ExposeSecret as _;

use super::admin::{Connection, LOOK_AGAIN, Server};
use crate::home_dir::HomeDir;
use crate::migrate;
use crate::secrets::Account;

/// A new replica has some hundred statements to apply.
const FOLLOW_WITHIN: Duration = Duration::from_secs(20);

/// How often a source says that it is alive; `replica_net_timeout` in my.cnf is four of them.
const HEARTBEAT_SECONDS: f32 = 0.5;

/// A receiver that lost its source tries again for ever: once a second, this often (136 years).
const CONNECT_TRIES: u32 = u32::MAX;

/// Makes a server a pod's first. Leaves it read only.
pub(crate) async fn first(home: &HomeDir, server: &Server) -> anyhow::Result<()> {
    let mut conn = server.connect(home).await?;
    // Nobody waits for a replica: there is none yet.
    conn.run(
        "open",
        "set global super_read_only = off; set global read_only = off".into(),
    )
    .await?;
    let database =
        "create database if not exists podhost character set utf8mb4 collate utf8mb4_0900_ai_ci";
    conn.run("create the database", database.into()).await?;
    for account in Account::ALL {
        create(home, server, &mut conn, account).await?;
    }
    conn.close().await;
    let mut conn = server.connect(home).await?;
    // The operator's account is there: the door without a password is closed.
    conn.run(
        "lock root",
        "alter user 'root'@'localhost' account lock".into(),
    )
    .await?;
    migrate(server, &mut conn).await?;
    let pod = server.pod;
    // The control server's first transaction at this server raises the term.
    let identity = format!(
        "insert into podhost.pod_identity (one, pod, term) values (1, {pod}, 0) on duplicate key update one = 1"
    );
    conn.run("write the identity", identity).await?;
    conn.run("close", "set global super_read_only = on".into())
        .await?;
    check_identity(server, conn.identity().await?)?;
    conn.close().await;
    Ok(())
}

/// Brings the schema of a server that takes writes to this program's. Replicas follow.
pub(crate) async fn migrate(server: &Server, conn: &mut Connection) -> anyhow::Result<()> {
    conn.run("use the database", "use podhost".into()).await?;
    let migrated = migrate::pod(&mut conn.conn).await;
    migrated
        .map(|_| ())
        .with_context(|| format!("migrate {}", server.name))
}

/// Refuses another pod's database.
pub(crate) fn check_identity(server: &Server, identity: Option<u32>) -> anyhow::Result<bool> {
    let Some(found) = identity else {
        return Ok(false);
    };
    ensure!(
        found == server.pod.get(),
        "{} holds the database of pod {found}, not of pod {}: nothing is done to it; its data folder belongs elsewhere",
        server.name,
        server.pod
    );
    Ok(true)
}

async fn create(
    home: &HomeDir,
    server: &Server,
    conn: &mut Connection,
    account: Account,
) -> anyhow::Result<()> {
    let user = format!("'{}'@'%'", account.user());
    let password = account.password(home, server.pod)?;
    // The password's alphabet has no quote (see `secrets`).
    let by = format!(
        "identified with caching_sha2_password by '{}'",
        password.expose_secret()
    );
    let grants = match account {
        Account::Operator => format!("grant all on *.* to {user} with grant option"),
        Account::App => format!("grant select, insert, update, delete on podhost.* to {user}"),
        Account::Monitor => format!(
            "grant replication client, process on *.* to {user}; grant select on performance_schema.* to {user}"
        ),
        Account::Replication => format!("grant replication slave on *.* to {user}"),
    };
    let sql = format!("create user if not exists {user} {by}; alter user {user} {by}; {grants}");
    conn.run(&format!("create account {}", account.user()), sql)
        .await
}

/// Makes an empty server follow the first, and waits until it has everything.
///
/// The accounts come to it by the same way as everything else: for a moment root is let in, then the operator without
/// rights, then the operator. So a refusal is no fault before the time is up, also when an earlier try was cut off just
/// then.
pub(crate) async fn replica(
    home: &HomeDir,
    server: &Server,
    source: &Server,
) -> anyhow::Result<()> {
    let began = tokio::time::Instant::now();
    let mut told = false;
    loop {
        let fault = match follow(home, server, source, &mut told).await {
            Ok(Following::Whole(identity)) => {
                return check_identity(server, Some(identity)).map(|_| ());
            }
            Ok(Following::Partly(fault)) => fault,
            Err(fault) => Some(format!("{fault:#}")),
        };
        ensure!(
            began.elapsed() < FOLLOW_WITHIN,
            "{} has not everything of {} after {FOLLOW_WITHIN:?}: {}",
            server.name,
            source.name,
            fault.as_deref().unwrap_or("it is still at it")
        );
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// How far a new replica is.
enum Following {
    /// It has the identity, the last thing that the first server wrote.
    Whole(u32),
    /// It has not, and may say why.
    Partly(Option<String>),
}

async fn follow(
    home: &HomeDir,
    server: &Server,
    source: &Server,
    told: &mut bool,
) -> anyhow::Result<Following> {
    let mut conn = server.connect(home).await?;
    if let Some(identity) = conn.identity().await? {
        conn.close().await;
        return Ok(Following::Whole(identity));
    }
    if !*told {
        let password = Account::Replication.password(home, server.pod)?;
        let orders = format!(
            "stop replica; change replication source to source_host = '127.0.0.1', source_port = {port}, \
             source_user = '{user}', source_password = '{password}', source_auto_position = 1, \
             get_source_public_key = 1, source_heartbeat_period = {HEARTBEAT_SECONDS}, \
             source_connect_retry = 1, source_retry_count = {CONNECT_TRIES}; start replica",
            port = source.port,
            user = Account::Replication.user(),
            password = password.expose_secret(),
        );
        conn.run(&format!("follow {}", source.name), orders).await?;
        *told = true;
    }
    let fault = conn.replication_fault().await?;
    conn.close().await;
    Ok(Following::Partly(fault))
}
