//! A connection that asks a server for its binlog.
//!
//! The driver has a stream of its own, which a mover cannot use: it decompresses a compressed transaction whole into
//! memory, goes past one that it cannot decompress, and compares no checksum. This is the little of the protocol that a
//! reader needs instead: log in, set variables, read one row, ask for the binlog, read packets.

use std::io;
use std::time::Duration;

use mysql_async::{Error, ServerError};
use secrecy::ExposeSecret as _;
use shared::gtid::GtidSet;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::timeout;

use super::super::job::End;
use super::bytes::{Bytes, Unreadable};

// Logging in.
mod greeting;
// What carries it, encrypted or not.
mod line;

use line::Line;

/// A server that lives accepts and greets in milliseconds.
const LOGIN_MAX: Duration = Duration::from_secs(5);
/// Statements here read a variable or a row.
const STATEMENT_MAX: Duration = Duration::from_secs(5);
/// The largest part of a packet; a packet with a part of that size has a next one.
const PART_MAX: usize = 0xff_ffff;
/// Events are at most as large as the largest `max_allowed_packet`, and a little.
const PACKET_MAX: usize = (1 << 30) + (1 << 20);
/// A buffer that held a large packet is given back.
const PACKET_KEPT: usize = 4 << 20;
/// Read from the socket at once: many small events.
const BUFFER_BYTES: usize = 128 * 1024;

const QUERY: u8 = 0x03;
const BINLOG_DUMP_GTID: u8 = 0x1e;
/// The set of transactions says where to begin, not a file's name.
const THROUGH_GTID: u16 = 4;
/// A binlog's first event is after four bytes.
const FIRST_POSITION: u64 = 4;

/// One connection; closed when it is dropped.
#[derive(Debug)]
pub(super) struct Wire {
    stream: BufReader<Line>,
    /// The number of the next packet of this command.
    sequence: u8,
    /// A server that says nothing for so long is dead.
    silence: Duration,
}

/// An answer that is none.
fn odd(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    io::Error::new(io::ErrorKind::InvalidData, what).into()
}

impl From<Unreadable> for Error {
    fn from(fault: Unreadable) -> Self {
        odd(fault)
    }
}

/// The server's refusal, after its first byte.
fn refusal(mut bytes: Bytes<'_>) -> Error {
    let code = bytes.u16().unwrap_or_default();
    let mut state = "HY000".to_owned();
    if bytes.0.first() == Some(&b'#') && bytes.0.len() >= 6 {
        let text = bytes.take(6).unwrap_or_default();
        state = String::from_utf8_lossy(text.get(1..).unwrap_or_default()).into_owned();
    }
    Error::Server(ServerError {
        code,
        message: String::from_utf8_lossy(bytes.0).into_owned(),
        state,
    })
}

fn late(what: &'static str) -> Error {
    io::Error::new(io::ErrorKind::TimedOut, what).into()
}

impl Wire {
    /// Connects and logs in.
    pub(super) async fn connect(end: &End) -> Result<Self, Error> {
        let login = async {
            let line = Line::open(&end.primary).await?;
            let mut wire = Self::over(line);
            let greeting = wire.greeting().await?;
            if greeting.can_encrypt && !line::is_here(&end.primary) {
                wire.ask_for_encryption().await?;
                let line = wire.stream.into_inner().encrypt(&end.primary).await?;
                let sequence = wire.sequence;
                wire = Self::over(line);
                wire.sequence = sequence;
            }
            wire.log_in(greeting, &end.user, end.password.expose_secret())
                .await?;
            Ok(wire)
        };
        timeout(LOGIN_MAX, login)
            .await
            .map_err(|_| late("no answer to the login"))?
    }

    fn over(line: Line) -> Self {
        Self {
            stream: BufReader::with_capacity(BUFFER_BYTES, line),
            sequence: 0,
            silence: LOGIN_MAX,
        }
    }

