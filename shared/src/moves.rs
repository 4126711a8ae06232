//! The states of a move, and the one table of how they follow each other.
//!
//! A move brings a shop from its owner, the source at epoch n, to a target at the epoch that the move reserved when it was
//! created (n+1 or later). [`MoveState::after`] is the whole meaning of the words; whoever drives a move does the side
//! effects, asks the table for the next state and writes it to the catalog. [`MoveState::ordered`] is the table of what an
//! operator may order in which state.

use std::fmt;

use serde::{Deserialize, Serialize};

// How a move is named.
mod id;

pub use id::MoveId;

/// Where a move stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveState {
    /// Looking whether it can be done; nothing is changed at the source.
    Preparing,
    /// The source's rows are copied in chunks, the changed keys collected.
    Copying,
    /// What changed meanwhile is made equal.
    CatchingUp,
    /// Both sides are compared.
    Verifying,
    /// The shop's writes are stopped for a moment; the rest of the changes is applied and compared.
    Fenced,
    /// The owner changes. The catalog's step, inside this state, is the point of no return.
    Cutover,
    /// The target sells; the source's copy is kept as it was.
    Observing,
    /// The source's copy is dumped and deleted.
    Retiring,
    /// Over: the target owns the shop, or a later move took it back.
    Done,
    /// An operator stopped it where it changed nobody's writes.
    Paused,
    /// Being undone: the source serves again, then the move is closed.
    Aborting,
    /// Over: the source owns the shop.
    Aborted,
    /// Stopped with a reason, the source serving; an operator starts it anew or aborts it.
    Failed,
}

/// What happens to a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MoveEvent {
    /// Everything needed was found, and the target's home is `incoming`.
    Prepared,
    /// A move back found the target's old rows, and the target's home is `incoming`.
    PreparedBack,
    /// All chunks are at the target.
    Copied,
    /// The changes that are left are few.
    CaughtUp,
    /// All chunks compared equal.
    Verified,
    /// The fence did not close within its bound, or the rest did not end within the pause's, and it is lifted. Refused by
    /// the catalog once the target owns the shop.
    FenceMissed,
    /// The primary of a pod changed: the feed starts again and nothing counts as compared. Refused by the catalog once
    /// the target owns the shop.
    PrimaryChanged,
    /// The last changes are at the target and compared equal.
    Followed,
    /// The target serves and the source keeps a mark.
    HandedOver,
    /// An operator, or the end of the time of observation.
    Finish,
    /// A later move brings the shop back.
    TakenBack,
    /// The source's copy is gone.
    Retired,
    /// An operator.
    Pause,
    /// An operator; to where it was paused, or to the beginning after a failure.
    Resume(ResumePoint),
    /// An operator, or the mover where it cannot go on. Refused by the catalog once the target owns the shop.
    Abort,
    /// The source serves.
    Undone,
    /// It cannot go on as it is. Refused by the catalog once the target owns the shop.
    Fail,
}

/// Where a move that was stopped goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResumePoint {
    /// From the beginning.
    Preparing,
    /// With the chunks that are left.
    Copying,
    /// With the changed keys. A comparison goes on where it was.
    CatchingUp,
    /// With the deletion of the source's copy.
    Retiring,
}

impl ResumePoint {
    /// The state that it means.
    pub const fn state(self) -> MoveState {
        match self {
            Self::Preparing => MoveState::Preparing,
            Self::Copying => MoveState::Copying,
            Self::CatchingUp => MoveState::CatchingUp,
            Self::Retiring => MoveState::Retiring,
        }
    }
}

/// What an operator orders of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Stop where nobody's writes are touched.
    Pause,
    /// Go on from where it was paused; a failed one from the beginning.
    Resume,
    /// Undo it.
    Abort,
    /// End the time of observation: the source's copy goes.
    Finish,
    /// The source is gone for good: end it without that.
    SourceGone,
}

impl Order {
    /// All of them, for tests.
    pub const ALL: [Self; 5] = [
        Self::Pause,
        Self::Resume,
        Self::Abort,
        Self::Finish,
        Self::SourceGone,
    ];
}

impl MoveState {
    /// All of them: tests walk this list so that a new state cannot be forgotten.
    pub const ALL: [Self; 13] = [
        Self::Preparing,
        Self::Copying,
        Self::CatchingUp,
        Self::Verifying,
        Self::Fenced,
        Self::Cutover,
        Self::Observing,
        Self::Retiring,
        Self::Done,
        Self::Paused,
        Self::Aborting,
        Self::Aborted,
        Self::Failed,
    ];

    /// The word in SQL, JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Copying => "copying",
            Self::CatchingUp => "catching_up",
            Self::Verifying => "verifying",
            Self::Fenced => "fenced",
            Self::Cutover => "cutover",
            Self::Observing => "observing",
            Self::Retiring => "retiring",
            Self::Done => "done",
            Self::Paused => "paused",
            Self::Aborting => "aborting",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// Whether the shop is taken by this move: a shop has one such move at most.
    pub const fn is_open(self) -> bool {
        match self {
            Self::Preparing
            | Self::Copying
            | Self::CatchingUp
            | Self::Verifying
            | Self::Fenced
            | Self::Cutover
            | Self::Observing
            | Self::Retiring
            | Self::Paused
            | Self::Aborting
            | Self::Failed => true,
            Self::Done | Self::Aborted => false,
        }
    }

