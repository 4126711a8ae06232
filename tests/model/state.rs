//! What the model knows: two or three pods, the catalog, movers, writers and a reader, small enough to be searched whole.
//!
//! | here | in the product |
//! |---|---|
//! | [`Home`] | `shop_home`, `infra/src/mover/home/rules.rs`, `shared/src/home.rs` |
//! | [`Pod`] | the shop's rows, binlog and `move_mark` of one pod |
//! | [`Catalog`], [`Move`] | tables `placement` and `move`, `infra/src/catalog/moves.rs` |
//! | [`Mover`] | one control server's driver of one move, `infra/src/mover/driver.rs` |
//! | [`Op`] | one transaction of a mover at a pod |
//! | [`Clients`] | requests by way of edges, `edge/src/retry.rs`, `pod/src/db.rs` |
//!
//! One shop. Its rows are `stock` (row 0: each write adds one) and one idempotency row for each write (row 1 + write).

use shared::home::HomeState;
use shared::moves::{MoveState, ResumePoint};

/// Pods: A owns the shop first, B is the target of the first move, C takes part where a test needs a third.
pub(crate) const PODS: usize = 3;
/// Writes, each with its idempotency key; each is tried more than once.
pub(crate) const WRITES: usize = 2;
/// Moves of the shop, one after the other.
pub(crate) const MOVES: usize = 2;
/// Control servers that remember something. One that stands still for ever is one that was killed: the next takes its place.
/// One that stands still and goes on later has all its steps come late: row writes, deletes, and updates that were queued.
pub(crate) const MOVERS: usize = 2;

/// A set of the clients' transactions, one bit each: what MySQL calls a GTID set. Write w may commit twice, as bits 2w
/// and 2w + 1, if the first was lost. A transaction of a mover is told by its mark and needs no bit.
pub(crate) type Set = u8;
/// Rows by number, one bit each.
pub(crate) type Rows = u8;
/// A pod and an epoch: a placement, or what a request says of itself.
pub(crate) type At = (u8, u8);

/// The rows that transactions have changed.
pub(crate) const fn changed(set: Set) -> Rows {
    let mut rows = 0;
    if set != 0 {
        rows |= 1;
    }
    if set & 0b0011 != 0 {
        rows |= 2;
    }
    if set & 0b1100 != 0 {
        rows |= 4;
    }
    rows
}

/// The shop's rows at one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub(crate) struct Data {
    /// How often any write was applied.
    pub(crate) stock: u8,
    /// The writes whose idempotency row is there.
    pub(crate) keys: u8,
}

impl Data {
    /// Takes these rows from another copy: values, and absence.
    pub(crate) fn take(&mut self, rows: Rows, from: Self) {
        if rows & 1 != 0 {
            self.stock = from.stock;
        }
        let keys = rows >> 1;
        self.keys = (self.keys & !keys) | (from.keys & keys);
    }
}

/// A home row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) epoch: u8,
    pub(crate) state: HomeState,
    pub(crate) mark: Option<At>,
    /// The move whose it is, from 1; 0 is nobody's.
    pub(crate) mv: u8,
    /// Kept for ever; grows with each takeover of any move of the shop.
    pub(crate) owner: u8,
    /// The how manieth `ready` of this pod it is: stands for `ready_gtid`.
    pub(crate) ready: u8,
}

/// One pod's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) home: Option<Home>,
    pub(crate) data: Data,
    /// In the binlog: a feed sees it. Not visible to readers before it is executed.
    pub(crate) logged: Set,
    /// Committed and acknowledged by a replica.
    pub(crate) executed: Set,
    /// `move_mark`: which move's, the chunks copied, the set up to which all changes are applied.
    pub(crate) marks: (u8, Rows, Option<Set>),
    /// How often its home became `ready`, and the epoch of the last time.
    pub(crate) ready: (u8, u8),
    /// Raised with each change of its primary.
    pub(crate) term: u8,
    /// A replica: rows, executed set and the `ready` that it has.
    pub(crate) replica: (Data, Set, u8),
    /// The home as a process of the pod last read it.
    pub(crate) cached: Option<Home>,
}

