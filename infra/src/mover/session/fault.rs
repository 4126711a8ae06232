//! What the driver's errors mean: which pass by themselves, which mean that the statement can never work, and which nobody
//! knows.

use std::io::ErrorKind;

use mysql_async::{DriverError, Error, IoError, ServerError};
use shared::PodId;

use crate::mover::error::MoveError;

/// What a server says while it is busy, restarted or changed: it passes, however long that takes.
const PASSING: &[u16] = &[
    1016, 1021, 1026, 1030,
    1114, // the disk or a table is full, a file cannot be opened or written
    1028, 1037, 1038, 1041, // memory
    1040, 1129, 1135, 1203, 1226, // connections, threads
    1045, // access denied: a password that was just changed
    1053, 1077, 1079, // it ends
    1152, 1158, 1159, 1160, 1161, 1184, // reading or writing packets
    1180, // error during commit
    1205, 1206, 1213, 3572, // locks
    1290, 1836, // read only
    1317, 3169, // the statement or the session was ended
    3024, // execution time
    3032, // offline
    3100, 3101, // refused or rolled back by a plugin
    4031, // disconnected for silence
];

/// What a server says of a statement that it will never take as it is. What is in neither list may pass, or not: it is tried
/// again for a while.
const FINAL: &[u16] = &[
    // The statement, or a setting in it.
    1052, 1064, 1065, 1066, 1110, 1111, 1136, 1140, 1149, 1193, 1210, 1222, 1231, 1232, 1235, 1238,
    1241, 1242, 1248, 1267, 1271, 1305, 1582, 1583, //
    // Privileges, and what is switched off.
    1044, 1142, 1143, 1148, 1227, 1370, 1449, 1698, 1820, 1862, 3948, //
    // Constraints, and whatever a trigger refuses.
    1048, 1062, 1169, 1216, 1217, 1364, 1451, 1452, 1557, 1586, 1644, 1761, 1762, 3098,
    3819, //
    // Types, ranges, sizes.
    1118, 1138, 1153, 1162, 1261, 1262, 1264, 1265, 1292, 1300, 1301, 1365, 1366, 1367, 1406, 1411,
    1416, 1426, 1690, 3140, 3141, 3144, 3854, //
];

/// Messages that quote a value first: it belongs to a merchant.
const QUOTING: &[u16] = &[1062, 1292, 1300, 1366, 1367, 1411, 1586];

/// Tables or columns are not what they were.
const SCHEMA: &[u16] = &[
    1049, // unknown database
    1051, 1109, // unknown table
    1054, // unknown column
    1072, 1176, // unknown key, or column of one
    1146, 1932, // no such table
    1347, // another kind of table
    1356, // a view of what is gone
    1412, // table definition has changed
    3105, // value for a generated column
];

/// What the driver says of a packet that it asked for nothing of. With one a server ends a connection that was silent for too
/// long (4031), and nobody reads that before the next question.
const UNASKED: &str = "Packets out of sync";

/// Whether the server said it, so that the connection still works.
pub(super) fn is_answer(error: &Error) -> bool {
    match error {
        Error::Server(said) => !matches!(
            said.code,
            1053 | 1077 | 1079 | 1152 | 1153 | 1184 | 1317 | 3032 | 3169 | 4031
        ),
        Error::Driver(_) | Error::Io(_) | Error::Other(_) | Error::Url(_) => false,
    }
}

/// Whether nothing came in time, so that the server may be at work on it still.
pub(super) fn is_silence(error: &Error) -> bool {
    matches!(
        error,
        Error::Io(IoError::Io(error)) if error.kind() == ErrorKind::TimedOut
    )
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
        Some(code) if FINAL.contains(&code) => MoveError::Sql {
            pod,
            doing,
            source: without_value(source),
        },
        Some(_) | None if is_unasked(&source) => lost(pod, doing),
        Some(_) | None => MoveError::Lost { pod, doing, source },
    }
}

fn is_unasked(error: &Error) -> bool {
    matches!(error, Error::Io(IoError::Io(error)) if error.to_string() == UNASKED)
}

/// The same without the value that the message quotes.
fn without_value(error: Error) -> Error {
    match error {
        Error::Server(said) if QUOTING.contains(&said.code) => Error::Server(ServerError {
            message: cut(&said.message),
            ..said
        }),
        Error::Server(_) | Error::Driver(_) | Error::Io(_) | Error::Other(_) | Error::Url(_) => {
            error
        }
    }
}

/// A message without its first quoted text; what that holds may have quotes too, so it ends where the sentence goes on.
fn cut(message: &str) -> String {
    let Some((before, rest)) = message.split_once('\'') else {
        return message.to_owned();
    };
    let goes_on = rest.rfind("' for ").or_else(|| rest.rfind('\''));
    let after = goes_on.and_then(|at| rest.get(at + 1..));
    format!("{before}'...'{}", after.unwrap_or_default())
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

    /// The same, or one that its client gave up.
    pub(crate) fn is_late(&self) -> bool {
        self.is_out_of_time() || matches!(self, Self::Timeout { .. })
    }

    /// Something that a server said and nobody here has thought of: it may pass, or not.
    pub(crate) fn is_doubtful(&self) -> bool {
        matches!(
            self,
            Self::Lost { source: Error::Server(said), .. } if !PASSING.contains(&said.code)
        )
    }
}

#[cfg(test)]
mod tests;
