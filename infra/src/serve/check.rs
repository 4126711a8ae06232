//! Checks of what requests say, each with the field and the way out. What passes here can be stored.

use shared::{Handle, Host};

use super::currency::is_currency;
use super::failure::{Answer, Failure};
use crate::api::{ShopNew, WORD_RULE, is_word};
use crate::catalog::{Domains, HOSTS_PER_SHOP_MAX, NewShop};

// Pods and their endpoints.
mod pod;
pub(super) use pod::pod;

/// What a shop pays for when nobody says.
const PLAN: &str = "standard";
/// What it sells in when nobody says.
const CURRENCY: &str = "USD";
/// Reasons and labels are read by people in one line.
pub(super) const TEXT_LEN_MAX: usize = 200;
/// The column at the pod.
pub(super) const LABEL_LEN_MAX: usize = 80;

/// Handles that would be taken for something of the platform's own, or that mail and browsers look for by themselves.
const RESERVED: &str = "admin api app apps assets autoconfig autodiscover cdn checkout console control dashboard data \
    dev dns edge email ftp health healthz help hostmaster imap internal local localhost login mail \
    metrics mx ns1 ns2 operator platform podhost pop postmaster readyz root security smtp ssl static \
    status support webmaster wpad www";

/// Checks `POST /v1/shops`.
pub(super) fn shop(new: ShopNew, domains: &Domains) -> Answer<NewShop> {
    let ShopNew {
        handle,
        plan,
        currency,
        region,
        pod,
        hosts,
    } = new;
    let handle = self::handle(&handle, domains)?;
    let plan = word("plan", plan.unwrap_or_else(|| PLAN.into()))?;
    let currency = currency.unwrap_or_else(|| CURRENCY.into());
    if !is_currency(&currency) {
        let text = format!("{currency:?} is not the ISO 4217 code of a currency in use (\"USD\")");
        return Err(Failure::field("currency", text));
    }
    let region = region.map(|r| word("region", r)).transpose()?;
    let pod = pod.map(|p| word("pod", p)).transpose()?;
    if hosts.len() > HOSTS_PER_SHOP_MAX {
        return Err(Failure::field(
            "hosts",
            format!("more than {HOSTS_PER_SHOP_MAX}"),
        ));
    }
    let mut checked: Vec<Host> = Vec::with_capacity(hosts.len());
    for (index, text) in hosts.iter().enumerate() {
        let host = host(&format!("hosts[{index}]"), text, domains)?;
        if !checked.contains(&host) {
            checked.push(host);
        }
    }
    Ok(NewShop {
        handle,
        plan,
        currency,
        region,
        pod,
        hosts: checked,
    })
}

fn handle(text: &str, domains: &Domains) -> Answer<Handle> {
    let handle: Handle = text
        .parse()
        .map_err(|e: shared::id::Invalid| Failure::field("handle", e.to_string()))?;
    let name = format!("{handle}.{}", domains.base);
    if RESERVED.split(' ').any(|word| word == handle.as_str()) || name == domains.platform.as_str()
    {
        let text = format!("{text:?} is reserved for the platform; choose another handle");
        return Err(Failure::field("handle", text));
    }
    if name.len() > shared::id::HOST_LEN_MAX {
        return Err(Failure::field(
            "handle",
            format!("{name} is too long for a host name"),
        ));
    }
    Ok(handle)
}

/// Checks a domain that is to be a shop's.
pub(super) fn host(field: &str, text: &str, domains: &Domains) -> Answer<Host> {
    let host: Host = text
        .parse()
        .map_err(|e: shared::id::Invalid| Failure::field(field, e.to_string()))?;
    let name = host.as_str();
    let bad = |why: String| Err(Failure::field(field, why));
    if name == domains.platform.as_str() {
        return bad(format!("{name} is the platform's own domain"));
    }
    let below = |base: &str| {
        name.strip_suffix(base)
            .is_some_and(|rest| rest.ends_with('.'))
    };
    let base = domains.base.as_str();
    if name == base || below(base) {
        return bad(format!(
            "{name} is under {base}, where a shop has the name of its handle and no other"
        ));
    }
    if name.parse::<std::net::Ipv4Addr>().is_ok() {
        return bad(format!(
            "{name} is an IP address; a shop is named by a domain"
        ));
    }
    if !name.contains('.') {
        return bad(format!("{name} has one label; a domain has at least two"));
    }
    Ok(host)
}

/// A word of `a-z`, `0-9`, `-`, `_` and `.`.
fn word(field: &str, text: String) -> Answer<String> {
    if is_word(&text) {
        return Ok(text);
    }
    let shown: String = text.chars().take(80).collect();
    Err(Failure::field(
        field,
        format!("{shown:?} is not {WORD_RULE}"),
    ))
}

/// A line for people: a reason or a label.
pub(super) fn line(field: &str, text: Option<String>, len_max: usize) -> Answer<Option<String>> {
    let Some(text) = text else { return Ok(None) };
    let text = text.trim();
    if text.chars().count() > len_max {
        return Err(Failure::field(
            field,
            format!("longer than {len_max} characters"),
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(Failure::field(
            field,
            "it holds a control character; one line of text is meant",
        ));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains() -> Domains {
        Domains {
            base: "shops.example".parse().unwrap(),
            platform: "www.platform.example".parse().unwrap(),
        }
    }

    /// Changes a good request in one field.
    type Spoil = fn(&mut ShopNew);

    const SPOILT: [(Spoil, &str); 13] = [
        (|s| s.handle = "Snow".into(), "handle"),
        (|s| s.handle = "123".into(), "handle"),
        (|s| s.handle = "www".into(), "handle"),
        (|s| s.plan = Some("a b".into()), "plan"),
        (|s| s.currency = Some("usd".into()), "currency"),
        (|s| s.region = Some(String::new()), "region"),
        (|s| s.pod = Some("../1".into()), "pod"),
        (|s| s.hosts[1] = "x.shops.example".into(), "hosts[1]"),
        (|s| s.hosts[1] = "shops.example".into(), "hosts[1]"),
        (|s| s.hosts[1] = "www.platform.example".into(), "hosts[1]"),
        (|s| s.hosts[1] = "10.0.0.1".into(), "hosts[1]"),
        (|s| s.hosts[1] = "single".into(), "hosts[1]"),
        (|s| s.hosts[1] = "b.example:80".into(), "hosts[1]"),
    ];

    #[test]
    fn a_shop_is_checked_field_by_field() {
        let hosts = vec!["B.example".into(), "b.example.".into()];
        let good = ShopNew {
            handle: "snow".into(),
            hosts,
            ..ShopNew::default()
        };
        let made = shop(good.clone(), &domains()).unwrap();
        assert_eq!(
            (made.plan.as_str(), made.currency.as_str()),
            (PLAN, CURRENCY)
        );
        assert_eq!(made.hosts.len(), 1, "two spellings of one host");
        for (spoil, field) in SPOILT {
            let mut new = good.clone();
            spoil(&mut new);
            let failure = shop(new.clone(), &domains()).unwrap_err();
            assert_eq!(failure.field.as_deref(), Some(field), "{new:?}");
        }
    }

    #[test]
    fn the_platforms_own_label_is_reserved() {
        let domains = Domains {
            base: "p.example".parse().unwrap(),
            platform: "go.p.example".parse().unwrap(),
        };
        assert!(handle("go", &domains).is_err());
        assert!(handle("gone", &domains).is_ok());
    }
}
