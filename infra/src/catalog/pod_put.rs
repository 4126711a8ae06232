//! Registering a pod, and making one be as apply wants it.

use shared::PodId;
use sqlx::SqliteConnection;

use super::pods::find;
use super::{Catalog, CatalogError, Change, buckets, signed};
use crate::api::{Endpoint, EndpointKind, EndpointRole, Pod, PodPut};

impl Catalog {
    /// Makes a pod be as told; the same again changes nothing and takes no version. Who is primary stays as the catalog
    /// has it once the pod exists: a fleet file knows the first primary, the catalog the present one.
    pub async fn put_pod(&self, actor: &str, id: PodId, put: &PodPut) -> Result<Pod, CatalogError> {
        let mut change = self.change(actor).await?;
        let text = id.to_string();
        let old = match find(change.conn(), &text).await {
            Ok(pod) => Some(pod),
            Err(CatalogError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        refuse_taken_name(change.conn(), id, &put.name).await?;
        refuse_taken_addresses(change.conn(), id, put).await?;
        let endpoints = settle_roles(old.as_ref(), &put.endpoints)?;
        match &old {
            Some(old) => change_pod(&mut change, old, put, &endpoints).await?,
            None => {
                insert_pod(&mut change, id, put).await?;
                write_endpoints(change.conn(), id, &endpoints).await?;
                buckets::share_out(change.conn(), id).await?;
                change
                    .note("pod-put", &put.name, Some(id), "registered")
                    .await?;
            }
        }
        let pod = find(change.conn(), &text).await?;
        change.commit().await?;
        Ok(pod)
    }
}

async fn refuse_taken_name(
    conn: &mut SqliteConnection,
    id: PodId,
    name: &str,
) -> Result<(), CatalogError> {
    let holder: Option<i64> = sqlx::query_scalar("select id from pod where name = $1 and id <> $2")
        .bind(name)
        .bind(i64::from(id.get()))
        .fetch_optional(conn)
        .await?;
    match holder {
        Some(holder) => Err(CatalogError::Taken {
            field: "name",
            name: name.to_owned(),
            holder: format!("pod {holder}"),
        }),
        None => Ok(()),
    }
}

/// One server under two pods would be opened under two terms.
async fn refuse_taken_addresses(
    conn: &mut SqliteConnection,
    id: PodId,
    put: &PodPut,
) -> Result<(), CatalogError> {
    for endpoint in &put.endpoints {
        let holder: Option<i64> = sqlx::query_scalar(
            "select pod from pod_endpoint where kind = $1 and address = $2 and pod <> $3",
        )
        .bind(endpoint.kind.as_str())
        .bind(&endpoint.address)
        .bind(i64::from(id.get()))
        .fetch_optional(&mut *conn)
        .await?;
        if let Some(holder) = holder {
            return Err(CatalogError::Taken {
                field: "endpoints",
                name: endpoint.address.clone(),
                holder: format!("pod {holder}"),
            });
        }
    }
    Ok(())
}

/// The endpoints with the catalog's own primary, once it has one.
fn settle_roles(old: Option<&Pod>, wanted: &[Endpoint]) -> Result<Vec<Endpoint>, CatalogError> {
    let primary = old.and_then(|pod| {
        pod.endpoints
            .iter()
            .find(|e| e.role == EndpointRole::Primary)
    });
    let Some(primary) = primary else {
        return Ok(wanted.to_vec());
    };
    if !wanted
        .iter()
        .any(|e| e.kind == EndpointKind::Mysql && e.address == primary.address)
    {
        return Err(CatalogError::Conflict(format!(
            "{} is the primary and is not among the endpoints; name another primary first \
             (PUT /v1/pods/{{pod}}/primary)",
            primary.address
        )));
    }
    let settled = wanted.iter().cloned().map(|mut endpoint| {
        if endpoint.kind == EndpointKind::Mysql {
            endpoint.role = if endpoint.address == primary.address {
                EndpointRole::Primary
            } else {
                EndpointRole::Replica
            };
        }
        endpoint
    });
    Ok(settled.collect())
}

async fn insert_pod(change: &mut Change<'_>, id: PodId, put: &PodPut) -> Result<(), CatalogError> {
    let PodPut {
        name,
        region,
        pool,
        class,
        max_shops,
        status,
        endpoints: _,
    } = put;
    let version = change.next_version().await?;
    sqlx::query(
        "insert into pod (id, name, region, pool, class, max_shops, status, term, first_version, version, \
         topology_version, created_ms, changed_ms) values ($1, $2, $3, $4, $5, $6, $7, 1, $8, $8, $8, $9, $9)",
    )
    .bind(i64::from(id.get()))
    .bind(name)
    .bind(region)
    .bind(pool)
    .bind(class)
    .bind(signed(*max_shops))
    .bind(status.as_str())
    .bind(version)
    .bind(change.at_ms)
    .execute(change.conn())
    .await?;
    Ok(())
}

/// Writes what differs. Edges see name, status and processes; a pod's processes see its servers.
async fn change_pod(
    change: &mut Change<'_>,
    old: &Pod,
    put: &PodPut,
    endpoints: &[Endpoint],
) -> Result<(), CatalogError> {
    let PodPut {
        name,
        region,
        pool,
        class,
        max_shops,
        status,
        endpoints: _,
    } = put;
    let of = |list: &[Endpoint], http: bool| -> Vec<Endpoint> {
        list.iter()
            .filter(|e| (e.kind == EndpointKind::Http) == http)
            .cloned()
            .collect()
    };
    let for_edges = *name != old.name
        || *status != old.status
        || of(endpoints, true) != of(&old.endpoints, true);
    let for_pods = of(endpoints, false) != of(&old.endpoints, false);
    let for_nobody =
        (region, pool, class, *max_shops) != (&old.region, &old.pool, &old.class, old.max_shops);
    if !(for_edges || for_pods || for_nobody) {
        return Ok(());
    }
    let id = i64::from(old.id.get());
    let version = change.next_version().await?;
    sqlx::query(
        "update pod set name = $1, region = $2, pool = $3, class = $4, max_shops = $5, status = $6, \
         version = case when $7 = 1 then $8 else version end, \
         topology_version = case when $9 = 1 then $8 else topology_version end, changed_ms = $10 where id = $11",
    )
    .bind(name)
    .bind(region)
    .bind(pool)
    .bind(class)
    .bind(signed(*max_shops))
    .bind(status.as_str())
    .bind(i64::from(for_edges))
    .bind(version)
    .bind(i64::from(for_pods))
    .bind(change.at_ms)
    .bind(id)
    .execute(change.conn())
    .await?;
    sqlx::query("delete from pod_endpoint where pod = $1")
        .bind(id)
        .execute(change.conn())
        .await?;
    write_endpoints(change.conn(), old.id, endpoints).await?;
    change.note("pod-put", name, Some(old.id), "changed").await
}

async fn write_endpoints(
    conn: &mut SqliteConnection,
    pod: PodId,
    endpoints: &[Endpoint],
) -> Result<(), CatalogError> {
    for (position, endpoint) in (0_i64..).zip(endpoints) {
        let Endpoint {
            kind,
            role,
            address,
            socket,
            secret,
        } = endpoint;
        sqlx::query(
            "insert into pod_endpoint (pod, kind, address, role, socket, secret, position) \
             values ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(i64::from(pod.get()))
        .bind(kind.as_str())
        .bind(address)
        .bind(role.as_str())
        .bind(socket)
        .bind(secret)
        .bind(position)
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}
