//! The one door through which everything that a driver changes goes: at the catalog, at a home, in a shop's rows.
//!
//! A test can stop, end, repeat or fail the driver at each of these places (`failpoint`), before it and after it. The list
//! is made by the macro from the one that names them, and [`Step::of`] has no default: a new event of the state machine
//! does not compile until it has a step.

use shared::moves::MoveEvent;

macro_rules! steps {
    ($($(#[doc = $doc:literal])+ $name:ident => $word:literal,)+) => {
        /// Something that a driver changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Step {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Step {
            /// All of them, in the order of a move's life.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name of its fail point.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

steps! {
    /// The catalog's row gets a new owner number.
    Take => "take",
    /// The source's home gets it.
    TakeOverSource => "take-over-source",
    /// The target's home gets it.
    TakeOverTarget => "take-over-target",
    /// What a move back found at its target is dumped: it was undone, or is begun anew.
    BackDump => "back-dump",
    /// The catalog: where that dump is.
    NoteBackDump => "note-back-dump",
    /// Rows and marks of an earlier try of this move are deleted at the target.
    Clean => "clean",
    /// The target's home becomes `incoming`.
    Incoming => "incoming",
    /// The catalog: everything needed was found.
    Prepared => "prepared",
    /// The catalog: the same for a move back.
    PreparedBack => "prepared-back",
    /// The catalog: from which sets of transactions the feed and the target's tail begin.
    NoteStart => "note-start",
    /// Chunks are copied to the target.
    Copy => "copy",
    /// One of them, in a transaction.
    CopyChunk => "copy-chunk",
    /// The catalog: all chunks are there.
    Copied => "copied",
    /// Changed keys are made equal at the target.
    CatchUp => "catch-up",
    /// The catalog: few changes are left.
    CaughtUp => "caught-up",
    /// Both sides are compared, and keys repaired.
    Compare => "compare",
    /// The target's mark: how far the comparison is.
    NoteCompared => "note-compared",
    /// The catalog: all chunks compared equal; the fence may close.
    Verified => "verified",
    /// The source's home becomes `fenced`.
    Fence => "fence",
    /// The last changed keys are made equal.
    Follow => "follow",
    /// The keys changed since their last comparison are compared.
    CompareKeys => "compare-keys",
    /// The catalog: the target equals the source.
    Followed => "followed",
    /// The source's home becomes `handing`.
    Handing => "handing",
    /// The target's home becomes `ready`.
    Ready => "ready",
    /// The source's home is read once more on its current primary.
    StillHanding => "still-handing",
    /// The catalog: the target owns the shop. The point of no return.
    Switch => "switch",
    /// The target's home becomes what the placement says.
    Serving => "serving",
    /// The source's home becomes `moved` and keeps the mark.
    Moved => "moved",
    /// The catalog: handed over.
    HandedOver => "handed-over",
    /// The catalog: why the move is to fail, before its fence is lifted.
    NoteMustFail => "note-must-fail",
    /// The source's home becomes what the placement says: a fence is lifted.
    Lift => "lift",
    /// The catalog: the fence is lifted, for a later try.
    FenceMissed => "fence-missed",
    /// The catalog: a primary changed.
    PrimaryChanged => "primary-changed",
    /// The catalog: strays at the source.
    NoteStrays => "note-strays",
    /// The catalog: the time of observation is over.
    Finish => "finish",
    /// The source's rows are dumped.
    Dump => "dump",
    /// A piece of them is read, to be written.
    DumpPiece => "dump-piece",
    /// The catalog: where the dump is.
    NoteDump => "note-dump",
    /// The source's rows are deleted.
    Delete => "delete",
    /// The target forgets what the move noted there.
    ForgetTargetMarks => "forget-target-marks",
    /// The source does.
    ForgetSourceMarks => "forget-source-marks",
    /// The target's home forgets the move.
    ReleaseTarget => "release-target",
    /// The source's home forgets the move; the mark stays.
    ReleaseSource => "release-source",
    /// The catalog: over.
    Retired => "retired",
    /// The catalog: a later move takes the shop back.
    TakenBack => "taken-back",
    /// The catalog: it is to be undone.
    Abort => "abort",
    /// The catalog: the source serves, the move is over.
    Undone => "undone",
    /// The catalog: it cannot go on as it is.
    Fail => "fail",
    /// The catalog: an operator stops it.
    Pause => "pause",
    /// The catalog: an operator lets it go on.
    Resume => "resume",
    /// What a source that was gone has: its home there gets a new owner, and the mark.
    GoneMark => "gone-mark",
    /// The rows there are dumped.
    GoneDump => "gone-dump",
    /// They are deleted.
    GoneDelete => "gone-delete",
    /// The home there forgets the move; the mark stays.
    GoneRelease => "gone-release",
    /// The catalog: nothing is left there.
    GoneDone => "gone-done",
    /// Rows that no move made are to be cleared: their pod's home of the shop gets a new owner.
    ClearMark => "clear-mark",
    /// The catalog: from which set of transactions on others' changes of those rows are looked for.
    ClearWatch => "clear-watch",
    /// The rows are dumped.
    ClearDump => "clear-dump",
    /// The catalog: where the dump is.
    ClearNote => "clear-note",
    /// They are deleted.
    ClearDelete => "clear-delete",
    /// The home there forgets the order; a mark stays.
    ClearRelease => "clear-release",
    /// The catalog: nothing is left there.
    ClearDone => "clear-done",
    /// What an aborted move left at its target, or one that ended without its source at that: the catalog's row of it gets
    /// a new owner number.
    LeftoverTake => "leftover-take",
    /// The home there gets it.
    LeftoverTakeOver => "leftover-take-over",
    /// The rows there are deleted.
    LeftoverDelete => "leftover-delete",
    /// The home there is taken away; a mark to the owner stays.
    LeftoverForget => "leftover-forget",
    /// The catalog: nothing is left.
    LeftoverDone => "leftover-done",
}

impl Step {
    /// The step that brings an event into the catalog.
    pub(crate) const fn of(event: MoveEvent) -> Self {
        match event {
            MoveEvent::Prepared => Self::Prepared,
            MoveEvent::PreparedBack => Self::PreparedBack,
            MoveEvent::Copied => Self::Copied,
            MoveEvent::CaughtUp => Self::CaughtUp,
            MoveEvent::Verified => Self::Verified,
            MoveEvent::FenceMissed => Self::FenceMissed,
            MoveEvent::PrimaryChanged => Self::PrimaryChanged,
            MoveEvent::Followed => Self::Followed,
            MoveEvent::HandedOver => Self::HandedOver,
            MoveEvent::Finish => Self::Finish,
            MoveEvent::TakenBack => Self::TakenBack,
            MoveEvent::Retired => Self::Retired,
            MoveEvent::Pause => Self::Pause,
            MoveEvent::Resume(_) => Self::Resume,
            MoveEvent::Abort => Self::Abort,
            MoveEvent::Undone => Self::Undone,
            MoveEvent::Fail => Self::Fail,
        }
    }

    /// Whether a driver does it; the rest are orders of operators and of later moves.
    pub const fn by_driver(self) -> bool {
        !matches!(
            self,
            Self::TakenBack | Self::Abort | Self::Pause | Self::Resume
        )
    }
}

/// Makes the future of a step: `step!(Step::Fence => work)`. The work is an expression that awaits and gives a `Result`; it
/// may be done twice, since every step of a move is made so that it can be. (A macro, since the future of an async closure
/// that borrows cannot be sent to another thread.)
#[cfg(not(feature = "failpoints"))]
macro_rules! step {
    ($step:expr => $work:expr) => {
        async {
            let _: $crate::mover::step::Step = $step;
            let done: Result<_, $crate::mover::error::MoveError> = async { $work }.await;
            done
        }
    };
}

/// The same, with fail points.
#[cfg(feature = "failpoints")]
macro_rules! step {
    ($step:expr => $work:expr) => {
        async {
            use $crate::mover::failpoint::{self, Place};
            let step: $crate::mover::step::Step = $step;
            failpoint::at(step, Place::Before).await?;
            let done: Result<_, $crate::mover::error::MoveError> = async { $work }.await;
            let mut done = done?;
            if failpoint::again(step) {
                let again: Result<_, $crate::mover::error::MoveError> = async { $work }.await;
                done = again?;
            }
            failpoint::at(step, Place::After).await?;
            Ok::<_, $crate::mover::error::MoveError>(done)
        }
    };
}
pub(crate) use step;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_used_once_and_fits_the_variable() {
        for (index, step) in Step::ALL.iter().enumerate() {
            let word = step.as_str();
            assert!(
                word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{word}"
            );
            assert!(
                Step::ALL[..index]
                    .iter()
                    .all(|other| other.as_str() != word),
                "{word}"
            );
        }
    }
}
