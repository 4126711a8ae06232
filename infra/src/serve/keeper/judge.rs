//! Whether a primary may be opened: a pure function of what the servers say.
//!
//! A restarted primary has committed, by crash recovery, what nobody acknowledged. It is opened only when a replica
//! that may acknowledge holds its whole executed set; then nothing that it shows can be lost with it alone.

use shared::PodId;

use crate::pod_store::{Identity, ServerLook};

/// A listed replica, as far as it could be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReplicaSeen {
    /// `host:port`, for the reason.
    pub(super) address: String,
    /// What it says; `None` when it could not be reached.
    pub(super) look: Option<ServerLook>,
    /// Whether it has executed all that the primary has.
    pub(super) holds: bool,
}

/// Why a primary stays shut. `Display` says the way out where there is one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Shut {
    #[error("the catalog names no primary; register one (podctl apply)")]
    Unnamed,
    #[error("the primary cannot be reached: {0}")]
    Unreachable(String),
    #[error("the primary is in offline mode: it was taken out of service")]
    OfflineMode,
    #[error("the primary follows {0}: it was not made a primary (podctl doctor)")]
    Follows(String),
    #[error("the primary's database has no identity: it is not provisioned (podctl apply)")]
    NoIdentity,
    #[error("the primary's database is pod {0}'s; look at the endpoints of both pods")]
    OtherPod(u32),
    #[error(
        "the primary's database has the term {found}, the catalog only {known}: the catalog is an older copy; put the newest in its place"
    )]
    NewerTerm { found: u64, known: u64 },
    #[error("the primary has no semi-synchronous replication plugin: look at its defaults file")]
    NoSemisync,
    #[error("no replica follows it that may acknowledge ({0})")]
    NoReplica(String),
    #[error("no replica that may acknowledge holds all that it has executed yet")]
    Behind,
    #[error("no replica acknowledges to it yet")]
    NoAcknowledger,
    #[error("writing the term was not acknowledged: {0}")]
    Term(String),
    #[error("a step failed: {0}")]
    Step(String),
}

impl Shut {
    /// The label in metrics.
    pub(super) const fn slug(&self) -> &'static str {
        match self {
            Self::Unnamed => "unnamed",
            Self::Unreachable(_) => "unreachable",
            Self::OfflineMode => "offline-mode",
            Self::Follows(_) => "follows",
            Self::NoIdentity => "no-identity",
            Self::OtherPod(_) => "other-pod",
            Self::NewerTerm { .. } => "newer-term",
            Self::NoSemisync => "no-semisync",
            Self::NoReplica(_) => "no-replica",
            Self::Behind => "behind",
            Self::NoAcknowledger => "no-acknowledger",
            Self::Term(_) => "term",
            Self::Step(_) => "step",
        }
    }

    /// Whether a person must do something: time alone does not mend it.
    pub(super) const fn needs_a_person(&self) -> bool {
        match self {
            Self::Unnamed
            | Self::Follows(_)
            | Self::NoIdentity
            | Self::OtherPod(_)
            | Self::NewerTerm { .. }
            | Self::NoSemisync => true,
            // Nothing falls into offline mode by itself: a stop of the fleet or a person put it there, and knows.
            Self::OfflineMode
            | Self::Unreachable(_)
            | Self::NoReplica(_)
            | Self::Behind
            | Self::NoAcknowledger
            | Self::Term(_)
            | Self::Step(_) => false,
        }
    }
}

/// Whether the primary may be opened, replicas aside: is it the right server, under a term that is not too new?
pub(super) fn fit(
    pod: PodId,
    term: u64,
    primary: &ServerLook,
    identity: Option<Identity>,
) -> Result<(), Shut> {
    if primary.offline {
        return Err(Shut::OfflineMode);
    }
    // An applier that still works off what it received makes the server execute more than was seen of it.
    if let Some(source) = &primary.follows
        && (!source.receiver_stopped || source.applying)
    {
        return Err(Shut::Follows(format!("{}:{}", source.host, source.port)));
    }
    let identity = identity.ok_or(Shut::NoIdentity)?;
    if identity.pod != pod.get() {
        return Err(Shut::OtherPod(identity.pod));
    }
    if identity.term > term {
        return Err(Shut::NewerTerm {
            found: identity.term,
            known: term,
        });
    }
    if primary.source_on.is_none() {
        return Err(Shut::NoSemisync);
    }
    Ok(())
}

/// Whether a replica holds what the primary could lose.
pub(super) fn covered(primary: &ServerLook, replicas: &[ReplicaSeen]) -> Result<(), Shut> {
    let mut reasons = Vec::new();
    let mut may_acknowledge = false;
    for ReplicaSeen {
        address,
        look,
        holds,
    } in replicas
    {
        match unfit(primary, look.as_ref()) {
            Some(reason) => reasons.push(format!("{address} {reason}")),
            None if *holds => return Ok(()),
            None => may_acknowledge = true,
        }
    }
    if may_acknowledge {
        return Err(Shut::Behind);
    }
    if reasons.is_empty() {
        reasons.push("none is listed".to_owned());
    }
    Err(Shut::NoReplica(reasons.join(", ")))
}

