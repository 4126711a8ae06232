//! Where a mover is frozen, how the move comes there, and what happens to the shop meanwhile.

/// A place that is told by its number.
const STATEMENT: &str = "statement";

/// How the move comes to the place at which its mover is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By itself; the source's copy stays.
    Plain,
    /// By itself; nothing is observed, so that the source's copy goes at once.
    Ends,
    /// It was copied, then aborted.
    Undone,
    /// Its first fence was lifted.
    FenceMissed,
    /// It failed, and an operator let it begin anew.
    BegunAnew,
    /// It takes a shop back.
    TakenBack,
}

/// What happens to the shop before the loser thaws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It sells at its new pod.
    Sold,
    /// The same, and an operator freezes it.
    Frozen,
    /// It is moved back, and sells there.
    Back,
    /// After an abort it is moved to the same pod again, and sells there.
    Again,
}

/// One place.
#[derive(Debug, Clone)]
pub(super) struct Case {
    place: String,
    /// What the fail point's file says.
    pub(super) what: String,
    pub(super) way: Way,
    pub(super) then: Then,
}

impl Case {
    pub(super) fn new(place: &str, way: Way, then: Then) -> Self {
        Self {
            place: place.to_owned(),
            what: "stop".to_owned(),
            way,
            then,
        }
    }

    pub(super) fn statement(number: u32) -> Self {
        Self {
            what: number.to_string(),
            ..Self::new(STATEMENT, Way::Ends, Then::Back)
        }
    }

    /// Whether it may be inside of a transaction, which the winner waits for until the server ends it.
    pub(super) fn holds_locks(&self) -> bool {
        self.place == STATEMENT
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }
}
