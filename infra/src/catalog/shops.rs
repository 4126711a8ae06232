//! Shops as an operator sees them, and the ways to name one.

use std::collections::BTreeMap;

use shared::{Handle, Host, PlacementState, ShopId};
use sqlx::SqliteConnection;

use super::{Catalog, CatalogError, Domains, epoch, pod_id, shop_id, signed, unsigned, word};
use crate::api::{PodName, Shop, ShopPage};

/// How a request names a shop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShopRef {
    /// By number.
    Id(ShopId),
    /// By its short name.
    Handle(Handle),
    /// By a registered domain.
    Host(Host),
}

impl ShopRef {
    /// Reads an id, a handle or a host; `<handle>.<base_domain>` is the handle.
    pub fn parse(text: &str, domains: &Domains) -> Result<Self, CatalogError> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        if let Ok(handle) = text.parse() {
            return Ok(Self::Handle(handle));
        }
        let host: Host = text
            .parse()
            .map_err(|_| CatalogError::not_found("shop", &text))?;
        match handle_in(&host, &domains.base) {
            Some(handle) => Ok(Self::Handle(handle)),
            None => Ok(Self::Host(host)),
        }
    }
}

/// The handle of `<handle>.<base_domain>`.
pub(super) fn handle_in(host: &Host, base: &Host) -> Option<Handle> {
    host.as_str()
        .strip_suffix(base.as_str())?
        .strip_suffix('.')?
        .parse()
        .ok()
}

#[derive(Debug, sqlx::FromRow)]
struct ShopRow {
    id: i64,
    handle: String,
    plan: String,
    currency: String,
    region: Option<String>,
    status: String,
    pod: i64,
    pod_name: String,
    epoch: i64,
    state: String,
    version: i64,
    latest_move: Option<String>,
    latest_move_id: Option<String>,
    pin: Option<i64>,
    pin_name: Option<String>,
    pin_reason: Option<String>,
}

macro_rules! select_shop {
    ($tail:literal) => {
        concat!(
            "select s.id, s.handle, s.plan, s.currency, s.region, s.status, p.pod, d.name as pod_name, p.epoch, \
             p.state, p.version, \
             case when m.kind = 'clear' then case when exists (select 1 from move_leftover o where o.move = m.id) \
             then 'clearing' else 'cleared' end else m.state end as latest_move, m.id as latest_move_id, i.pod as pin, n.name as pin_name, \
             i.reason as pin_reason \
             from shop s join placement p on p.shop = s.id join pod d on d.id = p.pod \
             left join move m on m.id = (select l.id from move l where l.shop = s.id \
             order by l.created_ms desc, l.id desc limit 1) \
             left join shop_pin i on i.shop = s.id left join pod n on n.id = i.pod ",
            $tail
        )
    };
}

impl Catalog {
    /// A shop by id, handle or host.
    pub async fn shop(&self, reference: &ShopRef) -> Result<Shop, CatalogError> {
        let mut view = self.snapshot().await?;
        find(&mut view, reference, &self.domains).await
    }

    /// Shops by id, after the one named.
    pub async fn shops(&self, after: Option<ShopId>, limit: u32) -> Result<ShopPage, CatalogError> {
        let mut view = self.snapshot().await?;
        let after = after.map_or(0, |id| signed(id.get()));
        let rows: Vec<ShopRow> =
            sqlx::query_as(select_shop!("where s.id > $1 order by s.id limit $2"))
                .bind(after)
                .bind(i64::from(limit))
                .fetch_all(&mut *view)
                .await?;
        let full = rows.len() >= limit as usize;
        let last = rows.last().map_or(after, |row| row.id);
        let mut hosts = hosts_between(&mut view, after, last).await?;
        let mut shops = Vec::with_capacity(rows.len());
        for row in rows {
            let registered = hosts.remove(&row.id).unwrap_or_default();
            shops.push(shop_of(row, registered, &self.domains)?);
        }
        let next = if full {
            shops.last().map(|shop| shop.id)
        } else {
            None
        };
        Ok(ShopPage { shops, next })
    }

