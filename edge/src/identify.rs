//! Which shop a request is for. Pure: the route table and the request decide.

use std::num::NonZeroUsize;

use http::header::{self, HeaderMap};
use shared::routes::RouteTable;
use shared::{Handle, Host, Placement, wire};

use crate::cookie::Remembered;

/// Where the platform domain's paths that name a shop begin.
const PATH_PREFIX: &str = "/s/";

/// The domains under which shops without a domain of their own answer.
#[derive(Debug, Clone)]
pub(crate) struct Domains {
    /// `<handle>.<base>` is a shop.
    pub(crate) base: Host,
    /// `<platform>/s/<handle>/` is a shop.
    pub(crate) platform: Host,
}

/// How a request named its shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// By a registered domain.
    Host,
    /// By `<handle>.<base domain>`.
    Handle,
    /// By a path on the platform domain: so many bytes of it are the prefix, and not the pod's.
    Path(NonZeroUsize),
    /// By the cookie on the platform domain.
    Cookie,
}

impl Named {
    /// The label in the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Handle => "handle",
            Self::Path(_) => "path",
            Self::Cookie => "cookie",
        }
    }
}

/// Why a request has no host that could name anything; the text is for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadHost {
    #[error("the request has no Host field")]
    Missing,
    #[error("the request has more than one Host field")]
    Several,
    #[error("the Host field is not a host name in ASCII")]
    Malformed,
}

/// The one host of a request, in its one spelling. That an absolute target agrees with it, Pingora has checked.
pub(crate) fn host(headers: &HeaderMap) -> Result<Host, BadHost> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().ok_or(BadHost::Missing)?;
    if hosts.next().is_some() {
        return Err(BadHost::Several);
    }
    let text = host.to_str().map_err(|_| BadHost::Malformed)?;
    Host::from_authority(text).map_err(|_| BadHost::Malformed)
}

/// Finds the shop, in the order of the design: registered domain, `<handle>.<base domain>`, path, cookie. `path` is
/// without the query; `cookie` is read only where it counts.
pub(crate) fn shop(
    table: &RouteTable,
    domains: &Domains,
    host: &Host,
    path: &str,
    cookie: impl FnOnce() -> Option<Remembered>,
) -> Option<(Placement, Named)> {
    if let Some(placement) = table.lookup_host(host) {
        return Some((placement, Named::Host));
    }
    if let Some(handle) = subdomain(host.as_str(), domains.base.as_str()) {
        let handle = handle.parse().ok()?;
        return Some((table.lookup_handle(&handle)?, Named::Handle));
    }
    if *host != domains.platform {
        return None;
    }
    if let Some(text) = path.strip_prefix(PATH_PREFIX) {
        let text = text.split_once('/').map_or(text, |(handle, _)| handle);
        let cut = NonZeroUsize::new(PATH_PREFIX.len() + text.len())?;
        let handle: Handle = text.parse().ok()?;
        return Some((table.lookup_handle(&handle)?, Named::Path(cut)));
    }
    Some((table.lookup_shop(cookie()?.shop)?, Named::Cookie))
}

/// Whether what is left of a path for the pod is between edges and pods: no client of a shop asks there.
pub(crate) fn is_between(path: &str, named: Named) -> bool {
    let cut = match named {
        Named::Path(cut) => cut.get(),
        Named::Host | Named::Handle | Named::Cookie => 0,
    };
    let rest = path.get(cut..);
    rest.is_some_and(|rest| rest.starts_with(wire::BETWEEN))
}

