//! Making a shop: an operation of three steps. Claim the names here, write the home at the pod, place the shop here.
//!
//! Killed after any of them it is finished by the next start, or by the same request again. Undone, the names are free
//! at once, and the home is taken away as soon as the pod can be reached; its id is never used again.

use serde::{Deserialize, Serialize};
use shared::{Epoch, Handle, Host, PodId, ShopId};
use uuid::Uuid;

use super::operations::{Begin, OperationRow};
use super::placements::{Event, append_event};
use super::shops::ShopRef;
use super::{
    Catalog, CatalogError, Change, Position, buckets, operations, pod_id, shop_id, signed,
};
use crate::api::{OperationState, Shop};

pub(crate) const KIND: &str = "shop-create";
/// The names are claimed; the home is being written.
const STEP_HOME: &str = "home";
/// The names are free again; the home is being taken away.
const STEP_UNDO: &str = "undo";

/// A shop to be made, every field checked. It is the operation's `detail`, so that a new server can go on with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewShop {
    /// Unique in the fleet.
    pub handle: Handle,
    /// What it pays for.
    pub plan: String,
    /// ISO 4217.
    pub currency: String,
    /// The region it is pinned to.
    pub region: Option<String>,
    /// The pod wished for, by id or name.
    pub pod: Option<String>,
    /// Registered domains.
    pub hosts: Vec<Host>,
}

/// A creation under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// The operation's id.
    pub operation: String,
    /// Who wants it.
    pub actor: String,
    /// The id the shop will have.
    pub shop: ShopId,
    /// Where it will be.
    pub pod: PodId,
    /// What was asked for.
    pub new: NewShop,
    /// Whether it is being undone.
    pub undo: bool,
    /// Whether nobody has tried to write the home yet: this process began it just now.
    pub fresh: bool,
    /// When it began.
    pub begun_ms: i64,
}

/// How a request to make a shop stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// To be done, from where it stands.
    Open(Creation),
    /// Done before, by the same request under the same key.
    Done(Box<Shop>),
}

impl Catalog {
    /// Step 1: gives out the id, chooses the pod and claims the names. The same request again, while the first is under
    /// way, goes on with that one; under the same `key` also after it is done.
    pub async fn begin_creation(
        &self,
        actor: &str,
        new: &NewShop,
        key: Option<Uuid>,
    ) -> Result<Begun, CatalogError> {
        let mut change = self.change(actor).await?;
        if let Some(key) = key
            && let Some(begun) = self.by_key(&mut change, new, key).await?
        {
            return Ok(begun);
        }
        if let Some(creation) = under_way(&mut change, new).await? {
            return Ok(Begun::Open(creation));
        }
        if !Position::read(change.conn()).await?.reconciled {
            return Err(CatalogError::Unreconciled);
        }
        refuse_taken(&mut change, new).await?;
        let raw: i64 = sqlx::query_scalar(
            "update catalog_meta set shop_last = shop_last + 1 where one = 1 returning shop_last",
        )
        .fetch_one(change.conn())
        .await?;
        let shop = shop_id(raw)?;
        let region = new.region.as_deref();
        let pod = buckets::propose(change.conn(), shop, region, new.pod.as_deref()).await?;
        let creation = Creation {
            operation: key.unwrap_or_else(Uuid::now_v7).to_string(),
            actor: actor.to_owned(),
            shop,
            pod,
            new: new.clone(),
            undo: false,
            fresh: true,
            begun_ms: change.at_ms,
        };
        write_claims(&mut change, &creation).await?;
        change.commit().await?;
        Ok(Begun::Open(creation))
    }

