//! Pods, their endpoints, and who is a pod's primary.

use shared::PodId;
use sqlx::SqliteConnection;

use super::{Catalog, CatalogError, pod_id, signed, unsigned, word};
use crate::api::{Address, Endpoint, EndpointKind, EndpointRole, Pod, PodStatus, Topology};

/// A row of `pod`, with the number of its shops.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct PodRow {
    id: i64,
    name: String,
    region: String,
    pool: String,
    class: String,
    max_shops: i64,
    status: String,
    term: i64,
    version: i64,
    shops: i64,
}

/// `select` of [`PodRow`]; shops that are being made, and those on their way here, count, since their room is reserved.
macro_rules! select_pod {
    ($tail:literal) => {
        concat!(
            "select d.id, d.name, d.region, d.pool, d.class, d.max_shops, d.status, d.term, d.version, \
             (select count(*) from placement p where p.pod = d.id) + (select count(*) \
             from operation o where o.pod = d.id and o.kind = 'shop-create' and o.state = 'running') + (select count(*) \
             from move m join placement q on q.shop = m.shop where m.target_pod = d.id and q.pod <> d.id \
             and m.state not in ('done', 'aborted')) as shops \
             from pod d ",
            $tail
        )
    };
}
pub(super) use select_pod;

/// A row of `pod_endpoint`.
#[derive(Debug, sqlx::FromRow)]
struct EndpointRow {
    pod: i64,
    kind: String,
    role: String,
    address: String,
    socket: Option<String>,
    secret: Option<String>,
}

impl EndpointRow {
    fn into_api(self) -> Result<Endpoint, CatalogError> {
        let Self {
            pod: _,
            kind,
            role,
            address,
            socket,
            secret,
        } = self;
        Ok(Endpoint {
            kind: word(EndpointKind::parse(&kind), &kind)?,
            role: word(EndpointRole::parse(&role), &role)?,
            address,
            socket,
            secret,
        })
    }
}

/// One database server of a pod, with what opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MysqlServer {
    /// Whether the catalog names it primary.
    pub primary: bool,
    /// Where it listens.
    pub address: Address,
    /// Where its password is.
    pub secret: Option<String>,
}

impl Catalog {
    /// All pods, by id.
    pub async fn pods(&self) -> Result<Vec<Pod>, CatalogError> {
        let mut view = self.snapshot().await?;
        let rows: Vec<PodRow> = sqlx::query_as(select_pod!("order by d.id"))
            .fetch_all(&mut *view)
            .await?;
        let endpoints: Vec<EndpointRow> = sqlx::query_as(
            "select pod, kind, role, address, socket, secret from pod_endpoint order by pod, position",
        )
        .fetch_all(&mut *view)
        .await?;
        let mut pods: Vec<Pod> = Vec::with_capacity(rows.len());
        for row in rows {
            pods.push(pod_of(row)?);
        }
        for endpoint in endpoints {
            let owner = pod_id(endpoint.pod)?;
            if let Ok(index) = pods.binary_search_by_key(&owner, |p| p.id) {
                pods[index].endpoints.push(endpoint.into_api()?);
            }
        }
        Ok(pods)
    }

    /// A pod by id or name.
    pub async fn pod(&self, reference: &str) -> Result<Pod, CatalogError> {
        let mut view = self.snapshot().await?;
        find(&mut view, reference).await
    }