    /// Whether the shop's fence may stand, so that its writes wait for the move. Out of these states it goes by a hand-over, or
    /// by a fence that is lifted.
    pub const fn may_be_fenced(self) -> bool {
        match self {
            Self::Fenced | Self::Cutover => true,
            Self::Preparing
            | Self::Copying
            | Self::CatchingUp
            | Self::Verifying
            | Self::Observing
            | Self::Retiring
            | Self::Done
            | Self::Paused
            | Self::Aborting
            | Self::Aborted
            | Self::Failed => false,
        }
    }

    /// Where a move in this state goes on after a pause; `None` where it cannot be paused.
    pub const fn resume_point(self) -> Option<ResumePoint> {
        match self {
            Self::Preparing => Some(ResumePoint::Preparing),
            Self::Copying => Some(ResumePoint::Copying),
            Self::CatchingUp | Self::Verifying => Some(ResumePoint::CatchingUp),
            Self::Retiring => Some(ResumePoint::Retiring),
            Self::Fenced
            | Self::Cutover
            | Self::Observing
            | Self::Done
            | Self::Paused
            | Self::Aborting
            | Self::Aborted
            | Self::Failed => None,
        }
    }

    /// The state after an operator's order, which may be the same one; `None` where it is refused. `resume` is where a paused
    /// move goes on. What a state alone does not tell is refused beside this table: an abort in `cutover` once the target
    /// owns the shop and a source that is gone before that, strays, a source that answers.
    pub const fn ordered(self, order: Order, resume: Option<ResumePoint>) -> Option<Self> {
        let deletes = matches!(resume, Some(ResumePoint::Retiring));
        match order {
            Order::Pause => match self {
                Self::Preparing
                | Self::Copying
                | Self::CatchingUp
                | Self::Verifying
                | Self::Retiring
                | Self::Paused => Some(Self::Paused),
                Self::Fenced
                | Self::Cutover
                | Self::Observing
                | Self::Done
                | Self::Aborting
                | Self::Aborted
                | Self::Failed => None,
            },
            Order::Resume => self.resumed(resume),
            Order::Abort => match self {
                Self::Paused if deletes => None,
                Self::Preparing
                | Self::Copying
                | Self::CatchingUp
                | Self::Verifying
                | Self::Fenced
                | Self::Cutover
                | Self::Paused
                | Self::Failed
                | Self::Aborting => Some(Self::Aborting),
                Self::Observing | Self::Retiring | Self::Done | Self::Aborted => None,
            },
            Order::Finish => match self {
                Self::Observing | Self::Retiring => Some(Self::Retiring),
                Self::Preparing
                | Self::Copying
                | Self::CatchingUp
                | Self::Verifying
                | Self::Fenced
                | Self::Cutover
                | Self::Done
                | Self::Paused
                | Self::Aborting
                | Self::Aborted
                | Self::Failed => None,
            },
            Order::SourceGone => match self {
                Self::Cutover => Some(Self::Cutover),
                Self::Observing | Self::Retiring => Some(Self::Retiring),
                Self::Preparing
                | Self::Copying
                | Self::CatchingUp
                | Self::Verifying
                | Self::Fenced
                | Self::Done
                | Self::Paused
                | Self::Aborting
                | Self::Aborted
                | Self::Failed => None,
            },
        }
    }

    const fn resumed(self, point: Option<ResumePoint>) -> Option<Self> {
        match self {
            Self::Paused => match point {
                Some(point) => Some(point.state()),
                None => Some(Self::Preparing),
            },
            Self::Failed => Some(Self::Preparing),
            Self::Preparing
            | Self::Copying
            | Self::CatchingUp
            | Self::Verifying
            | Self::Fenced
            | Self::Cutover
            | Self::Observing
            | Self::Retiring
            | Self::Done
            | Self::Aborting
            | Self::Aborted => None,
        }
    }

    /// The state after an event; `None` where the event makes no sense.
    pub fn after(self, event: MoveEvent) -> Option<Self> {
        use MoveEvent as E;
        use MoveState::*;
        // What each event is good for, and where it leads.
        let (from, to): (&[Self], Self) = match event {
            E::Prepared => (&[Preparing], Copying),
            E::PreparedBack => (&[Preparing], CatchingUp),
            E::Copied => (&[Copying], CatchingUp),
            E::CaughtUp => (&[CatchingUp], Verifying),
            E::Verified => (&[Verifying], Fenced),
            E::Followed => (&[Fenced], Cutover),
            E::FenceMissed => (&[Fenced, Cutover], CatchingUp),
            E::PrimaryChanged if self == Copying => (&[Copying], Copying),
            E::PrimaryChanged => (&[CatchingUp, Verifying, Fenced, Cutover], CatchingUp),
            E::HandedOver => (&[Cutover], Observing),
            E::Finish => (&[Observing], Retiring),
            E::TakenBack => (&[Observing], Done),
            E::Retired => (&[Retiring], Done),
            E::Pause => (
                &[Preparing, Copying, CatchingUp, Verifying, Retiring],
                Paused,
            ),
            E::Resume(ResumePoint::Preparing) => (&[Paused, Failed], Preparing),
            E::Resume(
                to @ (ResumePoint::Copying | ResumePoint::CatchingUp | ResumePoint::Retiring),
            ) => (&[Paused], to.state()),
            E::Abort => (
                &[
                    Preparing, Copying, CatchingUp, Verifying, Fenced, Cutover, Paused, Failed,
                ],
                Aborting,
            ),
            E::Undone => (&[Aborting], Aborted),
            E::Fail => (
                &[Preparing, Copying, CatchingUp, Verifying, Fenced, Cutover],
                Failed,
            ),
        };
        from.contains(&self).then_some(to)
    }
}

impl fmt::Display for MoveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
