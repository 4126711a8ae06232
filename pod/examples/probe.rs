//! For the end-to-end tests: an application whose one route sends the statements that it is given through the guarded
//! transaction, so that the tests can show what the guard refuses and what it survives. Not for a fleet.
//!
//! ```sh
//! cargo run -p pod --example probe -- --config pod.toml
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use axum::extract::State;
use http::StatusCode;
use pod::config::Config;
use pod::{App, Call, Error, Host, IdempotencyKey, Json, Reply, Routes, Shop, Tx, Who};
use serde::Deserialize;
use sqlx::AssertSqlSafe;

/// What a test sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    /// One transaction, in this order. A `?` is the shop.
    statements: Vec<String>,
}

async fn run(
    State(app): State<App>,
    shop: Shop,
    key: IdempotencyKey,
    body: Json<Script>,
) -> Result<Reply, Error> {
    let script = Arc::new(body.value);
    let call = Call::new("probe", &key, body.fingerprint);
    app.write(&shop, call, move |tx| {
        let script = Arc::clone(&script);
        Box::pin(async move { send(tx, &script).await })
    })
    .await
}

async fn send(tx: &mut Tx, script: &Script) -> Result<Reply, Error> {
    let mut matched = Vec::new();
    for sql in &script.statements {
        let mut query = sqlx::query(AssertSqlSafe(sql.as_str()));
        for _ in sql.matches('?') {
            query = query.bind(tx.shop().get());
        }
        matched.push(tx.execute(query).await?);
    }
    Reply::json(StatusCode::OK, &matched)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut words = std::env::args_os()
        .skip(1)
        .skip_while(|word| word != "--config");
    let file = words
        .nth(1)
        .map(PathBuf::from)
        .context("usage: probe --config FILE")?;
    let stop = async {
        // Without a signal handler there is nothing to wait for: stop at once.
        drop(tokio::signal::ctrl_c().await);
    };
    let routes = Routes::new().post("/probe", Who::Anyone, run);
    Host::build(Config::load(&file)?)
        .await?
        .mount(routes)
        .serve(stop)
        .await
}
