//! Requests: writes with idempotency keys, a pod's own jobs, and reads of a session.
//!
//! Mirrors `pod/src/db.rs` (the write transaction), `pod/src/idempotency.rs`, `pod/src/home.rs` (cached homes) and the reads
//! of `pod/src/db`. Edges have no state here: a request may name any placement that ever was current, at any time. That is
//! more than edges with stale tables, late or doubled messages and followed marks can do, so what holds here holds for them.

use shared::home::{Access, HomeState, Verdict};

use crate::safeguards::{Bounds, Safeguards};
use crate::state::{At, Data, Home, Mover, PODS, Set, State, Tx, WRITES};
use crate::{mover, pods};

/// What any edge may believe.
pub(crate) fn known_placements(s: &State) -> &[At] {
    &s.catalog.placed[..usize::from(s.catalog.placements)]
}

/// A request with write `w` reaches a pod: it begins there, or is answered from its idempotency row.
pub(crate) fn begin(b: &Bounds, s: &mut State, w: usize, to: At) -> Option<()> {
    let pod = usize::from(to.0);
    if s.clients.tries[w] >= b.tries || s.clients.txs[w][pod] != Tx::None {
        return None;
    }
    if !pods::runs(s, to, Access::Write) {
        return None;
    }
    s.clients.tries[w] += 1;
    if s.pods[pod].data.keys & (1 << w) != 0 {
        s.clients.acked |= 1 << w;
    } else {
        s.clients.txs[w][pod] = Tx::Open(to.1);
    }
    Some(())
}

/// A pod starts write `w` by itself: only where its home says `serving`.
pub(crate) fn begin_job(b: &Bounds, s: &mut State, w: usize, pod: u8) -> Option<()> {
    let home = s.pod(pod).home?;
    if home.state != HomeState::Serving {
        return None;
    }
    begin(b, s, w, (pod, home.epoch))
}

/// The commit is in the binlog.
pub(crate) fn log(s: &mut State, w: usize, pod: u8) -> Option<()> {
    let at = usize::from(pod);
    let Tx::Open(epoch) = s.clients.txs[w][at] else {
        return None;
    };
    let bit = (0..2)
        .map(|n| 1 << (2 * w + n))
        .find(|bit: &u8| s.clients.spent & bit == 0)?;
    s.clients.spent |= bit;
    s.pods[at].logged |= bit;
    s.clients.txs[w][at] = Tx::Committing(epoch, bit);
    Some(())
}

/// A replica has it: it is visible, and its locks are gone. The client may hear of it or not.
pub(crate) fn commit(s: &mut State, w: usize, pod: u8, told: bool) -> Option<()> {
    let at = usize::from(pod);
    let Tx::Committing(epoch, bit) = s.clients.txs[w][at] else {
        return None;
    };
    apply(s, w, pod, bit);
    s.clients.txs[w][at] = Tx::None;
    if told {
        s.clients.acked |= 1 << w;
        if w == 0 {
            let seen = s.clients.session.2 | 1;
            learn(s, epoch, s.pods[at].executed, seen);
        }
    }
    Some(())
}

/// The effect and the idempotency row, in one transaction.
fn apply(s: &mut State, w: usize, pod: u8, bit: Set) {
    let pod = s.pod_mut(pod);
    pod.executed |= bit;
    pod.logged |= bit;
    if pod.data.keys & (1 << w) == 0 {
        pod.data.stock += 1;
        pod.data.keys |= 1 << w;
    }
}

/// The transaction ends without an effect: a deadline, a client that left, a process that died.
pub(crate) fn roll_back(s: &mut State, w: usize, pod: u8) -> Option<()> {
    let tx = &mut s.clients.txs[w][usize::from(pod)];
    if !matches!(tx, Tx::Open(_)) {
        return None;
    }
    *tx = Tx::None;
    Some(())
}

/// The pod's primary dies and a replica takes its place: open transactions are gone, those that waited for an
/// acknowledgement are there or not, and no client is told. The movers' connections are cut.
pub(crate) fn change_primary(s: &mut State, pod: u8, survive: bool) {
    let at = usize::from(pod);
    for w in 0..WRITES {
        if let Tx::Committing(_, bit) = s.clients.txs[w][at]
            && survive
        {
            apply(s, w, pod, bit);
        }
        s.clients.txs[w][at] = Tx::None;
    }
    let there = s.pod_mut(pod);
    there.logged = there.executed;
    there.term += 1;
    for m in 0..s.movers.len() {
        if s.movers[m].open && mover::pod_of(s, &s.movers[m]) == Some(pod) {
            s.movers[m] = Mover::IDLE;
        }
    }
    s.late = s.late.filter(|op| op.pod != pod);
}

fn learn(s: &mut State, epoch: u8, set: Set, seen: u8) {
    let (token, had, _) = s.clients.session;
    let set = if token == epoch { had | set } else { set };
    s.clients.session = (token.max(epoch), set, seen);
}

/// What a session would be answered from: epoch, the server's executed set, its rows.
pub(crate) type Answer = (u8, Set, Data);

/// All answers that the session may get now: by any placement that an edge may know, with the home as it is or as a
/// process remembers it, from the primary or the replica.
pub(crate) fn answers<'a>(
    g: &'a Safeguards,
    s: &'a State,
) -> impl Iterator<Item = Answer> + use<'a> {
    known_placements(s).iter().flat_map(move |&to| {
        let pod = s.pod(to.0);
        let homes = [pod.home, pod.cached].into_iter().flatten();
        homes.flat_map(move |home| from_servers(g, s, to, home))
    })
}

fn from_servers(
    g: &Safeguards,
    s: &State,
    to: At,
    home: Home,
) -> impl Iterator<Item = Answer> + use<> {
    let (token, set, _) = s.clients.session;
    let runs = pods::decide(to.0, Some(&home), to, token, Access::Read) == Verdict::Run;
    let pod = s.pod(to.0);
    let has = |executed: Set| token < home.epoch || set & !executed == 0;
    let primary = (runs && has(pod.executed)).then_some((home.epoch, pod.executed, pod.data));
    let (data, executed, ready) = pod.replica;
    let replica = runs && (ready >= home.ready || !g.ready_gtid) && has(executed);
    let replica = replica.then_some((home.epoch, executed, data));
    [primary, replica].into_iter().flatten()
}

/// The session is answered; the token goes on.
pub(crate) fn read(s: &mut State, answer: Answer) {
    let (epoch, set, data) = answer;
    let seen = s.clients.session.2 | data.keys;
    learn(s, epoch, set, seen);
}

/// A replica catches up with its primary, as far as the primary is now; a transaction that waits for its acknowledgement may
/// be visible here already.
pub(crate) fn replicate(s: &mut State, pod: u8) {
    let there = s.pod_mut(pod);
    there.replica = (there.data, there.executed, there.ready.0);
}

/// A process that has read a home goes on by it for a second, whatever it is now. Only homes that allowed reads matter, and
/// of those the last.
pub(crate) fn remember(before: &State, s: &mut State) {
    for (was, now) in before.pods.iter().zip(&mut s.pods) {
        let Some(home) = was.home.filter(|_| was.home != now.home) else {
            continue;
        };
        let to = (0, home.epoch);
        if pods::decide(0, Some(&home), to, 0, Access::Read) == Verdict::Run {
            now.cached = Some(Home {
                mark: None,
                mv: 0,
                owner: 0,
                ..home
            });
        }
    }
}

/// Pods whose processes remember something.
pub(crate) fn pods_in_use() -> std::ops::Range<u8> {
    0..u8::try_from(PODS).unwrap_or(u8::MAX)
}
