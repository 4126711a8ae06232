//! Checks of pods and their endpoints.

use shared::Host;
use shared::config::SecretRef;

use super::super::failure::{Answer, Failure};
use super::word;
use crate::api::{Endpoint, EndpointKind, EndpointRole, PodPut};
use crate::fleet_file::SHOPS_PER_POD_MAX;

/// Processes, servers and caches of one pod: more want a pod of their own.
const ENDPOINTS_MAX: usize = 64;

/// Checks `PUT /v1/pods/{id}`.
pub(in crate::serve) fn pod(put: PodPut) -> Answer<PodPut> {
    let PodPut {
        name,
        region,
        pool,
        class,
        max_shops,
        status,
        endpoints,
    } = put;
    let name = word("name", name)?;
    if name.bytes().all(|b| b.is_ascii_digit()) {
        let text = format!("{name:?} has no letter: it could not be told from an id");
        return Err(Failure::field("name", text));
    }
    if !(1..=SHOPS_PER_POD_MAX).contains(&max_shops) {
        return Err(Failure::field(
            "max_shops",
            format!("not within 1 and {SHOPS_PER_POD_MAX}"),
        ));
    }
    if endpoints.len() > ENDPOINTS_MAX {
        return Err(Failure::field(
            "endpoints",
            format!("more than {ENDPOINTS_MAX}"),
        ));
    }
    for (index, one) in endpoints.iter().enumerate() {
        endpoint(&format!("endpoints[{index}]"), one)?;
        let twice = |other: &Endpoint| (other.kind, &other.address) == (one.kind, &one.address);
        if endpoints[..index].iter().any(twice) {
            let text = format!("{} is there twice", one.address);
            return Err(Failure::field(&format!("endpoints[{index}].address"), text));
        }
    }
    let count = |role| endpoints.iter().filter(|e| e.role == role).count();
    let servers = endpoints
        .iter()
        .filter(|e| e.kind == EndpointKind::Mysql)
        .count();
    if count(EndpointRole::Primary) != usize::from(servers > 0) {
        return Err(Failure::field(
            "endpoints",
            "of the mysql servers exactly one is the primary",
        ));
    }
    if count(EndpointRole::Cache) > 1 {
        return Err(Failure::field("endpoints", "a pod has one cache"));
    }
    Ok(PodPut {
        name,
        region: word("region", region)?,
        pool: word("pool", pool)?,
        class: word("class", class)?,
        max_shops,
        status,
        endpoints,
    })
}

fn endpoint(field: &str, endpoint: &Endpoint) -> Answer<()> {
    let Endpoint {
        kind,
        role,
        address,
        socket,
        secret,
    } = endpoint;
    let fits = match kind {
        EndpointKind::Http => *role == EndpointRole::Process,
        EndpointKind::Mysql => matches!(role, EndpointRole::Primary | EndpointRole::Replica),
        EndpointKind::Redis => *role == EndpointRole::Cache,
    };
    if !fits {
        let text = format!("{} cannot be a {}", kind.as_str(), role.as_str());
        return Err(Failure::field(&format!("{field}.role"), text));
    }
    let field_address = format!("{field}.address");
    match kind {
        EndpointKind::Http => {
            // An edge resolves no name while a request waits.
            if address.parse::<std::net::SocketAddr>().is_err() {
                let text = format!("{address:?} is not an IP address with a port");
                return Err(Failure::field(&field_address, text));
            }
        }
        EndpointKind::Mysql | EndpointKind::Redis => {
            let parsed = address.rsplit_once(':').filter(|(host, port)| {
                let name = host.parse::<Host>().is_ok() || host.parse::<std::net::IpAddr>().is_ok();
                name && port.parse::<u16>().is_ok_and(|p| p > 0)
            });
            if parsed.is_none() {
                let text = format!("{address:?} is not host:port");
                return Err(Failure::field(&field_address, text));
            }
        }
    }
    if socket.as_ref().is_some_and(|s| !s.starts_with('/')) {
        return Err(Failure::field(
            &format!("{field}.socket"),
            "not an absolute path",
        ));
    }
    if let Some(secret) = secret
        && let Err(error) = secret.parse::<SecretRef>()
    {
        // The text is not repeated: it may be the secret itself.
        return Err(Failure::field(
            &format!("{field}.secret"),
            error.to_string(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_place_of_a_reference_is_refused_and_not_repeated() {
        let server = Endpoint {
            kind: EndpointKind::Mysql,
            role: EndpointRole::Primary,
            address: "127.0.0.1:3306".into(),
            socket: None,
            secret: Some("hunter2".into()),
        };
        let failure = endpoint("endpoints[0]", &server).unwrap_err();
        assert_eq!(failure.field.as_deref(), Some("endpoints[0].secret"));
        assert!(!failure.detail.unwrap().contains("hunter2"));
    }
}
