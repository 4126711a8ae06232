//! What may happen next, and to what it leads: the model as the checker sees it.

use std::collections::HashSet;

use parking_lot::Mutex;
use shared::moves::MoveState;
use stateright::{Model, Property};

use crate::safeguards::Rules;
use crate::state::{Change, MOVERS, Pc, State, Step, Tx, Why};
use crate::{catalog, clients, mover, properties};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The operator moves the shop there.
    Move(u8),
    Abort,
    Pause,
    Resume,
    Finish,
    /// To freeze the shop, or to open it again; then the order reaches the pod.
    Order,
    OrderAtPod,
    /// A control server takes this move.
    Take(usize, u8),
    /// It does its next step.
    Go(usize),
    GoOn(usize),
    Miss(usize),
    Fail(usize),
    Cut(usize),
    LoseAnswer(usize),
    Late,
    /// Without the safeguard: another control server opens the source first, then marks the move.
    AbortAtPod,
    /// A write reaches a pod, by this placement.
    Begin(usize, u8),
    BeginJob(usize, u8),
    Log(usize, u8),
    Commit(usize, u8, bool),
    RollBack(usize, u8),
    Primary(u8, bool),
    Replicate(u8),
    Expire(u8),
    Read(usize),
}

/// One search.
pub(crate) struct Protocol {
    pub(crate) rules: Rules,
    /// Examples that the search must find, so that it is known not to be empty.
    pub(crate) examples: Vec<Property<Protocol>>,
    /// States of catalog and pods from which a way on was found.
    pub(crate) with_a_way_on: Mutex<HashSet<u64>>,
}

impl Protocol {
    fn operator(&self, s: &State, actions: &mut Vec<Action>) {
        let b = &self.rules.within;
        let number = catalog::latest(s);
        if number == 0 {
            actions.push(Action::Move(1));
            return;
        }
        let mv = catalog::mv(s, number);
        if number == 1 {
            match mv.state {
                MoveState::Aborted => actions.extend(b.after_abort.map(Action::Move)),
                MoveState::Done => actions.extend(b.after_done.map(Action::Move)),
                MoveState::Observing if b.back => actions.push(Action::Move(0)),
                _ => {}
            }
        }
        if s.spent.aborts < b.aborts {
            actions.push(if self.rules.on.aborting_first {
                Action::Abort
            } else {
                Action::AbortAtPod
            });
        }
        if s.spent.aborts > 0 && !self.rules.on.aborting_first {
            actions.push(Action::AbortAtPod);
        }
        if s.spent.pauses < b.pauses {
            actions.push(Action::Pause);
        }
        if matches!(mv.state, MoveState::Paused | MoveState::Failed) {
            actions.push(Action::Resume);
        }
        if s.spent.orders < b.orders {
            actions.push(Action::Order);
        }
        if s.catalog.ordered {
            actions.push(Action::OrderAtPod);
        }
        if b.finish && mv.state == MoveState::Observing {
            actions.push(Action::Finish);
        }
    }

    fn movers(&self, s: &State, actions: &mut Vec<Action>) {
        let b = &self.rules.within;
        if s.catalog.owner < b.owners {
            for number in 1..=catalog::latest(s) {
                if catalog::wants_mover(&catalog::mv(s, number)) {
                    actions.extend((0..MOVERS).map(|m| Action::Take(m, number)));
                }
            }
        }
        for m in (0..MOVERS).filter(|&m| s.movers[m].mv != 0) {
            actions.extend([Action::Go(m), Action::GoOn(m), Action::Cut(m)]);
            if s.spent.misses < b.misses {
                actions.push(Action::Miss(m));
            }
            if s.spent.fails < b.fails {
                actions.push(Action::Fail(m));
            }
            if s.spent.unknown < b.unknown {
                actions.push(Action::LoseAnswer(m));
            }
        }
        if s.late.is_some() {
            actions.push(Action::Late);
        }
    }

    fn customers(&self, s: &State, actions: &mut Vec<Action>) {
        let b = &self.rules.within;
        for w in 0..usize::from(b.writes) {
            let job = b.job && w + 1 == usize::from(b.writes);
            if s.clients.tries[w] < b.tries {
                if job {
                    actions.extend(clients::pods_in_use().map(|pod| Action::BeginJob(w, pod)));
                } else {
                    actions.extend((0..s.catalog.placements).map(|at| Action::Begin(w, at)));
                }
            }
            for pod in clients::pods_in_use() {
                let ends = [
                    Action::Commit(w, pod, true),
                    Action::Commit(w, pod, false),
                    Action::RollBack(w, pod),
                ];
                match s.clients.txs[w][usize::from(pod)] {
                    Tx::None => {}
                    Tx::Open(_) if b.slow_commits => {
                        actions.extend([Action::Log(w, pod), Action::RollBack(w, pod)]);
                    }
                    Tx::Open(_) => actions.extend(ends),
                    Tx::Committing(..) => actions.extend(&ends[..2]),
                }
            }
        }
        if b.reader {
            for pod in clients::pods_in_use().filter(|&pod| s.pod(pod).home.is_some()) {
                actions.push(Action::Replicate(pod));
                if s.pod(pod).cached.is_some() {
                    actions.push(Action::Expire(pod));
                }
            }
            actions.extend((0..clients::answers(&self.rules.on, s).count()).map(Action::Read));
        }
    }

