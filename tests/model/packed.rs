//! A state as bytes: what the checker compares states by. A search makes some ten million of them, most of them known already.

use std::hash::{Hash, Hasher};

use crate::state::{Catalog, Clients, Data, Home, Move, Mover, Op, PODS, Pc, Pod, State, Tx};

/// More than the longest state has.
const BYTES_MAX: usize = 256;

/// What is not there, among numbers that are small.
const NONE: u8 = u8::MAX;

struct Bytes {
    bytes: [u8; BYTES_MAX],
    len: usize,
}

impl Bytes {
    fn put(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    fn all<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.len..self.len + N].copy_from_slice(&bytes);
        self.len += N;
    }

    fn data(&mut self, data: Data) {
        self.all([data.stock, data.keys]);
    }

    fn home(&mut self, home: Option<Home>) {
        let Some(home) = home else {
            return self.put(NONE);
        };
        let (pod, epoch) = home.mark.unwrap_or((NONE, NONE));
        self.all([home.epoch, home.state as u8, home.mv, home.owner]);
        self.all([pod, epoch, home.ready]);
    }

    fn pod(&mut self, pod: &Pod) {
        self.home(pod.home);
        self.data(pod.data);
        let (of, rows, applied) = pod.marks;
        self.all([pod.logged, pod.executed, of, rows]);
        self.all([applied.unwrap_or(NONE), pod.term]);
        self.all(<[u8; 2]>::from(pod.ready));
        let (data, set, ready) = pod.replica;
        self.data(data);
        self.all([set, ready]);
        self.home(pod.cached);
    }

    fn catalog(&mut self, catalog: &Catalog) {
        for &(pod, epoch) in &catalog.placed[..usize::from(catalog.placements)] {
            self.all([pod, epoch]);
        }
        self.all([NONE, catalog.owner]);
        self.all([catalog.frozen, catalog.ordered].map(u8::from));
        for mv in catalog.moves.iter().flatten() {
            self.mv(mv);
        }
        self.put(NONE);
    }

    fn mv(&mut self, mv: &Move) {
        self.all([mv.state as u8, mv.source, mv.target, mv.source_epoch]);
        self.all([mv.epoch, mv.owner, mv.from.unwrap_or(NONE), mv.ready]);
        let resume = mv.resume.map_or(NONE, |point| point as u8);
        let leftover = mv.leftover.unwrap_or(NONE);
        self.all([resume, leftover]);
        self.all([mv.back, mv.source_gone, mv.must_fail].map(u8::from));
    }

    fn late(&mut self, op: Option<&Op>) {
        match op {
            Some(op) => self.all([op.pod, op.mv, op.owner]),
            None => self.put(NONE),
        }
    }

    fn mover(&mut self, mover: &Mover) {
        if mover.mv == 0 {
            return self.put(NONE);
        }
        let pc = match mover.pc {
            Pc::Idle => 0,
            Pc::Look(look) => 0x10 + look as u8,
            Pc::Rows(rows) => 0x20 + rows as u8,
            Pc::Home(change) => 0x30 + change as u8,
            Pc::Step(step) => 0x40 + step as u8,
        };
        self.all([mover.mv, mover.owner, pc, mover.at as u8]);
        let (source, target) = mover.terms;
        self.all([mover.why as u8, mover.rows, mover.seen, source, target]);
        self.put(mover.fence.unwrap_or(NONE));
        let flags = [mover.open, mover.lift, mover.frozen];
        self.all(flags.map(u8::from));
        self.data(mover.data);
    }

    fn clients(&mut self, clients: &Clients) {
        self.all([clients.acked, clients.spent]);
        self.all(clients.tries);
        let (epoch, set, seen) = clients.session;
        self.all([epoch, set, seen]);
        for tx in clients.txs.iter().flatten() {
            match *tx {
                Tx::None => self.put(NONE),
                Tx::Open(epoch) => self.put(epoch),
                Tx::Committing(epoch, bit) => self.all([epoch | 0x80, bit]),
            }
        }
    }

    fn state(s: &State) -> Self {
        let mut all = Self {
            bytes: [0; BYTES_MAX],
            len: 0,
        };
        for pod in &s.pods[..PODS - 1] {
            all.pod(pod);
        }
        // Most searches leave the third pod alone.
        let third = &s.pods[PODS - 1];
        all.put(u8::from(third.home.is_some()));
        if third.home.is_some() {
            all.pod(third);
        }
        all.catalog(&s.catalog);
        s.movers.iter().for_each(|mover| all.mover(mover));
        all.late(s.late.as_ref());
        all.clients(&s.clients);
        let spent = s.spent;
        all.all([spent.unknown, spent.misses, spent.fails]);
        all.all([spent.pauses, spent.aborts, spent.changes, spent.orders]);
        all
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, h: &mut H) {
        let all = Bytes::state(self);
        h.write(&all.bytes[..all.len]);
    }
}
