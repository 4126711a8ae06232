//! A move begins: everything the catalog knows against it is said at once, each with its way out.

use shared::moves::{MoveId, MoveState};
use shared::{Epoch, PodId, ShopId};

use super::back::{strays_against, take_back};
use super::leftovers::{any_leftover, leftover_at};
use super::orders::ways;
use super::row::Entry;
use super::{MoveDetail, MoveKind, MoveRow, append, by_id, counts, open_of};
use crate::api::{Pod, PodStatus, Shop};
use crate::catalog::operations::MIGRATE_KIND;
use crate::catalog::shops::{self, ShopRef};
use crate::catalog::{Catalog, CatalogError, Change, Position, epoch, pods, signed, unsigned};
use crate::output::the_pod;

/// A move to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMove {
    /// The shop.
    pub shop: ShopRef,
    /// The pod it goes to, by id or name.
    pub target: String,
    /// For the history.
    pub reason: Option<String>,
    /// How long the source's copy is kept after the hand-over.
    pub observe_ms: u64,
    /// Of a move back: also over so many stray changes of the copy there, which were looked at.
    pub despite_strays: u64,
}

/// What the catalog has nothing against.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The shop, at its source.
    pub shop: Shop,
    /// Where it goes.
    pub target: Pod,
    /// The move in observation that this one takes back.
    pub back_of: Option<MoveId>,
}

impl Catalog {
    /// Says what a move would be, or why it cannot be. Nothing is changed.
    pub async fn check_move(&self, new: &NewMove) -> Result<Planned, CatalogError> {
        // Dropped, the change is undone.
        let mut change = self.change("control").await?;
        self.plan_move(&mut change, new).await
    }

    /// Begins a move and reserves its epoch. A move back closes the one in observation in the same transaction.
    pub(crate) async fn begin_move(
        &self,
        actor: &str,
        new: &NewMove,
    ) -> Result<MoveRow, CatalogError> {
        let mut change = self.change(actor).await?;
        let Planned {
            shop,
            target,
            back_of,
        } = self.plan_move(&mut change, new).await?;
        let mut detail = MoveDetail {
            reason: new.reason.clone(),
            observe_ms: new.observe_ms,
            since_ms: Some(change.at_ms),
            ..MoveDetail::default()
        };
        let id = MoveId::random();
        let mut despite = String::new();
        if let Some(former) = back_of {
            despite = take_back(&mut change, former, id, &mut detail).await?;
        }
        let reserved = reserve(&mut change, &shop).await?;
        let owner = last_owner(&mut change, shop.id).await?;
        let state = MoveState::Preparing;
        let entry = Entry {
            id,
            shop: &shop,
            target: target.id,
            epoch: reserved,
            kind: MoveKind::Move,
            state,
            owner,
            detail: &detail,
        };
        entry.insert(&mut change).await?;
        let reason = new.reason.as_ref().map(|r| format!(": {r}"));
        let note = format!(
            "shop {} from {} to {}, epoch {} to {}{despite}{}",
            shop.handle,
            shop.pod.name,
            target.name,
            shop.epoch.get(),
            reserved.get(),
            reason.unwrap_or_default()
        );
        append(&mut change, id, state, owner, Some(&note)).await?;
        let row = by_id(change.conn(), id).await?;
        change.commit().await?;
        if back_of.is_some() {
            counts::taken_back();
        }
        Ok(row)
    }

    async fn plan_move(
        &self,
        change: &mut Change<'_>,
        new: &NewMove,
    ) -> Result<Planned, CatalogError> {
        if !Position::read(change.conn()).await?.reconciled {
            return Err(CatalogError::Unreconciled);
        }
        let shop = self.shop_to_move(change, &new.shop).await?;
        let target = match pods::find(change.conn(), &new.target).await {
            Ok(pod) => pod,
            Err(CatalogError::NotFound { .. }) => {
                let text = format!(
                    "there is no pod {:?}; `podctl pod list` shows them, `podctl pod add` adds one",
                    new.target
                );
                return Err(CatalogError::invalid("to", text));
            }
            Err(error) => return Err(error),
        };
        let former = match open_of(change.conn(), shop.id).await? {
            // What a source has that is gone for good is nothing to go back to.
            Some(open)
                if open.state == MoveState::Observing
                    && open.source == target.id
                    && !open.detail.source_gone =>
            {
                Some(open)
            }
            Some(open) if open.state == MoveState::Observing && target.id == shop.pod.id => {
                return Err(CatalogError::Conflict(format!(
                    "{}; its move there, {}, is observing: {}",
                    is_there(&shop),
                    open.id,
                    ways(&open)
                )));
            }
            Some(open) => return Err(moving(&open)),
            None => None,
        };
        let mut against = Vec::new();
        against.extend(of_target(&shop, &target, former.is_some()));
        against.extend(strays_against(former.as_ref(), &shop, &target, new));
        against.extend(of_source(change, &shop).await?);
        against.extend(pinned_elsewhere(&shop, &target));
        against.extend(leftover_at(change, &shop, &target).await?);
        against.extend(worked_on(change, shop.id).await?);
        against.extend(migrating(change, [shop.pod.id, target.id]).await?);
        if against.is_empty() {
            Ok(Planned {
                shop,
                target,
                back_of: former.map(|former| former.id),
            })
        } else {
            Err(CatalogError::Conflict(against.join("; ")))
        }
    }

