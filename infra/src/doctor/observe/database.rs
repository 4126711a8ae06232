//! What a pod's database servers say of themselves.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use shared::home::HomeState;
use shared::moves::MoveId;
use shared::{Epoch, ShopId};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use super::{SERVER_WITHIN, Target};
use crate::doctor::facts::{
    Asked, Contents, Home, Identity, LedgerRow, Pod, Replica, Server, ServerState, Table,
};
use crate::pod_store::DATABASE;
use crate::secrets::Account;

/// Homes read at once: a pod of many shops is read in pieces.
const HOMES_PAGE: u32 = 10_000;

/// The transactions of each replica, to be compared at the primary.
type Executed = BTreeMap<String, String>;

/// Asks every server, replicas first: what a replica had before the primary was asked, the primary must have.
pub(super) async fn look(target: &Target, password: Result<&SecretString, &String>) -> Pod {
    let mut servers = Vec::new();
    let mut executed = Executed::new();
    let (primaries, replicas): (Vec<_>, Vec<_>) = target.servers.iter().partition(|(_, is)| *is);
    for (address, _) in replicas {
        let answer = bounded(address, password, async |connection| {
            replica(connection).await
        })
        .await;
        let state = answer.map(|(state, set)| {
            executed.insert(address.clone(), set);
            state
        });
        servers.push(Server {
            address: address.clone(),
            is_primary: false,
            state,
        });
    }
    let mut contents = Err("the catalog names no primary".into());
    for (address, _) in primaries {
        let sets = executed.clone();
        let answer = bounded(address, password, async move |connection| {
            primary(connection, sets).await
        })
        .await;
        let state = match answer {
            Ok((state, errant, read)) => {
                note_errant(&mut servers, &errant);
                contents = read;
                Ok(state)
            }
            Err(why) => {
                contents = Err(why.clone());
                Err(why)
            }
        };
        servers.push(Server {
            address: address.clone(),
            is_primary: true,
            state,
        });
    }
    Pod { contents, servers }
}

fn note_errant(servers: &mut [Server], errant: &Executed) {
    for server in servers {
        if let Ok(state) = &mut server.state {
            state.errant = errant.get(&server.address).cloned();
        }
    }
}

/// Connects, asks, and gives up when the time is over; the connection is closed in every case.
async fn bounded<T>(
    address: &str,
    password: Result<&SecretString, &String>,
    ask: impl AsyncFnOnce(&mut MySqlConnection) -> sqlx::Result<T>,
) -> Asked<T> {
    let password = password.map_err(Clone::clone)?;
    let (host, port) = address
        .rsplit_once(':')
        .ok_or("its address is not host:port")?;
    let port = port.parse().map_err(|_| "its address has no port")?;
    let options = MySqlConnectOptions::new()
        .host(host)
        .port(port)
        .username(Account::Operator.user())
        .password(password.expose_secret())
        .database(DATABASE)
        .disable_statement_logging();
    let asked = async {
        let mut connection = options.connect().await?;
        let answer = ask(&mut connection).await;
        // What matters has been read; a server that closes badly is no finding.
        let _ = connection.close().await;
        answer
    };
    match tokio::time::timeout(SERVER_WITHIN, asked).await {
        Ok(answer) => answer.map_err(|e: sqlx::Error| shared::error::chain(&e)),
        Err(_) => Err(format!("no answer within {} s", SERVER_WITHIN.as_secs())),
    }
}

async fn replica(connection: &mut MySqlConnection) -> sqlx::Result<(ServerState, String)> {
    let state = server(connection).await?;
    let set = sqlx::query_scalar("select @@global.gtid_executed")
        .fetch_one(connection)
        .await?;
    Ok((state, set))
}

async fn primary(
    connection: &mut MySqlConnection,
    executed: Executed,
) -> sqlx::Result<(ServerState, Executed, Asked<Contents>)> {
    let state = server(connection).await?;
    let mut errant = Executed::new();
    for (address, set) in executed {
        let more = sqlx::query_scalar("select gtid_subtract(?, @@global.gtid_executed)")
            .bind(set)
            .fetch_one(&mut *connection)
            .await?;
        errant.insert(address, more);
    }
    let contents = contents(connection)
        .await
        .map_err(|e| shared::error::chain(&e));
    Ok((state, errant, contents))
}

async fn server(connection: &mut MySqlConnection) -> sqlx::Result<ServerState> {
    let rows = sqlx::query(
        "select variable_name, variable_value from performance_schema.global_variables",
    )
    .fetch_all(&mut *connection)
    .await?;
    let variables = rows
        .iter()
        .map(|row| Ok((row.try_get::<String, _>(0)?.to_lowercase(), row.try_get(1)?)))
        .collect::<sqlx::Result<_>>()?;
    let row = sqlx::raw_sql("show replica status")
        .fetch_optional(&mut *connection)
        .await?;
    let replica = row.map(|row| replica_row(&row)).transpose()?;
    Ok(ServerState {
        variables,
        replica,
        errant: None,
    })
}

