//! Ids of shops and pods, handles and hosts.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text or a number is not the id it should be. `Display` names the thing and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {got:?} is not valid: {rule}")]
pub struct Invalid {
    what: &'static str,
    got: String,
    rule: &'static str,
}

impl Invalid {
    pub(crate) fn new(
        what: &'static str,
        got: &(impl ToString + ?Sized),
        rule: &'static str,
    ) -> Self {
        // A hostile value must not fill a log line.
        let got = got.to_string().chars().take(80).collect();
        Self { what, got, rule }
    }
}

macro_rules! numeric_id {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $raw:ty, $what:literal, $rule:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "u64", into = "u64")]
        pub struct $name($inner);

        impl $name {
            /// Checks a number; zero and numbers that are too large are refused.
            pub fn new(raw: u64) -> Result<Self, Invalid> {
                <$raw>::try_from(raw)
                    .ok()
                    .and_then(<$inner>::new)
                    .map(Self)
                    .ok_or_else(|| Invalid::new($what, &raw, $rule))
            }

            /// The number itself, for SQL and wire formats.
            pub const fn get(self) -> $raw {
                self.0.get()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                let raw = parse_decimal(text).ok_or_else(|| Invalid::new($what, text, $rule))?;
                Self::new(raw)
            }
        }

        impl TryFrom<u64> for $name {
            type Error = Invalid;
            fn try_from(raw: u64) -> Result<Self, Invalid> {
                Self::new(raw)
            }
        }

        impl From<$name> for u64 {
            fn from(id: $name) -> u64 {
                u64::from(id.0.get())
            }
        }
    };
}

numeric_id!(
    /// A shop: the tenant. `bigint unsigned` in every table; given out by the catalog.
    ShopId, NonZeroU64, u64, "shop id", "it is a positive whole number of 64 bits"
);
numeric_id!(
    /// A pod: a full stack that owns shops.
    PodId, NonZeroU32, u32, "pod id", "it is a positive whole number of 32 bits"
);

/// Parses digits only: `u64::from_str` alone would also take a leading `+`.
pub(crate) fn parse_decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A shop's short name, unique in the fleet, usable as a DNS label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Handle(Box<str>);

/// A DNS label has at most 63 octets (RFC 1035 section 2.3.4).
const HANDLE_LEN_MAX: usize = 63;

const HANDLE_RULE: &str =
    "1 to 63 of a-z, 0-9 and '-', with a letter, no '-' first or last, and no 'xn--' first";

impl Handle {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Handle {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let ok = !text.is_empty()
            && text.len() <= HANDLE_LEN_MAX
            && text.bytes().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-')
            // A handle of digits alone could not be told from an id on a command line.
            && text.bytes().any(|b| b.is_ascii_lowercase())
            && !text.starts_with("xn--");
        if ok {
            Ok(Self(text.into()))
        } else {
            Err(Invalid::new("handle", text, HANDLE_RULE))
        }
    }
}

/// A host name as it is compared everywhere: lower-case A-labels, no port, no trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Host(Box<str>);

/// RFC 1035 section 2.3.4, without the trailing dot.
pub const HOST_LEN_MAX: usize = 253;

const HOST_RULE: &str = "it is a DNS name in ASCII (an international name as its A-labels, 'xn--...') or an IPv4 address";

impl Host {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the `Host` field or `:authority` of a request: cuts the port and one trailing dot, lowers the case.
    /// Raw UTF-8 is refused (RFC 9110 section 7.2 allows only A-labels on the wire), and so is a port that is not one.
    pub fn from_authority(text: &str) -> Result<Self, Invalid> {
        let bad = || Invalid::new("host", text, HOST_RULE);
        let name = match text.rsplit_once(':') {
            Some((name, port)) => {
                // An empty port is allowed by RFC 3986 section 3.2.3.
                let port_ok = port.is_empty()
                    || parse_decimal(port).is_some_and(|p| p <= u64::from(u16::MAX));
                if !port_ok {
                    return Err(bad());
                }
                name
            }
            None => text,
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        check_host(name)
            .then(|| Self(name.to_ascii_lowercase().into()))
            .ok_or_else(bad)
    }
}

fn check_host(name: &str) -> bool {
    let label_ok = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.is_empty() || name.len() > HOST_LEN_MAX || !name.split('.').all(label_ok) {
        return false;
    }
    // A punycode label that decodes to nothing valid could be a second spelling of another name.
    let punycode = |label: &str| {
        label
            .get(..4)
            .is_some_and(|l| l.eq_ignore_ascii_case("xn--"))
    };
    !name.split('.').any(punycode)
        || idna::domain_to_ascii_strict(name).is_ok_and(|a| a.eq_ignore_ascii_case(name))
}

impl FromStr for Host {
    type Err = Invalid;
    /// Reads a name without a port, as an operator types it.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.contains(':') {
            return Err(Invalid::new("host", text, HOST_RULE));
        }
        Self::from_authority(text)
    }
}