fn subdomain<'a>(host: &'a str, base: &str) -> Option<&'a str> {
    host.strip_suffix(base)?.strip_suffix('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::routes::wire::{Header, Line, Pod, PodStatus, Shop};
    use shared::{Epoch, PlacementState, PodId, ShopId};

    fn table() -> RouteTable {
        let header = Header {
            incarnation: 1,
            version: 1,
            base_domain: "shops.example".parse().unwrap(),
            platform_domain: "shops.example".parse().unwrap(),
        };
        let pod = Pod {
            id: PodId::new(1).unwrap(),
            name: "one".into(),
            status: PodStatus::Active,
            http: vec![],
        };
        let shop = |id, handle: &str, hosts: &[&str]| {
            Line::Shop(Shop {
                id: ShopId::new(id).unwrap(),
                handle: handle.parse().unwrap(),
                hosts: hosts.iter().map(|h| h.parse().unwrap()).collect(),
                pod: PodId::new(1).unwrap(),
                epoch: Epoch::FIRST,
                state: PlacementState::Serving,
            })
        };
        let lines = [
            Line::Pod(pod),
            shop(1, "snow", &["snow.example", "odd.shops.example"]),
            shop(2, "rain", &[]),
            shop(3, "odd", &[]),
        ];
        RouteTable::build(header, lines).unwrap()
    }

    fn named(host: &str, path: &str, cookie: Option<u64>) -> Option<(u64, &'static str)> {
        let domain: Host = "shops.example".parse().unwrap();
        let domains = Domains {
            base: domain.clone(),
            platform: domain,
        };
        let cookie = cookie.map(|shop| Remembered {
            shop: ShopId::new(shop).unwrap(),
            set_s: 0,
        });
        let host = Host::from_authority(host).unwrap();
        shop(&table(), &domains, &host, path, || cookie)
            .map(|(placement, named)| (placement.shop.get(), named.as_str()))
    }

    #[test]
    fn a_shop_is_named_in_four_ways_and_in_this_order() {
        for (host, path, cookie, expected) in [
            ("snow.example", "/", None, Some((1, "host"))),
            ("SNOW.example.:8443", "/", None, Some((1, "host"))),
            ("snow.example", "/s/rain/", Some(2), Some((1, "host"))),
            ("rain.shops.example", "/", Some(1), Some((2, "handle"))),
            ("rain.shops.example", "/s/snow/", None, Some((2, "handle"))),
            // A registered domain goes before a handle, also below the base domain.
            ("odd.shops.example", "/", None, Some((1, "host"))),
            ("shops.example", "/s/rain", None, Some((2, "path"))),
            ("shops.example", "/s/rain/a", Some(1), Some((2, "path"))),
            ("shops.example", "/a", Some(1), Some((1, "cookie"))),
            ("shops.example", "/", None, None),
            ("shops.example", "/", Some(9), None),
            // A path that tries to name a shop is not overruled by a cookie.
            ("shops.example", "/s/none/", Some(1), None),
            ("shops.example", "/s//", Some(1), None),
            ("shops.example", "/s/Rain/", Some(1), None),
            ("shops.example", "/s/rain%2f", Some(1), None),
            ("none.shops.example", "/", Some(1), None),
            ("a.rain.shops.example", "/", None, None),
            ("rainshops.example", "/", None, None),
            ("other.example", "/s/rain/", Some(1), None),
        ] {
            assert_eq!(
                named(host, path, cookie),
                expected,
                "{host} {path} {cookie:?}"
            );
        }
    }

    #[test]
    fn the_prefix_that_is_cut_ends_before_the_slash() {
        let domain: Host = "shops.example".parse().unwrap();
        let domains = Domains {
            base: domain.clone(),
            platform: domain.clone(),
        };
        for (path, rest) in [("/s/rain", ""), ("/s/rain/", "/"), ("/s/rain/a/b", "/a/b")] {
            let found = shop(&table(), &domains, &domain, path, || None);
            let Some((_, Named::Path(cut))) = found else {
                panic!("{path} names no shop");
            };
            assert_eq!(&path[cut.get()..], rest);
        }
    }

    #[test]
    fn what_is_between_edges_and_pods_is_known_by_what_the_pod_would_get() {
        let cut = Named::Path(NonZeroUsize::new("/s/rain".len()).unwrap());
        for (path, named, expected) in [
            ("/-/lets-in", Named::Host, true),
            ("/-/", Named::Handle, true),
            ("/-/a/b", Named::Cookie, true),
            ("/s/rain/-/healthz", cut, true),
            ("/-", Named::Host, false),
            ("/-a", Named::Host, false),
            ("/a/-/b", Named::Host, false),
            ("/", Named::Host, false),
            ("/s/rain", cut, false),
            ("/s/rain/a/-/", cut, false),
            // A path that names no shop here is the shop's own.
            ("/s/rain/-/healthz", Named::Host, false),
        ] {
            assert_eq!(is_between(path, named), expected, "{path} {named:?}");
        }
    }

    #[test]
    fn a_request_has_one_host() {
        let headers = |hosts: &[&'static str]| {
            let mut map = HeaderMap::new();
            for host in hosts {
                map.append(header::HOST, host.parse().unwrap());
            }
            map
        };
        assert_eq!(
            host(&headers(&["A.example:80"])).unwrap().as_str(),
            "a.example"
        );
        assert_eq!(host(&headers(&[])), Err(BadHost::Missing));
        assert_eq!(
            host(&headers(&["a.example", "a.example"])),
            Err(BadHost::Several)
        );
        for bad in ["", "a b", "[::1]", "a.example:x", "bücher.example"] {
            let value = http::HeaderValue::from_bytes(bad.as_bytes()).unwrap();
            let map = HeaderMap::from_iter([(header::HOST, value)]);
            assert_eq!(host(&map), Err(BadHost::Malformed), "{bad}");
        }
    }
}
