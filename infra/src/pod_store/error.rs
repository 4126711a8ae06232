//! Why a step at a pod's database did not happen.

use shared::PodId;
use shared::error::{Classify, Kind};

use crate::catalog::CatalogError;

/// MySQL's numbers for "read only" (`--read-only`, read-only transaction or mode) and "offline mode".
const READ_ONLY: [u16; 3] = [1290, 1792, 3032];
/// MySQL's numbers for a row or table that stayed locked, and for a deadlock.
const LOCKED: [u16; 3] = [1205, 1213, 3572];

/// Why a step at a pod did not happen, or may not have happened: [`Self::unknown`] tells the two apart.
#[derive(Debug, thiserror::Error)]
pub enum PodStoreError {
    /// The catalog could not say where the pod is.
    #[error("the catalog failed")]
    Catalog(#[source] CatalogError),
    /// The catalog lists no primary.
    #[error("pod {pod} has no primary in the catalog; register one (podctl apply)")]
    NoPrimary {
        /// Which pod.
        pod: PodId,
    },
    /// The password could not be read.
    #[error("the database password of pod {pod} cannot be read: {text}")]
    Secret {
        /// Which pod.
        pod: PodId,
        /// Never any of the secret.
        text: String,
    },
    /// No connection; without a source the time was up.
    #[error("the database of pod {pod} at {address} cannot be reached")]
    Unreachable {
        /// Which pod.
        pod: PodId,
        /// Its primary.
        address: String,
        /// What the driver said.
        source: Option<sqlx::Error>,
    },
    /// Another step is under way there.
    #[error("other steps at pod {pod} have not ended in time")]
    Busy {
        /// Which pod.
        pod: PodId,
    },
    /// The session's deadline.
    #[error("the database of pod {pod} at {address} did not answer in time")]
    Timeout {
        /// Which pod.
        pod: PodId,
        /// Its primary.
        address: String,
    },
    /// The connection broke while an answer was waited for.
    #[error("the connection to the database of pod {pod} at {address} broke")]
    Broken {
        /// Which pod.
        pod: PodId,
        /// The server.
        address: String,
        /// What the driver said.
        source: sqlx::Error,
    },
    /// A statement failed.
    #[error("the database of pod {pod} at {address} refused a statement")]
    Statement {
        /// Which pod.
        pod: PodId,
        /// Its primary.
        address: String,
        /// What it said.
        source: sqlx::Error,
    },
    /// Not provisioned.
    #[error("the database at {address} has no identity: pod {pod} is not provisioned")]
    NoIdentity {
        /// Which pod.
        pod: PodId,
        /// Its primary.
        address: String,
    },
    /// The wrong server.
    #[error("the database at {address} is pod {found}'s, not pod {pod}'s")]
    OtherPod {
        /// Which pod was meant.
        pod: PodId,
        /// Whose it is.
        found: u32,
        /// Where.
        address: String,
    },
    /// The primary is not open.
    #[error("the primary of pod {pod} at {address} is not open for writes")]
    Closed {
        /// Which pod.
        pod: PodId,
        /// Its primary.
        address: String,
    },
    /// The home does not allow it.
    #[error("{0}")]
    Home(String),
}

impl PodStoreError {
    /// What an answer to a statement means when there is none.
    pub(super) fn of_statement(pod: PodId, address: String, source: sqlx::Error) -> Self {
        if source.as_database_error().is_some() {
            Self::Statement {
                pod,
                address,
                source,
            }
        } else {
            Self::Broken {
                pod,
                address,
                source,
            }
        }
    }

    /// What happened and why, in one sentence: the driver's own text repeats its causes.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Unreachable {
                source: Some(source),
                ..
            }
            | Self::Broken { source, .. }
            | Self::Statement { source, .. } => format!("{self}: {source}"),
            Self::Unreachable { source: None, .. } => format!("{self}: it did not answer in time"),
            Self::Catalog(error) => shared::error::chain(error),
            Self::NoPrimary { .. }
            | Self::Secret { .. }
            | Self::Busy { .. }
            | Self::Timeout { .. }
            | Self::NoIdentity { .. }
            | Self::OtherPod { .. }
            | Self::Closed { .. }
            | Self::Home(_) => self.to_string(),
        }
    }

    /// Whether the step may have happened after all: the answer to a statement is missing.
    pub fn unknown(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Broken { .. } => true,
            Self::Statement { .. }
            | Self::Catalog(_)
            | Self::NoPrimary { .. }
            | Self::Secret { .. }
            | Self::Unreachable { .. }
            | Self::Busy { .. }
            | Self::NoIdentity { .. }
            | Self::OtherPod { .. }
            | Self::Closed { .. }
            | Self::Home(_) => false,
        }
    }

    /// Whether the same step may go through later, without anybody mending something by hand.
    pub fn passes(&self) -> bool {
        matches!(
            self.kind(),
            Kind::Unavailable | Kind::Overloaded | Kind::Timeout
        )
    }

    fn number(&self) -> Option<u16> {
        match self {
            Self::Statement { source, .. } => crate::migrate::mysql_number(source),
            Self::Catalog(_)
            | Self::NoPrimary { .. }
            | Self::Secret { .. }
            | Self::Unreachable { .. }
            | Self::Busy { .. }
            | Self::Timeout { .. }
            | Self::Broken { .. }
            | Self::NoIdentity { .. }
            | Self::OtherPod { .. }
            | Self::Closed { .. }
            | Self::Home(_) => None,
        }
    }
}

impl Classify for PodStoreError {
    fn kind(&self) -> Kind {
        match self {
            Self::Catalog(error) => error.kind(),
            Self::Busy { .. } => Kind::Overloaded,
            Self::Home(_) => Kind::Conflict,
            Self::Secret { .. }
            | Self::NoPrimary { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Broken { .. }
            | Self::Closed { .. }
            | Self::NoIdentity { .. }
            | Self::OtherPod { .. } => Kind::Unavailable,
            Self::Statement { .. } => match self.number() {
                Some(number) if READ_ONLY.contains(&number) || LOCKED.contains(&number) => {
                    Kind::Unavailable
                }
                Some(_) | None => Kind::Internal,
            },
        }
    }

    fn client_text(&self) -> Option<String> {
        match self {
            Self::Catalog(error) => error.client_text(),
            Self::Statement { source, .. } => {
                // What the server says of its own state helps an operator; statements are not in it.
                let said = source.as_database_error()?.message().to_owned();
                Some(format!("{self}: {said}"))
            }
            Self::NoPrimary { .. }
            | Self::Secret { .. }
            | Self::Unreachable { .. }
            | Self::Busy { .. }
            | Self::Timeout { .. }
            | Self::Broken { .. }
            | Self::NoIdentity { .. }
            | Self::OtherPod { .. }
            | Self::Closed { .. }
            | Self::Home(_) => Some(self.to_string()),
        }
    }
}
