//! Placements: one compare-and-swap changes one, an event in the same transaction says who did it and why.

use shared::{Epoch, PlacementState, PodId, ShopId};
use sqlx::SqliteConnection;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::shops::ShopRef;
use super::{
    Catalog, CatalogError, Change, epoch, instant, pod_id, shop_id, signed, unsigned, word,
};
use crate::api::{PlacementAt, PlacementEvent, PodName};

/// The newest events that one answer carries: a shop that moves daily fills it in years.
pub const HISTORY_MAX: u32 = 1000;

/// A placement at a version: what a compare-and-swap expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacementRow {
    /// The tenant.
    pub shop: ShopId,
    /// Its owner.
    pub pod: PodId,
    /// Under which number.
    pub epoch: Epoch,
    /// What an operator allows.
    pub state: PlacementState,
    /// Its last change.
    pub version: u64,
}

/// One event to be written.
pub(super) struct Event<'a> {
    pub(super) shop: ShopId,
    pub(super) old: Option<(PodId, Epoch)>,
    pub(super) new: Option<(PodId, Epoch)>,
    pub(super) state: &'a str,
    pub(super) reason: Option<&'a str>,
    pub(super) version: i64,
}

impl Catalog {
    /// The placement of a shop.
    pub async fn placement(&self, shop: ShopId) -> Result<PlacementRow, CatalogError> {
        let mut conn = self.read.acquire().await?;
        find(&mut conn, shop).await
    }

    /// Sets the state if the placement is still the one told, and gives the new placement.
    pub async fn swap_state(
        &self,
        actor: &str,
        expected: &PlacementRow,
        state: PlacementState,
        reason: Option<&str>,
    ) -> Result<PlacementRow, CatalogError> {
        let mut change = self.change(actor).await?;
        let placed = swap_state(&mut change, expected, state, reason).await?;
        change.commit().await?;
        Ok(placed)
    }

    /// What happened to a shop's placement, oldest first, the newest [`HISTORY_MAX`].
    pub async fn history(&self, reference: &ShopRef) -> Result<Vec<PlacementEvent>, CatalogError> {
        let mut view = self.snapshot().await?;
        let shop = self.resolve(&mut view, reference).await?;
        let mut rows: Vec<EventRow> = sqlx::query_as(
            "select sequence, shop, old_pod, new_pod, old_epoch, new_epoch, state, actor, reason, at_ms \
             from placement_event where shop = $1 order by at_ms desc, sequence desc limit $2",
        )
        .bind(shop)
        .bind(i64::from(HISTORY_MAX))
        .fetch_all(&mut *view)
        .await?;
        rows.reverse();
        rows.into_iter()
            .filter(|row| row.state != REMOVED)
            .map(EventRow::into_api)
            .collect()
    }

    /// Who owned a shop at an instant; nobody before it was made and after it was removed.
    pub async fn placement_at(
        &self,
        reference: &ShopRef,
        at: OffsetDateTime,
    ) -> Result<PlacementAt, CatalogError> {
        let mut view = self.snapshot().await?;
        let shop = self.resolve(&mut view, reference).await?;
        let at_ms = i64::try_from(at.unix_timestamp_nanos().div_euclid(1_000_000))
            .map_err(|_| CatalogError::invalid("at", "it is not an instant of this era"))?;
        let row: Option<OwnerRow> = sqlx::query_as(
            "select e.new_pod as pod, d.name, e.new_epoch as epoch, e.state, e.at_ms from placement_event e \
             left join pod d on d.id = e.new_pod where e.shop = $1 and e.at_ms <= $2 \
             order by e.at_ms desc, e.sequence desc limit 1",
        )
        .bind(shop)
        .bind(at_ms)
        .fetch_optional(&mut *view)
        .await?;
        let Some(OwnerRow {
            pod: Some(pod),
            name,
            epoch: Some(raw_epoch),
            state,
            at_ms,
        }) = row
        else {
            let at = at.format(&Rfc3339).unwrap_or_default();
            return Err(CatalogError::not_found("owner of that shop yet at", &at));
        };
        Ok(PlacementAt {
            shop: shop_id(shop)?,
            pod: PodName {
                id: pod_id(pod)?,
                name: name.unwrap_or_default(),
            },
            epoch: epoch(raw_epoch)?,
            state: word(PlacementState::parse(&state), &state)?,
            since: instant(at_ms)?,
        })
    }

