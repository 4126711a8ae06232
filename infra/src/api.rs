//! What the control server and its clients say to each other: one set of types for both ends, so that neither can drift.
//!
//! Requests refuse unknown fields (a misspelt key must not be ignored); answers may gain fields.

use serde::{Deserialize, Serialize};
use shared::{Epoch, Handle, PlacementState, PodId, ShopId};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

mod moves;
mod operation;
mod pod;

pub use moves::{
    MOVE_EVENTS_FIRST, MOVE_EVENTS_MAX, MOVES_MAX, Move, MoveCheck, MoveEventRow, MoveEvents,
    MoveEventsQuery, MoveFinish, MoveList, MoveNew, MoveProgress, MoveQuery, MoveRecord,
    OBSERVE_MAX_MS, ParkReport, Pin, PinPut, ShopClear, ShopName, Stray, TableSize,
};
pub use operation::{Operation, OperationChange, OperationList, OperationNew, OperationState};
pub use pod::{
    Address, Endpoint, EndpointKind, EndpointRole, Pod, PodList, PodPut, PodStatus,
    PodStatusChange, PrimaryChange, Topology,
};

/// The most shops one page of [`ShopPage`] carries; more would make one answer slow and large.
pub const SHOP_PAGE_MAX: u32 = 500;

/// The longest name of a plan, a region, a pool, a class or a pod.
const WORD_LEN_MAX: usize = 40;

/// What such a name looks like: it stands in tables, logs and file names.
pub(crate) const WORD_RULE: &str = "1 to 40 of a-z, 0-9, '-', '_' and '.', a letter or digit first";

pub(crate) fn is_word(text: &str) -> bool {
    (1..=WORD_LEN_MAX).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b))
}

/// A shop, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shop {
    /// The tenant.
    #[schema(value_type = u64)]
    pub id: ShopId,
    /// Its short name.
    #[schema(value_type = String)]
    pub handle: Handle,
    /// What it pays for.
    pub plan: String,
    /// ISO 4217.
    pub currency: String,
    /// The region it is pinned to, if it is.
    pub region: Option<String>,
    /// `creating` until its first home and placement stand, then `active`.
    pub status: String,
    /// Every name that reaches it, `<handle>.<base_domain>` first.
    pub hosts: Vec<String>,
    /// Its pod.
    pub pod: PodName,
    /// The number of its placement.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// What an operator allows.
    #[schema(value_type = String)]
    pub state: PlacementState,
    /// The catalog's version at its last change.
    pub version: u64,
    /// The state of its latest move, if there was one.
    pub r#move: Option<String>,
    /// That move.
    #[serde(default)]
    pub move_id: Option<String>,
    /// The pod that an operator pinned it to.
    #[serde(default)]
    pub pinned: Option<PodName>,
    /// Why, for whoever wants to move it.
    #[serde(default)]
    pub pin_reason: Option<String>,
}

/// A pod by number and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PodName {
    /// The number.
    #[schema(value_type = u32)]
    pub id: PodId,
    /// The name.
    pub name: String,
}

/// `POST /v1/shops`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShopNew {
    /// The short name, unique in the fleet.
    pub handle: String,
    /// What it pays for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// ISO 4217; the default is the fleet's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Pins it to a region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// A pod by id or name; without it the bucket's pod, or the emptiest that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Further names that shall reach it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// The query of `GET /v1/shops`: a page begins after an id, so that a long list stays cheap at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ShopPageQuery {
    /// The last id of the page before.
    #[param(value_type = Option<u64>)]
    pub after: Option<ShopId>,
    /// At most [`SHOP_PAGE_MAX`].
    pub limit: Option<u32>,
}

/// `GET /v1/shops`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShopPage {
    /// By id.
    pub shops: Vec<Shop>,
    /// `after` of the next page; none at the end.
    #[schema(value_type = Option<u64>)]
    pub next: Option<ShopId>,
}

/// `PUT /v1/shops/{ref}/state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StateChange {
    /// The state wanted.
    #[schema(value_type = String)]
    pub state: PlacementState,
    /// For the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `GET /v1/shops/{ref}/history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Oldest first.
    pub events: Vec<PlacementEvent>,
}

