//! What the driver's errors mean: which pass by themselves, and which mean that the statement can never work.

use mysql_async::{DriverError, Error, ServerError};
use shared::PodId;

use crate::mover::error::MoveError;

/// A server's answers that another try, or another moment, can change.
const PASSING: &[u16] = &[
    1040, // too many connections
    1041, // out of memory
    1045, // access denied: a password that was just changed
    1053, // shutdown in progress
    1105, // unknown error
    1129, // host blocked
    1158, 1159, 1160, 1161, // reading or writing packets
    1180, // error during commit
    1203, 1226, // too many connections of the account
    1205, // lock wait
    1213, // deadlock
    1290, // read only
    1317, // interrupted
    1836, // read only
    1021, 1114, // the disk or the table is full
    3024, // execution time
    3032, // offline
    3100, // refused by a plugin before commit
    3101, // rolled back by a plugin
    3572, // lock not available
    4031, // disconnected for silence
];

/// Tables or columns are not what they were.
const SCHEMA: &[u16] = &[
    1051, // unknown table
    1054, // unknown column
    1146, // no such table
    1412, // table definition has changed
    3105, // value for a generated column
];

/// Whether the server said it, so that the connection still works.
pub(super) fn is_answer(error: &Error) -> bool {
    match error {
        Error::Server(said) => !matches!(said.code, 1053 | 1317 | 3032 | 4031),
        Error::Driver(_) | Error::Io(_) | Error::Other(_) | Error::Url(_) => false,
    }
}

/// What an error means for the move.
pub(super) fn of(pod: PodId, doing: &'static str, source: Error) -> MoveError {
    let code = match &source {
        Error::Server(said) => Some(said.code),
        Error::Driver(_) | Error::Io(_) | Error::Other(_) | Error::Url(_) => None,
    };
    match code {
        Some(code) if SCHEMA.contains(&code) => MoveError::SchemaChanged {
            pod,
            text: format!("{doing}: {source}"),
        },
        Some(code) if !PASSING.contains(&code) => MoveError::Sql { pod, doing, source },
        Some(_) | None => MoveError::Lost { pod, doing, source },
    }
}

/// The connection is gone.
pub(super) fn lost(pod: PodId, doing: &'static str) -> MoveError {
    MoveError::Lost {
        pod,
        doing,
        source: Error::Driver(DriverError::ConnectionClosed),
    }
}

/// A primary that takes no writes.
pub(super) fn read_only(pod: PodId) -> MoveError {
    MoveError::Lost {
        pod,
        doing: "open a session",
        source: Error::Server(ServerError {
            code: 1290,
            message: "the server is read only".into(),
            state: "HY000".into(),
        }),
    }
}

impl MoveError {
    /// A deadlock, or a lock that did not come: the transaction is rolled back and tried again.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Lost { source: Error::Server(said), .. } if matches!(said.code, 1205 | 1213)
        )
    }

    /// A statement that the server ended at its deadline: it asked for too much.
    pub(crate) fn is_out_of_time(&self) -> bool {
        matches!(self, Self::Lost { source: Error::Server(said), .. } if said.code == 3024)
    }
}
