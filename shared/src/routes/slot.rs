//! A shop as the route table stores it: one cache line, with its names in it unless they are long.

use crate::{Epoch, Placement, PlacementState, PodId, ShopId};

/// Between the names of a shop; in no handle and no host.
const BETWEEN: u8 = b'\n';
/// What is left of a cache line. A handle of 12 letters and a domain of 25 fit.
const INLINE_LEN_MAX: usize = 38;

/// Which kind of name: a shop may have the handle `snow` while another has the host `snow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NameKind {
    Handle,
    Host,
}

/// A shop as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) placement: Packed,
    names: Names,
}

const _: () = assert!(size_of::<Option<Slot>>() == 64);

/// `handle\nhost\nhost`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Names {
    Inline {
        len: u8,
        bytes: [u8; INLINE_LEN_MAX],
    },
    Heap(Box<[u8]>),
}

impl Names {
    fn new(joined: &[u8]) -> Self {
        match u8::try_from(joined.len()) {
            Ok(len) if joined.len() <= INLINE_LEN_MAX => {
                let mut bytes = [0; INLINE_LEN_MAX];
                bytes[..joined.len()].copy_from_slice(joined);
                Self::Inline { len, bytes }
            }
            Ok(_) | Err(_) => Self::Heap(joined.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }
}

/// [`Placement`] without the padding of its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed {
    shop: ShopId,
    epoch: Epoch,
    pod: PodId,
    state: PlacementState,
}

impl Packed {
    pub(super) const fn shop(&self) -> ShopId {
        self.shop
    }
}

impl From<Packed> for Placement {
    fn from(packed: Packed) -> Self {
        let Packed {
            shop,
            epoch,
            pod,
            state,
        } = packed;
        Self {
            shop,
            pod,
            epoch,
            state,
        }
    }
}

impl From<Placement> for Packed {
    fn from(placement: Placement) -> Self {
        let Placement {
            shop,
            pod,
            epoch,
            state,
        } = placement;
        Self {
            shop,
            epoch,
            pod,
            state,
        }
    }
}

/// Names are ASCII; they were checked when they were made.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl Slot {
    pub(super) fn new<'a>(
        placement: Placement,
        handle: &'a str,
        hosts: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut joined = handle.as_bytes().to_vec();
        for host in hosts {
            joined.push(BETWEEN);
            joined.extend_from_slice(host.as_bytes());
        }
        Self {
            placement: placement.into(),
            names: Names::new(&joined),
        }
    }

    fn split(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.names.bytes().split(|byte| *byte == BETWEEN)
    }

    pub(super) fn handle(&self) -> &str {
        self.split().next().map_or("", text)
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> + Clone {
        self.split().skip(1).map(text)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (NameKind, &str)> + Clone {
        let hosts = self.hosts().map(|host| (NameKind::Host, host));
        std::iter::once((NameKind::Handle, self.handle())).chain(hosts)
    }

    pub(super) fn has(&self, kind: NameKind, name: &str) -> bool {
        let name = name.as_bytes();
        match kind {
            NameKind::Handle => self.split().next() == Some(name),
            NameKind::Host => self.split().skip(1).any(|host| host == name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_names_are_kept_alike() {
        let placement = Placement {
            shop: ShopId::new(1).unwrap(),
            pod: PodId::new(1).unwrap(),
            epoch: Epoch::FIRST,
            state: PlacementState::Serving,
        };
        for length in 0..80 {
            let host = "h".repeat(length);
            let hosts = [host.as_str(), "other"];
            let slot = Slot::new(placement, "snow", hosts.into_iter());
            assert_eq!(slot.handle(), "snow");
            assert_eq!(slot.hosts().collect::<Vec<_>>(), hosts);
            assert!(slot.has(NameKind::Host, "other") && slot.has(NameKind::Handle, "snow"));
            assert!(!slot.has(NameKind::Host, "snow") && !slot.has(NameKind::Handle, "sno"));
            assert!(!slot.has(NameKind::Host, "othe") && !slot.has(NameKind::Handle, "other"));
        }
    }
}
