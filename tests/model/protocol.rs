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
    Operator(Operator),
    Mover(usize, Doing),
    /// A fence whose mover has gone on without it.
    Late,
    Customer(Customer),
    /// A pod's primary changes; commits that waited for an acknowledgement are there afterwards, or not.
    Primary(u8, bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    /// Moves the shop there.
    Move(u8),
    Abort,
    /// Without the safeguard: opens the source first, then marks the move.
    AbortAtPod,
    Pause,
    Resume,
    Finish,
    SourceGone,
    /// To freeze the shop, or to open it again; then the order reaches the pod.
    Order,
    OrderAtPod,
}

/// What a control server does, or what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It takes this move, whatever it did before: it was killed, or it believes the other to be gone.
    Take(u8),
    /// Its next step.
    Go,
    GoOn,
    Miss,
    Fail,
    Cut,
    LoseAnswer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Customer {
    /// A write reaches a pod, by this placement.
    Begin(usize, u8),
    BeginJob(usize, u8),
    Log(usize, u8),
    /// Whether the client is told.
    Commit(usize, u8, bool),
    RollBack(usize, u8),
    /// A session gets this one of the answers that it may get.
    Read(usize),
    /// A replica catches up.
    Replicate(u8),
    /// A process's memory of a home is a second old.
    Expire(u8),
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
    fn operators(&self, s: &State) -> Vec<Operator> {
        let (g, b) = (&self.rules.on, &self.rules.within);
        let number = catalog::latest(s);
        if number == 0 {
            return vec![Operator::Move(1)];
        }
        let mut all = Vec::new();
        let state = catalog::mv(s, number).state;
        if number == 1 {
            let to = |wanted, to: Option<u8>| to.filter(|_| state == wanted).map(Operator::Move);
            all.extend(to(MoveState::Aborted, b.after_abort));
            all.extend(to(MoveState::Done, b.after_done));
            all.extend(to(MoveState::Observing, b.back.then_some(0)));
        }
        if s.spent.aborts < b.aborts && g.aborting_first {
            all.push(Operator::Abort);
        }
        if !g.aborting_first && (s.spent.aborts > 0 || b.aborts > 0) {
            all.push(Operator::AbortAtPod);
        }
        if s.spent.pauses < b.pauses {
            all.push(Operator::Pause);
        }
        if s.spent.orders < b.orders {
            all.push(Operator::Order);
        }
        if s.catalog.ordered {
            all.push(Operator::OrderAtPod);
        }
        if matches!(state, MoveState::Paused | MoveState::Failed) {
            all.push(Operator::Resume);
        }
        if b.finish && state == MoveState::Observing {
            all.push(Operator::Finish);
        }
        if b.source_gone {
            all.push(Operator::SourceGone);
        }
        all
    }

    fn movers(&self, s: &State, actions: &mut Vec<Action>) {
        let b = &self.rules.within;
        for m in 0..MOVERS {
            // Two that remember nothing are one.
            if s.catalog.owner < b.owners && (m == 0 || s.movers[m] != s.movers[m - 1]) {
                let moves = 1..=catalog::latest(s);
                let wanted = moves.filter(|&n| catalog::wants_mover(&catalog::mv(s, n)));
                actions.extend(wanted.map(|n| Action::Mover(m, Doing::Take(n))));
            }
            if s.movers[m].mv == 0 {
                continue;
            }
            let mut may = |doing| actions.push(Action::Mover(m, doing));
            may(Doing::Go);
            may(Doing::GoOn);
            if s.movers[m].open {
                may(Doing::Cut);
            }
            if s.spent.misses < b.misses {
                may(Doing::Miss);
            }
            if s.spent.fails < b.fails {
                may(Doing::Fail);
            }
            if s.spent.unknown < b.unknown {
                may(Doing::LoseAnswer);
            }
        }
    }

    fn customers(&self, s: &State) -> Vec<Customer> {
        let b = &self.rules.within;
        let mut all = Vec::new();
        for w in 0..b.writes {
            let job = b.job && w + 1 == b.writes;
            let w = usize::from(w);
            if s.clients.tries[w] < b.tries {
                if job {
                    all.extend(clients::pods_in_use().map(|pod| Customer::BeginJob(w, pod)));
                } else {
                    all.extend((0..s.catalog.placements).map(|at| Customer::Begin(w, at)));
                }
            }
            for pod in clients::pods_in_use() {
                let ends = [
                    Customer::Commit(w, pod, true),
                    Customer::Commit(w, pod, false),
                    Customer::RollBack(w, pod),
                ];
                match s.clients.txs[w][usize::from(pod)] {
                    Tx::None => {}
                    Tx::Open(_) if b.slow_commits => {
                        all.extend([Customer::Log(w, pod), Customer::RollBack(w, pod)]);
                    }
                    Tx::Open(_) => all.extend(ends),
                    Tx::Committing(..) => all.extend(&ends[..2]),
                }
            }
        }
        if b.reader {
            for pod in clients::pods_in_use().filter(|&pod| s.pod(pod).home.is_some()) {
                all.push(Customer::Replicate(pod));
                if s.pod(pod).cached.is_some() {
                    all.push(Customer::Expire(pod));
                }
            }
            all.extend((0..clients::answers(&self.rules.on, s).count()).map(Customer::Read));
        }
        all
    }

    fn by_operator(&self, s: &mut State, operator: Operator) -> Option<()> {
        let g = &self.rules.on;
        let number = catalog::latest(s);
        match operator {
            Operator::Move(to) => catalog::begin(g, s, to),
            Operator::Abort => {
                s.spent.aborts += 1;
                catalog::abort(s, number)
            }
            Operator::AbortAtPod => mover::abort_at_pod(s, number),
            Operator::Pause => {
                s.spent.pauses += 1;
                catalog::pause(s, number)
            }
            Operator::Resume => catalog::resume(s, number),
            Operator::Finish => catalog::finish(s, number),
            Operator::SourceGone => catalog::source_gone(s, number),
            Operator::Order => {
                s.spent.orders += 1;
                catalog::order(g, s)
            }
            Operator::OrderAtPod => catalog::order_at_pod(g, s),
        }
    }

    fn by_mover(&self, s: &mut State, m: usize, doing: Doing) -> Option<()> {
        let (r, g) = (&self.rules, &self.rules.on);
        match doing {
            // Its connection is cut first.
            Doing::Take(_) if s.movers[m].open => None,
            Doing::Take(number) => {
                mover::take(g, s, m, number, Why::Missed);
                Some(())
            }
            Doing::Go if self.waits_for_caches(s, m) => None,
            Doing::Go => mover::go(r, s, m),
            Doing::GoOn => mover::go_on(s, m),
            Doing::Miss => {
                s.spent.misses += 1;
                mover::miss(r, s, m)
            }
            Doing::Fail => {
                s.spent.fails += 1;
                mover::fail(r, s, m)
            }
            Doing::Cut => mover::cut(s, m),
            Doing::LoseAnswer => {
                s.spent.unknown += 1;
                mover::lose_answer(s, m)
            }
        }
    }

    fn by_customer(&self, s: &mut State, customer: Customer) -> Option<()> {
        let (g, b) = (&self.rules.on, &self.rules.within);
        match customer {
            Customer::Begin(w, at) => clients::begin(b, s, w, s.catalog.placed[usize::from(at)]),
            Customer::BeginJob(w, pod) => clients::begin_job(b, s, w, pod),
            Customer::Log(w, pod) => clients::log(s, w, pod),
            Customer::Commit(w, pod, told) => {
                if !b.slow_commits {
                    clients::log(s, w, pod)?;
                }
                clients::commit(s, w, pod, told)
            }
            Customer::RollBack(w, pod) => clients::roll_back(s, w, pod),
            Customer::Read(at) => {
                let answer = clients::answers(g, s).nth(at)?;
                clients::read(s, answer);
                Some(())
            }
            Customer::Replicate(pod) => {
                clients::replicate(s, pod);
                Some(())
            }
            Customer::Expire(pod) => {
                s.pod_mut(pod).cached = None;
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
        actions.extend(self.operators(s).into_iter().map(Action::Operator));
        self.movers(s, actions);
        if s.late.is_some() {
            actions.push(Action::Late);
        }
        actions.extend(self.customers(s).into_iter().map(Action::Customer));
        if s.spent.changes < self.rules.within.changes {
            for pod in [0, 1] {
                actions.extend([Action::Primary(pod, false), Action::Primary(pod, true)]);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = *last;
        match action {
            Action::Operator(operator) => self.by_operator(&mut s, operator)?,
            Action::Mover(m, doing) => self.by_mover(&mut s, m, doing)?,
            Action::Late => mover::late(&self.rules.on, &mut s)?,
            Action::Customer(customer) => self.by_customer(&mut s, customer)?,
            Action::Primary(pod, survive) => {
                s.spent.changes += 1;
                clients::change_primary(&mut s, pod, survive);
            }
        }
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