fn replica_row(row: &MySqlRow) -> sqlx::Result<Replica> {
    let text = |name: &str| row.try_get::<String, _>(name);
    let faults = [text("Last_IO_Error")?, text("Last_SQL_Error")?];
    let host = text("Source_Host")?;
    let port: u32 = row.try_get_unchecked("Source_Port")?;
    Ok(Replica {
        source: format!("{host}:{port}"),
        receiver: text("Replica_IO_Running")?,
        applier: text("Replica_SQL_Running")?,
        fault: faults
            .into_iter()
            .filter(|f| !f.is_empty())
            .collect::<Vec<_>>()
            .join("; "),
    })
}

async fn contents(connection: &mut MySqlConnection) -> sqlx::Result<Contents> {
    Ok(Contents {
        identity: identity(connection).await?,
        homes: homes(connection).await?,
        ledger: ledger(connection).await?,
        tables: tables(connection).await?,
    })
}

async fn identity(connection: &mut MySqlConnection) -> sqlx::Result<Option<Identity>> {
    let row = sqlx::query(
        "select cast(pod as unsigned), term, incarnation, reconciled_incarnation from pod_identity",
    )
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let (incarnation, reconciled): (u64, u64) = (row.try_get(2)?, row.try_get(3)?);
    Ok(Some(Identity {
        pod: row.try_get(0)?,
        term: row.try_get(1)?,
        reconciled: incarnation == reconciled,
    }))
}

async fn homes(connection: &mut MySqlConnection) -> sqlx::Result<BTreeMap<ShopId, Home>> {
    let mut homes = BTreeMap::new();
    let mut after = 0_u64;
    loop {
        let rows = sqlx::query(
            "select shop_id, epoch, state, move_id from shop_home where shop_id > ? \
             order by shop_id limit ?",
        )
        .bind(after)
        .bind(HOMES_PAGE)
        .fetch_all(&mut *connection)
        .await?;
        for row in &rows {
            let (shop, home) = home_row(row)?;
            after = shop.get();
            homes.insert(shop, home);
        }
        if rows.len() < HOMES_PAGE as usize {
            return Ok(homes);
        }
    }
}

fn home_row(row: &MySqlRow) -> sqlx::Result<(ShopId, Home)> {
    let bad = |what: String| sqlx::Error::Decode(what.into());
    let shop = ShopId::new(row.try_get(0)?).map_err(|e| bad(e.to_string()))?;
    let epoch = Epoch::try_from(row.try_get::<u64, _>(1)?).map_err(|e| bad(e.to_string()))?;
    let word: String = row.try_get(2)?;
    let state = HomeState::parse(&word)
        .ok_or_else(|| bad(format!("shop {shop}'s home has the unknown state {word:?}")))?;
    let move_id = row
        .try_get::<Option<String>, _>(3)?
        .map(|id| id.parse::<MoveId>())
        .transpose()
        .map_err(|e| bad(e.to_string()))?;
    Ok((
        shop,
        Home {
            epoch,
            state,
            move_id,
        },
    ))
}

async fn ledger(connection: &mut MySqlConnection) -> sqlx::Result<Vec<LedgerRow>> {
    let rows = sqlx::query("select version, checksum, finished_at is not null from schema_ledger")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(LedgerRow {
                version: row.try_get_unchecked(0)?,
                checksum: row.try_get(1)?,
                finished: row.try_get(2)?,
            })
        })
        .collect()
}

async fn tables(connection: &mut MySqlConnection) -> sqlx::Result<Vec<Table>> {
    let names = sqlx::query(
        "select t.table_name, exists (select 1 from information_schema.columns c \
         where c.table_schema = t.table_schema and c.table_name = t.table_name and c.column_name = 'shop_id') \
         from information_schema.tables t where t.table_schema = database() and t.table_type = 'BASE TABLE'",
    )
    .fetch_all(&mut *connection)
    .await?;
    let keys = sqlx::query(
        "select table_name, index_name, column_name from information_schema.statistics \
         where table_schema = database() and non_unique = 0 and seq_in_index = 1",
    )
    .fetch_all(&mut *connection)
    .await?;
    // A schema older than this table is a finding of its own.
    let registered = sqlx::query_scalar("select name from table_kind")
        .fetch_all(connection)
        .await;
    let registered: Vec<String> = registered.unwrap_or_default();
    let mut tables = BTreeMap::new();
    for row in &names {
        let name: String = row.try_get(0)?;
        let has_shop = row.try_get(1)?;
        let (primary_first, unique_elsewhere) = (None, Vec::new());
        tables.insert(
            name.clone(),
            Table {
                name,
                has_shop,
                primary_first,
                unique_elsewhere,
            },
        );
    }
    for row in &keys {
        let (table, key): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        // A key on an expression has no column.
        let column = row
            .try_get::<Option<String>, _>(2)?
            .unwrap_or_else(|| "an expression".into());
        let Some(table) = tables.get_mut(&table) else {
            continue;
        };
        if key == "PRIMARY" {
            table.primary_first = Some(column);
        } else if column != "shop_id" {
            table.unique_elsewhere.push(key);
        }
    }
    tables.retain(|name: &String, _| !registered.contains(name));
    Ok(tables.into_values().collect())
}
