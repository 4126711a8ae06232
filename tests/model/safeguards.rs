//! The switches: each takes one rule of the protocol away, and a test in `without.rs` expects that something breaks then.

/// What the protocol relies on. All of them on is the design.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Safeguards {
    /// A write holds its home's share lock until it has committed (`pod/src/db/fence.rs`). Off: the home is read, not locked.
    pub(crate) share_lock: bool,
    /// A mover's transaction on rows compares move id and owner (`Session::begin_owned`). Off: homes alone are compared.
    pub(crate) row_owner: bool,
    /// A takeover raises the owner in both homes before anything else. Off: the catalog alone knows, until the new mover's
    /// first change of a home.
    pub(crate) take_over: bool,
    /// An abort begins in the catalog, which refuses the cutover from then on. Off: a control server that is asked to abort
    /// opens the source's home first and marks the move afterwards.
    pub(crate) aborting_first: bool,
    /// The source's home goes to `handing`, which stops reads too. Off: it stays `fenced`.
    pub(crate) handing: bool,
    /// The target's home can answer before the catalog names it. Off: the catalog's step comes first.
    pub(crate) ready_first: bool,
    /// `ready` starts no jobs. Off: the home is `serving` before the catalog's step.
    pub(crate) ready_is_quiet: bool,
    /// A frozen shop's home at the target is `frozen`, not `ready`, before the catalog's step. Off: `ready`, which takes writes.
    pub(crate) ready_as_placed: bool,
    /// The feed runs up to the set that the source had executed after the fence. Off: what it has seen is enough.
    pub(crate) tail_to_fence: bool,
    /// An epoch is reserved when a move is created and is never used again. Off: the next one after the placement's.
    pub(crate) reserved_epochs: bool,
    /// A key is read only once the source has executed what named it. Off: as soon as the binlog shows it.
    pub(crate) wait_executed: bool,
    /// A fence is lifted before the catalog says so. Off: after.
    pub(crate) lift_first: bool,
    /// A comparison that failed inside a fence is noted in the catalog before that is lifted: who takes the move over in between
    /// has it from there. Off: only who compared remembers it.
    pub(crate) must_fail: bool,
    /// A beginning after a failure takes away what the try before left at the target, rows and marks. Off: old chunks count.
    pub(crate) cleaned: bool,
    /// A home keeps the last owner number for ever, and numbers grow over all moves of a shop. Off: each move counts from one,
    /// and its end clears the home.
    pub(crate) owner_kept: bool,
    /// The rows of an aborted move are taken over before they are deleted. Off: whoever comes deletes them.
    pub(crate) leftover_taken: bool,
    /// A hand-over is complete only when no process's cached home can still allow a read at the source: nothing changes the
    /// rows there before. Off: it is complete at once.
    pub(crate) caches_expire: bool,
    /// Orders to freeze and hand-overs exclude each other. Off: each goes its way.
    pub(crate) orders_wait: bool,
    /// A replica answers for a shop only once it has all that its pod had when the home became `ready`. Off: at once.
    pub(crate) ready_gtid: bool,
}

impl Safeguards {
    pub(crate) const ALL: Self = Self {
        share_lock: true,
        row_owner: true,
        take_over: true,
        aborting_first: true,
        handing: true,
        ready_first: true,
        ready_is_quiet: true,
        ready_as_placed: true,
        tail_to_fence: true,
        reserved_epochs: true,
        wait_executed: true,
        lift_first: true,
        must_fail: true,
        cleaned: true,
        owner_kept: true,
        leftover_taken: true,
        caches_expire: true,
        orders_wait: true,
        ready_gtid: true,
    };
}

/// What a search goes by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) on: Safeguards,
    pub(crate) within: Bounds,
}

/// How far a search goes: each number bounds how often something happens in one history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Different writes of clients, and tries of each.
    pub(crate) writes: u8,
    pub(crate) tries: u8,
    /// Whether a commit is in the binlog before it is acknowledged, as a step of its own.
    pub(crate) slow_commits: bool,
    /// Whether the last write is a job that a pod starts by itself where its home is `serving`.
    pub(crate) job: bool,
    /// Whether a session reads, from primaries, replicas and through cached homes.
    pub(crate) reader: bool,
    /// Owner numbers given out: each time a control server takes a move, at first, after a kill, or because it believes the
    /// former to be gone.
    pub(crate) owners: u8,
    /// Updates of homes whose outcome a mover does not learn and goes on under its old number, which it must not: it takes
    /// the move anew.
    pub(crate) unknown: u8,
    /// Fences given up.
    pub(crate) misses: u8,
    /// Moves that fail and are begun anew.
    pub(crate) fails: u8,
    pub(crate) pauses: u8,
    pub(crate) aborts: u8,
    /// Changes of a primary.
    pub(crate) changes: u8,
    /// Orders to freeze the shop, or to open it again.
    pub(crate) orders: u8,
    /// Where the shop goes after the first move was aborted, and after it was observed.
    pub(crate) after_abort: Option<u8>,
    pub(crate) back: bool,
    /// Whether the operator ends the observation, so that the source's copy is deleted.
    pub(crate) finish: bool,
    /// Whether the operator may say that the source is gone.
    pub(crate) source_gone: bool,
    /// Where the shop goes after that.
    pub(crate) after_done: Option<u8>,
}

impl Bounds {
    /// One move, one write, nothing goes wrong.
    pub(crate) const QUIET: Self = Self {
        writes: 1,
        tries: 2,
        slow_commits: false,
        job: false,
        reader: false,
        owners: 2,
        unknown: 0,
        misses: 0,
        fails: 0,
        pauses: 0,
        aborts: 0,
        changes: 0,
        orders: 0,
        after_abort: None,
        back: false,
        finish: true,
        source_gone: false,
        after_done: None,
    };
}
