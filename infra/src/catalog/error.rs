//! What a catalog call can end with. `Display` is for the log; what a client reads is [`Classify::client_text`].

use shared::error::{Classify, Kind};

/// SQLite's primary result codes (sqlite.org/rescode.html): the low byte of what sqlx reports.
mod sqlite_code {
    pub(super) const BUSY: u32 = 5;
    pub(super) const READONLY: u32 = 8;
    pub(super) const IOERR: u32 = 10;
    pub(super) const CORRUPT: u32 = 11;
    pub(super) const FULL: u32 = 13;
    pub(super) const CANTOPEN: u32 = 14;
    pub(super) const NOTADB: u32 = 26;
}

/// Why the catalog did not do what was asked. Nothing was changed, whatever the reason.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// Not in the catalog.
    #[error("there is no {what} {name:?}")]
    NotFound {
        /// `shop`, `pod`, ...
        what: &'static str,
        /// As it was asked for.
        name: String,
    },
    /// A value that cannot be.
    #[error("{field}: {reason}")]
    Invalid {
        /// The field of the request.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A name that somebody has.
    #[error("{field} {name:?} is taken by {holder}")]
    Taken {
        /// The field of the request.
        field: &'static str,
        /// The name.
        name: String,
        /// Who has it.
        holder: String,
    },
    /// A compare-and-swap that found something else than it was told.
    #[error("{0} has changed meanwhile")]
    Stale(String),
    /// Something that does not fit the state of things; the text says the way out.
    #[error("{0}")]
    Conflict(String),
    /// A restored catalog that has not been compared with the pods' homes.
    #[error("the catalog was restored and is not reconciled: it makes and moves no shops")]
    Unreconciled,
    /// Changes cannot be told from there.
    #[error("changes after {after} of incarnation {incarnation} are not known here")]
    Gone {
        /// As it was asked for.
        incarnation: u64,
        /// As it was asked for.
        after: u64,
    },
    /// A row that this code cannot have written.
    #[error("the catalog holds a value it should not: {0}")]
    Corrupt(String),
    /// The store failed.
    #[error("the catalog's store failed")]
    Storage(#[source] sqlx::Error),
}

impl From<sqlx::Error> for CatalogError {
    fn from(error: sqlx::Error) -> Self {
        Self::Storage(error)
    }
}

impl CatalogError {
    pub(crate) fn not_found(what: &'static str, name: &dyn std::fmt::Display) -> Self {
        Self::NotFound {
            what,
            name: name.to_string().chars().take(80).collect(),
        }
    }

    pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            field,
            reason: reason.into(),
        }
    }

    /// The field of the request at fault, if one is.
    pub fn field(&self) -> Option<&'static str> {
        match self {
            Self::Invalid { field, .. } | Self::Taken { field, .. } => Some(field),
            Self::NotFound { .. }
            | Self::Stale(_)
            | Self::Conflict(_)
            | Self::Unreconciled
            | Self::Gone { .. }
            | Self::Corrupt(_)
            | Self::Storage(_) => None,
        }
    }
}

impl Classify for CatalogError {
    fn kind(&self) -> Kind {
        match self {
            Self::NotFound { .. } => Kind::NotFound,
            Self::Invalid { .. } => Kind::Invalid,
            Self::Taken { .. } | Self::Stale(_) | Self::Conflict(_) => Kind::Conflict,
            Self::Gone { .. } => Kind::Gone,
            Self::Unreconciled => Kind::Unavailable,
            Self::Corrupt(_) => Kind::Internal,
            Self::Storage(error) => storage_kind(error),
        }
    }

    fn client_text(&self) -> Option<String> {
        match self {
            Self::Storage(error) => storage_text(error).map(str::to_owned),
            Self::Unreconciled => Some(self.to_string()),
            Self::Stale(_) => Some(format!("{self}; look at it again and repeat the request")),
            Self::Gone { .. } => Some(format!("{self}; take the full table")),
            Self::Corrupt(_) => None,
            // The field stands beside it.
            Self::Invalid { field: _, reason } => Some(reason.clone()),
            Self::NotFound { .. } | Self::Taken { .. } | Self::Conflict(_) => {
                Some(self.to_string())
            }
        }
    }
}

fn storage_kind(error: &sqlx::Error) -> Kind {
    if matches!(error, sqlx::Error::PoolTimedOut) {
        Kind::Overloaded
    } else if storage_text(error).is_some() {
        Kind::Unavailable
    } else {
        Kind::Internal
    }
}

/// A sentence for what an operator can mend, by SQLite's code.
fn storage_text(error: &sqlx::Error) -> Option<&'static str> {
    if matches!(error, sqlx::Error::PoolTimedOut) {
        return Some("the catalog has too much to do just now; nothing was changed");
    }
    let code: u32 = error.as_database_error()?.code()?.parse().ok()?;
    match code & 0xff {
        sqlite_code::FULL => Some(
            "the catalog cannot write: its disk is full; nothing was changed. Make room, then repeat the request",
        ),
        sqlite_code::IOERR => Some(
            "the catalog cannot read or write its file (I/O error); nothing was changed. Look at the disk",
        ),
        sqlite_code::READONLY => {
            Some("the catalog's file or its folder is not writable; nothing was changed")
        }
        sqlite_code::BUSY => {
            Some("the catalog's file is locked by another program; nothing was changed")
        }
        sqlite_code::CANTOPEN => Some("the catalog's file cannot be opened"),
        sqlite_code::CORRUPT | sqlite_code::NOTADB => {
            Some("the catalog's file is damaged; put a whole copy of it in its place")
        }
        _ => None,
    }
}
