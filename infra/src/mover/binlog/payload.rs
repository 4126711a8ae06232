//! A compressed transaction: one event that holds all others of it. Any session may switch compression on.
//!
//! It is read event by event, so that a transaction of any size takes the memory of its compressed form and of one
//! event. All of it is read, or it is an error.

use std::io::{self, Cursor, Read as _};

use super::bytes::{Bytes, Read, Unreadable};
use super::event::{HEADER_BYTES, size_of};

/// No event is larger than the largest packet.
const EVENT_MAX: usize = (1 << 30) + (1 << 20);

/// Where the events come from.
enum Source {
    Plain(Cursor<Vec<u8>>),
    Zstd(Box<zstd::Decoder<'static, Cursor<Vec<u8>>>>),
}

/// A compressed transaction, half read.
pub(super) struct Payload {
    source: Source,
    /// What the server says is left.
    left: u64,
}

/// What the event says of its content.
#[derive(Debug, PartialEq, Eq)]
struct Fields {
    /// The compressed bytes, and how many there are.
    size: u64,
    compression: u64,
    uncompressed: Option<u64>,
}

impl Fields {
    fn parse(bytes: &mut Bytes<'_>) -> Read<Self> {
        const END: u64 = 0;
        const SIZE: u64 = 1;
        const COMPRESSION: u64 = 2;
        const UNCOMPRESSED: u64 = 3;

        let (mut size, mut compression, mut uncompressed) = (None, None, None);
        loop {
            let field = bytes.packed()?;
            if field == END {
                break;
            }
            let length = bytes.packed_length()?;
            let mut value = Bytes(bytes.take(length)?);
            match field {
                SIZE => size = Some(value.packed()?),
                COMPRESSION => compression = Some(value.packed()?),
                UNCOMPRESSED => uncompressed = Some(value.packed()?),
                _ => {}
            }
        }
        match (size, compression) {
            (Some(size), Some(compression)) => Ok(Self {
                size,
                compression,
                uncompressed,
            }),
            (None, _) | (_, None) => Err("it does not say what is in it".into()),
        }
    }
}

fn broken(error: &io::Error) -> Unreadable {
    format!("it cannot be decompressed: {error}").into()
}

impl Payload {
    /// Begins to read; `body` is the whole event after its header.
    pub(super) fn open(body: &[u8]) -> Read<Self> {
        const ZSTD: u64 = 0;
        const NONE: u64 = 255;

        let mut bytes = Bytes(body);
        let fields = Fields::parse(&mut bytes)?;
        let size = usize::try_from(fields.size).map_err(|_| Unreadable::SHORT)?;
        let content = Cursor::new(bytes.take(size)?.to_vec());
        match (fields.compression, fields.uncompressed) {
            (ZSTD, Some(left)) => {
                let decoder = zstd::Decoder::with_buffer(content).map_err(|e| broken(&e))?;
                let source = Source::Zstd(Box::new(decoder));
                Ok(Self { source, left })
            }
            (NONE, _) => Ok(Self {
                source: Source::Plain(content),
                left: fields.size,
            }),
            (ZSTD, None) => Err("it does not say how long it is".into()),
            (other, _) => Err(format!("its compression {other} is not known").into()),
        }
    }

    /// Reads the next event; `false` at the end, which is where the server said.
    pub(super) fn next(&mut self, into: &mut Vec<u8>) -> Read<bool> {
        into.clear();
        if self.left == 0 {
            self.read(1, into)?;
            return if into.is_empty() {
                Ok(false)
            } else {
                Err("it is longer than it says".into())
            };
        }
        self.read(HEADER_BYTES, into)?;
        let header = into.first_chunk().ok_or(Unreadable::SHORT)?;
        let size = size_of(header);
        if !(HEADER_BYTES..=EVENT_MAX).contains(&size) {
            return Err("an event in it has no possible size".into());
        }
        self.read(size - HEADER_BYTES, into)?;
        if into.len() != size {
            return Err(Unreadable::SHORT);
        }
        let left = self.left.checked_sub(size as u64);
        self.left = left.ok_or("it is longer than it says")?;
        Ok(true)
    }

    fn read(&mut self, bytes: usize, into: &mut Vec<u8>) -> Read<()> {
        let read = match &mut self.source {
            Source::Plain(content) => content.take(bytes as u64).read_to_end(into),
            Source::Zstd(content) => content.take(bytes as u64).read_to_end(into),
        };
        read.map(drop).map_err(|e| broken(&e))
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payload")
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(body: &[u8]) -> Vec<u8> {
        let mut event = vec![0; HEADER_BYTES];
        let size = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        event[9..13].copy_from_slice(&size.to_le_bytes());
        event.extend_from_slice(body);
        event
    }

    fn payload(content: &[u8], uncompressed: u64) -> Vec<u8> {
        let packed = zstd::encode_all(content, 3).unwrap();
        let mut body = vec![2, 1, 0, 3, 9, 0xfe];
        body.extend_from_slice(&uncompressed.to_le_bytes());
        body.extend_from_slice(&[1, 9, 0xfe]);
        body.extend_from_slice(&(packed.len() as u64).to_le_bytes());
        body.push(0);
        body.extend_from_slice(&packed);
        body
    }

    fn all(body: &[u8]) -> Read<Vec<Vec<u8>>> {
        let mut payload = Payload::open(body)?;
        let (mut events, mut event) = (Vec::new(), Vec::new());
        while payload.next(&mut event)? {
            events.push(event.clone());
        }
        Ok(events)
    }

    #[test]
    fn every_event_comes_out() {
        let events = vec![event(b"one"), event(b""), event(&vec![7; 300_000])];
        let content = events.concat();
        let body = payload(&content, content.len() as u64);
        assert_eq!(all(&body), Ok(events));
    }

    #[test]
    fn uncompressed_ones_are_read_too() {
        let content = event(b"one");
        let mut body = vec![2, 3, 0xfc, 255, 0, 1, 1, 22, 0];
        body.extend_from_slice(&content);
        assert_eq!(all(&body), Ok(vec![content]));
    }

    /// A transaction that is cut off anywhere is an error, never a shorter transaction.
    #[test]
    fn what_is_cut_off_is_an_error() {
        let content = [event(b"one"), event(b"two")].concat();
        let whole = payload(&content, content.len() as u64);
        for length in 0..whole.len() {
            assert!(all(&whole[..length]).is_err(), "{length} bytes");
        }
        for said in [content.len() as u64 - 1, content.len() as u64 + 1, 22, 0] {
            assert!(all(&payload(&content, said)).is_err(), "{said} said");
        }
        let mut damaged = whole;
        let last = damaged.len() - 1;
        damaged[last - 6] ^= 1;
        assert!(all(&damaged).is_err());
    }
}
