//! What the control server shall know of a pod.

use shared::PodId;

use super::{Kind, Layout, Wanted, mysql_name};
use crate::api::{Endpoint, EndpointKind, EndpointRole, Pod, PodPut, PodStatus};
use crate::fleet_file::PodWish;

impl Layout {
    /// The registration of a pod. One that is known keeps the status that operators gave it and the primary that it
    /// has; a new one is opened and takes no shops until it serves.
    pub(crate) fn registration(&self, wish: &PodWish, known: Option<&Pod>) -> PodPut {
        let PodWish {
            id,
            name,
            region,
            pool,
            class,
            max_shops,
            replicas: _,
            processes: _,
        } = wish;
        let stores = self
            .of_pod(*id, Kind::Mysql)
            .into_iter()
            .chain(self.of_pod(*id, Kind::Redis));
        let endpoints = self.of_pod(*id, Kind::Pod).into_iter().chain(stores);
        PodPut {
            name: name.clone(),
            region: region.clone(),
            pool: pool.clone(),
            class: class.clone(),
            max_shops: *max_shops,
            status: known.map_or(PodStatus::Draining, |pod| pod.status),
            endpoints: endpoints
                .filter_map(|it| self.endpoint(*id, it, known))
                .collect(),
        }
    }

    /// Whether the control server knows a pod just so.
    pub(crate) fn is_registered(&self, wish: &PodWish, known: &Pod) -> bool {
        let PodPut {
            name,
            region,
            pool,
            class,
            max_shops,
            status: _,
            endpoints,
        } = self.registration(wish, Some(known));
        let sorted = |endpoints: &[Endpoint]| {
            let mut endpoints = endpoints.to_vec();
            endpoints.sort_by(|a, b| a.address.cmp(&b.address));
            endpoints
        };
        known.name == name
            && known.region == region
            && known.pool == pool
            && known.class == class
            && known.max_shops == max_shops
            && sorted(&known.endpoints) == sorted(&endpoints)
    }

    fn endpoint(&self, pod: PodId, wanted: &Wanted, known: Option<&Pod>) -> Option<Endpoint> {
        let facts = &wanted.unit.facts;
        let (kind, address) = match wanted.unit.kind {
            Kind::Pod => (
                EndpointKind::Http,
                facts.http.as_ref()?.strip_prefix("http://")?.to_owned(),
            ),
            Kind::Mysql => (EndpointKind::Mysql, format!("127.0.0.1:{}", facts.port?)),
            Kind::Redis => (EndpointKind::Redis, format!("127.0.0.1:{}", facts.port?)),
            Kind::Control | Kind::Edge => return None,
        };
        let role = match kind {
            EndpointKind::Http => EndpointRole::Process,
            EndpointKind::Redis => EndpointRole::Cache,
            EndpointKind::Mysql => {
                let first = wanted.unit.name == mysql_name(pod, 1);
                role_of(&address, first, known)
            }
        };
        let is_mysql = kind == EndpointKind::Mysql;
        let secret = is_mysql
            .then(|| {
                wanted
                    .secret
                    .as_ref()
                    .map(|file| format!("file:{}", file.display()))
            })
            .flatten();
        let socket = facts
            .socket
            .as_ref()
            .map(|socket| socket.display().to_string());
        Some(Endpoint {
            kind,
            role,
            address,
            socket,
            secret,
        })
    }
}

/// The first server is a new pod's primary; later the catalog says who is.
fn role_of(address: &str, first: bool, known: Option<&Pod>) -> EndpointRole {
    let known = known.and_then(|pod| pod.endpoints.iter().find(|it| it.address == address));
    match known {
        Some(endpoint) => endpoint.role,
        None if first => EndpointRole::Primary,
        None => EndpointRole::Replica,
    }
}

#[cfg(test)]
impl PodPut {
    /// The pod as the control server shows it after this.
    pub(crate) fn into_pod(self, id: PodId) -> Pod {
        let Self {
            name,
            region,
            pool,
            class,
            max_shops,
            status,
            endpoints,
        } = self;
        Pod {
            id,
            name,
            region,
            pool,
            class,
            max_shops,
            status,
            shops: 0,
            term: 1,
            version: 1,
            endpoints,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::tests::{fleet, layout, pod};

    #[test]
    fn a_new_pod_takes_no_shops_and_has_its_first_server_as_primary_and_no_password_in_it() {
        let fleet = fleet(vec![pod(1, "north"), pod(2, "south")]);
        let layout = layout(&fleet);
        let put = layout.registration(&fleet.pods[1], None);
        assert_eq!(put.status, PodStatus::Draining);
        let roles: Vec<_> = put.endpoints.iter().map(|it| it.role.as_str()).collect();
        assert_eq!(
            roles,
            [
                "process", "process", "primary", "replica", "replica", "cache"
            ]
        );
        let secret = put.endpoints[2].secret.as_deref();
        assert_eq!(secret, Some("file:/h/secrets/pod-2-mysql-podhost_operator"));
    }

    #[test]
    fn a_pod_keeps_the_primary_and_the_status_that_it_has() {
        let fleet = fleet(vec![pod(1, "north")]);
        let layout = layout(&fleet);
        let mut known = layout
            .registration(&fleet.pods[0], None)
            .into_pod(fleet.pods[0].id);
        known.status = PodStatus::Offline;
        known.endpoints[2].role = EndpointRole::Replica;
        known.endpoints[3].role = EndpointRole::Primary;
        // In whatever order it lists them.
        known.endpoints.reverse();
        assert!(layout.is_registered(&fleet.pods[0], &known));
        let put = layout.registration(&fleet.pods[0], Some(&known));
        assert_eq!(put.status, PodStatus::Offline);
        assert_eq!(put.endpoints[3].role, EndpointRole::Primary);
    }
}
