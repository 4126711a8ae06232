//! The cookie that remembers a shop on the platform domain: `<shop>.<unix s>.<key id>.<mac>`.
//!
//! It is set when a path (`/s/<handle>/...`) named the shop, so that a page's links and forms without that prefix
//! find it again. It is signed, since a client must not choose a shop by a header of its own making, and has an age,
//! since a key that is rotated out must not be needed for ever.

use std::time::Duration;

use shared::ShopId;
use shared::keys::FleetKeys;
use shared::wire::SHOP_COOKIE;

const PURPOSE: &str = "podhost_shop";
/// Another edge's clock may be this far ahead.
const CLOCK_SKEW_S: u64 = 60;

/// What a request's cookie says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// The shop.
    pub(crate) shop: ShopId,
    /// When the cookie was set.
    pub(crate) set_s: u64,
}

/// The value of a `Set-Cookie` field for a shop.
pub(crate) fn set(keys: &FleetKeys, shop: ShopId, now_s: u64, age: Duration) -> String {
    let (shop, now) = (shop.to_string(), now_s.to_string());
    let seal = keys.seal(PURPOSE, &[shop.as_bytes(), now.as_bytes()]);
    let age_s = age.as_secs();
    format!("{SHOP_COOKIE}={shop}.{now}.{seal}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax")
}

/// Reads the cookie from the `Cookie` fields of a request. Anything that is not a good one is no cookie: a browser
/// cannot do better than send what it has.
pub(crate) fn get<'a>(
    keys: &FleetKeys,
    fields: impl Iterator<Item = &'a [u8]>,
    now_s: u64,
    age: Duration,
) -> Option<Remembered> {
    fields
        .filter_map(|field| std::str::from_utf8(field).ok())
        .flat_map(|field| field.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(SHOP_COOKIE)?.strip_prefix('='))
        .find_map(|value| open(keys, value, now_s, age))
}

fn open(keys: &FleetKeys, value: &str, now_s: u64, age: Duration) -> Option<Remembered> {
    let (shop, rest) = value.split_once('.')?;
    let (set, seal) = rest.split_once('.')?;
    let parts = [shop.as_bytes(), set.as_bytes()];
    let (shop, set_s) = (shop.parse::<ShopId>().ok()?, set.parse::<u64>().ok()?);
    // The cheap checks first: most cookies that fail are old.
    let fresh = set_s <= now_s.saturating_add(CLOCK_SKEW_S) && now_s < set_s + age.as_secs();
    (fresh && keys.opens(PURPOSE, &parts, seal)).then_some(Remembered { shop, set_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(3600);

    fn read(keys: &FleetKeys, header: &str, now_s: u64) -> Option<Remembered> {
        get(keys, [header.as_bytes()].into_iter(), now_s, AGE)
    }

    #[test]
    fn a_cookie_is_read_back_until_it_is_old() {
        let keys = FleetKeys::generate("k1").unwrap();
        let shop = ShopId::new(7).unwrap();
        let value = set(&keys, shop, 1_000_000, AGE);
        let (pair, attributes) = value.split_once(';').unwrap();
        assert!(attributes.contains("HttpOnly") && attributes.contains("SameSite=Lax"));
        let header = format!("a=b; {pair}; c=d");
        let expected = Remembered {
            shop,
            set_s: 1_000_000,
        };
        assert_eq!(read(&keys, &header, 1_000_100), Some(expected));
        assert_eq!(read(&keys, &header, 1_003_599), Some(expected));
        assert_eq!(read(&keys, &header, 1_003_600), None, "too old");
        assert_eq!(read(&keys, &header, 999_000), None, "from the future");
    }

    #[test]
    fn a_cookie_of_somebody_else_s_making_is_none() {
        let keys = FleetKeys::generate("k1").unwrap();
        let value = set(&keys, ShopId::new(7).unwrap(), 1_000_000, AGE);
        let pair = value.split_once(';').unwrap().0;
        let other_shop = pair.replace("=7.", "=8.");
        let other_time = pair.replace(".1000000.", ".1000001.");
        let other_keys = FleetKeys::generate("k1").unwrap();
        for forged in [
            other_shop.as_str(),
            &other_time,
            "podhost_shop=7",
            "podhost_shop=7.1000000",
            "podhost_shop=7.1000000.k1.AAAA",
            "podhost_shop=+7.1000000.k1.AAAA",
            "podhost_shop=",
            "podhost_shopx=1",
        ] {
            assert_eq!(read(&keys, forged, 1_000_000), None, "{forged}");
        }
        assert_eq!(read(&other_keys, pair, 1_000_000), None);
        // A second, good cookie of the name is found behind a bad one.
        assert!(read(&keys, &format!("{other_shop}; {pair}"), 1_000_000).is_some());
    }
}