    /// Runs a statement without rows.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), Error> {
        let run = async {
            self.command(QUERY, sql.as_bytes()).await?;
            let mut packet = Vec::new();
            self.packet(&mut packet).await?;
            match packet.first() {
                Some(0) => Ok(()),
                Some(_) | None => Err(odd("an answer with rows to a statement without")),
            }
        };
        timeout(STATEMENT_MAX, run)
            .await
            .map_err(|_| late("no answer to a statement"))?
    }

    /// The texts of a query's only row.
    pub(super) async fn row(&mut self, sql: &str) -> Result<Vec<String>, Error> {
        let run = async {
            self.command(QUERY, sql.as_bytes()).await?;
            let mut packet = Vec::new();
            self.packet(&mut packet).await?;
            let columns = Bytes(&packet).packed()?;
            self.skip_until_end().await?;
            self.packet(&mut packet).await?;
            let mut bytes = Bytes(&packet);
            let mut row = Vec::new();
            for _ in 0..columns {
                let length = bytes.packed_length()?;
                let text = String::from_utf8(bytes.take(length)?.to_vec());
                row.push(text.map_err(|_| odd("a value that is no text"))?);
            }
            self.skip_until_end().await?;
            Ok(row)
        };
        timeout(STATEMENT_MAX, run)
            .await
            .map_err(|_| late("no answer to a query"))?
    }

    /// Reads up to the packet that ends a list.
    async fn skip_until_end(&mut self) -> Result<(), Error> {
        let mut packet = Vec::new();
        loop {
            self.packet(&mut packet).await?;
            if is_end(&packet) {
                return Ok(());
            }
        }
    }

    /// Asks for everything that is not in `from`. What follows are packets with events.
    pub(super) async fn ask_for_binlog(
        &mut self,
        server_id: u32,
        from: &GtidSet,
    ) -> Result<(), Error> {
        let set = encode(from);
        let mut body = Vec::with_capacity(set.len() + 32);
        body.extend_from_slice(&THROUGH_GTID.to_le_bytes());
        body.extend_from_slice(&server_id.to_le_bytes());
        // No file's name.
        body.extend_from_slice(&0_u32.to_le_bytes());
        body.extend_from_slice(&FIRST_POSITION.to_le_bytes());
        let length = u32::try_from(set.len()).map_err(|_| odd("a set without end"))?;
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(&set);
        self.command(BINLOG_DUMP_GTID, &body).await
    }

    async fn command(&mut self, code: u8, body: &[u8]) -> Result<(), Error> {
        self.sequence = 0;
        let mut packet = Vec::with_capacity(body.len() + 1);
        packet.push(code);
        packet.extend_from_slice(body);
        self.send(&packet).await
    }

    async fn send(&mut self, packet: &[u8]) -> Result<(), Error> {
        // Statements of ours, and sets of transactions, which the server bounds too.
        let length = u32::try_from(packet.len())
            .ok()
            .filter(|n| (*n as usize) < PART_MAX)
            .ok_or_else(|| odd("a command that is too long"))?;
        let [a, b, c, _] = length.to_le_bytes();
        let mut framed = vec![a, b, c, self.sequence];
        framed.extend_from_slice(packet);
        self.sequence = self.sequence.wrapping_add(1);
        self.stream.get_mut().write_all(&framed).await?;
        self.stream.get_mut().flush().await?;
        Ok(())
    }

    /// From now on the connection is dead when nothing comes for so long.
    pub(super) fn silence(&mut self, max: Duration) {
        self.silence = max;
    }

    /// Reads the next packet; the server's refusal is an error. Waits as long as something comes.
    pub(super) async fn packet(&mut self, into: &mut Vec<u8>) -> Result<(), Error> {
        into.clear();
        into.shrink_to(PACKET_KEPT);
        let mut head = Vec::with_capacity(4);
        loop {
            head.clear();
            self.read(4, &mut head).await?;
            let mut bytes = Bytes(&head);
            let (length, sequence) = (bytes.little(3)?, bytes.u8()?);
            let length = usize::try_from(length).map_err(|_| Unreadable::SHORT)?;
            if into.len() + length > PACKET_MAX {
                return Err(odd("a packet that is larger than any"));
            }
            self.read(length, into).await?;
            self.sequence = sequence.wrapping_add(1);
            if length < PART_MAX {
                break;
            }
        }
        match into.split_first() {
            Some((0xff, rest)) => Err(refusal(Bytes(rest))),
            Some(_) | None => Ok(()),
        }
    }

    async fn read(&mut self, mut length: usize, into: &mut Vec<u8>) -> Result<(), Error> {
        into.reserve(length);
        while length > 0 {
            if self.stream.buffer().is_empty() {
                let more = timeout(self.silence, self.stream.fill_buf()).await;
                if more.map_err(|_| late("the server is silent"))??.is_empty() {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
            let here = self.stream.buffer();
            let part = here.get(..length.min(here.len())).unwrap_or_default();
            into.extend_from_slice(part);
            let taken = part.len();
            self.stream.consume(taken);
            length -= taken;
        }
        Ok(())
    }
}

/// Whether a packet ends a list, or the binlog.
pub(super) fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&0xfe) && packet.len() < 9
}

/// A set as the command wants it. With tags it has another form, which older servers do not know; they have none.
fn encode(set: &GtidSet) -> Vec<u8> {
    let tagged = set.sources().any(|(_, tag, _)| tag.is_some());
    let sources = set.sources().count() as u64;
    let mut out = Vec::new();
    let head = if tagged {
        (1 << 56) | (sources << 8)
    } else {
        sources
    };
    out.extend_from_slice(&head.to_le_bytes());
    for (server, tag, ranges) in set.sources() {
        out.extend_from_slice(server.as_bytes());
        if tagged {
            let tag = tag.unwrap_or_default();
            // At most 32 letters: the packed form of such a length is one byte.
            out.push(u8::try_from(tag.len() << 1).unwrap_or_default());
            out.extend_from_slice(tag.as_bytes());
        }
        out.extend_from_slice(&(ranges.len() as u64).to_le_bytes());
        for (first, last) in ranges {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&(last + 1).to_le_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "bdbea337-ec7c-11f1-86a3-02fc00000001";

    #[test]
    fn a_set_is_sent_with_ends_that_are_not_in_it() {
        let set = GtidSet::parse(&format!("{A}:1-5:9")).unwrap();
        let sent = encode(&set);
        assert_eq!(sent.len(), 8 + 16 + 8 + 4 * 8);
        assert_eq!(sent.first(), Some(&1));
        assert_eq!(
            sent.get(32..48),
            Some(&[1, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0][..])
        );
        assert_eq!(encode(&GtidSet::default()), [0; 8]);
    }

    #[test]
    fn a_set_with_tags_says_so() {
        let set = GtidSet::parse(&format!("{A}:1:pod:2")).unwrap();
        let sent = encode(&set);
        assert_eq!(sent.get(..8), Some(&[0, 2, 0, 0, 0, 0, 0, 1][..]));
        // The first has no tag: a length of nothing.
        assert_eq!(sent.get(24), Some(&0));
        assert_eq!(sent.get(65..69), Some(&[6, b'p', b'o', b'd'][..]));
    }

    #[test]
    fn a_refusal_keeps_its_number() {
        let Error::Server(fault) = refusal(Bytes(b"\xd4\x04#HY000purged")) else {
            unreachable!("a server's refusal");
        };
        assert_eq!((fault.code, fault.message.as_str()), (1236, "purged"));
        assert!(is_end(&[0xfe, 0, 0, 2, 0]) && !is_end(&[0; 5]));
    }
}
