//! Moves on the wire: what an operator orders, and what a move says of itself.

use serde::{Deserialize, Serialize};
use shared::moves::{MoveId, MoveState};
use shared::{Epoch, Handle, ShopId};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

use super::PodName;
use crate::mover::ProgressNow;

/// The most moves in one answer.
pub const MOVES_MAX: u32 = 500;

/// The most events of a move that are kept, and so in one answer: a move that gets on has some twenty, one whose fences all
/// miss a hundred.
pub const MOVE_EVENTS_MAX: u32 = 500;
/// Of them the first ones: how it began is asked for when it ends badly.
pub const MOVE_EVENTS_FIRST: u32 = 100;

/// The longest time of observation: the source's copy takes its room all that while, and a forgotten move bars the next.
pub const OBSERVE_MAX_MS: u64 = 30 * 24 * 3600 * 1000;

/// A shop by number and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShopName {
    /// The number.
    #[schema(value_type = u64)]
    pub id: ShopId,
    /// The name.
    #[schema(value_type = String)]
    pub handle: Handle,
}

/// A move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Move {
    /// UUID; ids sort by age.
    #[schema(value_type = String)]
    pub id: MoveId,
    /// The shop that moves.
    pub shop: ShopName,
    /// Where it was.
    pub source: PodName,
    /// Where it goes.
    pub target: PodName,
    /// The epoch at the source.
    #[schema(value_type = u64)]
    pub source_epoch: Epoch,
    /// The epoch reserved for the target.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Where it stands.
    #[schema(value_type = String)]
    pub state: MoveState,
    /// Whether the shop is taken by it.
    pub open: bool,
    /// How often a mover took it up.
    pub owner: u64,
    /// Why, if somebody said so.
    pub reason: Option<String>,
    /// How long the source's copy is kept after the hand-over.
    pub observe_ms: u64,
    /// The move that this one takes back.
    #[schema(value_type = Option<String>)]
    pub back_of: Option<MoveId>,
    /// The move that took this one back: the shop is where that one brought it.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub taken_back_by: Option<MoveId>,
    /// What it waits for, if it does.
    pub waits: Option<String>,
    /// Why it failed, or why its last try did.
    pub error: Option<String>,
    /// What it took.
    pub record: MoveRecord,
    /// Changes at the source after its fence, which nobody should have made; the first hundred. Of rows that are cleared:
    /// changes at the target since the order.
    pub strays: Vec<Stray>,
    /// How many there are.
    #[serde(default)]
    pub strays_total: u64,
    /// Its source is gone for good: it ends without it.
    #[serde(default)]
    pub source_gone: bool,
    /// It is no move: rows of the shop that no move made are cleared at its target. It was over before it began, and what it
    /// left is what is still to be deleted.
    #[serde(default)]
    pub clears: bool,
    /// Since when a copy that it left waits to be deleted: at the target after an abort, at a source that was gone.
    #[serde(with = "time::serde::rfc3339::option")]
    pub leftover_since: Option<OffsetDateTime>,
    /// Who ordered it.
    pub actor: String,
    /// When it was ordered.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When its row last changed.
    #[serde(with = "time::serde::rfc3339")]
    pub changed_at: OffsetDateTime,
    /// Since when it is in its state.
    #[serde(with = "time::serde::rfc3339")]
    pub state_since: OffsetDateTime,
    /// Events of it that are not kept any more: of a move that has very many the first hundred are kept, and the last ones.
    #[serde(default)]
    pub events_left_out: u64,
    /// What its mover is doing, where this control server drives it.
    pub progress: Option<MoveProgress>,
}

impl Move {
    /// How many strays there are.
    pub fn strays_told(&self) -> u64 {
        self.strays_total.max(self.strays.len() as u64)
    }
}

/// What a move took: kept with it for ever.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MoveRecord {
    /// From the fence at the source to the first moment at which the target takes writes.
    pub fence_ms: Option<u64>,
    /// Writes that the fence waited for.
    pub writes_in_flight: Option<u64>,
    /// How long the fence waited for them.
    pub drain_ms: Option<u64>,
    /// Of those, the ones that held the shop's home for longer than a write may take, and were ended.
    pub writes_ended: u64,
    /// Keys applied inside the fence.
    pub tail_keys: Option<u64>,
    /// Fences tried since the move was last resumed; all but the last one were lifted.
    pub fence_tries: u32,
    /// Requests that the edges parked for it.
    pub requests_parked: Option<u64>,
    /// The longest of them.
    pub longest_park_ms: Option<u64>,
    /// Requests that came to the source after the hand-over, by edges that had not heard of it, and went on from there.
    /// About: what an edge had not told when it was killed is in no record, and what it told without hearing the answer may
    /// be counted twice.
    pub late_arrivals: u64,
    /// Rows that there were to copy, as it was estimated before.
    pub expected_rows: u64,
    /// Bytes of those.
    pub expected_bytes: u64,
    /// Rows copied in chunks.
    pub copied_rows: u64,
    /// Bytes of those.
    pub copied_bytes: u64,
    /// Changed keys made equal.
    pub applied_keys: u64,
    /// Rows that were compared.
    pub compared_rows: u64,
    /// Rows that differed with no change on its way, and were put in order.
    pub repaired_rows: u64,
    /// Rows deleted at the source at the end.
    pub deleted_rows: u64,
    /// Where the dump of the source's rows is, or of those that were cleared, until it is pruned.
    pub dump: Option<String>,
    /// Where the dump is of what a source had that was gone for good and came back, until it is pruned.
    pub gone_dump: Option<String>,
    /// Where the dump is of what a move back found at its target, where it was undone or begun anew, until it is pruned.
    pub back_dump: Option<String>,
}

