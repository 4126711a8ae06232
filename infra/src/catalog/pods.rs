//! Pods, their endpoints, and who is a pod's primary.

use shared::PodId;
use sqlx::SqliteConnection;

use super::{Catalog, CatalogError, pod_id, signed, unsigned, word};
use crate::api::{Address, Endpoint, EndpointKind, EndpointRole, Pod, PodStatus, Topology};

/// A row of `pod`, with the number of its shops.
#[derive(Debug, sqlx::FromRow)]
struct PodRow {
    id: i64,
    name: String,
    region: String,
    pool: String,
    class: String,
    max_shops: i64,
    status: String,
    term: i64,
    version: i64,
    topology_version: i64,
    shops: i64,
}

/// `select` of [`PodRow`]; shops that are being made count, since their room is reserved.
macro_rules! select_pod {
    ($tail:literal) => {
        concat!(
            "select d.id, d.name, d.region, d.pool, d.class, d.max_shops, d.status, d.term, d.version, \
             d.topology_version, (select count(*) from placement p where p.pod = d.id) + (select count(*) \
             from operation o where o.pod = d.id and o.kind = 'shop-create' and o.state = 'running') as shops \
             from pod d ",
            $tail
        )
    };
}

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
            pods.push(pod_of(row)?.0);
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
        Ok(find(&mut view, reference).await?.0)
    }

    /// Where a pod's servers are.
    pub async fn topology(&self, reference: &str) -> Result<Topology, CatalogError> {
        let mut view = self.snapshot().await?;
        let (pod, version) = find(&mut view, reference).await?;
        let mut topology = Topology {
            version,
            pod: pod.id,
            term: pod.term,
            primary: None,
            replicas: Vec::new(),
            redis: None,
        };
        for endpoint in &pod.endpoints {
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
        let (pod, _) = find(&mut view, &pod.to_string()).await?;
        let mut servers = Vec::new();
        for endpoint in pod
            .endpoints
            .into_iter()
            .filter(|e| e.kind == EndpointKind::Mysql)
        {
            servers.push(MysqlServer {
                primary: endpoint.role == EndpointRole::Primary,
                address: address_of(&endpoint.address)?,
                secret: endpoint.secret,
            });
        }
        Ok((pod.term, servers))
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
        let (mut pod, _) = find(change.conn(), reference).await?;
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
        let (pod, _) = find(change.conn(), reference).await?;
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

/// A pod by id or name, with its topology's version.
pub(super) async fn find(
    conn: &mut SqliteConnection,
    reference: &str,
) -> Result<(Pod, u64), CatalogError> {
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
    let (mut pod, topology_version) = pod_of(row)?;
    let endpoints: Vec<EndpointRow> = sqlx::query_as(
        "select pod, kind, role, address, socket, secret from pod_endpoint where pod = $1 order by position",
    )
    .bind(id)
    .fetch_all(conn)
    .await?;
    for endpoint in endpoints {
        pod.endpoints.push(endpoint.into_api()?);
    }
    Ok((pod, topology_version))
}

fn pod_of(row: PodRow) -> Result<(Pod, u64), CatalogError> {
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
        topology_version,
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
    Ok((pod, unsigned(topology_version)?))
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