    /// A shop that is being made has no placement yet, and is not unknown either.
    pub(super) async fn shop_to_move(
        &self,
        change: &mut Change<'_>,
        reference: &ShopRef,
    ) -> Result<Shop, CatalogError> {
        let error = match shops::find(change.conn(), reference, &self.domains).await {
            Ok(shop) => return Ok(shop),
            Err(error) => error,
        };
        let (id, handle, host) = match reference {
            ShopRef::Id(id) => (Some(signed(id.get())), None, None),
            ShopRef::Handle(handle) => (None, Some(handle.as_str()), None),
            ShopRef::Host(host) => (None, None, Some(host.as_str())),
        };
        let making: Option<(String, String)> = sqlx::query_as(
            "select s.handle, c.operation from claim c join shop s on s.id = c.shop \
             where s.status = 'creating' and c.operation is not null \
             and (c.shop = $1 or (c.kind = 'handle' and c.name = $2) or (c.kind = 'host' and c.name = $3)) limit 1",
        )
        .bind(id)
        .bind(handle)
        .bind(host)
        .fetch_optional(change.conn())
        .await?;
        Err(match making {
            Some((handle, operation)) => CatalogError::Conflict(format!(
                "shop {handle} is being made (operation {operation}); move it when that has ended"
            )),
            None => error,
        })
    }
}

/// The last owner number of any move of the shop. The next goes on from it: a home refuses an older mover of whichever move
/// by the number alone, for ever.
pub(super) async fn last_owner(change: &mut Change<'_>, shop: ShopId) -> Result<u64, CatalogError> {
    let last: Option<i64> = sqlx::query_scalar("select max(owner) from move where shop = $1")
        .bind(signed(shop.get()))
        .fetch_one(change.conn())
        .await?;
    unsigned(last.unwrap_or(0))
}

/// An epoch that no move of this shop ever had.
pub(super) async fn reserve(change: &mut Change<'_>, shop: &Shop) -> Result<Epoch, CatalogError> {
    let last: Option<i64> = sqlx::query_scalar("select max(epoch) from move where shop = $1")
        .bind(signed(shop.id.get()))
        .fetch_one(change.conn())
        .await?;
    let last = last.map(epoch).transpose()?;
    Ok(last.map_or(shop.epoch, |e| e.max(shop.epoch)).next())
}

/// The refusal of a second move.
pub(super) fn moving(open: &MoveRow) -> CatalogError {
    let (shop, id, state) = (&open.handle, open.id, open.state);
    let (from, to, ways) = (&open.source_name, &open.target_name, ways(open));
    CatalogError::Conflict(format!(
        "shop {shop} has an open move, {id} from {from} to {to}, which is {state}: {ways}"
    ))
}

fn is_there(shop: &Shop) -> String {
    let pod = the_pod(&shop.pod.name);
    format!("shop {} is at {pod} already", shop.handle)
}

/// Pure.
fn of_target(shop: &Shop, target: &Pod, back: bool) -> Vec<String> {
    let mut against = Vec::new();
    if target.id == shop.pod.id {
        against.push(format!("{}; name another pod", is_there(shop)));
        return against;
    }
    let (name, pod) = (&target.name, the_pod(&target.name));
    match target.status {
        PodStatus::Active => {}
        PodStatus::Draining => against.push(format!(
            "{pod} is draining and takes no shops; end that with `podctl pod undrain {name}`, or name another pod"
        )),
        PodStatus::Offline => against.push(format!(
            "{pod} is offline; bring it back with `podctl pod undrain {name}`, or name another pod"
        )),
    }
    // The way back needs no room that the shop did not have before.
    if !back && target.shops >= target.max_shops {
        against.push(format!(
            "{pod} is full with {} of {} shops (those on their way to it count); raise `max_shops` in fleet.toml \
             and `podctl apply`, move a shop away, add a pod (`podctl pod add`), or name another one",
            target.shops, target.max_shops
        ));
    }
    against
}