    /// How many shops there are, by state.
    pub async fn shop_counts(&self) -> Result<Vec<(PlacementState, u64)>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows: Vec<(String, i64)> =
            sqlx::query_as("select state, count(*) from placement group by state")
                .fetch_all(&mut *conn)
                .await?;
        rows.into_iter()
            .map(|(state, count)| {
                Ok((
                    word(PlacementState::parse(&state), &state)?,
                    unsigned(count)?,
                ))
            })
            .collect()
    }
}

/// A shop that has a placement.
pub(super) async fn find(
    conn: &mut SqliteConnection,
    reference: &ShopRef,
    domains: &Domains,
) -> Result<Shop, CatalogError> {
    let (row, name): (Option<ShopRow>, String) = match reference {
        ShopRef::Id(id) => (
            sqlx::query_as(select_shop!("where s.id = $1"))
                .bind(signed(id.get()))
                .fetch_optional(&mut *conn)
                .await?,
            id.to_string(),
        ),
        ShopRef::Handle(handle) => (
            sqlx::query_as(select_shop!(
                "where s.handle = $1 and s.status <> 'removed'"
            ))
            .bind(handle.as_str())
            .fetch_optional(&mut *conn)
            .await?,
            handle.to_string(),
        ),
        ShopRef::Host(host) => (
            sqlx::query_as(select_shop!(
                "where s.id = (select h.shop from shop_host h where h.host = $1)"
            ))
            .bind(host.as_str())
            .fetch_optional(&mut *conn)
            .await?,
            host.to_string(),
        ),
    };
    let row = row.ok_or_else(|| CatalogError::not_found("shop", &name))?;
    let mut hosts = hosts_between(conn, row.id - 1, row.id).await?;
    let registered = hosts.remove(&row.id).unwrap_or_default();
    shop_of(row, registered, domains)
}

/// The registered hosts of the shops with ids in `(after, last]`.
pub(super) async fn hosts_between(
    conn: &mut SqliteConnection,
    after: i64,
    last: i64,
) -> Result<BTreeMap<i64, Vec<String>>, CatalogError> {
    let rows: Vec<(i64, String)> = sqlx::query_as(
        "select shop, host from shop_host where shop > $1 and shop <= $2 order by shop, host",
    )
    .bind(after)
    .bind(last)
    .fetch_all(conn)
    .await?;
    let mut hosts: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for (shop, host) in rows {
        hosts.entry(shop).or_default().push(host);
    }
    Ok(hosts)
}

fn shop_of(row: ShopRow, registered: Vec<String>, domains: &Domains) -> Result<Shop, CatalogError> {
    let ShopRow {
        id,
        handle,
        plan,
        currency,
        region,
        status,
        pod,
        pod_name,
        epoch: raw_epoch,
        state,
        version,
        latest_move,
        latest_move_id,
        pin,
        pin_name,
        pin_reason,
    } = row;
    let mut hosts = vec![format!("{handle}.{}", domains.base)];
    hosts.extend(registered);
    let pinned = match (pin, pin_name) {
        (Some(pod), Some(name)) => Some(PodName {
            id: pod_id(pod)?,
            name,
        }),
        _ => None,
    };
    Ok(Shop {
        id: shop_id(id)?,
        handle: handle
            .parse()
            .map_err(|_| CatalogError::Corrupt(format!("the handle {handle:?}")))?,
        plan,
        currency,
        region,
        status,
        hosts,
        pod: PodName {
            id: pod_id(pod)?,
            name: pod_name,
        },
        epoch: epoch(raw_epoch)?,
        state: word(PlacementState::parse(&state), &state)?,
        version: unsigned(version)?,
        r#move: latest_move,
        move_id: latest_move_id,
        pinned,
        pin_reason,
    })
}
