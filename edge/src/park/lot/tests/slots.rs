//! The slots of a pod go to who wants them, and to nobody else.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

/// One slot for each pod.
const NARROW: Settings = Settings {
    drain_pod_max: 1,
    ..SETTINGS
};

/// So many shops of pod 1 with a request each, all free to go: the first went, the others wait for its slot.
fn full(shops: u64) -> (Scene, Vec<Client>) {
    let mut scene = Scene::new(NARROW);
    let mut clients: Vec<Client> = (1..=shops).map(|id| scene.park(id)).collect();
    for id in 1..=shops {
        scene.lot.routed(shop(id), Some(at(1, 2)), scene.now);
    }
    assert!(clients[0].goes());
    assert!(clients[1..].iter_mut().all(|c| c.heard().is_none()));
    (scene, clients)
}

/// One more request of a shop, that no pod refused.
fn unsent(scene: &mut Scene, id: u64) -> Client {
    let refused = Refused {
        by_pod: None,
        ..scene.refused(id, Reason::Fenced)
    };
    let (waker, turn) = channel();
    let number = scene.lot.sit(refused, guest(), waker, scene.now).unwrap();
    let shop = shop(id);
    Client { shop, number, turn }
}

#[test]
fn a_slot_passes_by_shops_whose_clients_have_left() {
    let (mut scene, mut clients) = full(5);
    for gone in [1, 2, 4] {
        scene.leave(&clients[gone]);
    }
    scene.pass(&clients[0]);
    assert!(clients[3].goes(), "nobody else wants the slot");
    scene.pass(&clients[3]);
    scene.is_empty();
}

#[test]
fn a_shop_whose_clients_left_in_the_queue_is_drained_the_next_time() {
    let (mut scene, clients) = full(5);
    for client in clients.iter().rev() {
        scene.leave(client);
    }
    scene.after(5_000);
    assert_eq!(scene.lot.shops(), 0);
    for id in 1..=5 {
        let mut again = scene.park(id);
        scene.lot.routed(shop(id), Some(at(2, 3)), scene.now);
        assert!(again.goes(), "shop {id}");
        scene.pass(&again);
    }
    scene.is_empty();
}

#[test]
fn a_shop_that_moves_does_not_wait_for_the_pod_that_it_was_at() {
    let (mut scene, mut clients) = full(4);
    scene.lot.routed(shop(2), Some(at(2, 3)), scene.now);
    assert!(clients[1].goes(), "pod 2 has slots");
    let (pod, epoch) = (at(2, 3).pod, at(2, 3).epoch);
    scene.lot.marked(shop(3), pod, epoch, scene.now);
    assert_eq!(clients[2].heard(), None, "now it has none");
    scene.pass(&clients[1]);
    assert!(clients[2].goes());
    scene.pass(&clients[0]);
    assert!(clients[3].goes(), "who has moved takes no slot of pod 1");
    scene.pass(&clients[2]);
    scene.pass(&clients[3]);
    scene.is_empty();
}

#[test]
fn a_slot_passes_by_shops_whose_gate_has_closed() {
    let (mut scene, mut clients) = full(4);
    scene.after(1);
    let refused = scene.park(2);
    scene.pass(&clients[0]);
    assert_eq!(clients[1].heard(), None, "its gate is closed");
    assert!(clients[2].goes());
    scene.lot.scouted(shop(2), scene.now);
    scene.pass(&clients[2]);
    assert!(clients[3].goes() && !clients[1].goes(), "in turn");
    scene.pass(&clients[3]);
    assert!(clients[1].goes());
    scene.pass(&clients[1]);
    scene.leave(&refused);
    scene.is_empty();
}

#[test]
fn a_request_that_gets_no_seat_closes_the_gate_and_keeps_no_slot_from_others() {
    for lost in [false, true] {
        let (mut scene, mut clients) = full(3);
        let mut other = unsent(&mut scene, 2);
        scene.leave(&other);
        scene.lot.settings.shop_max = 1;
        scene.after(1);
        if lost {
            assert_eq!(scene.back(&mut other), Err(Why::All));
        } else {
            let none = scene.try_park(2, Reason::Fenced, guest());
            assert_eq!(none.err(), Some(Why::Shop));
        }
        scene.pass(&clients[0]);
        assert_eq!(clients[1].heard(), None, "its gate is closed");
        assert!(clients[2].goes());
        scene.pass(&clients[2]);
        scene.leave(&clients[1]);
        scene.is_empty();
    }
}

