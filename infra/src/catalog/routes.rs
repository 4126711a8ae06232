//! What edges follow: the whole table, and its changes since a version.
//!
//! Both are read from one snapshot. Each row carries the version of its last change, so that changes need no log of
//! their own: an edge gets what is so now, in the order of versions, and removals from their tombstones.

use std::net::SocketAddr;

use shared::PlacementState;
use shared::routes::wire::{self, Change, Changes, Counts, Header, Line, Now};
use sqlx::SqliteConnection;

use super::{
    Catalog, CatalogError, Position, Snapshot, epoch, pod_id, shop_id, shops, signed, unsigned,
    word,
};

/// Changes in one answer: some hundred kilobytes at most in practice; an edge asks again at once for more.
pub const CHANGES_PAGE_MAX: u32 = 1000;
/// Shops read at once for the full table: small beside a reader's memory, large beside a query's fixed cost.
pub const TABLE_PAGE: u32 = 1000;

impl Catalog {
    /// What changed after a version of an incarnation, in order, at most `limit`; the answer's version is where to go on.
    pub async fn changes(
        &self,
        incarnation: u64,
        after: u64,
        limit: u32,
    ) -> Result<Changes, CatalogError> {
        let mut view = self.snapshot().await?;
        let position = Position::read(&mut view).await?;
        let known = incarnation == position.incarnation
            && (position.pruned..=position.version).contains(&after);
        if !known {
            return Err(CatalogError::Gone { incarnation, after });
        }
        let mut changes = pod_changes(&mut view, after, limit).await?;
        changes.extend(shop_changes(&mut view, after, limit).await?);
        changes.extend(removals(&mut view, after, limit).await?);
        changes.sort_unstable_by_key(|change| change.version);
        let whole = changes.len() <= limit as usize;
        changes.truncate(limit as usize);
        let last = changes
            .last()
            .map(|change| change.version)
            .filter(|_| !whole);
        Ok(Changes {
            incarnation,
            version: last.unwrap_or(position.version),
            changes,
        })
    }

    /// The last change of the table itself. Others count the catalog's version on too, and an edge hears of that at the end of
    /// its long poll.
    pub async fn routes_version(&self) -> Result<u64, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let last: Option<i64> = sqlx::query_scalar(
            "select max(last) from (select max(version) as last from pod union all select max(version) from placement \
             union all select max(version) from shop_tombstone)",
        )
        .fetch_one(&mut *conn)
        .await?;
        last.map_or(Ok(0), unsigned)
    }

    /// The whole table, to be read page by page from one snapshot.
    pub async fn table(&self) -> Result<TableReader, CatalogError> {
        let mut view = self.snapshot().await?;
        let position = Position::read(&mut view).await?;
        let header = Header {
            incarnation: position.incarnation,
            version: position.version,
            base_domain: self.domains.base.clone(),
            platform_domain: self.domains.platform.clone(),
        };
        Ok(TableReader {
            view,
            next: Next::Header(header),
            counts: Counts::default(),
        })
    }

    /// Forgets tombstones older than an instant. An edge that slept longer takes the full table.
    pub async fn prune_tombstones(&self, before_ms: i64) -> Result<u64, CatalogError> {
        let mut change = self.change("control").await?;
        let last: Option<i64> =
            sqlx::query_scalar("select max(version) from shop_tombstone where at_ms < $1")
                .bind(before_ms)
                .fetch_one(change.conn())
                .await?;
        let Some(last) = last else { return Ok(0) };
        let gone = sqlx::query("delete from shop_tombstone where version <= $1")
            .bind(last)
            .execute(change.conn())
            .await?
            .rows_affected();
        sqlx::query("update catalog_meta set pruned = $1 where one = 1 and pruned < $1")
            .bind(last)
            .execute(change.conn())
            .await?;
        change.commit().await?;
        Ok(gone)
    }
}

/// What comes next of a table.
#[derive(Debug)]
enum Next {
    Header(Header),
    Pods,
    Shops { after: i64 },
    End,
    Nothing,
}

/// A full table on its way out. It holds a reader and its snapshot until it is dropped.
pub struct TableReader {
    view: Snapshot,
    next: Next,
    counts: Counts,
}

impl TableReader {
    /// The next lines, or `None` after the last.
    pub async fn next_lines(&mut self) -> Result<Option<String>, CatalogError> {
        let mut text = String::new();
        match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Header(header) => {
                push(&mut text, &header)?;
                self.next = Next::Pods;
            }
            Next::Pods => {
                for pod in all_pods(&mut self.view).await? {
                    self.counts.pods += 1;
                    push(&mut text, &Line::Pod(pod))?;
                }
                self.next = Next::Shops { after: 0 };
            }
            Next::Shops { after } => {
                let page = shop_page(&mut self.view, after).await?;
                self.next = match page.last() {
                    Some(shop) => Next::Shops {
                        after: signed(shop.id.get()),
                    },
                    None => Next::End,
                };
                for shop in page {
                    self.counts.shops += 1;
                    push(&mut text, &Line::Shop(shop))?;
                }
            }
            Next::End => push(&mut text, &Line::End(self.counts))?,
            Next::Nothing => return Ok(None),
        }
        Ok(Some(text))
    }
}

fn push<T: serde::Serialize>(text: &mut String, line: &T) -> Result<(), CatalogError> {
    let line = wire::to_line(line).map_err(|e| CatalogError::Corrupt(format!("a line: {e}")))?;
    text.push_str(&line);
    Ok(())
}

#[derive(Debug, sqlx::FromRow)]
struct PodRow {
    id: i64,
    name: String,
    status: String,
    first_version: i64,
    version: i64,
}

