//! The headers between edge and pod, their signature, and the answer "not here". Both directions stand in this one
//! file so that they cannot drift apart.

use std::time::Duration;

use http::HeaderMap;
use uuid::Uuid;

use crate::home::Claim;
use crate::id::parse_decimal;
use crate::keys::PodKeys;
use crate::{Epoch, PodId, ShopId};

/// Which shop a request is for, decimal.
pub const SHOP: &str = "podhost-shop";
/// Which pod the edge means, decimal.
pub const POD: &str = "podhost-pod";
/// Under which epoch, decimal.
pub const EPOCH: &str = "podhost-epoch";
/// UUIDv7 of the request; the client sees it as [`REQUEST_ID`].
pub const REQUEST: &str = "podhost-request";
/// `t=<unix ms>,k=<key id>,v1=<base64url HMAC-SHA256>`.
pub const SIGNATURE: &str = "podhost-signature";
/// On a 421 of a pod: why the request was not begun. The edge takes it from the answer.
pub const FENCE: &str = "podhost-fence";
/// Paths below this are between edges and pods: the edge says to clients that there is nothing.
pub const BETWEEN: &str = "/-/";
/// A pod's answer to a signed `POST` to this path tells whether the shop's home lets a write in: 204, or what the write would
/// be told. Nothing is written.
pub const LETS_IN: &str = "/-/lets-in";
/// The session token, the only `podhost-` header a client may send.
pub const TOKEN: &str = "podhost-token";
/// The shop of the platform domain as a cookie.
pub const SHOP_COOKIE: &str = "podhost_shop";
/// What the client sees of [`REQUEST`].
pub const REQUEST_ID: &str = "x-request-id";
/// The prefix that the edge cut from the path (`/s/<handle>`).
pub const FORWARDED_PREFIX: &str = "x-forwarded-prefix";

/// How old a signature may be. The edge signs each attempt anew, so this covers the network and clock skew alone.
pub const SIGNATURE_AGE_MAX: Duration = Duration::from_secs(30);

/// How far the edge's clock may be ahead of the pod's.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(5);

/// Whether a client's header name is, or folds to, one that only the edge may set.
pub fn is_reserved(name: &str) -> bool {
    folds_to(name, "podhost-") && name != TOKEN
}

/// Whether a header name begins with a prefix in any spelling: some servers and frameworks take `_` and `.` for `-`
/// (traefik CVE-2026-88011).
pub fn folds_to(name: &str, prefix: &str) -> bool {
    let fold = |b: u8| {
        if b == b'_' || b == b'.' {
            b'-'
        } else {
            b.to_ascii_lowercase()
        }
    };
    name.len() >= prefix.len() && name.bytes().zip(prefix.bytes()).all(|(b, p)| fold(b) == p)
}

/// What the edge says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The tenant.
    pub shop: ShopId,
    /// The pod meant.
    pub pod: PodId,
    /// The epoch in the edge's table.
    pub epoch: Epoch,
    /// The request.
    pub request: Uuid,
}

/// Why a pod refuses the route headers of a request (403). `Display` is for the log; a client that sees it has gone
/// around the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A header is not there, twice there, or not of its form.
    #[error("the header {0} is missing or malformed")]
    Header(&'static str),
    /// No key of that id made this signature for this request.
    #[error("the signature is not by a key of this pod, or not for this request")]
    Signature,
    /// Older than [`SIGNATURE_AGE_MAX`].
    #[error("the signature is {0} ms old, or a clock is wrong")]
    Old(u64),
    /// More than [`CLOCK_SKEW_MAX`] in the future.
    #[error("the signature is {0} ms in the future: a clock is wrong")]
    Early(u64),
}

impl Route {
    /// The claim that the table of homes judges.
    pub const fn claim(&self, token_epoch: Option<Epoch>) -> Claim {
        Claim {
            pod: self.pod,
            epoch: self.epoch,
            token_epoch,
        }
    }