/// A move in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) state: MoveState,
    pub(crate) source: u8,
    pub(crate) target: u8,
    pub(crate) source_epoch: u8,
    /// Reserved.
    pub(crate) epoch: u8,
    pub(crate) owner: u8,
    /// A's executed set before the first chunk; for a move back, B's when it became ready.
    pub(crate) from: Option<Set>,
    /// The target's executed set when it became ready.
    pub(crate) ready: Set,
    pub(crate) back: bool,
    pub(crate) resume: Option<ResumePoint>,
    /// Rows that this move left are still at this pod.
    pub(crate) leftover: Option<u8>,
    /// An operator said that the source is gone for good.
    pub(crate) source_gone: bool,
    /// A comparison inside the fence failed: noted before the fence is lifted, until the move has failed or is undone.
    pub(crate) must_fail: bool,
}

/// The catalog's part that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// All placements that ever were, in order; the last is the current one. Any edge may still have any of them.
    pub(crate) placed: [At; MOVES + 1],
    pub(crate) placements: u8,
    pub(crate) moves: [Option<Move>; MOVES],
    /// The last owner number given out for the shop.
    pub(crate) owner: u8,
    /// The placement's state, and whether the order that made it so is still to reach the pod.
    pub(crate) frozen: bool,
    pub(crate) ordered: bool,
}

/// Where a mover stands: what it does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pc {
    Idle,
    /// It looks at the source.
    Look(Look),
    /// A transaction on rows: it begins, then commits.
    Rows(OnRows),
    /// A change of a home, under its exclusive lock.
    Home(Change),
    /// A transaction of the catalog.
    Step(Step),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Look {
    /// The executed set before the first chunk; noted in the catalog.
    From,
    Chunk,
    /// What the feed has.
    Feed,
    /// The rows that the feed named, as they are now.
    Changed,
    /// Whether the home is still `handing`.
    Still,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OnRows {
    /// What an earlier try left at the target, rows and marks.
    Clean,
    Copy,
    Apply,
    /// The source's copy, in `retiring`.
    Delete,
    Leftover,
}

/// As in `infra/src/mover/home/rules.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    TakeSource,
    TakeTarget,
    Incoming,
    Fence,
    Handing,
    Ready,
    Serving,
    Moved,
    ReleaseTarget,
    ReleaseSource,
    Restore,
    TakeLeftover,
    Forget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Prepared,
    Copied,
    CaughtUp,
    Verified,
    Followed,
    NoteMustFail,
    /// What [`Why`] says: the fence is lifted, or none stood.
    Stopped,
    Switch,
    HandedOver,
    Retired,
    Undone,
    LeftoverDone,
}

/// What ended a run before its work was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    Missed,
    Primary,
    Fail,
}

/// One transaction of a mover at a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) pod: u8,
    pub(crate) mv: u8,
    pub(crate) owner: u8,
    pub(crate) rows: Rows,
    pub(crate) data: Data,
    pub(crate) upto: Set,
    pub(crate) lift: bool,
    pub(crate) frozen: bool,
}

/// The memory of one control server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mover {
    pub(crate) mv: u8,
    pub(crate) owner: u8,
    pub(crate) pc: Pc,
    /// The move's state as this mover believes it.
    pub(crate) at: MoveState,
    pub(crate) why: Why,
    /// Rows read at the source, not yet written at the target.
    pub(crate) data: Data,
    pub(crate) rows: Rows,
    /// What the feed has shown; a batch of changes brings the target up to here.
    pub(crate) seen: Set,
    /// The source's executed set after the fence.
    pub(crate) fence: Option<Set>,
    /// Terms of source and target when it connected.
    pub(crate) terms: (u8, u8),
    /// Its transaction on rows has begun: it has compared the owner and holds the home's share lock.
    pub(crate) open: bool,
    /// What the catalog said when it was last asked: whether a fence that stands at the source is to be lifted, since the
    /// target does not own the shop; and whether the shop is frozen.
    pub(crate) lift: bool,
    pub(crate) frozen: bool,
}