#[test]
fn who_is_in_the_queue_and_should_not_be_costs_no_slot() {
    let pod = at(1, 2).pod;
    let stray = |scene: &mut Scene| {
        scene.lot.waiting.put(shop(99), Some((pod, 0)));
    };
    let (mut scene, mut clients) = full(3);
    stray(&mut scene);
    scene.pass(&clients[0]);
    assert!(clients[1].goes());
    scene.pass(&clients[1]);
    scene.pass(&clients[2]);
    scene.is_empty();
    // Nor does one that should not be in turn, before those that wait.
    let (mut scene, mut clients) = full(3);
    let mut more = unsent(&mut scene, 1);
    scene.lot.ringed.insert(shop(99));
    scene.lot.ring.push_back((shop(99), None));
    stray(&mut scene);
    scene.pass(&clients[0]);
    assert!(clients[1].goes() && more.heard().is_none(), "in turn");
    scene.pass(&clients[1]);
    assert!(clients[2].goes() && more.heard().is_none(), "in turn");
    scene.pass(&clients[2]);
    assert!(more.goes());
    scene.pass(&more);
    scene.is_empty();
}

#[test]
fn slots_whose_time_is_over_pass_by_too() {
    let (mut scene, mut clients) = full(4);
    scene.leave(&clients[1]);
    scene.after(1_000);
    assert!(clients[2].goes());
    scene.leave(&clients[2]);
    assert!(clients[3].goes());
    scene.pass(&clients[3]);
    scene.pass(&clients[0]);
    scene.is_empty();
}

/// Many shops at few pods with few slots, of which anything may be heard at any time.
struct Crowd {
    scene: Scene,
    rng: StdRng,
    waiting: Vec<Client>,
    out: Vec<Client>,
    epoch: u64,
}

impl Crowd {
    fn new(seed: u64) -> Self {
        let settings = Settings {
            shop_max: 5,
            all_max: 40,
            bytes_max: 390,
            drain_shop_max: 2,
            drain_pod_max: 3,
            ..SETTINGS
        };
        Self {
            scene: Scene::new(settings),
            rng: StdRng::seed_from_u64(seed),
            waiting: Vec::new(),
            out: Vec::new(),
            epoch: 1,
        }
    }

    fn anything(&mut self) {
        let id = self.rng.random_range(1..=15);
        let index = self.rng.random_range(0..100);
        match self.rng.random_range(0..20) {
            0..7 => {
                let parked = self.park(id);
                self.waiting.extend(parked);
            }
            7..9 if index < self.waiting.len() => {
                let gone = self.waiting.swap_remove(index);
                self.scene.leave(&gone);
            }
            9..12 if index < self.out.len() => {
                let done = self.out.swap_remove(index);
                self.scene.pass(&done);
            }
            12..14 if index < self.out.len() => {
                let mut again = self.out.swap_remove(index);
                match self.scene.back(&mut again) {
                    Ok(()) => self.waiting.push(again),
                    Err(_) => self.scene.leave(&again),
                }
            }
            14 => self.moves(id),
            15 => self.scene.lot.scouted(shop(id), self.scene.now),
            16 if index == 0 => {
                self.scene.after(30_000);
            }
            _ => {
                self.scene.after(self.rng.random_range(0..50));
            }
        }
        self.scene.is_settled();
        self.hear();
    }

    fn park(&mut self, id: u64) -> Option<Client> {
        let reason = [Reason::Fenced, Reason::Unready][self.rng.random_range(0..2)];
        let bytes = self.rng.random_range(0..20);
        let guest = Guest { bytes, ..guest() };
        self.scene.try_park(id, reason, guest).ok()
    }

    fn moves(&mut self, id: u64) {
        self.epoch += 1;
        let place = at(self.rng.random_range(1..=3), self.epoch);
        let (lot, now) = (&mut self.scene.lot, self.scene.now);
        if self.rng.random() {
            lot.routed(shop(id), Some(place), now);
        } else {
            lot.marked(shop(id), place.pod, place.epoch, now);
        }
    }

    fn hear(&mut self) {
        for mut client in std::mem::take(&mut self.waiting) {
            match client.heard() {
                Some(Turn::Probe(_) | Turn::Follow(_)) => self.out.push(client),
                Some(Turn::Refused(_)) => self.scene.leave(&client),
                None => self.waiting.push(client),
            }
        }
    }
}

#[test]
fn whatever_happens_no_slot_is_idle_while_one_waits_for_it_and_in_the_end_all_have_gone() {
    for seed in 0..30 {
        let mut crowd = Crowd::new(seed);
        for _ in 0..1_000 {
            crowd.anything();
        }
        for id in 1..=15 {
            crowd.moves(id);
        }
        crowd.hear();
        // No time passes: each answer is followed by the next ones.
        while let Some(done) = crowd.out.pop() {
            crowd.scene.pass(&done);
            crowd.hear();
        }
        assert_eq!(crowd.waiting.len(), 0, "seed {seed}: {:?}", crowd.scene.lot);
        crowd.scene.is_empty();
    }
}
