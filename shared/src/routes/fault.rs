//! What can be wrong with a route table, and whether a new one may replace the one in use.

use std::fmt;

use super::RouteTable;
use super::wire::Counts;
use crate::{Epoch, Handle, Host, PodId, ShopId};

/// So many faults of one table are kept: enough to see the pattern, and one bad export does not fill the log.
pub const FAULTS_KEPT_MAX: usize = 100;

/// One thing that is wrong with a table or a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum Fault {
    #[error("line {line}: {error}")]
    Line { line: u64, error: String },
    #[error("line {line} is longer than {} bytes", super::wire::LINE_LEN_MAX)]
    LineTooLong { line: u64 },
    #[error("line {line} comes after the end line")]
    AfterEnd { line: u64 },
    #[error("no end line after {lines} lines: the table was cut off on the way")]
    NoEnd { lines: u64 },
    #[error("the end line says {} pods and {} shops, there were {} and {}", said.pods, said.shops, seen.pods, seen.shops)]
    Counts { said: Counts, seen: Counts },
    #[error("pod {0} is listed twice")]
    PodTwice(PodId),
    #[error("pod {pod} lists its address {address} twice")]
    AddressTwice {
        pod: PodId,
        address: std::net::SocketAddr,
    },
    #[error("pod {pod} has the address {address}, which cannot be connected to")]
    Address {
        pod: PodId,
        address: std::net::SocketAddr,
    },
    #[error("pods {first} and {second} both have the address {address}")]
    AddressShared {
        address: std::net::SocketAddr,
        first: PodId,
        second: PodId,
    },
    #[error(
        "pod {pod} has {count} addresses, more than {}",
        super::ADDRESSES_PER_POD_MAX
    )]
    Addresses { pod: PodId, count: usize },
    #[error("shop {0} is listed twice")]
    ShopTwice(ShopId),
    #[error("shop {shop} is on pod {pod}, which is not in the table")]
    UnknownPod { shop: ShopId, pod: PodId },
    #[error("handle {handle} is of shop {first} and of shop {second}")]
    HandleTwice {
        handle: Handle,
        first: ShopId,
        second: ShopId,
    },
    #[error("host {host} is of shop {first} and of shop {second}")]
    HostTwice {
        host: Host,
        first: ShopId,
        second: ShopId,
    },
    #[error(
        "shop {shop} has {count} hosts, more than {}",
        super::HOSTS_PER_SHOP_MAX
    )]
    Hosts { shop: ShopId, count: usize },
    #[error("the table has no room for shop {0}")]
    Full(ShopId),
    #[error("shop {shop} goes back from epoch {} to {}", from.get(), to.get())]
    EpochBack {
        shop: ShopId,
        from: Epoch,
        to: Epoch,
    },
    #[error("shop {shop} has two owners at epoch {}: pods {first} and {second}", epoch.get())]
    TwoOwners {
        shop: ShopId,
        epoch: Epoch,
        first: PodId,
        second: PodId,
    },
    #[error("the changes are of incarnation {got}, the table is of {held}")]
    Incarnation { held: u64, got: u64 },
    #[error("change {second} comes after change {first}, or after the version that the feed says")]
    Order { first: u64, second: u64 },
}

/// Faults of one table: the first [`FAULTS_KEPT_MAX`] and how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    kept: Vec<Fault>,
    total: usize,
}

impl Faults {
    pub(super) fn push(&mut self, fault: Fault) {
        self.total += 1;
        if self.kept.len() < FAULTS_KEPT_MAX {
            self.kept.push(fault);
        }
    }

    pub(super) fn append(&mut self, other: Self) {
        self.total += other.total - other.kept.len();
        for fault in other.kept {
            self.push(fault);
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// How many there are, kept or not.
    pub const fn total(&self) -> usize {
        self.total
    }

    /// The first of them.
    pub fn kept(&self) -> &[Fault] {
        &self.kept
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the route table has {} faults", self.total)?;
        for (index, fault) in self.kept.iter().enumerate() {
            f.write_str(if index == 0 { ": " } else { "; " })?;
            fault.fmt(f)?;
        }
        if self.total > self.kept.len() {
            write!(f, "; and {} more", self.total - self.kept.len())?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Why a valid table does not replace the one in use. The edge keeps serving by the old one, keeps the new one aside,
/// and raises an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum Refusal {
    #[error(
        "the new table is at version {new}, the one in use at {held}, of the same incarnation {incarnation}"
    )]
    Backwards {
        held: u64,
        new: u64,
        incarnation: u64,
    },
    #[error("the new table has {new} shops, the one in use {held}: half of them or more are gone")]
    Shrunk { held: usize, new: usize },
    #[error("the new table is of another incarnation and has no shop, the one in use has {held}")]
    Emptied { held: usize },
}

impl Refusal {
    /// The label in metrics and logs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Backwards { .. } => "backwards",
            Self::Shrunk { .. } => "shrunk",
            Self::Emptied { .. } => "emptied",
        }
    }
}

/// Whether `new` may take the place of `held`. A table of another incarnation may: its catalog was restored, by
/// an operator's deed, and neither version nor size can be compared with what was before. Only an empty one may not: that
/// is a catalog that was lost and begun anew, and the shops that are served are better than none.
pub fn check_replacement(held: &RouteTable, new: &RouteTable) -> Result<(), Refusal> {
    if held.incarnation() != new.incarnation() {
        return if new.is_empty() && !held.is_empty() {
            Err(Refusal::Emptied { held: held.len() })
        } else {
            Ok(())
        };
    }
    let (before, after) = (held.version(), new.version());
    if after < before {
        return Err(Refusal::Backwards {
            held: before,
            new: after,
            incarnation: held.incarnation(),
        });
    }
    let (before, after) = (held.len(), new.len());
    if before > 0 && after <= before / 2 {
        return Err(Refusal::Shrunk {
            held: before,
            new: after,
        });
    }
    Ok(())
}