async fn pod_of(conn: &mut SqliteConnection, row: &PodRow) -> Result<wire::Pod, CatalogError> {
    let addresses: Vec<String> = sqlx::query_scalar(
        "select address from pod_endpoint where pod = $1 and kind = 'http' order by position",
    )
    .bind(row.id)
    .fetch_all(conn)
    .await?;
    let http: Result<Vec<SocketAddr>, _> = addresses.iter().map(|a| a.parse()).collect();
    Ok(wire::Pod {
        id: pod_id(row.id)?,
        name: row.name.clone(),
        status: word(wire::PodStatus::parse(&row.status), &row.status)?,
        http: http.map_err(|_| CatalogError::Corrupt(format!("an address of pod {}", row.id)))?,
    })
}

async fn all_pods(conn: &mut SqliteConnection) -> Result<Vec<wire::Pod>, CatalogError> {
    let rows: Vec<PodRow> =
        sqlx::query_as("select id, name, status, first_version, version from pod order by id")
            .fetch_all(&mut *conn)
            .await?;
    let mut pods = Vec::with_capacity(rows.len());
    for row in &rows {
        pods.push(pod_of(conn, row).await?);
    }
    Ok(pods)
}

/// Pods are few: those that changed are told whole, at their last version and, where that is new too, at their first.
async fn pod_changes(
    conn: &mut SqliteConnection,
    after: u64,
    limit: u32,
) -> Result<Vec<Change>, CatalogError> {
    let rows: Vec<PodRow> = sqlx::query_as(
        "select id, name, status, first_version, version from pod where version > $1 order by version limit $2",
    )
    .bind(signed(after))
    .bind(i64::from(limit) + 1)
    .fetch_all(&mut *conn)
    .await?;
    let mut changes = Vec::with_capacity(rows.len());
    for row in &rows {
        let pod = pod_of(conn, row).await?;
        let (first, last) = (unsigned(row.first_version)?, unsigned(row.version)?);
        if first > after && first < last {
            changes.push(Change {
                version: first,
                now: Now::Pod(pod.clone()),
            });
        }
        changes.push(Change {
            version: last,
            now: Now::Pod(pod),
        });
    }
    Ok(changes)
}

#[derive(Debug, sqlx::FromRow)]
struct ShopRow {
    id: i64,
    handle: String,
    pod: i64,
    epoch: i64,
    state: String,
    version: i64,
}

fn shop_of(row: ShopRow, hosts: Vec<String>) -> Result<(u64, wire::Shop), CatalogError> {
    let ShopRow {
        id,
        handle,
        pod,
        epoch: raw_epoch,
        state,
        version,
    } = row;
    let corrupt = |name: &str| CatalogError::Corrupt(format!("the name {name:?}"));
    let hosts: Result<Vec<_>, _> = hosts
        .into_iter()
        .map(|host| host.parse().map_err(|_| corrupt(&host)))
        .collect();
    let shop = wire::Shop {
        id: shop_id(id)?,
        handle: handle.parse().map_err(|_| corrupt(&handle))?,
        hosts: hosts?,
        pod: pod_id(pod)?,
        epoch: epoch(raw_epoch)?,
        state: word(PlacementState::parse(&state), &state)?,
    };
    Ok((unsigned(version)?, shop))
}

async fn shop_page(
    conn: &mut SqliteConnection,
    after: i64,
) -> Result<Vec<wire::Shop>, CatalogError> {
    let rows: Vec<ShopRow> = sqlx::query_as(
        "select s.id, s.handle, p.pod, p.epoch, p.state, p.version from placement p \
         join shop s on s.id = p.shop where p.shop > $1 order by p.shop limit $2",
    )
    .bind(after)
    .bind(i64::from(TABLE_PAGE))
    .fetch_all(&mut *conn)
    .await?;
    let last = rows.last().map_or(after, |row| row.id);
    let mut hosts = shops::hosts_between(conn, after, last).await?;
    rows.into_iter()
        .map(|row| {
            let own = hosts.remove(&row.id).unwrap_or_default();
            shop_of(row, own).map(|(_, shop)| shop)
        })
        .collect()
}

async fn shop_changes(
    conn: &mut SqliteConnection,
    after: u64,
    limit: u32,
) -> Result<Vec<Change>, CatalogError> {
    let rows: Vec<ShopRow> = sqlx::query_as(
        "select s.id, s.handle, p.pod, p.epoch, p.state, p.version from placement p \
         join shop s on s.id = p.shop where p.version > $1 order by p.version limit $2",
    )
    .bind(signed(after))
    .bind(i64::from(limit) + 1)
    .fetch_all(&mut *conn)
    .await?;
    let mut changes = Vec::with_capacity(rows.len());
    for row in rows {
        let id = row.id;
        let mut hosts = shops::hosts_between(conn, id - 1, id).await?;
        let (version, shop) = shop_of(row, hosts.remove(&id).unwrap_or_default())?;
        changes.push(Change {
            version,
            now: Now::Shop(shop),
        });
    }
    Ok(changes)
}

async fn removals(
    conn: &mut SqliteConnection,
    after: u64,
    limit: u32,
) -> Result<Vec<Change>, CatalogError> {
    let rows: Vec<(i64, i64)> = sqlx::query_as(
        "select version, shop from shop_tombstone where version > $1 order by version limit $2",
    )
    .bind(signed(after))
    .bind(i64::from(limit) + 1)
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(version, shop)| {
            Ok(Change {
                version: unsigned(version)?,
                now: Now::ShopRemoved(shop_id(shop)?),
            })
        })
        .collect()
}