    /// Takes a shop out of the catalog: edges forget it, its names are free, its history stays. Its rows and its home at
    /// the pod are the caller's to take away first.
    pub async fn remove_shop(
        &self,
        actor: &str,
        expected: &PlacementRow,
        reason: Option<&str>,
    ) -> Result<(), CatalogError> {
        let PlacementRow {
            shop,
            pod,
            epoch,
            state: _,
            version,
        } = *expected;
        let mut change = self.change(actor).await?;
        let id = signed(shop.get());
        let next = change.next_version().await?;
        let removed = sqlx::query(
            "delete from placement where shop = $1 and pod = $2 and epoch = $3 and version = $4",
        )
        .bind(id)
        .bind(i64::from(pod.get()))
        .bind(signed(epoch.get()))
        .bind(signed(version))
        .execute(change.conn())
        .await?
        .rows_affected();
        if removed == 0 {
            return Err(stale(shop));
        }
        for statement in [
            "delete from shop_host where shop = $1",
            "delete from claim where shop = $1",
            "update shop set status = 'removed' where id = $1",
        ] {
            sqlx::query(statement)
                .bind(id)
                .execute(change.conn())
                .await?;
        }
        let at_ms = change.at_ms;
        sqlx::query("insert into shop_tombstone (version, shop, at_ms) values ($1, $2, $3)")
            .bind(next)
            .bind(id)
            .bind(at_ms)
            .execute(change.conn())
            .await?;
        let old = Some((pod, epoch));
        let event = Event {
            shop,
            old,
            new: None,
            state: REMOVED,
            reason,
            version: next,
        };
        append_event(&mut change, event).await?;
        change.commit().await
    }

    /// The id of a shop, one that was removed too if it is named by its id.
    async fn resolve(
        &self,
        conn: &mut SqliteConnection,
        reference: &ShopRef,
    ) -> Result<i64, CatalogError> {
        if let ShopRef::Id(id) = reference {
            let known: Option<i64> = sqlx::query_scalar(
                "select shop from placement_event where shop = $1 order by at_ms limit 1",
            )
            .bind(signed(id.get()))
            .fetch_optional(conn)
            .await?;
            return known.ok_or_else(|| CatalogError::not_found("shop", id));
        }
        let shop = super::shops::find(conn, reference, &self.domains).await?;
        Ok(signed(shop.id.get()))
    }
}

/// The word of a removal in the history.
const REMOVED: &str = "removed";

/// The last event of a shop up to an instant; a removal has neither pod nor epoch.
#[derive(Debug, sqlx::FromRow)]
struct OwnerRow {
    pod: Option<i64>,
    name: Option<String>,
    epoch: Option<i64>,
    state: String,
    at_ms: i64,
}

#[derive(Debug, sqlx::FromRow)]
struct EventRow {
    sequence: i64,
    shop: i64,
    old_pod: Option<i64>,
    new_pod: Option<i64>,
    old_epoch: Option<i64>,
    new_epoch: Option<i64>,
    state: String,
    actor: String,
    reason: Option<String>,
    at_ms: i64,
}

impl EventRow {
    fn into_api(self) -> Result<PlacementEvent, CatalogError> {
        let Self {
            sequence,
            shop,
            old_pod,
            new_pod,
            old_epoch,
            new_epoch,
            state,
            actor,
            reason,
            at_ms,
        } = self;
        Ok(PlacementEvent {
            sequence: unsigned(sequence)?,
            shop: shop_id(shop)?,
            old_pod: old_pod.map(pod_id).transpose()?,
            new_pod: new_pod.map(pod_id).transpose()?,
            old_epoch: old_epoch.map(epoch).transpose()?,
            new_epoch: new_epoch.map(epoch).transpose()?,
            state: word(PlacementState::parse(&state), &state)?,
            actor,
            reason,
            at: instant(at_ms)?,
        })
    }
}

