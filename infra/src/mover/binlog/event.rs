//! One event: its header, its checksum, and the kinds that a mover tells apart.

use super::bytes::{Bytes, Read, Unreadable, bit};
use shared::gtid::Gtid;

/// Every event begins with so many bytes.
pub(super) const HEADER_BYTES: usize = 19;
/// The checksum at its end.
pub(super) const CHECKSUM_BYTES: usize = 4;

/// The kinds by number, as the server's sources name them.
pub(super) mod kind {
    pub(in super::super) const QUERY: u8 = 2;
    pub(in super::super) const STOP: u8 = 3;
    pub(in super::super) const ROTATE: u8 = 4;
    pub(in super::super) const INTVAR: u8 = 5;
    pub(in super::super) const APPEND_BLOCK: u8 = 9;
    pub(in super::super) const DELETE_FILE: u8 = 11;
    pub(in super::super) const RAND: u8 = 13;
    pub(in super::super) const USER_VAR: u8 = 14;
    pub(in super::super) const FORMAT_DESCRIPTION: u8 = 15;
    pub(in super::super) const XID: u8 = 16;
    pub(in super::super) const BEGIN_LOAD_QUERY: u8 = 17;
    pub(in super::super) const EXECUTE_LOAD_QUERY: u8 = 18;
    pub(in super::super) const TABLE_MAP: u8 = 19;
    pub(in super::super) const WRITE_ROWS_V1: u8 = 23;
    pub(in super::super) const UPDATE_ROWS_V1: u8 = 24;
    pub(in super::super) const DELETE_ROWS_V1: u8 = 25;
    pub(in super::super) const INCIDENT: u8 = 26;
    pub(in super::super) const HEARTBEAT: u8 = 27;
    pub(in super::super) const IGNORABLE: u8 = 28;
    pub(in super::super) const ROWS_QUERY: u8 = 29;
    pub(in super::super) const WRITE_ROWS: u8 = 30;
    pub(in super::super) const UPDATE_ROWS: u8 = 31;
    pub(in super::super) const DELETE_ROWS: u8 = 32;
    pub(in super::super) const GTID: u8 = 33;
    pub(in super::super) const ANONYMOUS_GTID: u8 = 34;
    pub(in super::super) const PREVIOUS_GTIDS: u8 = 35;
    pub(in super::super) const TRANSACTION_CONTEXT: u8 = 36;
    pub(in super::super) const VIEW_CHANGE: u8 = 37;
    pub(in super::super) const XA_PREPARE: u8 = 38;
    pub(in super::super) const PARTIAL_UPDATE_ROWS: u8 = 39;
    pub(in super::super) const TRANSACTION_PAYLOAD: u8 = 40;
    pub(in super::super) const HEARTBEAT_V2: u8 = 41;
    pub(in super::super) const GTID_TAGGED: u8 = 42;
}

/// The writer says of this event that who does not know it may go past it.
const IGNORABLE_FLAG: u16 = 0x80;

/// An event, its checksum already compared and cut off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event<'a> {
    pub(super) kind: u8,
    /// Seconds since 1970; 0 for events that the server makes up.
    pub(super) timestamp: u32,
    flags: u16,
    pub(super) body: &'a [u8],
}

impl<'a> Event<'a> {
    /// Takes one whole event apart. With `checksum`, compares it; events inside a compressed transaction have none.
    pub(super) fn parse(whole: &'a [u8], checksum: bool) -> Read<Self> {
        let mut bytes = Bytes(whole);
        let timestamp = bytes.u32()?;
        let kind = bytes.u8()?;
        let _server = bytes.u32()?;
        let size = bytes.u32()?;
        let _end = bytes.u32()?;
        let flags = bytes.u16()?;
        if size as usize != whole.len() {
            let text = format!("it says {size} bytes and has {}", whole.len());
            return Err(text.into());
        }
        let mut body = bytes.0;
        if checksum {
            let (content, sum) = whole.split_last_chunk().ok_or(Unreadable::SHORT)?;
            // It is the last to be written, so the event's kind may be wrong too.
            if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
                return Err("its checksum does not match".into());
            }
            body = body
                .split_last_chunk::<CHECKSUM_BYTES>()
                .ok_or(Unreadable::SHORT)?
                .0;
        }
        Ok(Self {
            kind,
            timestamp,
            flags,
            body,
        })
    }

    /// Whether who does not know this kind may go past it.
    pub(super) fn is_ignorable(&self) -> bool {
        self.flags & IGNORABLE_FLAG != 0
    }
}

