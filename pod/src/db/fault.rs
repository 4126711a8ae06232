//! What the database does to us: MySQL's error numbers, sorted by what follows from them.

use shared::error::Kind;
use shared::wire::Fence;
use sqlx::mysql::MySqlDatabaseError;

use crate::Error;

/// When a connection was lost, seen from the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Before anything of the transaction was sent.
    Before,
    /// In the transaction, before its commit was sent: the server rolls it back.
    Within,
}

/// Why a step at the database failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// No connection within the wait: shed.
    #[error("no connection within the wait")]
    Busy,
    /// A deadline passed; the connection is closed, which rolls back.
    #[error("{0} did not end in time")]
    Slow(&'static str),
    /// The server did not answer the first round trip, or a new connection, in time: it is frozen or cut off.
    #[error("{0}: the server does not answer")]
    Silent(&'static str),
    /// 1213 or 1205: roll back and run the whole closure again.
    #[error("{what}")]
    Conflict {
        /// What was tried.
        what: &'static str,
        /// What the server said.
        #[source]
        source: sqlx::Error,
    },
    /// 3572: a mover holds the home, or waits for it.
    #[error("the home is locked by a mover")]
    Locked,
    /// This server is no primary (any more), or is going away.
    #[error("{what}")]
    NotPrimary {
        /// What was tried.
        what: &'static str,
        /// What the server said.
        #[source]
        source: sqlx::Error,
    },
    /// The connection is gone.
    #[error("{what}")]
    Gone {
        /// What was tried.
        what: &'static str,
        /// When.
        when: Lost,
        /// What the driver said.
        #[source]
        source: sqlx::Error,
    },
    /// The statement itself.
    #[error("{what}")]
    Statement {
        /// What was tried.
        what: &'static str,
        /// What the server or the driver said.
        #[source]
        source: sqlx::Error,
    },
}

/// MySQL's number for an error, if it is the server's.
pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    error
        .as_database_error()
        .and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>())
        .map(MySqlDatabaseError::number)
}

/// Whether the connection is of no use any more: cut, or out of step. The driver says of a statement with too few or too
/// many bound values that it is a fault of the protocol, too; that one is the program's own.
fn lost(error: &sqlx::Error) -> bool {
    if let sqlx::Error::Protocol(text) = error {
        return !text.starts_with("prepared statement expected");
    }
    matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_))
}

impl Fault {
    /// Sorts an error of the driver.
    pub(crate) fn of(what: &'static str, source: sqlx::Error, when: Lost) -> Self {
        match number(&source) {
            Some(1213 | 1205) => Self::Conflict { what, source },
            Some(3572) => Self::Locked,
            // --read-only, read-only transaction, read-only mode, offline mode, shutdown.
            Some(1290 | 1792 | 1836 | 3032 | 1053) => Self::NotPrimary { what, source },
            // Too many connections: of the server, of the account, of the account in an hour.
            Some(1040 | 1203 | 1226) => Self::Busy,
            // max_execution_time.
            Some(3024) => Self::Slow(what),
            // Killed, or disconnected by the server: by its `wait_timeout`, by `offline_mode`.
            Some(1317 | 4031 | 1927) => Self::Gone { what, when, source },
            // A prepared statement the server no longer knows (it was upgraded, or its tables were): a fresh connection
            // prepares it anew.
            Some(1615 | 1243) => Self::Gone { what, when, source },
            Some(_) => Self::Statement { what, source },
            None if lost(&source) => Self::Gone { what, when, source },
            None => Self::Statement { what, source },
        }
    }

    /// The same for the closure, while the guard keeps the first one.
    pub(crate) fn echo(&self) -> Self {
        let again = |source: &sqlx::Error| sqlx::Error::Protocol(source.to_string());
        match self {
            Self::Busy => Self::Busy,
            Self::Silent(what) => Self::Silent(what),
            Self::Slow(what) => Self::Slow(what),
            Self::Locked => Self::Locked,
            Self::Conflict { what, source } => Self::Conflict {
                what,
                source: again(source),
            },
            Self::NotPrimary { what, source } => Self::NotPrimary {
                what,
                source: again(source),
            },
            Self::Gone { what, when, source } => Self::Gone {
                what,
                when: *when,
                source: again(source),
            },
            Self::Statement { what, source } => Self::Statement {
                what,
                source: again(source),
            },
        }
    }

    /// Whether the connection may still be used for a rollback.
    pub(crate) const fn connection_lives(&self) -> bool {
        match self {
            Self::Conflict { .. }
            | Self::Locked
            | Self::NotPrimary { .. }
            | Self::Statement { .. } => true,
            Self::Busy | Self::Silent(_) | Self::Slow(_) | Self::Gone { .. } => false,
        }
    }
}

/// What a client is told. For all of these the transaction is known not to have committed.
impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Busy => Self::because(
                Kind::Overloaded,
                "Too many requests wait for the shop's database; send it again in a moment.",
            ),
            Fault::Slow(what) => Self::Slow(what),
            Fault::Silent(what) => Self::NoPrimary {
                what,
                source: sqlx::Error::PoolTimedOut,
            },
            Fault::Conflict { what, source } => Self::Conflict { what, source },
            Fault::Locked => Self::Fence(Fence::Fenced),
            Fault::NotPrimary { what, source }
            | Fault::Gone {
                what,
                source,
                when: _,
            } => Self::NoPrimary { what, source },
            Fault::Statement { what, source } => Self::Statement { what, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_statement_is_not_a_lost_connection() {
        let of = |error| Fault::of("test", error, Lost::Within);
        let wrong = "prepared statement expected 2 parameters but 1 parameters were provided";
        assert!(matches!(
            of(sqlx::Error::Protocol(wrong.into())),
            Fault::Statement { .. }
        ));
        let cut = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        assert!(matches!(of(sqlx::Error::Io(cut)), Fault::Gone { .. }));
    }
}
