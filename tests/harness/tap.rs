//! A proxy that understands MySQL's packets and cuts at a chosen moment of a transaction.
//!
//! It follows the statements of each connection (text and prepared ones). A trap names a word of a statement; the
//! first transaction that sent such a statement springs it at its COMMIT. TLS is taken out of the server's greeting,
//! so a client that insists on TLS cannot pass.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Where the wire breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The COMMIT is not sent: the server rolls back.
    BeforeCommit,
    /// The COMMIT is sent and nobody waits for its answer: either outcome.
    CommitSent,
    /// The server has answered the COMMIT, the client does not get it: it is committed.
    CommitAnswered,
    /// The connection stays open and silent from the first such statement on, sent and not answered: a client that
    /// is stuck inside of a transaction.
    Held,
    /// The same, and the server neither hears of it, whatever becomes of the client, nor ends the session by itself for its
    /// silence: who else waits for the transaction must end it.
    Vanished,
}

impl Moment {
    /// Whether it springs at the statement itself, with the transaction open.
    const fn inside(self) -> bool {
        matches!(self, Self::Held | Self::Vanished)
    }
}

/// What springs, once.
#[derive(Debug, Clone)]
struct Trap {
    word: String,
    moment: Moment,
}

#[derive(Debug, Default)]
struct Shared {
    trap: Mutex<Option<Trap>>,
    sprung: Notify,
    sprung_times: Mutex<u32>,
    /// The last ones of all connections, for the failure of a test.
    statements: Mutex<Vec<String>>,
}

/// The proxy; it ends with the value.
#[derive(Debug)]
pub struct Tap {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepts: JoinHandle<()>,
}

