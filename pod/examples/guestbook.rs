//! Your own application on a pod, whole: a guest book for each shop, with a table, a cached read and a guarded write.
//!
//! What it does not contain is what the library does: which shop a request is for, whether this pod may write for it,
//! one effect for one key, retries after a deadlock, from which server a read comes, and what is dropped from caches.
//!
//! ```sh
//! cargo run -p pod --example guestbook -- pod.toml
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use pod::config::Config;
use pod::{
    App, Call, Entity, Error, Event, Host, IdempotencyKey, Json, Reader, Reply, Routes, Shop, Tx,
    Who,
};
use serde::{Deserialize, Serialize};
use shared::error::Kind;
use shared::telemetry;
use uuid::Uuid;

/// The table, as a file `migrations/pod/<number>_guestbook.sql` with a line in `migrations/src/lib.rs`. Its primary key
/// begins with `shop_id`: that is all a shop's rows need to be moved, verified and restored with the shop.
pub const TABLE: &str = "
create table if not exists guestbook_entry (
  shop_id bigint unsigned not null,
  entry_id binary(16) not null,
  name varchar(80) not null,
  words varchar(1000) not null,
  primary key (shop_id, entry_id)
);";

/// The newest entries of a shop, under one id: a book has one first page.
static BOOK: Entity = Entity::new("guestbook", Duration::from_secs(5));

/// An entry.
#[derive(Debug, Clone, Serialize, Deserialize, sqlx::FromRow)]
struct Entry {
    #[sqlx(rename = "entry_id")]
    id: Uuid,
    name: String,
    words: String,
}

/// What a visitor sends. Unknown fields are refused, and the answer names them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewEntry {
    name: String,
    words: String,
}

/// `GET /guestbook`: from the cache, or from a replica.
async fn read(State(app): State<App>, shop: Shop) -> Result<Answer<Vec<Entry>>, Error> {
    let book = app
        .cached(&shop, &BOOK, "newest", |reader| Box::pin(newest(reader)))
        .await?;
    Ok(Answer(
        book.map(|book| Vec::clone(&book)).unwrap_or_default(),
    ))
}

async fn newest(reader: &mut Reader) -> Result<Option<Vec<Entry>>, Error> {
    let query = sqlx::query_as(
        "select entry_id, name, words from guestbook_entry
         where shop_id = ? order by entry_id desc limit 20",
    )
    .bind(reader.shop().get());
    reader.fetch_all(query).await.map(Some)
}

/// `POST /guestbook`: one entry for one key, however often the request is sent.
async fn write(
    State(app): State<App>,
    shop: Shop,
    key: IdempotencyKey,
    body: Json<NewEntry>,
) -> Result<Reply, Error> {
    let NewEntry { name, words } = body.value;
    if !(1..=80).contains(&name.chars().count()) {
        return Err(Error::field(
            Kind::Invalid,
            "name",
            "A name has 1 to 80 characters.",
        ));
    }
    if !(1..=1000).contains(&words.chars().count()) {
        return Err(Error::field(
            Kind::Invalid,
            "words",
            "An entry has 1 to 1000 characters.",
        ));
    }
    // The id is made here, not in the closure: the closure may run more than once, and must write the same.
    let entry = Arc::new(Entry {
        id: Uuid::now_v7(),
        name,
        words,
    });
    app.write(
        &shop,
        Call::new("guestbook.write", &key, body.fingerprint),
        move |tx| {
            let entry = Arc::clone(&entry);
            Box::pin(async move { add(tx, &entry).await })
        },
    )
    .await
}

async fn add(tx: &mut Tx, entry: &Entry) -> Result<Reply, Error> {
    let query = sqlx::query(
        "insert into guestbook_entry (shop_id, entry_id, name, words) values (?, ?, ?, ?)",
    )
    .bind(tx.shop().get())
    .bind(entry.id)
    .bind(&entry.name)
    .bind(&entry.words);
    tx.execute(query).await?;
    tx.changed(&BOOK, "newest");
    tx.outbox(Event::new(
        "guestbook.written",
        entry.id.to_string(),
        entry,
    )?);
    Reply::json(StatusCode::CREATED, entry)
}

fn routes() -> Routes {
    Routes::new()
        .get("/guestbook", Who::Anyone, read)
        .post("/guestbook", Who::Anyone, write)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let file = std::env::args_os().nth(1).map(PathBuf::from);
    let config = Config::load(&file.unwrap_or_else(|| PathBuf::from("pod.toml")))?;
    let telemetry = telemetry::init("guestbook", &config.telemetry)?;
    let host = Host::build_with(config, Some(telemetry.metrics())).await?;
    let stop = async {
        // Without a signal handler there is nothing to wait for: stop at once.
        drop(tokio::signal::ctrl_c().await);
    };
    host.mount(routes()).serve(stop).await
}