/// How long the whole event is, from its header alone.
pub(super) fn size_of(header: &[u8; HEADER_BYTES]) -> usize {
    let [.., a, b, c, d, _, _, _, _, _, _] = *header;
    u32::from_le_bytes([a, b, c, d]) as usize
}

/// What a format description says of the events after it: whether they have checksums.
pub(super) fn has_checksums(whole: &[u8]) -> Read<bool> {
    // The algorithm's number is before the checksum, which this event has in any case.
    let (rest, _) = whole
        .split_last_chunk::<CHECKSUM_BYTES>()
        .ok_or(Unreadable::SHORT)?;
    match rest.last() {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(_) | None => Err("its kind of checksum is not known".into()),
    }
}

/// The name of a transaction, and when it was committed here, in microseconds since 1970 (0: not said).
pub(super) fn gtid(event: &Event<'_>) -> Read<(Gtid, u64)> {
    let mut bytes = Bytes(event.body);
    let (server, tag, number, at) = if event.kind == kind::GTID_TAGGED {
        tagged(&mut bytes)?
    } else {
        plain(&mut bytes)?
    };
    let gtid = Gtid::new(server, tag, number);
    Ok((gtid.ok_or("it names no transaction")?, at))
}

type Named<'a> = ([u8; 16], Option<&'a str>, u64, u64);

fn plain<'a>(bytes: &mut Bytes<'a>) -> Read<Named<'a>> {
    let _flags = bytes.u8()?;
    let server = bytes.array()?;
    let number = bytes.u64()?;
    // Logical clocks and times came later; the first byte says whether they are there.
    let mut at = 0;
    if bytes.u8() == Ok(2) && bytes.take(16).is_ok() {
        at = bytes.little(7).unwrap_or(0) & !(1 << 55);
    }
    Ok((server, None, number, at))
}

/// Numbered fields; those that a reader must know are numbered lowest.
fn tagged<'a>(bytes: &mut Bytes<'a>) -> Read<Named<'a>> {
    const FLAGS: u64 = 0;
    const SERVER: u64 = 1;
    const NUMBER: u64 = 2;
    const TAG: u64 = 3;
    const CLOCKS: [u64; 2] = [4, 5];
    const AT: u64 = 6;

    // The version is a packed number of this format, too.
    if bytes.varlen()? != 1 {
        return Err("its format is not known".into());
    }
    let _size = bytes.varlen()?;
    let _last_needed = bytes.varlen()?;
    let (mut server, mut tag, mut number, mut at) = (None, None, None, 0);
    while !bytes.is_empty() {
        match bytes.varlen()? {
            FLAGS => {
                bytes.varlen()?;
            }
            SERVER => {
                let mut id = [0; 16];
                for byte in &mut id {
                    *byte = u8::try_from(bytes.varlen()?).map_err(|_| "its server's id is none")?;
                }
                server = Some(id);
            }
            NUMBER => number = Some(positive(bytes.varlen()?)?),
            TAG => {
                let length = usize::try_from(bytes.varlen()?).map_err(|_| Unreadable::SHORT)?;
                let text = std::str::from_utf8(bytes.take(length)?);
                tag = Some(text.map_err(|_| "its tag is no text")?);
            }
            field if CLOCKS.contains(&field) => {
                bytes.varlen()?;
            }
            AT => {
                at = bytes.varlen()?;
                // Nothing after it is needed here.
                break;
            }
            _ => break,
        }
    }
    let tag = tag.filter(|t| !t.is_empty());
    match (server, number) {
        (Some(server), Some(number)) => Ok((server, tag, number, at)),
        (None, _) | (_, None) => Err("it names no transaction".into()),
    }
}

/// Signed numbers keep their sign in the lowest bit.
fn positive(zigzag: u64) -> Read<u64> {
    if bit(&zigzag.to_le_bytes(), 0) {
        return Err("a number below zero".into());
    }
    Ok(zigzag >> 1)
}
