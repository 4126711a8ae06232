//! Pods and their servers on the wire.

use serde::{Deserialize, Serialize};
use shared::PodId;
pub use shared::routes::wire::PodStatus;
use utoipa::ToSchema;

/// What speaks at an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EndpointKind {
    /// A pod process.
    Http,
    /// A database server.
    Mysql,
    /// A cache.
    Redis,
}

impl EndpointKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Http, Self::Mysql, Self::Redis];

    /// The word in SQL and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Mysql => "mysql",
            Self::Redis => "redis",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.as_str() == word)
    }
}

/// What an endpoint is to its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EndpointRole {
    /// The database server that takes writes.
    Primary,
    /// A database server that follows it.
    Replica,
    /// An application process.
    Process,
    /// The cache.
    Cache,
}

impl EndpointRole {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Primary, Self::Replica, Self::Process, Self::Cache];

    /// The word in SQL and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Process => "process",
            Self::Cache => "cache",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == word)
    }
}

/// One server or process of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// What speaks there.
    pub kind: EndpointKind,
    /// What it is to the pod.
    pub role: EndpointRole,
    /// `host:port`.
    pub address: String,
    /// A socket file on the same machine, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Where the password is: `file:<path>`, `env:<name>` or `command:<line>`; never the password itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A pod, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pod {
    /// The number.
    #[schema(value_type = u32)]
    pub id: PodId,
    /// The name.
    pub name: String,
    /// Where it is.
    pub region: String,
    /// The budget it draws on.
    pub pool: String,
    /// How large it is.
    pub class: String,
    /// How many shops it takes.
    pub max_shops: u64,
    /// Whether it takes any.
    #[schema(value_type = String)]
    pub status: PodStatus,
    /// How many it has.
    pub shops: u64,
    /// The number of its primary.
    pub term: u64,
    /// The catalog's version at its last change.
    pub version: u64,
    /// Its servers and processes.
    pub endpoints: Vec<Endpoint>,
}

/// `GET /v1/pods`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PodList {
    /// By id.
    pub pods: Vec<Pod>,
}

/// `PUT /v1/pods/{id}`: the whole pod as apply wants it; the same again changes nothing. `primary` and `term` of a pod
/// that exists are not touched by it: they have their own compare-and-swap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PodPut {
    /// The name.
    pub name: String,
    /// Where it is.
    pub region: String,
    /// The budget it draws on.
    pub pool: String,
    /// How large it is.
    pub class: String,
    /// How many shops it takes.
    pub max_shops: u64,
    /// Whether it takes any.
    #[schema(value_type = String)]
    pub status: PodStatus,
    /// Its servers and processes.
    pub endpoints: Vec<Endpoint>,
}

/// `POST /v1/pods/{ref}/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PodStatusChange {
    /// The status wanted.
    #[schema(value_type = String)]
    pub status: PodStatus,
    /// For the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Address {
    /// Name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// `GET /v1/pods/{ref}/topology`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Topology {
    /// The catalog's version of the pod.
    pub version: u64,
    /// The pod.
    #[schema(value_type = u32)]
    pub pod: PodId,
    /// The number of its primary.
    pub term: u64,
    /// Who takes writes, if anybody is named.
    pub primary: Option<Address>,
    /// Who follows.
    pub replicas: Vec<Address>,
    /// The cache.
    pub redis: Option<String>,
}

/// `PUT /v1/pods/{ref}/primary`: compare-and-swap of who is primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PrimaryChange {
    /// `host:port` of a replica that the catalog lists.
    pub address: String,
    /// The term it must have just now; the new one is the next.
    pub term: u64,
}
