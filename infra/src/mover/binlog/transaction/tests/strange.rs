//! Damaged events, strange bytes, and orders of events that no server sends.

use super::*;
use crate::mover::binlog::event::CHECKSUM_BYTES;

/// No bit of any event can change without being noticed, and no event can be cut off.
#[test]
fn damage_is_seen() {
    for whole in recorded() {
        for at in [
            0,
            4,
            9,
            HEADER_BYTES,
            whole.len() - CHECKSUM_BYTES - 1,
            whole.len() - 1,
        ] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert!(Event::parse(&damaged, true).is_err(), "byte {at}");
        }
        for length in [0, HEADER_BYTES, whole.len() - 1] {
            assert!(
                Event::parse(&whole[..length], true).is_err(),
                "{length} bytes"
            );
        }
    }
}

/// Whatever bytes an event has behind a right checksum, the reader says something of them and does not fall over.
#[test]
fn strange_bytes_are_errors_or_nothing() {
    for whole in recorded() {
        let body = HEADER_BYTES..whole.len() - CHECKSUM_BYTES;
        for at in body.clone() {
            for strange in [0x00, 0xff, 0x7f, whole[at] ^ 1] {
                let mut inner = whole[..body.end].to_vec();
                inner[at] = strange;
                let size = u32::try_from(inner.len()).unwrap();
                inner[9..13].copy_from_slice(&size.to_le_bytes());
                let event = Event::parse(&inner, false).unwrap();
                let mut reader = reader(7, tables(), false);
                let mut out = Vec::new();
                for before in recorded().iter().take(5) {
                    take(&mut reader, before, &mut out).unwrap();
                }
                let _ = reader.take(&event, &mut out);
                if let Ok(mut payload) = Payload::open(event.body) {
                    let mut inner = Vec::new();
                    while payload.next(&mut inner) == Ok(true) {}
                }
            }
        }
    }
}

#[test]
fn a_transaction_without_end_is_an_error() {
    let events = recorded();
    let mut reader = reader(7, tables(), false);
    let mut out = Vec::new();
    for event in events.iter().take(4) {
        take(&mut reader, event, &mut out).unwrap();
    }
    let fault = take(&mut reader, &events[7], &mut out).unwrap_err();
    assert!(fault.to_string().contains("has no end"), "{fault}");
    let rotate = events.last().unwrap();
    let fault = take(&mut reader, rotate, &mut out).unwrap_err();
    assert!(fault.to_string().contains("ends inside"), "{fault}");
    // Rows, or a statement, of no transaction.
    let mut reader = super::reader(7, tables(), false);
    for event in [&events[3], &events[5]] {
        let fault = take(&mut reader, event, &mut out).unwrap_err();
        assert!(
            fault.to_string().contains("outside of a transaction"),
            "{fault}"
        );
    }
}

fn unknown(event_kind: u8, flags: u8) -> Vec<u8> {
    let mut whole = vec![0; HEADER_BYTES];
    whole[4] = event_kind;
    whole[9] = 19;
    whole[17] = flags;
    whole
}

#[test]
fn kinds_that_are_not_known_are_no_faults_only_where_the_server_says_so() {
    let mut reader = reader(7, tables(), false);
    let mut out = Vec::new();
    for (event_kind, flags, fine) in [
        (99, 0x80, true),
        (99, 0, false),
        (kind::INCIDENT, 0, false),
        (kind::ANONYMOUS_GTID, 0, false),
        (kind::HEARTBEAT, 0, true),
        (kind::HEARTBEAT_V2, 0, true),
    ] {
        let whole = unknown(event_kind, flags);
        let event = Event::parse(&whole, false).unwrap();
        let taken = reader.take(&event, &mut out);
        assert_eq!(taken.is_ok(), fine, "{event_kind} {flags}");
    }
}
