//! Idempotency: one effect and one answer for a key, per shop and endpoint.
//!
//! The row of a key is written **first** in the transaction of the effect, so that a second transaction with the same key
//! stops there and runs nothing; the answer is written into it last. Duplicates in one process do not even get that far:
//! they wait for the first one's answer in memory (`flight`), and hold neither locks nor connections.

use std::time::Duration;

use http::StatusCode;
use sha2::{Digest, Sha256};
use shared::error::Kind;
use tokio::time::Instant;
use uuid::Uuid;

use crate::outbox::rows::SHOPS_MAX;
use crate::{Error, IdempotencyKey, Reply, Tx, meter};

// Duplicates in this process.
pub(crate) mod flight;

/// An answer is kept for a day, for each key: a page of orders fits ten times.
const ANSWER_MAX: usize = 1024 * 1024;

/// The server waits whole seconds for a row lock; this long is one wait.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// SHA-256 over what makes two requests the same: method, path and body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub(crate) [u8; 32]);

impl Fingerprint {
    /// Of parts, each with its length, so that no two lists of parts are the same.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fingerprint({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// Which call a write is: the endpoint's name, the client's key, and what makes two requests the same.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) endpoint: &'static str,
    pub(crate) key: String,
    /// `None` for a job that ends what a request began.
    pub(crate) fingerprint: Option<Fingerprint>,
}

impl Call {
    /// The call of a request.
    pub fn new(endpoint: &'static str, key: &IdempotencyKey, fingerprint: Fingerprint) -> Self {
        Self {
            endpoint,
            key: key.as_str().to_owned(),
            fingerprint: Some(fingerprint),
        }
    }

    /// The same call as an earlier request, taken up by a job (a sweeper that settles what a crash left).
    pub fn resume(endpoint: &'static str, key: impl Into<String>) -> Self {
        Self {
            endpoint,
            key: key.into(),
            fingerprint: None,
        }
    }

    /// The client's key, for tables that must find the call again.
    pub fn key(&self) -> &str {
        &self.key
    }

    fn same(&self, fingerprint: &[u8]) -> Result<(), Error> {
        if self.fingerprint.is_none_or(|f| f.0 == fingerprint) {
            Ok(())
        } else {
            Err(key_reused())
        }
    }
}

/// What [`crate::App::begin`] found or did.
#[derive(Debug)]
pub enum First {
    /// The call has its final answer already: give it.
    Done(Reply),
    /// The first step is committed.
    Begun {
        /// What it noted.
        note: Vec<u8>,
        /// An earlier request did it, and may have gone on from there: ask before doing anything twice.
        resumed: bool,
    },
}

pub(crate) fn key_reused() -> Error {
    Error::because(
        Kind::KeyReused,
        "This Idempotency-Key was used for a request with another body; take a new key for a new request.",
    )
}

pub(crate) fn in_flight() -> Error {
    Error::because(
        Kind::InFlight,
        "The first request with this Idempotency-Key is still running; send it again in a moment.",
    )
}

/// A row as it is read.
#[derive(Debug, sqlx::FromRow)]
struct Row {
    fingerprint: Vec<u8>,
    status: Option<u16>,
    media: Option<String>,
    location: Option<String>,
    answer: Option<Vec<u8>>,
    note: Option<Vec<u8>>,
    holder: Option<Vec<u8>>,
    held: bool,
}

impl Row {
    /// The stored answer, if it has one.
    fn reply(&mut self, me: Uuid) -> Result<Option<Reply>, Error> {
        let Some(status) = self.status else {
            return Ok(None);
        };
        let status = StatusCode::from_u16(status)
            .map_err(|_| Error::bug(format!("stored status {status}")))?;
        // A rerun of this same request, after a commit whose answer was lost, finds its own work.
        let mine = self.holder.as_deref() == Some(me.as_bytes().as_slice());
        if !mine {
            meter::replayed();
        }
        Ok(Some(Reply {
            status,
            media: self.media.take().unwrap_or_default(),
            location: self.location.take(),
            body: self.answer.take().unwrap_or_default().into(),
            replayed: !mine,
        }))
    }
}

/// What the row of a key says.
#[derive(Debug)]
pub(crate) enum Claim {
    /// There was none: this transaction has written it, and runs.
    New,
    /// The final answer.
    Answered(Reply),
    /// The first step of two is committed; this request has taken it up.
    Begun(Vec<u8>),
}