macro_rules! text_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(text: String) -> Result<Self, Invalid> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(it: $name) -> String {
                it.0.into()
            }
        }
    };
}
text_id!(Handle);
text_id!(Host);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_refuse_what_is_not_one() {
        for bad in [
            "",
            "0",
            "+1",
            "-1",
            "1.0",
            "18446744073709551616",
            " 1",
            "1 ",
        ] {
            assert!(bad.parse::<ShopId>().is_err(), "{bad:?}");
        }
        assert_eq!(
            "18446744073709551615".parse::<ShopId>().unwrap().get(),
            u64::MAX
        );
        assert!("4294967296".parse::<PodId>().is_err());
    }

    #[test]
    fn hosts_have_one_spelling() {
        for same in [
            "Shop.Example",
            "shop.example.",
            "SHOP.EXAMPLE:8443",
            "shop.example:",
        ] {
            assert_eq!(
                Host::from_authority(same).unwrap().as_str(),
                "shop.example",
                "{same}"
            );
        }
        for bad in [
            "",
            ".",
            "a..b",
            "shop.example:x",
            "shop.example:70000",
            "bücher.de",
            "a b",
            "[::1]",
        ] {
            assert!(Host::from_authority(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            Host::from_authority("XN--bcher-KVA.de").unwrap().as_str(),
            "xn--bcher-kva.de"
        );
    }

    #[test]
    fn handles_are_dns_labels() {
        for bad in ["", "-a", "a-", "A", "a_b", "123", "xn--a", &"a".repeat(64)] {
            assert!(bad.parse::<Handle>().is_err(), "{bad:?}");
        }
        assert!("snow-9".parse::<Handle>().is_ok());
    }

    fn label() -> impl Strategy<Value = String> {
        "[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,20}[a-zA-Z0-9_])?"
            .prop_filter("punycode has rules of its own", |l| {
                !l.to_ascii_lowercase().starts_with("xn--")
            })
    }

    proptest! {
        #[test]
        fn a_host_is_the_same_in_every_spelling(
            labels in prop::collection::vec(label(), 1..6),
            dot in any::<bool>(),
            port in prop::option::of(any::<u16>()),
        ) {
            let plain = labels.join(".");
            let dot = if dot { "." } else { "" };
            let port = port.map_or_else(String::new, |port| format!(":{port}"));
            let host = Host::from_authority(&format!("{plain}{dot}{port}")).unwrap();
            prop_assert_eq!(host.as_str(), plain.to_ascii_lowercase());
            prop_assert_eq!(host.as_str().parse::<Host>(), Ok(host.clone()));
        }

        #[test]
        fn whatever_is_taken_for_a_host_is_in_its_one_form(text in "\\PC{0,60}|[a-zA-Z0-9.:_\\[\\]-]{0,60}|(xn--[a-z0-9-]{0,20}\\.){1,3}com") {
            if let Ok(host) = Host::from_authority(&text) {
                let again = Host::from_authority(host.as_str());
                prop_assert_eq!(again.as_ref(), Ok(&host));
                prop_assert!(host.as_str().bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase()));
                prop_assert!(!host.as_str().contains(':') && !host.as_str().ends_with('.'));
            }
        }

        #[test]
        fn handles_can_be_labels_of_hosts(text in "[a-z0-9-]{0,70}") {
            if let Ok(handle) = text.parse::<Handle>() {
                let host: Host = format!("{handle}.localhost").parse().unwrap();
                prop_assert_eq!(host.as_str(), format!("{handle}.localhost"));
            }
        }
    }
}