    fn apply(&self, s: &mut State, action: Action) -> Option<()> {
        let g = &self.rules.on;
        let b = &self.rules.within;
        let number = catalog::latest(s);
        match action {
            Action::Move(to) => catalog::begin(g, s, to),
            Action::Abort => {
                s.spent.aborts += 1;
                catalog::abort(s, number)
            }
            Action::Pause => {
                s.spent.pauses += 1;
                catalog::pause(s, number)
            }
            Action::Resume => catalog::resume(s, number),
            Action::Finish => catalog::finish(s, number),
            Action::Order => {
                s.spent.orders += 1;
                catalog::order(g, s)
            }
            Action::OrderAtPod => catalog::order_at_pod(g, s),
            Action::AbortAtPod => mover::abort_at_pod(s, number),
            Action::Take(m, number) => {
                if s.movers[m].open || (m > 0 && s.movers[m] == s.movers[m - 1]) {
                    return None;
                }
                mover::take(g, s, m, number, Why::Missed);
                Some(())
            }
            Action::Go(m) if self.waits_for_caches(s, m) => None,
            Action::Go(m) => mover::go(&self.rules, s, m),
            Action::Cut(m) => mover::cut(s, m),
            Action::Late => mover::late(g, s),
            Action::GoOn(m) => mover::go_on(s, m),
            Action::Miss(m) => {
                s.spent.misses += 1;
                mover::miss(&self.rules, s, m)
            }
            Action::Fail(m) => {
                s.spent.fails += 1;
                mover::fail(&self.rules, s, m)
            }
            Action::LoseAnswer(m) => {
                s.spent.unknown += 1;
                mover::lose_answer(s, m)
            }
            Action::Begin(w, at) => clients::begin(b, s, w, s.catalog.placed[usize::from(at)]),
            Action::BeginJob(w, pod) => clients::begin_job(b, s, w, pod),
            Action::Log(w, pod) => clients::log(s, w, pod),
            Action::Commit(w, pod, told) => {
                if matches!(s.clients.txs[w][usize::from(pod)], Tx::Open(_)) {
                    clients::log(s, w, pod)?;
                }
                clients::commit(s, w, pod, told)
            }
            Action::RollBack(w, pod) => clients::roll_back(s, w, pod),
            Action::Primary(pod, survive) => {
                s.spent.changes += 1;
                clients::change_primary(s, pod, survive);
                Some(())
            }
            Action::Replicate(pod) => {
                clients::replicate(s, pod);
                Some(())
            }
            Action::Expire(pod) => {
                s.pod_mut(pod).cached = None;
                Some(())
            }
            Action::Read(at) => {
                let answer = clients::answers(g, s).nth(at)?;
                clients::read(s, answer);
                Some(())
            }
        }
    }

    /// Time is not in the model. A pod's processes remember a home for a second, and a mover lets it pass: before a hand-over
    /// is complete, since then the source's rows may change; and before a home becomes `ready` again that was so before.
    fn waits_for_caches(&self, s: &State, m: usize) -> bool {
        let mover = s.movers[m];
        let after_moved = mover.pc == Pc::Step(Step::HandedOver);
        let before_ready = mover.pc == Pc::Home(Change::Ready);
        if !self.rules.on.caches_expire || !(after_moved || before_ready) {
            return false;
        }
        let mv = catalog::mv(s, mover.mv);
        let pod = s.pod(if after_moved { mv.source } else { mv.target });
        pod.cached.is_some()
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first()]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        self.operator(s, actions);
        self.movers(s, actions);
        self.customers(s, actions);
        if s.spent.changes < self.rules.within.changes {
            for pod in [0, 1] {
                actions.extend([Action::Primary(pod, false), Action::Primary(pod, true)]);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = *last;
        self.apply(&mut s, action)?;
        if self.rules.within.reader {
            clients::remember(last, &mut s);
        }
        s.sort();
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = properties::all();
        all.extend(self.examples.iter().cloned());
        all
    }
}