/// One change of a placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementEvent {
    /// Grows by each event of the catalog.
    pub sequence: u64,
    /// The tenant.
    #[schema(value_type = u64)]
    pub shop: ShopId,
    /// The owner before; none for the first placement.
    #[schema(value_type = Option<u32>)]
    pub old_pod: Option<PodId>,
    /// The owner from then on.
    #[schema(value_type = Option<u32>)]
    pub new_pod: Option<PodId>,
    /// The epoch before.
    #[schema(value_type = Option<u64>)]
    pub old_epoch: Option<Epoch>,
    /// The epoch from then on.
    #[schema(value_type = Option<u64>)]
    pub new_epoch: Option<Epoch>,
    /// What an operator allowed from then on.
    #[schema(value_type = String)]
    pub state: PlacementState,
    /// Who did it.
    pub actor: String,
    /// Why, if somebody said so.
    pub reason: Option<String>,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
}

/// The query of `GET /v1/shops/{ref}/placement`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PlacementQuery {
    /// The instant, RFC 3339; without it, now.
    #[serde(default, with = "time::serde::rfc3339::option")]
    #[param(value_type = Option<String>)]
    pub at: Option<OffsetDateTime>,
}

/// `GET /v1/shops/{ref}/placement`: who owned the shop at that instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacementAt {
    /// The tenant.
    #[schema(value_type = u64)]
    pub shop: ShopId,
    /// The owner.
    pub pod: PodName,
    /// Under which number.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// What an operator allowed.
    #[schema(value_type = String)]
    pub state: PlacementState,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

/// `POST /v1/shops/{ref}/tokens`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenNew {
    /// What it is for, shown in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// A new merchant token: the only time its text is shown. No `Debug` of the text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    /// Names it in the list and for revoking.
    pub id: String,
    /// The text a merchant sends.
    pub token: String,
}

impl std::fmt::Debug for TokenMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, token: _ } = self;
        f.debug_struct("TokenMade")
            .field("id", id)
            .finish_non_exhaustive()
    }
}

/// `GET /v1/shops/{ref}/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// Newest first.
    pub tokens: Vec<Token>,
}

/// A merchant token without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its id.
    pub id: String,
    /// What it is for.
    pub label: String,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it stopped being good, if it did.
    #[serde(with = "time::serde::rfc3339::option")]
    pub revoked_at: Option<OffsetDateTime>,
}

/// `GET /v1/status`: the control server about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Of the catalog; another one means that it was restored.
    pub incarnation: u64,
    /// The catalog's last change that an edge may see.
    pub version: u64,
    /// The last change that an edge must show: later ones touch no route.
    #[serde(default)]
    pub routes_version: u64,
    /// The domain under which each shop has `<handle>.<base_domain>`.
    pub base_domain: String,
    /// Pods known.
    pub pods: u64,
    /// Shops known.
    pub shops: u64,
    /// Operations that are neither done nor failed.
    pub open_operations: u64,
    /// How the buckets of shop ids are shared out.
    pub buckets: Vec<BucketShare>,
    /// Whether the catalog's epochs can be trusted; `false` after a restore.
    pub reconciled: bool,
    /// The primaries of all pods.
    pub primaries: Vec<PrimaryStatus>,
}

/// What the control server last saw of a pod's primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PrimaryStatus {
    /// The pod.
    #[schema(value_type = u32)]
    pub pod: PodId,
    /// `host:port`, if the catalog names one.
    pub address: Option<String>,
    /// Its number in the catalog.
    pub term: u64,
    /// Whether it takes writes.
    pub state: PrimaryState,
    /// Why it does not.
    pub reason: Option<String>,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

/// Whether a primary takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PrimaryState {
    /// It does.
    Open,
    /// It lives and does not.
    Closed,
    /// It cannot be reached.
    Unknown,
}

/// How many of the 1024 buckets propose a pod for their new shops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BucketShare {
    /// The pod; none counts the buckets that propose nobody.
    #[schema(value_type = Option<u32>)]
    pub pod: Option<PodId>,
    /// Buckets whose new shops go there now.
    pub live: u32,
    /// Buckets whose new shops are to go there.
    pub planned: u32,
}
