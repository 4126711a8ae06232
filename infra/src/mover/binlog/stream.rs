//! The events of a server's binlog, one after the other, each checked.

use std::io;
use std::time::Duration;

use mysql_async::Error;
use rand::RngExt as _;
use shared::PodId;
use shared::gtid::GtidSet;

use super::bytes::Unreadable;
use super::event::{Event, has_checksums, kind};
use super::payload::Payload;
use super::wire::{Wire, is_end};
use crate::mover::error::MoveError;
use crate::mover::job::End;
use crate::pod_store::DATABASE;

/// How often a server with nothing to say says so.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Three heartbeats missed, and some time for a busy machine: the connection is dead.
const SILENCE_MAX: Duration = Duration::from_millis(2_000);
/// The server will not send what is asked for.
const FATAL: u16 = 1236;

/// A server's binlog from some set of transactions on.
#[derive(Debug)]
pub(super) struct Stream {
    pod: PodId,
    wire: Wire,
    packet: Vec<u8>,
    /// The compressed transaction that is being read, and its present event.
    payload: Option<Payload>,
    inner: Vec<u8>,
}

/// Where a server's binlog stands.
#[derive(Debug)]
pub(super) struct Sets {
    pub(super) executed: GtidSet,
    pub(super) purged: GtidSet,
}

/// Where the present event is.
enum At {
    Packet,
    Inner,
}

impl Stream {
    /// Connects, makes sure that it is the primary that is meant, and says where its binlog stands.
    pub(super) async fn connect(end: &End) -> Result<(Self, Sets), MoveError> {
        let pod = end.pod;
        let doing = "connect for the binlog";
        let lost = |source| MoveError::Lost { pod, doing, source };
        let mut wire = Wire::connect(end).await.map_err(lost)?;
        // As text in any character set of the session.
        let sql = format!(
            "select pod, term, @@global.read_only, @@global.binlog_checksum, @@global.gtid_executed, \
             @@global.gtid_purged from {DATABASE}.pod_identity where one = 1"
        );
        let row = wire.row(&sql).await.map_err(lost)?;
        let [of_pod, term, read_only, checksum, executed, purged] =
            <[String; 6]>::try_from(row).map_err(|_| lost(odd("an answer of another form")))?;
        end.is_greeted_by(of_pod.parse().ok(), term.parse().ok())?;
        if read_only != "0" {
            return Err(lost(odd("the server is read only")));
        }
        if checksum != "CRC32" {
            let text = format!("binlog_checksum is {checksum}; it must be CRC32");
            return Err(MoveError::Binlog { pod, text });
        }
        let set = |text: &str| {
            GtidSet::parse(text).map_err(|error| MoveError::Binlog {
                pod,
                text: error.to_string(),
            })
        };
        let sets = Sets {
            executed: set(&executed)?,
            purged: set(&purged)?,
        };
        let stream = Self {
            pod,
            wire,
            packet: Vec::new(),
            payload: None,
            inner: Vec::new(),
        };
        Ok((stream, sets))
    }

    /// Asks for everything that is not in `from`.
    pub(super) async fn ask(&mut self, from: &GtidSet) -> Result<(), MoveError> {
        let (pod, doing) = (self.pod, "ask for the binlog");
        let lost = |source| MoveError::Lost { pod, doing, source };
        // The id must be nobody else's; servers of a fleet have small ones.
        let server_id = rand::rng().random_range(1 << 31..u32::MAX);
        let session = uuid::Uuid::new_v4();
        let settings = format!(
            "set @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32', \
             @source_heartbeat_period = {heartbeat}, @master_heartbeat_period = {heartbeat}, \
             @replica_uuid = '{session}', @slave_uuid = '{session}'",
            heartbeat = HEARTBEAT.as_nanos()
        );
        self.wire.run(&settings).await.map_err(lost)?;
        self.wire
            .ask_for_binlog(server_id, from)
            .await
            .map_err(lost)?;
        self.wire.silence(SILENCE_MAX);
        Ok(())
    }