/// Claims the key for this transaction. `started` is when the request began to wait, `hold` how long the first step of
/// two keeps others off (zero where there is one step only).
pub(crate) async fn claim(
    tx: &mut Tx,
    call: &Call,
    hold: Duration,
    started: Instant,
    wait: Duration,
) -> Result<Claim, Error> {
    let fingerprint = call.fingerprint.map(|f| f.0).unwrap_or_default();
    let me = tx.request();
    let insert = sqlx::query(
        "insert into idempotency (shop_id, endpoint, idem_key, fingerprint, holder, held_until) \
         values (?, ?, ?, ?, ?, now(3) + interval ? microsecond)",
    )
    .bind(tx.shop().get())
    .bind(call.endpoint)
    .bind(&call.key)
    .bind(fingerprint.as_slice())
    .bind(me.as_bytes().as_slice())
    .bind(micros(hold));
    match tx.execute(insert).await {
        Ok(_) => return Ok(Claim::New),
        Err(error) if error.is_duplicate() => {}
        // Another process is in its transaction with this key and longer than the server waits for a row.
        Err(Error::Conflict { .. }) if started.elapsed() + LOCK_WAIT / 2 > wait => {
            return Err(in_flight());
        }
        Err(error) => return Err(error),
    }
    // The insert has left a lock on the row, so that it is there, unless a clean-up took it in between.
    let Some(mut row) = find(tx, call).await? else {
        return Err(in_flight());
    };
    call.same(&row.fingerprint)?;
    if let Some(reply) = row.reply(me)? {
        return Ok(Claim::Answered(reply));
    }
    let mine = row.holder.as_deref() == Some(me.as_bytes().as_slice());
    if row.held && !mine {
        return Err(in_flight());
    }
    let take = sqlx::query(
        "update idempotency set holder = ?, held_until = now(3) + interval ? microsecond \
         where shop_id = ? and endpoint = ? and idem_key = ?",
    )
    .bind(me.as_bytes().as_slice())
    .bind(micros(hold))
    .bind(tx.shop().get())
    .bind(call.endpoint)
    .bind(&call.key);
    tx.execute(take).await?;
    Ok(Claim::Begun(row.note.unwrap_or_default()))
}

/// Takes up a begun call for its last step, or finds its answer.
pub(crate) async fn resume(tx: &mut Tx, call: &Call) -> Result<Option<Reply>, Error> {
    let Some(mut row) = find(tx, call).await? else {
        return Err(Error::bug(format!(
            "a call of {} ends that was not begun",
            call.endpoint
        )));
    };
    call.same(&row.fingerprint)?;
    row.reply(tx.request())
}

async fn find(tx: &mut Tx, call: &Call) -> Result<Option<Row>, Error> {
    let select = sqlx::query_as(
        "select fingerprint, status, media, location, answer, note, holder, \
         held_until is not null and held_until > now(3) as held \
         from idempotency where shop_id = ? and endpoint = ? and idem_key = ? for update",
    )
    .bind(tx.shop().get())
    .bind(call.endpoint)
    .bind(&call.key);
    tx.fetch_optional(select).await
}

/// Leaves a note for the last step.
pub(crate) async fn note(tx: &mut Tx, call: &Call, note: &[u8]) -> Result<(), Error> {
    let update = sqlx::query(
        "update idempotency set note = ? where shop_id = ? and endpoint = ? and idem_key = ?",
    )
    .bind(note)
    .bind(tx.shop().get())
    .bind(call.endpoint)
    .bind(&call.key);
    tx.execute(update).await?;
    Ok(())
}

/// Stores the answer.
pub(crate) async fn store(tx: &mut Tx, call: &Call, reply: &Reply) -> Result<(), Error> {
    if reply.body.len() > ANSWER_MAX {
        return Err(Error::bug(format!(
            "an answer of {} is longer than {ANSWER_MAX} bytes",
            call.endpoint
        )));
    }
    let me = tx.request();
    let update = sqlx::query(
        "update idempotency set status = ?, media = ?, location = ?, answer = ?, holder = ?, held_until = null \
         where shop_id = ? and endpoint = ? and idem_key = ?",
    )
    .bind(reply.status.as_u16())
    .bind(&reply.media)
    .bind(reply.location.as_deref())
    .bind(reply.body.as_ref())
    .bind(me.as_bytes().as_slice())
    .bind(tx.shop().get())
    .bind(call.endpoint)
    .bind(&call.key);
    tx.execute(update).await?;
    Ok(())
}

/// Lets go of a begun call that this request holds: the next one may take it up at once.
pub(crate) async fn leave(tx: &mut Tx, call: &Call) -> Result<(), Error> {
    let me = tx.request();
    let update = sqlx::query(
        "update idempotency set held_until = null \
         where shop_id = ? and endpoint = ? and idem_key = ? and holder = ? and status is null",
    )
    .bind(tx.shop().get())
    .bind(call.endpoint)
    .bind(&call.key)
    .bind(me.as_bytes().as_slice());
    tx.execute(update).await?;
    Ok(())
}

/// The shops with old answers.
pub(crate) fn old_shops(kept_s: u64) -> String {
    format!(
        "select s.shop_id from shop_home s where s.state = 'serving' and exists (select 1 from idempotency i \
         where i.shop_id = s.shop_id and i.created_at < now(3) - interval {kept_s} second \
         and i.status is not null) limit {SHOPS_MAX}"
    )
}

/// Deletes old answers. A call without its final answer stays: something is still to be settled.
pub(crate) async fn clean(tx: &mut Tx, kept_s: u64, batch: u32) -> Result<u64, Error> {
    let delete = sqlx::query(
        "delete from idempotency where shop_id = ? and status is not null \
         and created_at < now(3) - interval ? second order by created_at limit ?",
    );
    let delete = delete.bind(tx.shop().get()).bind(kept_s).bind(batch);
    tx.execute(delete).await
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