impl Tap {
    /// Listens on a free port and forwards to that MySQL server.
    pub async fn to(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("bind a tap")?;
        let address = listener.local_addr().context("read the bound port")?;
        let shared = Arc::new(Shared::default());
        let for_connections = Arc::clone(&shared);
        let accepts = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connection(client, server, Arc::clone(&for_connections)));
            }
        });
        Ok(Self {
            address,
            shared,
            accepts,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the trap: the next transaction that sends a statement with this word (lower case) springs it.
    pub fn set(&self, word: &str, moment: Moment) {
        *self.shared.trap.lock() = Some(Trap {
            word: word.to_owned(),
            moment,
        });
    }

    /// Waits until the trap has sprung.
    pub async fn sprung(&self, deadline: Duration) -> Result<()> {
        let wait = async {
            loop {
                let notified = self.shared.sprung.notified();
                if self.shared.trap.lock().is_none() {
                    return;
                }
                notified.await;
            }
        };
        let sprung = tokio::time::timeout(deadline, wait).await;
        ensure!(
            sprung.is_ok(),
            "no transaction sprang the trap {:?} within {deadline:?}; last statements: {:#?}",
            self.shared.trap.lock(),
            self.shared.statements.lock()
        );
        Ok(())
    }

    /// How often a trap of this tap has sprung.
    pub fn sprung_times(&self) -> u32 {
        *self.shared.sprung_times.lock()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

/// What is known of one connection.
#[derive(Debug, Default)]
struct Session {
    prepared: HashMap<u32, String>,
    preparing: Option<String>,
    /// Statements since the last COMMIT or ROLLBACK.
    transaction: Vec<String>,
    /// From the next answer on nothing reaches the client; after so many packets it is hung up on.
    swallow: Option<usize>,
    greeted: bool,
}

const COM_QUERY: u8 = 0x03;
/// A year, the most that a server takes: it keeps a session that says nothing.
const KEPT: &str = "set session wait_timeout = 31536000";
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
/// `CLIENT_SSL` is bit 11 of the capabilities: bit 3 of their second byte.
const CLIENT_SSL_IN_SECOND_BYTE: u8 = 0x08;
/// A failure shows the last statements, not all of them.
const STATEMENTS_KEPT: usize = 30;

async fn connection(client: TcpStream, server: SocketAddr, shared: Arc<Shared>) {
    let Ok(upstream) = TcpStream::connect(server).await else {
        return;
    };
    // Small packets must not wait for each other (Nagle): timings through the tap stay those of the wire.
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = upstream.into_split();
    let session = Arc::new(Mutex::new(Session::default()));
    tokio::select! {
        () = requests(from_client, to_server, &session, &shared) => {}
        () = answers(from_server, to_client, &session) => {}
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    session: &Mutex<Session>,
    shared: &Shared,
) {
    while let Some(packet) = read_packet(&mut from).await {
        match note_request(&packet, session, shared) {
            None => {}
            Some(Moment::BeforeCommit) => return,
            Some(Moment::CommitSent) => {
                let _ = to.write_all(&packet).await;
                return;
            }
            Some(Moment::Vanished) => {
                let _ = to.write_all(&[&packet[..], &query(KEPT)].concat()).await;
                // Until the server hangs up.
                std::future::pending::<()>().await;
            }
            Some(Moment::CommitAnswered | Moment::Held) => {}
        }
        if to.write_all(&packet).await.is_err() {
            return;
        }
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, session: &Mutex<Session>) {
    while let Some(mut packet) = read_packet(&mut from).await {
        if let Some(packets) = note_answer(&mut packet, session) {
            for _ in 1..packets {
                if read_packet(&mut from).await.is_none() {
                    return;
                }
            }
            return;
        }
        if to.write_all(&packet).await.is_err() {
            return;
        }
    }
}

/// Follows one packet of the client; the moment, if it springs the trap.
fn note_request(packet: &[u8], session: &Mutex<Session>, shared: &Shared) -> Option<Moment> {
    let mut session = session.lock();
    let (first_of_command, body) = (packet[3] == 0, &packet[4..]);
    if !first_of_command || !session.greeted {
        return None;
    }
    let statement = match *body.first()? {
        COM_QUERY => text(&body[1..]),
        COM_STMT_EXECUTE => {
            let id = u32::from_le_bytes(body.get(1..5)?.try_into().ok()?);
            session.prepared.get(&id)?.clone()
        }
        COM_STMT_PREPARE => {
            session.preparing = Some(text(&body[1..]));
            return None;
        }
        _ => return None,
    };
    let mut last = shared.statements.lock();
    if last.len() == STATEMENTS_KEPT {
        last.remove(0);
    }
    last.push(statement.clone());
    // A COMMIT may come in the middle of a text of several statements, each of which has its answer.
    let commit = statement
        .split(';')
        .position(|part| part.trim_start().starts_with("commit"));
    let ends = commit.is_some();
    let hit = |trap: &Trap| {
        let held = trap.moment.inside() && statement.contains(&trap.word);
        let committed = !trap.moment.inside()
            && ends
            && session.transaction.iter().any(|s| s.contains(&trap.word));
        held || committed
    };
    let mut trap = shared.trap.lock();
    let moment = trap.as_ref().filter(|t| hit(t)).map(|t| t.moment);
    if moment.is_some() {
        *trap = None;
        *shared.sprung_times.lock() += 1;
        shared.sprung.notify_waiters();
    }
    session.swallow = match moment {
        // Each statement up to the COMMIT answers with one packet; then hang up.
        Some(Moment::CommitAnswered) => Some(commit.unwrap_or(0) + 1),
        // The client stays connected and hears nothing more until it or the server hangs up.
        Some(Moment::Held | Moment::Vanished) => Some(usize::MAX),
        Some(Moment::BeforeCommit | Moment::CommitSent) | None => None,
    };
    if ends || statement.starts_with("rollback") {
        session.transaction.clear();
    } else {
        session.transaction.push(statement);
    }
    moment
}

/// Follows one packet of the server, takes TLS out of the greeting; how many packets from this one on are to be kept
/// from the client, if any.
fn note_answer(packet: &mut [u8], session: &Mutex<Session>) -> Option<usize> {
    let mut session = session.lock();
    if !session.greeted {
        session.greeted = true;
        // Protocol version, server version to its NUL, connection id, eight bytes of salt, a filler, capabilities.
        if let Some(nul) = packet[5..].iter().position(|b| *b == 0)
            && let Some(second) = packet.get_mut(5 + nul + 1 + 4 + 8 + 1 + 1)
        {
            *second &= !CLIENT_SSL_IN_SECOND_BYTE;
        }
        return None;
    }
    if packet[3] == 1
        && let Some(sql) = session.preparing.take()
        && let [0, id @ ..] = &packet[4..]
        && let Some(id) = id.first_chunk::<4>()
    {
        session.prepared.insert(u32::from_le_bytes(*id), sql);
    }
    session.swallow
}

fn text(bytes: &[u8]) -> String {
    // A statement begins with its first word for us: no leading blanks.
    String::from_utf8_lossy(bytes).trim_start().to_lowercase()
}

/// A statement as a command's first packet; a short one.
fn query(sql: &str) -> Vec<u8> {
    let length = u8::try_from(1 + sql.len()).unwrap_or(u8::MAX);
    [&[length, 0, 0, 0, COM_QUERY], sql.as_bytes()].concat()
}

/// A packet with its header: three bytes of length, one of sequence.
async fn read_packet(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let mut packet = vec![0; 4];
    from.read_exact(&mut packet).await.ok()?;
    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]);
    packet.resize(4 + usize::try_from(length).ok()?, 0);
    from.read_exact(&mut packet[4..]).await.ok()?;
    // Nothing of a command is empty but the end of a file that a client sends, which nobody does here.
    Some(packet)
}