/// A change of the shop's rows at the source after its fence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stray {
    /// The table.
    pub table: String,
    /// The transaction.
    pub gtid: String,
    /// When it was committed, in ms since 1970, by the source's clock.
    pub at_ms: u64,
}

/// What a mover is doing just now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MoveProgress {
    /// Its counters.
    #[serde(flatten)]
    pub now: ProgressNow,
    /// Rows a second, over the last seconds.
    pub rows_per_s: u64,
    /// Bytes a second, over the last seconds.
    pub bytes_per_s: u64,
    /// Until the copy is whole, at that rate; none where that cannot be said.
    pub seconds_left: Option<u64>,
    /// What holds the work back just now: a replica, a primary, a disk.
    pub held_back_by: Option<String>,
}

/// `POST /v1/moves` and `POST /v1/moves/check`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveNew {
    /// The shop: an id, a handle or a host.
    pub shop: String,
    /// The pod it goes to: an id or a name.
    pub to: String,
    /// For the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long the source's copy is kept after the hand-over; without it, `moves.observe` of `fleet.toml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe_ms: Option<u64>,
    /// Of a move back: also over so many changes of the copy there that nobody should have made (`strays_total` of the move
    /// that it takes back), which it undoes, and no dump has. Refused where there are more or fewer by now.
    #[serde(default)]
    pub despite_strays: u64,
}

/// `POST /v1/shops/{ref}/clear`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShopClear {
    /// The pod whose rows of the shop are dumped and deleted, by id or name. It must not own the shop.
    pub at: String,
    /// For whoever asks why they are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST /v1/parks`: what an edge parked for a shop, told once its requests have gone on, or how many it sent to the shop's
/// former pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ParkReport {
    /// The shop.
    #[schema(value_type = u64)]
    pub shop: ShopId,
    /// The epoch at which they went on.
    #[schema(value_type = u64)]
    pub epoch: Epoch,
    /// Requests that were parked.
    #[serde(default)]
    pub parked: u64,
    /// How long the longest of them was.
    #[serde(default)]
    pub longest_ms: u64,
    /// Requests that came to the pod which had handed the shop over under this epoch.
    #[serde(default)]
    pub late: u64,
}

/// The query of `GET /v1/moves`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct MoveQuery {
    /// Only those of this shop: an id, a handle or a host.
    pub shop: Option<String>,
    /// Only those from or to this pod: an id or a name.
    pub pod: Option<String>,
    /// Only those that are open, or only those that are over.
    pub open: Option<bool>,
    /// At most [`MOVES_MAX`].
    pub limit: Option<u32>,
}

/// `GET /v1/moves`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveList {
    /// Open ones first, then the newest.
    pub moves: Vec<Move>,
}

/// `POST /v1/moves/{ref}/finish`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveFinish {
    /// Delete the source's copy although it was changed after the fence so many times (`strays_total`): what was changed
    /// there is in the dump, and lost to the shop. Refused where there are more or fewer by now; a later one stops it again.
    #[serde(default)]
    pub despite_strays: u64,
    /// The source is gone for good: the move ends without it. Refused while the target does not own the shop, and while a
    /// server of the source answers.
    #[serde(default)]
    pub source_gone: bool,
}

/// Something that happened to a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveEventRow {
    /// Grows by each event of the catalog.
    pub sequence: u64,
    /// The state from then on.
    #[schema(value_type = String)]
    pub state: MoveState,
    /// Which takeover did it.
    pub owner: u64,
    /// Who did it.
    pub actor: String,
    /// More about it.
    pub note: Option<String>,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
}

/// The query of `GET /v1/moves/{ref}/events`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct MoveEventsQuery {
    /// Only later ones than this sequence.
    #[serde(default)]
    pub after: u64,
    /// How long to wait for one, in milliseconds; at most, and without it, `limits.wait_max`.
    pub wait_ms: Option<u64>,
    /// The last so many instead, whatever `after` says, and at once.
    pub last: Option<u32>,
}

/// `GET /v1/moves/{ref}/events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveEvents {
    /// Oldest first; empty where nothing happened while the request waited.
    pub events: Vec<MoveEventRow>,
    /// `after` of the next request.
    pub next: u64,
    /// With `last`: how many came before these, those that are not kept any more among them.
    #[serde(default)]
    pub before: u64,
    /// The move as it stands, with its progress.
    pub r#move: Move,
}

/// `POST /v1/moves/check`: what a move would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveCheck {
    /// Whether it would take an earlier move back: nothing is copied then that is there already.
    pub back: bool,
    /// Changes of the copy there that nobody should have made (strays), which a move back would undo.
    #[serde(default)]
    pub strays: u64,
    /// The shop's tables.
    pub tables: Vec<TableSize>,
    /// Rows of all.
    pub rows: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Until the shop can change hands, as far as that can be said.
    pub seconds: u64,
    /// The same where shops of either pod write all the while (`nice_ratio`).
    #[serde(default)]
    pub seconds_beside_shops: u64,
}

/// What one table holds of the shop, by the server's estimate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableSize {
    /// The table.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

/// `PUT /v1/shops/{ref}/pin`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinPut {
    /// The pod, by id or name; without it, where the shop is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// For whoever wants to move it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A pin: no move takes the shop elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pin {
    /// The shop.
    pub shop: ShopName,
    /// The pod that it may be at.
    pub pod: PodName,
    /// Why, if somebody said so.
    pub reason: Option<String>,
    /// Who pinned it.
    pub actor: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}
