//! Which peers may say for whom they speak.

use std::net::IpAddr;

/// Which peers may say for whom they speak: the addresses of load balancers in front of the edge.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustedProxies(Vec<(IpAddr, u8)>);

impl TrustedProxies {
    /// Reads `10.0.0.0/8` or `10.0.0.1`.
    pub(crate) fn parse(texts: &[String]) -> Result<Self, String> {
        let one = |text: &String| {
            let bad = || format!("{text:?} is not an address or a network such as 10.0.0.0/8");
            let (address, bits) = match text.split_once('/') {
                Some((address, bits)) => (address, Some(bits)),
                None => (text.as_str(), None),
            };
            let address: IpAddr = address.parse().map_err(|_| bad())?;
            let width = if address.is_ipv4() { 32 } else { 128 };
            let bits = match bits {
                Some(bits) => bits.parse().ok().filter(|b| *b <= width).ok_or_else(bad)?,
                None => width,
            };
            Ok((address, bits))
        };
        texts.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn contains(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.0.iter().any(|(network, bits)| {
            // The bits in which the two differ, from the left.
            let differ = match (network, peer) {
                (IpAddr::V4(network), IpAddr::V4(peer)) => {
                    u128::from(network.to_bits() ^ peer.to_bits()) << 96
                }
                (IpAddr::V6(network), IpAddr::V6(peer)) => network.to_bits() ^ peer.to_bits(),
                (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
            };
            differ.leading_zeros() >= u32::from(*bits)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_what_they_say() {
        let trusted = |text: &str| TrustedProxies::parse(&[text.to_owned()]).unwrap();
        for (network, peer, inside) in [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8::/32", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
            ("::/0", "192.0.2.1", false),
        ] {
            let peer: IpAddr = peer.parse().unwrap();
            assert_eq!(trusted(network).contains(peer), inside, "{network} {peer}");
        }
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "host",
            "10.0.0.0/8/8",
            "::/129",
        ] {
            assert!(TrustedProxies::parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