    /// The header values, in the order [`SHOP`], [`POD`], [`EPOCH`], [`REQUEST`], [`SIGNATURE`].
    /// `path` is the path with its query, as the pod receives it.
    pub fn headers(
        &self,
        keys: &PodKeys,
        unix_ms: u64,
        method: &str,
        path: &str,
    ) -> [(&'static str, String); 5] {
        let texts = self.texts();
        let t = unix_ms.to_string();
        let (k, v1) = keys.sign(&signed(&texts, &t, method, path));
        let signature = format!("t={t},k={k},v1={v1}");
        let [shop, pod, epoch, request] = texts;
        [
            (SHOP, shop),
            (POD, pod),
            (EPOCH, epoch),
            (REQUEST, request),
            (SIGNATURE, signature),
        ]
    }

    /// Reads and verifies them.
    pub fn verify(
        headers: &HeaderMap,
        keys: &PodKeys,
        unix_ms: u64,
        method: &str,
        path: &str,
    ) -> Result<Self, Refused> {
        let number = |name| parse_decimal(only(headers, name)?).ok_or(Refused::Header(name));
        let route = Self {
            shop: number(SHOP)?
                .try_into()
                .map_err(|_| Refused::Header(SHOP))?,
            pod: number(POD)?.try_into().map_err(|_| Refused::Header(POD))?,
            epoch: number(EPOCH)?
                .try_into()
                .map_err(|_| Refused::Header(EPOCH))?,
            request: only(headers, REQUEST)?
                .parse()
                .map_err(|_| Refused::Header(REQUEST))?,
        };
        let bad = Refused::Header(SIGNATURE);
        let (t, k, v1) = split_signature(only(headers, SIGNATURE)?).ok_or(bad)?;
        if !keys.verify(k, &signed(&route.texts(), t, method, path), v1) {
            return Err(Refused::Signature);
        }
        let t = parse_decimal(t).ok_or(bad)?;
        let age = unix_ms.saturating_sub(t);
        let ahead = t.saturating_sub(unix_ms);
        if u128::from(age) > SIGNATURE_AGE_MAX.as_millis() {
            return Err(Refused::Old(age));
        }
        if u128::from(ahead) > CLOCK_SKEW_MAX.as_millis() {
            return Err(Refused::Early(ahead));
        }
        Ok(route)
    }

    fn texts(&self) -> [String; 4] {
        [
            self.shop.to_string(),
            self.pod.to_string(),
            self.epoch.get().to_string(),
            self.request.to_string(),
        ]
    }
}

/// What a signature is over, in its order.
fn signed<'a>(texts: &'a [String; 4], t: &'a str, method: &'a str, path: &'a str) -> [&'a [u8]; 7] {
    let [shop, pod, epoch, request] = texts;
    [shop, pod, epoch, request, t, method, path].map(str::as_bytes)
}

/// The one value of a header; a second one is as bad as none.
fn only<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Refused> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map_err(|_| Refused::Header(name)),
        (None, _) | (Some(_), Some(_)) => Err(Refused::Header(name)),
    }
}

fn split_signature(text: &str) -> Option<(&str, &str, &str)> {
    let (t, rest) = text.strip_prefix("t=")?.split_once(",k=")?;
    let (k, v1) = rest.split_once(",v1=")?;
    Some((t, k, v1))
}

/// Why a pod answered 421: it has not begun to execute the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// This pod handed the shop over.
    Moved {
        /// To whom.
        pod: PodId,
        /// Under which epoch.
        epoch: Epoch,
    },
    /// The shop is changing hands just now.
    Fenced,
    /// The request's epoch is not the home's.
    Stale {
        /// The home's, if there is a home.
        epoch: Option<Epoch>,
    },
    /// No primary just now.
    Unready,
}