fn stale(shop: ShopId) -> CatalogError {
    CatalogError::Stale(format!("the placement of shop {shop}"))
}

pub(super) async fn find(
    conn: &mut SqliteConnection,
    shop: ShopId,
) -> Result<PlacementRow, CatalogError> {
    let row: Option<(i64, i64, String, i64)> =
        sqlx::query_as("select pod, epoch, state, version from placement where shop = $1")
            .bind(signed(shop.get()))
            .fetch_optional(conn)
            .await?;
    let (pod, raw_epoch, state, version) =
        row.ok_or_else(|| CatalogError::not_found("shop", &shop))?;
    Ok(PlacementRow {
        shop,
        pod: pod_id(pod)?,
        epoch: epoch(raw_epoch)?,
        state: word(PlacementState::parse(&state), &state)?,
        version: unsigned(version)?,
    })
}

pub(super) async fn swap_state(
    change: &mut Change<'_>,
    expected: &PlacementRow,
    state: PlacementState,
    reason: Option<&str>,
) -> Result<PlacementRow, CatalogError> {
    let PlacementRow {
        shop,
        pod,
        epoch,
        state: _,
        version,
    } = *expected;
    let next = change.next_version().await?;
    let at_ms = change.at_ms;
    let swapped = sqlx::query(
        "update placement set state = $1, version = $2, changed_ms = $3 \
         where shop = $4 and pod = $5 and epoch = $6 and version = $7",
    )
    .bind(state.as_str())
    .bind(next)
    .bind(at_ms)
    .bind(signed(shop.get()))
    .bind(i64::from(pod.get()))
    .bind(signed(epoch.get()))
    .bind(signed(version))
    .execute(change.conn())
    .await?
    .rows_affected();
    if swapped == 0 {
        return Err(stale(shop));
    }
    let same = Some((pod, epoch));
    let event = Event {
        shop,
        old: same,
        new: same,
        state: state.as_str(),
        reason,
        version: next,
    };
    append_event(change, event).await?;
    Ok(PlacementRow {
        state,
        version: unsigned(next)?,
        ..*expected
    })
}

/// Appends an event, not before the shop's last one even if the clock went back: who owned a shop at an instant must
/// have one answer.
pub(super) async fn append_event(
    change: &mut Change<'_>,
    event: Event<'_>,
) -> Result<(), CatalogError> {
    let Event {
        shop,
        old,
        new,
        state,
        reason,
        version,
    } = event;
    let sequence: i64 = sqlx::query_scalar(
        "update catalog_meta set event_last = event_last + 1 where one = 1 returning event_last",
    )
    .fetch_one(change.conn())
    .await?;
    let last: Option<i64> =
        sqlx::query_scalar("select max(at_ms) from placement_event where shop = $1")
            .bind(signed(shop.get()))
            .fetch_one(change.conn())
            .await?;
    let pod_of = |side: Option<(PodId, Epoch)>| side.map(|(pod, _)| i64::from(pod.get()));
    let epoch_of = |side: Option<(PodId, Epoch)>| side.map(|(_, epoch)| signed(epoch.get()));
    let at_ms = change.at_ms.max(last.unwrap_or(i64::MIN));
    let actor = change.actor.clone();
    sqlx::query(
        "insert into placement_event (sequence, shop, old_pod, new_pod, old_epoch, new_epoch, state, actor, reason, \
         version, at_ms) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(sequence)
    .bind(signed(shop.get()))
    .bind(pod_of(old))
    .bind(pod_of(new))
    .bind(epoch_of(old))
    .bind(epoch_of(new))
    .bind(state)
    .bind(actor)
    .bind(reason)
    .bind(version)
    .bind(at_ms)
    .execute(change.conn())
    .await?;
    Ok(())
}