/// A pod that is being emptied may be left; one that does not serve can give nothing away.
async fn of_source(change: &mut Change<'_>, shop: &Shop) -> Result<Option<String>, CatalogError> {
    let source = pods::find(change.conn(), &shop.pod.id.to_string()).await?;
    let (name, pod) = (&source.name, the_pod(&source.name));
    Ok((source.status == PodStatus::Offline).then(|| {
        format!(
            "{pod}, where shop {} is, is offline; bring it back with `podctl pod undrain {name}`",
            shop.handle
        )
    }))
}

/// Pure.
fn pinned_elsewhere(shop: &Shop, target: &Pod) -> Vec<String> {
    let mut against = Vec::new();
    if let Some(pin) = shop.pinned.as_ref().filter(|pin| pin.id != target.id) {
        let why = shop.pin_reason.as_ref().map(|why| format!(" ({why})"));
        against.push(format!(
            "shop {0} is pinned to {1}{2}; take the pin away with `podctl shop unpin {0}`",
            shop.handle,
            the_pod(&pin.name),
            why.unwrap_or_default()
        ));
    }
    if let Some(region) = shop.region.as_ref().filter(|r| **r != target.region) {
        against.push(format!(
            "shop {} is pinned to region {region}, and {} is in {}; name a pod of its region",
            shop.handle,
            the_pod(&target.name),
            target.region
        ));
    }
    against
}

/// The operation that holds the shop, if one does.
pub(super) async fn worked_on(
    change: &mut Change<'_>,
    shop: ShopId,
) -> Result<Option<String>, CatalogError> {
    let held: Option<(Option<String>, Option<String>)> = sqlx::query_as(
        "select c.operation, o.kind from claim c left join operation o on o.id = c.operation \
         where c.kind = 'shop' and c.name = $1",
    )
    .bind(shop.to_string())
    .fetch_optional(change.conn())
    .await?;
    Ok(held.map(|(operation, kind)| {
        format!(
            "shop {shop} is being worked on by operation {} ({}); wait until it has ended (`podctl status`)",
            operation.unwrap_or_default(),
            kind.unwrap_or_default()
        )
    }))
}

/// A migration that runs at one of the pods.
pub(super) async fn migrating(
    change: &mut Change<'_>,
    either: [PodId; 2],
) -> Result<Option<String>, CatalogError> {
    let [source, target] = either.map(|pod| i64::from(pod.get()));
    let found: Option<(String, String)> = sqlx::query_as(
        "select o.id, d.name from operation o join pod d on d.id = o.pod or d.name = o.subject \
         where o.kind = $1 and o.state = 'running' and d.id in ($2, $3) limit 1",
    )
    .bind(MIGRATE_KIND)
    .bind(source)
    .bind(target)
    .fetch_optional(change.conn())
    .await?;
    Ok(found.map(|(id, pod)| {
        format!(
            "the schema of {} is being changed by operation {id}; try again when that has ended",
            the_pod(&pod)
        )
    }))
}

/// The other side of it: no migration of a pod begins beside an open move from or to it, nor while rows of a shop are deleted
/// there. A run of either goes by the tables that it finds at its beginning.
pub(in crate::catalog) async fn refuse_migration_beside(
    change: &mut Change<'_>,
    pod: &str,
) -> Result<(), CatalogError> {
    let open: Option<(String, String, String)> = sqlx::query_as(
        "select m.id, m.state, d.name from move m join pod d on d.id = m.source_pod or d.id = m.target_pod \
         where m.state not in ('done', 'aborted') and (d.name = $1 or cast(d.id as text) = $1) \
         order by m.created_ms limit 1",
    )
    .bind(pod)
    .fetch_optional(change.conn())
    .await?;
    if let Some((id, state, name)) = open {
        return Err(CatalogError::Conflict(format!(
            "{} has an open move, {id} ({state}); change its schema when that is over (`podctl move show {id}`)",
            the_pod(&name)
        )));
    }
    match any_leftover(change, pod).await? {
        None => Ok(()),
        Some((rows, id)) => Err(CatalogError::Conflict(format!(
            "{rows}, table by table; change its schema when `podctl move show {id}` tells of no leftover. It says what that \
             waits for"
        ))),
    }
}