    fn unreadable(&self, what: &str, why: &Unreadable) -> MoveError {
        MoveError::Binlog {
            pod: self.pod,
            text: format!("{what} cannot be read: {why}"),
        }
    }

    /// The next event. Those of a compressed transaction come one by one, after them the next one.
    pub(super) async fn next(&mut self) -> Result<Event<'_>, MoveError> {
        let at = self.fetch().await?;
        let (bytes, checksum) = match at {
            At::Packet => (self.packet.get(1..).unwrap_or_default(), true),
            At::Inner => (self.inner.as_slice(), false),
        };
        Event::parse(bytes, checksum).map_err(|why| self.unreadable("an event", &why))
    }

    async fn fetch(&mut self) -> Result<At, MoveError> {
        loop {
            if let Some(payload) = &mut self.payload {
                let more = payload.next(&mut self.inner);
                if more.map_err(|why| self.unreadable("a compressed transaction", &why))? {
                    return Ok(At::Inner);
                }
                self.payload = None;
            }
            let read = self.wire.packet(&mut self.packet).await;
            read.map_err(|error| refused(self.pod, error))?;
            if is_end(&self.packet) {
                let source = odd("the server ended the binlog");
                return Err(refused(self.pod, source));
            }
            let whole = match self.packet.split_first() {
                Some((0, whole)) => whole,
                Some(_) | None => {
                    return Err(self.unreadable("a packet", &"it is no event".into()));
                }
            };
            let event = Event::parse(whole, true);
            let event = event.map_err(|why| self.unreadable("an event", &why))?;
            match event.kind {
                kind::FORMAT_DESCRIPTION => match has_checksums(whole) {
                    Ok(true) => return Ok(At::Packet),
                    Ok(false) => {
                        let why = "binlog_checksum was switched off".into();
                        return Err(self.unreadable("what follows", &why));
                    }
                    Err(why) => return Err(self.unreadable("what follows", &why)),
                },
                kind::TRANSACTION_PAYLOAD => {
                    let payload = Payload::open(event.body);
                    let payload =
                        payload.map_err(|why| self.unreadable("a compressed transaction", &why));
                    self.payload = Some(payload?);
                    // The payload has its own copy.
                    self.packet = Vec::new();
                }
                _ => return Ok(At::Packet),
            }
        }
    }
}

fn odd(text: &'static str) -> Error {
    io::Error::other(text).into()
}

/// What a server's refusal of the binlog means.
fn refused(pod: PodId, source: Error) -> MoveError {
    let doing = "read the binlog";
    let said = match &source {
        Error::Server(said) if said.code == FATAL => said.message.clone(),
        Error::Server(_) | Error::Driver(_) | Error::Io(_) | Error::Other(_) | Error::Url(_) => {
            return MoveError::Lost { pod, doing, source };
        }
    };
    if said.contains("purged") {
        let text = "the server has purged what the move has not read yet (binlog_expire_logs_seconds, or PURGE)";
        return MoveError::Binlog {
            pod,
            text: text.into(),
        };
    }
    if said.contains("more GTIDs") {
        let text = "the server lacks transactions that were read from its predecessor".into();
        return MoveError::PrimaryChanged { pod, text };
    }
    let text = format!("the server will not send it: {said}");
    MoveError::Binlog { pod, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mover::error::Verdict;
    use mysql_async::ServerError;

    #[test]
    fn refusals_are_told_apart() {
        let verdict = |message: &str, code| {
            let said = ServerError {
                code,
                message: message.into(),
                state: "HY000".into(),
            };
            refused(PodId::new(1).unwrap(), Error::Server(said)).verdict()
        };
        let purged = "Cannot replicate because the source purged required binary logs.";
        assert_eq!(verdict(purged, FATAL), Verdict::Fail);
        let more = "Replica has more GTIDs than the source has, using the source's SERVER_UUID.";
        assert_eq!(verdict(more, FATAL), Verdict::Rewind);
        assert_eq!(verdict("log event entry exceeded", FATAL), Verdict::Fail);
        assert_eq!(verdict("Server shutdown in progress", 1053), Verdict::Again);
    }
}
