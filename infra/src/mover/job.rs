//! What every part of a mover is told: which shop, from where to where, under which owner number, within which limits.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use secrecy::SecretString;
use shared::moves::MoveId;
use shared::{Epoch, PodId, ShopId};
use tokio_util::sync::CancellationToken;

use super::error::MoveError;
use super::limits::MoveLimits;
use super::progress::Progress;
use crate::api::Address;

/// One run of a mover: from a takeover to the next. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// The move.
    pub(crate) id: MoveId,
    /// Which takeover this is. Every transaction of the mover compares it with the home's.
    pub(crate) owner: u64,
    /// The shop that moves.
    pub(crate) shop: ShopId,
    /// Where it is.
    pub(crate) source: End,
    /// Where it goes.
    pub(crate) target: End,
    /// The epoch at the source.
    pub(crate) source_epoch: Epoch,
    /// The epoch reserved for the target.
    pub(crate) target_epoch: Epoch,
    /// The shop comes back: the target has its old rows, and its home an older mark.
    pub(crate) back: bool,
    /// How long the source's copy is kept after the hand-over, for a move back.
    pub(crate) observe: Duration,
    /// An operator's word: the source is gone for good.
    pub(crate) source_gone: bool,
    /// The folder of this move's files on the control server's disk: keys that do not fit into memory.
    pub(crate) dir: PathBuf,
    /// Sizes, times and rates.
    pub(crate) limits: Arc<MoveLimits>,
    /// Counters that an operator watches.
    pub(crate) progress: Arc<Progress>,
    /// Cancelled when this run ends: by an order, a lost lease, or the end of the server, which ends a fence first. Whatever
    /// waits looks at it.
    pub(crate) stop: CancellationToken,
}

/// The primary of one pod, as the catalog named it when the run began.
#[derive(Debug, Clone)]
pub(crate) struct End {
    /// The pod.
    pub(crate) pod: PodId,
    /// Its primary.
    pub(crate) primary: Address,
    /// Its replicas: their lag throttles the work.
    pub(crate) replicas: Vec<Address>,
    /// The number of this primary; another one in `pod_identity` means that the primary changed.
    pub(crate) term: u64,
    /// The operator's account there.
    pub(crate) user: String,
    /// Its password, read for this run.
    pub(crate) password: SecretString,
    /// Why its servers or its password are not known, where that is so: nobody can log in there.
    pub(crate) unknown: Option<Arc<str>>,
    /// Transactions that moves of this server have committed at the pod: what tells them from those of its shops.
    pub(crate) commits: Arc<AtomicU64>,
}

impl End {
    /// Looks whether a server that says so of itself is the primary that is meant; one without a row in `pod_identity` says
    /// nothing.
    pub(crate) fn is_greeted_by(
        &self,
        pod: Option<u64>,
        term: Option<u64>,
    ) -> Result<(), MoveError> {
        if (pod, term) == (Some(self.pod.get().into()), Some(self.term)) {
            return Ok(());
        }
        let show = |n: Option<u64>| n.map_or_else(|| "none".to_owned(), |n| n.to_string());
        Err(MoveError::PrimaryChanged {
            pod: self.pod,
            text: format!(
                "{} says pod {} and term {}, expected was pod {} and term {}",
                self.primary,
                show(pod),
                show(term),
                self.pod,
                self.term
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod's server of before, which another one has taken the place of, and a server of another pod.
    #[test]
    fn only_the_primary_of_this_term_is_the_one_that_is_meant() {
        let end = End {
            pod: PodId::new(2).unwrap(),
            primary: Address {
                host: "127.0.0.1".into(),
                port: 3306,
            },
            replicas: Vec::new(),
            term: 7,
            user: "nobody".into(),
            password: String::new().into(),
            unknown: None,
            commits: Arc::default(),
        };
        assert!(end.is_greeted_by(Some(2), Some(7)).is_ok());
        for (pod, term, says) in [
            (Some(2), Some(6), "says pod 2 and term 6"),
            (Some(2), Some(8), "says pod 2 and term 8"),
            (Some(1), Some(7), "says pod 1 and term 7"),
            (None, None, "says pod none and term none"),
        ] {
            let error = end.is_greeted_by(pod, term).unwrap_err();
            assert!(matches!(error, MoveError::PrimaryChanged { .. }));
            assert!(error.brief().contains(says), "{}", error.brief());
        }
    }
}