    /// The ids of all pods; their shops are not counted for it.
    pub async fn pod_ids(&self) -> Result<Vec<PodId>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let ids: Vec<i64> = sqlx::query_scalar("select id from pod order by id")
            .fetch_all(&mut *conn)
            .await?;
        ids.into_iter().map(pod_id).collect()
    }

    /// Where a pod's servers are.
    pub async fn topology(&self, reference: &str) -> Result<Topology, CatalogError> {
        let mut view = self.snapshot().await?;
        let row: Option<(i64, i64, i64)> = sqlx::query_as(
            "select id, term, topology_version from pod where name = $1 or cast(id as text) = $1",
        )
        .bind(reference)
        .fetch_optional(&mut *view)
        .await?;
        let (id, term, version) = row.ok_or_else(|| CatalogError::not_found("pod", &reference))?;
        let mut topology = Topology {
            version: unsigned(version)?,
            pod: pod_id(id)?,
            term: unsigned(term)?,
            primary: None,
            replicas: Vec::new(),
            redis: None,
        };
        for endpoint in endpoints(&mut view, id).await? {
            match endpoint.role {
                EndpointRole::Primary => topology.primary = Some(address_of(&endpoint.address)?),
                EndpointRole::Replica => topology.replicas.push(address_of(&endpoint.address)?),
                EndpointRole::Cache => {
                    topology.redis = Some(format!("redis://{}/", endpoint.address));
                }
                EndpointRole::Process => {}
            }
        }
        Ok(topology)
    }

    /// The database servers of a pod and the term of its primary.
    pub async fn mysql_servers(&self, pod: PodId) -> Result<(u64, Vec<MysqlServer>), CatalogError> {
        let mut view = self.snapshot().await?;
        let id = i64::from(pod.get());
        let term: Option<i64> = sqlx::query_scalar("select term from pod where id = $1")
            .bind(id)
            .fetch_optional(&mut *view)
            .await?;
        let term = term.ok_or_else(|| CatalogError::not_found("pod", &pod))?;
        let mut servers = Vec::new();
        for endpoint in endpoints(&mut view, id).await? {
            if endpoint.kind == EndpointKind::Mysql {
                servers.push(MysqlServer {
                    primary: endpoint.role == EndpointRole::Primary,
                    address: address_of(&endpoint.address)?,
                    secret: endpoint.secret,
                });
            }
        }
        Ok((unsigned(term)?, servers))
    }

    /// Says whether a pod takes shops, or serves at all.
    pub async fn set_pod_status(
        &self,
        actor: &str,
        reference: &str,
        status: PodStatus,
        reason: Option<&str>,
    ) -> Result<Pod, CatalogError> {
        let mut change = self.change(actor).await?;
        let mut pod = find(change.conn(), reference).await?;
        if pod.status == status {
            return Ok(pod);
        }
        let version = change.next_version().await?;
        sqlx::query("update pod set status = $1, version = $2, changed_ms = $3 where id = $4")
            .bind(status.as_str())
            .bind(version)
            .bind(change.at_ms)
            .bind(i64::from(pod.id.get()))
            .execute(change.conn())
            .await?;
        let text = format!(
            "{} to {}{}",
            pod.status.as_str(),
            status.as_str(),
            reason.map(|r| format!(": {r}")).unwrap_or_default()
        );
        change
            .note("pod-status", &pod.name, Some(pod.id), &text)
            .await?;
        change.commit().await?;
        pod.status = status;
        pod.version = unsigned(version)?;
        Ok(pod)
    }

    /// Names another primary, if the term is still the one told; the new term is the next. One update decides.
    pub async fn set_primary(
        &self,
        actor: &str,
        reference: &str,
        address: &str,
        term: u64,
    ) -> Result<(), CatalogError> {
        let mut change = self.change(actor).await?;
        let pod = find(change.conn(), reference).await?;
        let mysql = |e: &&Endpoint| e.kind == EndpointKind::Mysql && e.address == address;
        let Some(server) = pod.endpoints.iter().find(mysql) else {
            return Err(CatalogError::invalid(
                "address",
                format!("pod {} lists no database server {address:?}", pod.name),
            ));
        };
        let version = change.next_version().await?;
        let id = i64::from(pod.id.get());
        let swapped = sqlx::query(
            "update pod set term = term + 1, topology_version = $1, changed_ms = $2 where id = $3 and term = $4",
        )
        .bind(version)
        .bind(change.at_ms)
        .bind(id)
        .bind(signed(term))
        .execute(change.conn())
        .await?
        .rows_affected();
        if swapped == 0 {
            return Err(CatalogError::Stale(format!(
                "the primary of pod {} (its term is {}, not {term})",
                pod.name, pod.term
            )));
        }
        sqlx::query("update pod_endpoint set role = 'replica' where pod = $1 and role = 'primary'")
            .bind(id)
            .execute(change.conn())
            .await?;
        sqlx::query(
            "update pod_endpoint set role = 'primary' where pod = $1 and kind = 'mysql' and address = $2",
        )
        .bind(id)
        .bind(&server.address)
        .execute(change.conn())
        .await?;
        let text = format!("term {} names {address}", term.saturating_add(1));
        change
            .note("pod-primary", &pod.name, Some(pod.id), &text)
            .await?;
        change.commit().await
    }
}

/// A pod by id or name.
pub(super) async fn find(
    conn: &mut SqliteConnection,
    reference: &str,
) -> Result<Pod, CatalogError> {
    let row: Option<PodRow> = match reference.parse::<PodId>() {
        Ok(id) => {
            sqlx::query_as(select_pod!("where d.id = $1"))
                .bind(i64::from(id.get()))
                .fetch_optional(&mut *conn)
                .await?
        }
        Err(_) => {
            sqlx::query_as(select_pod!("where d.name = $1"))
                .bind(reference)
                .fetch_optional(&mut *conn)
                .await?
        }
    };
    let row = row.ok_or_else(|| CatalogError::not_found("pod", &reference))?;
    let id = row.id;
    let mut pod = pod_of(row)?;
    pod.endpoints = endpoints(conn, id).await?;
    Ok(pod)
}

async fn endpoints(conn: &mut SqliteConnection, pod: i64) -> Result<Vec<Endpoint>, CatalogError> {
    let rows: Vec<EndpointRow> = sqlx::query_as(
        "select pod, kind, role, address, socket, secret from pod_endpoint where pod = $1 order by position",
    )
    .bind(pod)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(EndpointRow::into_api).collect()
}

/// A pod without its endpoints.
pub(super) fn pod_of(row: PodRow) -> Result<Pod, CatalogError> {
    let PodRow {
        id,
        name,
        region,
        pool,
        class,
        max_shops,
        status,
        term,
        version,
        shops,
    } = row;
    let pod = Pod {
        id: pod_id(id)?,
        name,
        region,
        pool,
        class,
        max_shops: unsigned(max_shops)?,
        status: word(PodStatus::parse(&status), &status)?,
        shops: unsigned(shops)?,
        term: unsigned(term)?,
        version: unsigned(version)?,
        endpoints: Vec::new(),
    };
    Ok(pod)
}

/// Reads `host:port`.
pub(crate) fn address_of(text: &str) -> Result<Address, CatalogError> {
    text.rsplit_once(':')
        .filter(|(host, _)| !host.is_empty())
        .and_then(|(host, port)| {
            Some(Address {
                host: host.to_owned(),
                port: port.parse().ok()?,
            })
        })
        .ok_or_else(|| CatalogError::Corrupt(format!("the address {text:?}")))
}