impl Mover {
    pub(crate) const IDLE: Self = Self {
        mv: 0,
        owner: 0,
        pc: Pc::Idle,
        at: MoveState::Done,
        why: Why::Missed,
        data: Data { stock: 0, keys: 0 },
        rows: 0,
        seen: 0,
        fence: None,
        terms: (0, 0),
        open: false,
        lift: false,
        frozen: false,
    };

    /// An order of movers: which of the two control servers is which says nothing, so states are kept in this order.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        (
            (self.mv, self.owner, self.pc, self.at as u8, self.why),
            (self.data, self.rows, self.seen, self.fence, self.terms),
            (self.open, self.lift, self.frozen),
        )
    }
}

/// One attempt of a write at one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tx {
    None,
    /// Its home was read and allowed it at this epoch.
    Open(u8),
    /// In the binlog as this bit, not yet acknowledged by a replica.
    Committing(u8, u8),
}

/// What the shop's customers have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clients {
    /// Writes whose success a client was told.
    pub(crate) acked: u8,
    pub(crate) tries: [u8; WRITES],
    pub(crate) txs: [[Tx; PODS]; WRITES],
    /// Transactions that were ever in a binlog: their bits are never used again.
    pub(crate) spent: Set,
    /// A reader's token: epoch and set; and the writes that it has seen.
    pub(crate) session: (u8, Set, u8),
}

/// Faults and orders so far: each kind is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Spent {
    pub(crate) unknown: u8,
    pub(crate) misses: u8,
    pub(crate) fails: u8,
    pub(crate) pauses: u8,
    pub(crate) aborts: u8,
    pub(crate) changes: u8,
    pub(crate) orders: u8,
}

/// A state of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) pods: [Pod; PODS],
    pub(crate) catalog: Catalog,
    pub(crate) movers: [Mover; MOVERS],
    /// A fence whose mover has gone on without it.
    pub(crate) late: Option<Op>,
    pub(crate) clients: Clients,
    pub(crate) spent: Spent,
}

impl State {
    /// A sells at epoch 1; nobody else has anything.
    pub(crate) fn first() -> Self {
        let nothing = Pod {
            home: None,
            data: Data::default(),
            logged: 0,
            executed: 0,
            marks: (0, 0, None),
            ready: (0, 0),
            term: 1,
            replica: (Data::default(), 0, 0),
            cached: None,
        };
        let mut pods = [nothing; PODS];
        pods[0].home = Some(Home {
            epoch: 1,
            state: HomeState::Serving,
            mark: None,
            mv: 0,
            owner: 0,
            ready: 0,
        });
        Self {
            pods,
            catalog: Catalog {
                placed: [(0, 1), (0, 0), (0, 0)],
                placements: 1,
                moves: [None; MOVES],
                owner: 0,
                frozen: false,
                ordered: false,
            },
            movers: [Mover::IDLE; MOVERS],
            late: None,
            clients: Clients {
                acked: 0,
                tries: [0; WRITES],
                txs: [[Tx::None; PODS]; WRITES],
                spent: 0,
                session: (0, 0, 0),
            },
            spent: Spent::default(),
        }
    }

    pub(crate) fn pod(&self, pod: u8) -> &Pod {
        &self.pods[usize::from(pod)]
    }

    pub(crate) fn pod_mut(&mut self, pod: u8) -> &mut Pod {
        &mut self.pods[usize::from(pod)]
    }

    /// Sorts what has no order of its own.
    pub(crate) fn sort(&mut self) {
        if self.movers[1].rank() < self.movers[0].rank() {
            self.movers.swap(0, 1);
        }
    }
}
