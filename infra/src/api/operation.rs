//! Operations on the wire: work of several steps that is finished or undone after a crash.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OperationState {
    /// Begun and not ended: whoever did it may be gone.
    Running,
    /// All steps done.
    Done,
    /// Given up, with its reason.
    Failed,
}

impl OperationState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Running, Self::Done, Self::Failed];

    /// The word in SQL and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// UUID, given by whoever began it.
    pub id: String,
    /// `shop-create`, `shop-freeze`, `apply`, ...
    pub kind: String,
    /// What it is about: a handle, a pod's name.
    pub subject: String,
    /// How far it is.
    pub state: OperationState,
    /// The step it does now or did last.
    pub step: Option<String>,
    /// What it needs to go on after a crash. No secrets.
    pub detail: serde_json::Value,
    /// Why it failed, or why its last try did.
    pub error: Option<String>,
    /// Who began it.
    pub actor: String,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it last changed.
    #[serde(with = "time::serde::rfc3339")]
    pub changed_at: OffsetDateTime,
}

/// `GET /v1/operations`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    /// Unfinished ones first, then the newest.
    pub operations: Vec<Operation>,
}

/// `POST /v1/operations`: the same id again is the same operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationNew {
    /// UUID.
    pub id: String,
    /// The kind.
    pub kind: String,
    /// What it is about.
    pub subject: String,
    /// What it needs to go on after a crash. No secrets.
    #[serde(default)]
    pub detail: serde_json::Value,
}

/// `PATCH /v1/operations/{id}`: what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationChange {
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<OperationState>,
    /// The step it does now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What it needs to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<serde_json::Value>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