impl Fence {
    /// The label in metrics and logs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Moved { .. } => "moved",
            Self::Fenced => "fenced",
            Self::Stale { .. } => "stale",
            Self::Unready => "unready",
        }
    }

    /// The value of the header [`FENCE`].
    pub fn to_header(&self) -> String {
        match self {
            Self::Moved { pod, epoch } => format!("moved; pod={pod}; epoch={}", epoch.get()),
            Self::Fenced => "fenced".into(),
            Self::Stale { epoch: Some(epoch) } => format!("stale; epoch={}", epoch.get()),
            Self::Stale { epoch: None } => "stale".into(),
            Self::Unready => "unready".into(),
        }
    }

    /// Reads it; `None` for anything else, which the edge treats as a pod that answered nonsense.
    pub fn from_header(text: &str) -> Option<Self> {
        let mut parts = text.split("; ");
        let reason = parts.next()?;
        let mut number = |key: &str| {
            parts
                .next()?
                .strip_prefix(key)?
                .strip_prefix('=')
                .and_then(parse_decimal)
        };
        let fence = match reason {
            "moved" => Self::Moved {
                pod: number("pod")?.try_into().ok()?,
                epoch: number("epoch")?.try_into().ok()?,
            },
            "fenced" => Self::Fenced,
            "stale" if text == "stale" => Self::Stale { epoch: None },
            "stale" => Self::Stale {
                epoch: Some(number("epoch")?.try_into().ok()?),
            },
            "unready" => Self::Unready,
            _ => return None,
        };
        parts.next().is_none().then_some(fence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::FleetKeys;

    fn route() -> Route {
        Route {
            shop: ShopId::new(7).unwrap(),
            pod: PodId::new(2).unwrap(),
            epoch: Epoch::try_from(3).unwrap(),
            request: Uuid::now_v7(),
        }
    }

    fn map(headers: &[(&'static str, String)]) -> HeaderMap {
        headers
            .iter()
            .map(|(k, v)| (http::HeaderName::from_static(k), v.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_route_is_read_back_and_any_change_refused() {
        let fleet = FleetKeys::generate("k1").unwrap();
        let keys = fleet.pod(PodId::new(2).unwrap());
        let route = route();
        let now = 1_000_000;
        let good = route.headers(&keys, now, "GET", "/a?b");
        let check = |h: &HeaderMap, m, p, at| Route::verify(h, &keys, at, m, p);
        assert_eq!(check(&map(&good), "GET", "/a?b", now + 10), Ok(route));
        assert_eq!(
            check(&map(&good), "POST", "/a?b", now),
            Err(Refused::Signature)
        );
        assert_eq!(
            check(&map(&good), "GET", "/a?c", now),
            Err(Refused::Signature)
        );
        assert_eq!(
            check(&map(&good), "GET", "/a?b", now + 31_000),
            Err(Refused::Old(31_000))
        );
        assert_eq!(
            check(&map(&good), "GET", "/a?b", now - 6_000),
            Err(Refused::Early(6_000))
        );
        for index in 0..good.len() {
            let mut without = good.to_vec();
            let (name, _) = without.remove(index);
            assert_eq!(
                check(&map(&without), "GET", "/a?b", now),
                Err(Refused::Header(name))
            );
            let mut twice = map(&good);
            twice.append(name, "1".parse().unwrap());
            assert_eq!(
                check(&twice, "GET", "/a?b", now),
                Err(Refused::Header(name))
            );
        }
        let mut forged = map(&good);
        forged.insert(SHOP, "8".parse().unwrap());
        assert_eq!(check(&forged, "GET", "/a?b", now), Err(Refused::Signature));
        let other = fleet.pod(PodId::new(3).unwrap());
        assert_eq!(
            Route::verify(&map(&good), &other, now, "GET", "/a?b"),
            Err(Refused::Signature)
        );
    }

    #[test]
    fn fences_are_read_back() {
        let epoch = Epoch::try_from(9).unwrap();
        for fence in [
            Fence::Moved {
                pod: PodId::new(4).unwrap(),
                epoch,
            },
            Fence::Fenced,
            Fence::Stale { epoch: Some(epoch) },
            Fence::Stale { epoch: None },
            Fence::Unready,
        ] {
            assert_eq!(Fence::from_header(&fence.to_header()), Some(fence));
        }
        for bad in [
            "",
            "moved",
            "moved; pod=1",
            "moved; epoch=1; pod=1",
            "fenced; x",
            "stale; epoch=0",
            "x",
        ] {
            assert_eq!(Fence::from_header(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_spelling_of_a_reserved_name_is_seen() {
        for bad in [
            "podhost-shop",
            "Podhost_Shop",
            "podhost.pod",
            "PODHOST-x",
            "podhost_token",
            "podhost-",
        ] {
            assert!(is_reserved(bad), "{bad}");
        }
        for good in ["podhost-token", "podhost", "x-podhost-shop", "cookie"] {
            assert!(!is_reserved(good), "{good}");
        }
    }
}
