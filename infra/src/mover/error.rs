//! What goes wrong in a move, and what it means for the move.

use std::io::{self, ErrorKind};
use std::time::Duration;

use mysql_async::{Error, IoError};
use shared::PodId;

use crate::catalog::CatalogError;
use crate::pod_store::PodStoreError;

/// Why a part of a mover ended without success.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MoveError {
    /// The connection died or could not be made, or the server is read only or overloaded.
    #[error("pod {pod}: {doing} failed")]
    Lost {
        /// Where.
        pod: PodId,
        /// What was being done.
        doing: &'static str,
        /// What the driver said.
        #[source]
        source: mysql_async::Error,
    },
    /// The server refused a statement, and would again.
    #[error("pod {pod}: {doing}")]
    Sql {
        /// Where.
        pod: PodId,
        /// What was being done.
        doing: &'static str,
        /// What the server said.
        #[source]
        source: mysql_async::Error,
    },
    /// No answer within the deadline.
    #[error("pod {pod}: {doing} took longer than {} ms", limit.as_millis())]
    Timeout {
        /// Where.
        pod: PodId,
        /// What was being done.
        doing: &'static str,
        /// The deadline.
        limit: Duration,
    },
    /// The home names another move or owner: another mover took over, and this one must not touch anything any more.
    #[error("pod {pod}: the home belongs to another mover now ({found})")]
    NotOwner {
        /// Where.
        pod: PodId,
        /// What the home says.
        found: String,
    },
    /// The primary or its term is another one than when this run began.
    #[error("pod {pod}: the primary changed: {text}")]
    PrimaryChanged {
        /// Where.
        pod: PodId,
        /// From what to what.
        text: String,
    },
    /// It cannot be done as things are; all reasons.
    #[error("{}", reasons.join("; "))]
    Refused {
        /// Each names the thing and the way out.
        reasons: Vec<String>,
    },
    /// Both sides differ although nothing is on its way.
    #[error("verification: {0}")]
    Diverged(String),
    /// Somebody else changed the shop's rows where nobody but the mover may.
    #[error("pod {pod}: {text}")]
    Tampered {
        /// Where.
        pod: PodId,
        /// Which table, which transaction.
        text: String,
    },
    /// The tables changed while the move was under way.
    #[error("pod {pod}: the schema changed: {text}")]
    SchemaChanged {
        /// Where.
        pod: PodId,
        /// What was seen.
        text: String,
    },
    /// The binlog has what cannot be read exactly, or lacks what is needed.
    #[error("pod {pod}: the binlog: {text}")]
    Binlog {
        /// Where.
        pod: PodId,
        /// Which event or transaction, and why.
        text: String,
    },
    /// A bound was reached: too many changes for the fence, no convergence, no room.
    #[error("{0}")]
    Bound(String),
    /// A file of the mover (spilled keys, a dump) could not be written or read.
    #[error("{doing}")]
    File {
        /// What was being done, with the path.
        doing: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The catalog did not do a step; what stands there decides.
    #[error("the catalog")]
    Catalog(#[source] CatalogError),
    /// Where a pod's primary is, or its password, could not be found out.
    #[error("a pod's servers")]
    Servers(#[source] PodStoreError),
    /// Something must end or come back first; it is tried again.
    #[error("{0}")]
    Waits(String),
    /// An operator's word is for the next run.
    #[error("an order came in between")]
    Ordered,
    /// The run was told to stop.
    #[error("told to stop")]
    Stopped,
    /// It cannot be: a fault of this program.
    #[error("a fault of the mover itself: {0}")]
    Unexpected(&'static str),
}

/// What an error means for the move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The same step again, after a pause.
    Again,
    /// Lift the fence and start from the changed keys: the primary changed.
    Rewind,
    /// The move fails, loudly: an operator starts it anew or aborts it.
    Fail,
    /// This run ends and says nothing more. Where the move is still this server's, it is taken up anew.
    TakeAnew,
}

impl MoveError {
    /// What it means for the move.
    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Self::Lost { .. }
            | Self::Timeout { .. }
            | Self::File { .. }
            | Self::Servers(_)
            | Self::Waits(_)
            | Self::Unexpected(_) => Verdict::Again,
            Self::Catalog(error) => of_catalog(error),
            Self::PrimaryChanged { .. } => Verdict::Rewind,
            Self::Sql { .. }
            | Self::Refused { .. }
            | Self::Diverged(_)
            | Self::Tampered { .. }
            | Self::SchemaChanged { .. }
            | Self::Binlog { .. }
            | Self::Bound(_) => Verdict::Fail,
            Self::NotOwner { .. } | Self::Ordered | Self::Stopped => Verdict::TakeAnew,
        }
    }

    /// The pod that did not answer, or whose primary is not the one that was asked: what was begun may be done there later.
    pub(crate) const fn away(&self) -> Option<PodId> {
        match self {
            Self::Lost { pod, .. }
            | Self::Timeout { pod, .. }
            | Self::PrimaryChanged { pod, .. } => Some(*pod),
            Self::Sql { .. }
            | Self::NotOwner { .. }
            | Self::Refused { .. }
            | Self::Diverged(_)
            | Self::Tampered { .. }
            | Self::SchemaChanged { .. }
            | Self::Binlog { .. }
            | Self::Bound(_)
            | Self::File { .. }
            | Self::Catalog(_)
            | Self::Servers(_)
            | Self::Waits(_)
            | Self::Ordered
            | Self::Stopped
            | Self::Unexpected(_) => None,
        }
    }

    /// Nobody was there. A server that cannot be understood is one, and may serve others.
    pub(crate) fn is_silence(&self) -> bool {
        if let Self::Lost { source, .. } = self {
            return matches!(source, Error::Io(IoError::Io(error)) if is_unreachable(error));
        }
        matches!(self, Self::Timeout { .. })
    }

    /// One sentence with its causes, as it stands in the move's record.
    pub(crate) fn brief(&self) -> String {
        shared::error::chain(self)
    }
}

fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::TimedOut
    )
}

/// A compare-and-swap that found something else: an order or another mover came in between, so the catalog is read again.
const fn of_catalog(error: &CatalogError) -> Verdict {
    match error {
        CatalogError::Stale(_) | CatalogError::NotFound { .. } => Verdict::TakeAnew,
        CatalogError::Conflict(_)
        | CatalogError::Taken { .. }
        | CatalogError::Unreconciled
        | CatalogError::Gone { .. }
        | CatalogError::Storage(_) => Verdict::Again,
        CatalogError::Invalid { .. } | CatalogError::Corrupt(_) => Verdict::Fail,
    }
}

impl From<CatalogError> for MoveError {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(error)
    }
}

impl From<PodStoreError> for MoveError {
    fn from(error: PodStoreError) -> Self {
        Self::Servers(error)
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::{DriverError, ServerError};

    use super::*;

    fn lost(source: Error) -> MoveError {
        let pod = PodId::new(2).unwrap();
        let doing = "connect";
        MoveError::Lost { pod, doing, source }
    }

    fn told(source: Error) -> String {
        lost(source).brief()
    }

    /// The driver's texts have those of their causes in them, on two levels.
    #[test]
    fn the_cause_of_a_lost_connection_is_told_once() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(
            told(Error::Io(IoError::Io(refused))),
            "pod 2: connect failed: Input/output error: Connection refused (os error 111)"
        );
        let read_only = ServerError {
            code: 1290,
            message: "the server is read only".to_owned(),
            state: "HY000".to_owned(),
        };
        assert_eq!(
            told(Error::Server(read_only)),
            "pod 2: connect failed: Server error: `ERROR 1290 (HY000): the server is read only'"
        );
        assert_eq!(
            told(Error::Driver(DriverError::ConnectionClosed)),
            "pod 2: connect failed: Driver error: `Connection to the server is closed.'"
        );
        let other = io::Error::other(io::Error::from_raw_os_error(104));
        assert_eq!(
            told(Error::Other(Box::new(other))),
            "pod 2: connect failed: Other error: Connection reset by peer (os error 104)"
        );
    }

    #[test]
    fn only_a_connection_that_is_not_made_is_silence() {
        for kind in [
            ErrorKind::ConnectionRefused,
            ErrorKind::HostUnreachable,
            ErrorKind::TimedOut,
        ] {
            let error = lost(Error::Io(IoError::Io(kind.into())));
            assert!(error.is_silence(), "{error}");
        }
        let denied = ServerError {
            code: 1045,
            message: "access denied".into(),
            state: "28000".into(),
        };
        for source in [
            Error::Server(denied),
            Error::Io(IoError::Io(ErrorKind::UnexpectedEof.into())),
            Error::Io(IoError::Io(ErrorKind::ConnectionReset.into())),
            Error::Io(IoError::Io(ErrorKind::InvalidData.into())),
            Error::Driver(DriverError::ConnectionClosed),
        ] {
            let error = lost(source);
            assert!(!error.is_silence(), "{error}");
            assert_eq!(error.away(), PodId::new(2).ok());
        }
        assert!(!MoveError::Stopped.is_silence());
    }
}