    async fn by_key(
        &self,
        change: &mut Change<'_>,
        new: &NewShop,
        key: Uuid,
    ) -> Result<Option<Begun>, CatalogError> {
        let row = match operations::find(change.conn(), &key.to_string()).await {
            Ok(row) => row,
            Err(CatalogError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let state = row.state()?;
        let error = row.error.clone();
        let creation = creation_of(row)?;
        if creation.new != *new {
            return Err(CatalogError::Conflict(
                "the idempotency key was used for another shop; use a new one".into(),
            ));
        }
        match state {
            OperationState::Running => Ok(Some(Begun::Open(creation))),
            OperationState::Done => {
                let reference = ShopRef::Id(creation.shop);
                let shop = super::shops::find(change.conn(), &reference, &self.domains).await?;
                Ok(Some(Begun::Done(Box::new(shop))))
            }
            OperationState::Failed => Err(CatalogError::Conflict(format!(
                "this request failed before ({}); repeat it under a new idempotency key",
                error.unwrap_or_default()
            ))),
        }
    }

    /// Step 3: the home stands, so the shop is placed and edges may see it.
    pub async fn finish_creation(&self, creation: &Creation) -> Result<Shop, CatalogError> {
        let Creation {
            operation,
            actor,
            shop,
            pod,
            new,
            undo: _,
            fresh: _,
            begun_ms: _,
        } = creation;
        let mut change = self.change(actor).await?;
        change
            .advance(operation, OperationState::Done, "placed", None)
            .await?;
        let id = signed(shop.get());
        let version = change.next_version().await?;
        let at_ms = change.at_ms;
        let making =
            sqlx::query("update shop set status = 'active' where id = $1 and status = 'creating'")
                .bind(id);
        // An undone one runs on until its home is gone, and its names may be another shop's by now.
        if making.execute(change.conn()).await?.rows_affected() != 1 {
            return Err(CatalogError::Stale(format!("operation {operation}")));
        }
        for host in &new.hosts {
            sqlx::query("insert into shop_host (host, shop, created_ms) values ($1, $2, $3)")
                .bind(host.as_str())
                .bind(id)
                .bind(at_ms)
                .execute(change.conn())
                .await?;
        }
        sqlx::query(
            "insert into placement (shop, pod, epoch, state, version, changed_ms) \
             values ($1, $2, $3, 'serving', $4, $5)",
        )
        .bind(id)
        .bind(i64::from(pod.get()))
        .bind(signed(Epoch::FIRST.get()))
        .bind(version)
        .bind(at_ms)
        .execute(change.conn())
        .await?;
        let event = Event {
            shop: *shop,
            old: None,
            new: Some((*pod, Epoch::FIRST)),
            state: "serving",
            reason: Some("created"),
            version,
        };
        append_event(&mut change, event).await?;
        let shop = super::shops::find(change.conn(), &ShopRef::Id(*shop), &self.domains).await?;
        change.commit().await?;
        Ok(shop)
    }

    /// Gives up: the names are free from now on; the operation stays open until the home is gone.
    pub async fn undo_creation(
        &self,
        creation: &Creation,
        error: &str,
    ) -> Result<Creation, CatalogError> {
        let mut change = self.change(&creation.actor).await?;
        let state = OperationState::Running;
        change
            .advance(&creation.operation, state, STEP_UNDO, Some(error))
            .await?;
        sqlx::query("delete from claim where operation = $1 and shop = $2")
            .bind(&creation.operation)
            .bind(signed(creation.shop.get()))
            .execute(change.conn())
            .await?;
        sqlx::query("update shop set status = 'removed' where id = $1 and status = 'creating'")
            .bind(signed(creation.shop.get()))
            .execute(change.conn())
            .await?;
        change.commit().await?;
        Ok(Creation {
            undo: true,
            ..creation.clone()
        })
    }

    /// The home of an undone creation is gone.
    pub async fn creation_undone(&self, creation: &Creation) -> Result<(), CatalogError> {
        let mut change = self.change(&creation.actor).await?;
        let row = operations::find(change.conn(), &creation.operation).await?;
        let error = row.error.unwrap_or_default();
        change
            .advance(
                &creation.operation,
                OperationState::Failed,
                "undone",
                Some(&error),
            )
            .await?;
        change.commit().await
    }

    /// Creations that are under way, oldest first.
    pub async fn open_creations(&self) -> Result<Vec<Creation>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows = operations::running(&mut conn, KIND).await?;
        rows.into_iter().map(creation_of).collect()
    }
}

fn creation_of(row: OperationRow) -> Result<Creation, CatalogError> {
    let corrupt = || CatalogError::Corrupt(format!("the operation {}", row.id));
    let new: NewShop = serde_json::from_str(&row.detail).map_err(|_| corrupt())?;
    Ok(Creation {
        shop: shop_id(row.shop.ok_or_else(corrupt)?)?,
        pod: pod_id(row.pod.ok_or_else(corrupt)?)?,
        undo: row.step.as_deref() == Some(STEP_UNDO),
        fresh: false,
        begun_ms: row.created_ms,
        operation: row.id,
        actor: row.actor,
        new,
    })
}

/// The creation that holds this handle for the very same request.
async fn under_way(
    change: &mut Change<'_>,
    new: &NewShop,
) -> Result<Option<Creation>, CatalogError> {
    let operation: Option<Option<String>> =
        sqlx::query_scalar("select operation from claim where kind = 'handle' and name = $1")
            .bind(new.handle.as_str())
            .fetch_optional(change.conn())
            .await?;
    let Some(operation) = operation.flatten() else {
        return Ok(None);
    };
    let row = operations::find(change.conn(), &operation).await?;
    if row.state()? != OperationState::Running {
        return Ok(None);
    }
    let creation = creation_of(row)?;
    Ok((creation.new == *new && !creation.undo).then_some(creation))
}

async fn refuse_taken(change: &mut Change<'_>, new: &NewShop) -> Result<(), CatalogError> {
    refuse_claimed(change, "handle", "handle", new.handle.as_str()).await?;
    for host in &new.hosts {
        refuse_claimed(change, "host", "hosts", host.as_str()).await?;
    }
    Ok(())
}

pub(super) async fn refuse_claimed(
    change: &mut Change<'_>,
    kind: &str,
    field: &'static str,
    name: &str,
) -> Result<(), CatalogError> {
    let holder: Option<(Option<i64>,)> =
        sqlx::query_as("select shop from claim where kind = $1 and name = $2")
            .bind(kind)
            .bind(name)
            .fetch_optional(change.conn())
            .await?;
    let Some((shop,)) = holder else { return Ok(()) };
    let holder = shop.map_or_else(|| "an operation".to_owned(), |shop| format!("shop {shop}"));
    Err(CatalogError::Taken {
        field,
        name: name.to_owned(),
        holder,
    })
}

pub(super) async fn write_claim(
    change: &mut Change<'_>,
    kind: &str,
    name: &str,
    shop: ShopId,
    operation: Option<&str>,
) -> Result<(), CatalogError> {
    let at_ms = change.at_ms;
    sqlx::query(
        "insert into claim (kind, name, shop, operation, created_ms) values ($1, $2, $3, $4, $5)",
    )
    .bind(kind)
    .bind(name)
    .bind(signed(shop.get()))
    .bind(operation)
    .bind(at_ms)
    .execute(change.conn())
    .await?;
    Ok(())
}

async fn write_claims(change: &mut Change<'_>, creation: &Creation) -> Result<(), CatalogError> {
    let Creation {
        operation,
        actor: _,
        shop,
        pod,
        new,
        undo: _,
        fresh: _,
        begun_ms: _,
    } = creation;
    let at_ms = change.at_ms;
    sqlx::query(
        "insert into shop (id, handle, plan, currency, region, status, created_ms) \
         values ($1, $2, $3, $4, $5, 'creating', $6)",
    )
    .bind(signed(shop.get()))
    .bind(new.handle.as_str())
    .bind(&new.plan)
    .bind(&new.currency)
    .bind(&new.region)
    .bind(at_ms)
    .execute(change.conn())
    .await?;
    let detail = serde_json::to_string(new)
        .map_err(|e| CatalogError::Corrupt(format!("an operation's detail: {e}")))?;
    let begin = Begin {
        id: operation,
        kind: KIND,
        subject: new.handle.as_str(),
        state: OperationState::Running,
        step: Some(STEP_HOME),
        detail: &detail,
        shop: Some(*shop),
        pod: Some(*pod),
    };
    change.begin_operation(begin).await?;
    write_claim(
        change,
        "handle",
        new.handle.as_str(),
        *shop,
        Some(operation),
    )
    .await?;
    for host in &new.hosts {
        write_claim(change, "host", host.as_str(), *shop, Some(operation)).await?;
    }
    Ok(())
}