/// Why a replica may not acknowledge to this primary; `None` when it may.
pub(super) fn unfit(primary: &ServerLook, replica: Option<&ServerLook>) -> Option<&'static str> {
    let Some(replica) = replica else {
        return Some("cannot be reached");
    };
    let Some(source) = &replica.follows else {
        return Some("follows nobody");
    };
    if source.source_uuid != primary.uuid {
        Some("follows another server")
    } else if !source.receiving {
        Some("does not receive")
    } else if !source.applying {
        Some("does not apply")
    } else if replica.replica_on != Some(true) {
        Some("does not acknowledge (its semi-sync replica side is off)")
    } else if !replica.super_read_only {
        Some("is not super_read_only")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_store::ReplicaLook;

    fn primary() -> ServerLook {
        ServerLook {
            uuid: "p".into(),
            read_only: true,
            super_read_only: true,
            offline: false,
            executed: "p:1-5".into(),
            source_on: Some(false),
            replica_on: Some(true),
            acknowledgers: 0,
            follows: None,
        }
    }

    fn follower() -> ServerLook {
        let follows = ReplicaLook {
            host: "127.0.0.1".into(),
            port: 1,
            source_uuid: "p".into(),
            receiving: true,
            receiver_stopped: false,
            applying: true,
            error: None,
        };
        ServerLook {
            uuid: "r".into(),
            follows: Some(follows),
            ..primary()
        }
    }

    fn seen(look: Option<ServerLook>, holds: bool) -> ReplicaSeen {
        ReplicaSeen {
            address: "127.0.0.1:2".into(),
            look,
            holds,
        }
    }

    fn changed(change: impl Fn(&mut ServerLook)) -> Option<ServerLook> {
        let mut look = follower();
        change(&mut look);
        Some(look)
    }

    /// Invariant 3: what only the restarted primary has must not be shown before a replica holds it too.
    #[test]
    fn inv3_a_primary_opens_only_when_an_acknowledging_replica_holds_everything() {
        let primary = primary();
        assert_eq!(covered(&primary, &[seen(Some(follower()), true)]), Ok(()));
        assert_eq!(
            covered(&primary, &[seen(Some(follower()), false)]),
            Err(Shut::Behind)
        );
        let source = |change: fn(&mut ReplicaLook)| {
            changed(|look| {
                if let Some(follows) = &mut look.follows {
                    change(follows);
                }
            })
        };
        let bad = [
            None,
            changed(|look| look.follows = None),
            source(|f| f.source_uuid = "other".into()),
            source(|f| f.receiving = false),
            source(|f| f.applying = false),
            changed(|look| look.replica_on = Some(false)),
            changed(|look| look.replica_on = None),
            changed(|look| look.super_read_only = false),
        ];
        // A replica that holds everything but may not acknowledge does not count, alone or beside one that is behind.
        for look in bad {
            let replicas = [seen(look.clone(), true)];
            assert!(
                matches!(covered(&primary, &replicas), Err(Shut::NoReplica(_))),
                "{look:?}"
            );
            let replicas = [seen(look, true), seen(Some(follower()), false)];
            assert_eq!(covered(&primary, &replicas), Err(Shut::Behind));
        }
        assert!(matches!(covered(&primary, &[]), Err(Shut::NoReplica(_))));
    }

    #[test]
    fn a_primary_that_is_not_the_one_meant_stays_shut() {
        let pod = PodId::new(1).unwrap();
        let at = |term| Some(Identity { pod: 1, term });
        assert_eq!(fit(pod, 3, &primary(), at(3)), Ok(()));
        assert_eq!(fit(pod, 3, &primary(), at(0)), Ok(()));
        let newer = Shut::NewerTerm { found: 4, known: 3 };
        assert_eq!(fit(pod, 3, &primary(), at(4)), Err(newer));
        let other = Some(Identity { pod: 2, term: 0 });
        assert_eq!(fit(pod, 3, &primary(), other), Err(Shut::OtherPod(2)));
        assert_eq!(fit(pod, 3, &primary(), None), Err(Shut::NoIdentity));
        let offline = ServerLook {
            offline: true,
            ..primary()
        };
        assert_eq!(fit(pod, 3, &offline, at(3)), Err(Shut::OfflineMode));
        let bare = ServerLook {
            source_on: None,
            ..primary()
        };
        assert_eq!(fit(pod, 3, &bare, at(3)), Err(Shut::NoSemisync));
        // Only a server that neither receives nor applies any more has been made a primary.
        for (receiver_stopped, applying, promoted) in [
            (false, true, false),
            (false, false, false),
            (true, true, false),
            (true, false, true),
        ] {
            let mut former = follower();
            if let Some(source) = &mut former.follows {
                (source.receiver_stopped, source.applying) = (receiver_stopped, applying);
            }
            let judged = fit(pod, 3, &former, at(3));
            assert_eq!(judged.is_ok(), promoted, "{judged:?}");
            assert!(promoted || matches!(judged, Err(Shut::Follows(_))));
        }
    }
}
