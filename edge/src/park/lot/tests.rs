//! The lot by a clock of the test's own: who goes when, who is refused, and that nothing is left over.

use std::time::Duration;

use tokio::sync::oneshot::{Receiver, channel};

use super::*;
use crate::park::seats::{Body, Turn};

const SETTINGS: Settings = Settings {
    window: Duration::from_secs(10),
    shop_max: 100,
    all_max: 200,
    bytes_max: 1_000_000,
    fence_max: Duration::from_secs(20),
    unready_gap: Duration::from_secs(60),
    probe_every: Duration::from_millis(100),
    probe_pod_max: 4,
    drain_shop_max: 4,
    drain_pod_max: 6,
};

/// A lot and its clock.
struct Scene {
    lot: Lot,
    now: Instant,
}

/// A parked request.
struct Client {
    shop: ShopId,
    number: Number,
    turn: Receiver<Turn>,
}

impl Client {
    fn heard(&mut self) -> Option<Turn> {
        self.turn.try_recv().ok()
    }

    /// Whether it was told to go.
    fn goes(&mut self) -> bool {
        matches!(self.heard(), Some(Turn::Probe(_) | Turn::Follow(_)))
    }
}

const fn guest() -> Guest {
    Guest {
        write: true,
        body: Body::Here,
        bytes: 10,
    }
}

fn shop(id: u64) -> ShopId {
    ShopId::new(id).unwrap()
}

fn at(pod: u64, epoch: u64) -> Row {
    Row {
        pod: PodId::new(pod).unwrap(),
        epoch: Epoch::try_from(epoch).unwrap(),
        offline: false,
    }
}

impl Scene {
    fn new(settings: Settings) -> Self {
        Self {
            lot: Lot::new(settings),
            now: Instant::now(),
        }
    }

    fn refused(&self, id: u64, reason: Reason) -> Refused {
        Refused {
            shop: shop(id),
            place: at(1, 1),
            by_pod: Some((reason, self.now)),
        }
    }

    fn try_park(&mut self, id: u64, reason: Reason, guest: Guest) -> Result<Client, Why> {
        let (waker, turn) = channel();
        let refused = self.refused(id, reason);
        let number = self.lot.sit(refused, guest, waker, self.now);
        self.is_settled();
        let (shop, number) = (shop(id), number?);
        Ok(Client { shop, number, turn })
    }

    /// A write that the pod refused.
    fn park(&mut self, id: u64) -> Client {
        self.try_park(id, Reason::Fenced, guest()).unwrap()
    }

    fn parks(&mut self, id: u64, count: usize) -> Vec<Client> {
        (0..count).map(|_| self.park(id)).collect()
    }

    fn back(&mut self, client: &mut Client) -> Result<(), Why> {
        let refused = self.refused(client.shop.get(), Reason::Fenced);
        let (waker, turn) = channel();
        client.turn = turn;
        let back = self.lot.back(refused, client.number, waker, self.now);
        self.is_settled();
        back
    }

    fn pass(&mut self, client: &Client) {
        self.lot.passed(client.shop, client.number, true, self.now);
        self.is_settled();
    }

    fn leave(&mut self, client: &Client) {
        self.lot.leave(client.shop, client.number, self.now);
        self.is_settled();
    }

    fn after(&mut self, ms: u64) -> Option<Instant> {
        self.now += Duration::from_millis(ms);
        let mut due = self.lot.advance(self.now);
        for _ in 0..self.lot.shops() {
            if due.is_some_and(|due| due <= self.now) {
                due = self.lot.advance(self.now);
            }
        }
        assert!(due.is_none_or(|due| due > self.now), "it did all");
        self.is_settled();
        due
    }
}

#[test]
fn one_asks_at_a_time_and_ever_more_rarely() {
    let mut scene = Scene::new(SETTINGS);
    let mut clients = scene.parks(1, 5);
    let mut asked = Vec::new();
    for ms in 0..1000 {
        for client in &mut clients {
            if client.goes() {
                asked.push(ms);
                // The pod answers at once.
                scene.back(client).unwrap();
            }
        }
        scene.after(1);
    }
    assert_eq!(asked[..6], [10, 30, 70, 150, 250, 350], "{asked:?}");
    assert_eq!(asked.len(), 12, "{asked:?}");
    for client in &clients {
        scene.leave(client);
    }
    scene.is_empty();
}

#[test]
fn who_asks_for_long_keeps_no_other_from_asking() {
    let mut scene = Scene::new(SETTINGS);
    let mut clients = scene.parks(1, 2);
    scene.after(10);
    assert!(clients[0].goes());
    let due = scene.after(500).unwrap();
    assert!(!clients[1].goes());
    assert_eq!(due, scene.now + Duration::from_millis(500), "no sooner");
    scene.after(500);
    assert!(clients[1].goes());
    scene.pass(&clients[0]);
    scene.pass(&clients[1]);
    scene.is_empty();
}

#[test]
fn an_answer_opens_the_gate_and_the_others_follow_a_few_at_a_time() {
    let mut scene = Scene::new(SETTINGS);
    let mut clients = scene.parks(1, 20);
    assert_eq!(
        scene.lot.arrive(shop(1), true, scene.now),
        Ok(Arrival::Wait)
    );
    assert_eq!(scene.lot.arrive(shop(1), false, scene.now), Ok(Arrival::Go));
    assert_eq!(scene.lot.arrive(shop(2), true, scene.now), Ok(Arrival::Go));
    scene.after(10);
    assert!(clients[0].goes());
    scene.pass(&clients[0]);
    assert_eq!(scene.lot.arrive(shop(1), true, scene.now), Ok(Arrival::Go));
    let going = |clients: &mut [Client]| -> Vec<usize> {
        let told = clients.iter_mut().enumerate();
        told.filter_map(|(i, c)| c.goes().then_some(i)).collect()
    };
    assert_eq!(going(&mut clients), [1, 2, 3, 4]);
    scene.pass(&clients[2]);
    scene.leave(&clients[1]);
    assert_eq!(going(&mut clients), [5, 6], "in the order of arrival");
    // A slow one gives its slot up after a while.
    scene.after(1000);
    assert_eq!(going(&mut clients), [7, 8, 9, 10]);
    for client in &clients[3..] {
        scene.pass(client);
    }
    let ended = scene.lot.take_ended();
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].1.parked, 20);
    assert_eq!(ended[0].1.longest, Duration::from_millis(1010));
    scene.is_empty();
}

#[test]
fn one_that_is_refused_again_finds_its_place_and_closes_the_gate() {
    let mut scene = Scene::new(SETTINGS);
    let mut clients = scene.parks(1, 6);
    scene.after(10);
    assert!(clients[0].goes());
    scene.pass(&clients[0]);
    assert!(clients[1].goes() && clients[2].goes());
    scene.after(5);
    scene.back(&mut clients[1]).unwrap();
    assert!(!clients[5].goes(), "the gate is closed");
    scene.back(&mut clients[2]).unwrap();
    scene.after(90);
    assert!(!clients[1].goes(), "a gate that flaps is asked no sooner");
    scene.after(10);
    assert!(
        clients[1].goes() && !clients[2].goes(),
        "the first asks again"
    );
    // Sent before the refusal: its answer says nothing about now.
    scene.pass(&clients[3]);
    assert!(!clients[5].goes());
    scene.pass(&clients[1]);
    assert!(clients[2].goes() && clients[5].goes());
    for client in &clients {
        scene.leave(client);
    }
    scene.is_empty();
}

#[test]
fn a_refusal_older_than_the_opening_closes_nothing() {
    let mut scene = Scene::new(SETTINGS);
    let mut clients = scene.parks(1, 8);
    let old = scene.refused(1, Reason::Fenced);
    scene.after(10);
    assert!(clients[0].goes());
    scene.pass(&clients[0]);
    let (waker, turn) = channel();
    let number = scene.lot.sit(old, guest(), waker, scene.now).unwrap();
    let late = Client {
        shop: shop(1),
        number,
        turn,
    };
    assert_eq!(scene.lot.arrive(shop(1), true, scene.now), Ok(Arrival::Go));
    for client in clients.iter().chain([&late]) {
        scene.leave(client);
    }
    scene.is_empty();
}

#[test]
fn a_read_does_not_answer_for_writes() {
    let mut scene = Scene::new(SETTINGS);
    let read = Guest {
        write: false,
        ..guest()
    };
    let mut first = scene.try_park(1, Reason::Unready, read).unwrap();
    let mut second = scene.try_park(1, Reason::Unready, read).unwrap();
    scene.after(10);
    assert!(first.goes(), "with no write a read asks");
    let mut write = scene.try_park(1, Reason::Unready, guest()).unwrap();
    scene.pass(&first);
    assert!(!second.goes() && !write.goes());
    scene.after(100);
    assert!(write.goes() && !second.goes(), "a write goes first");
    scene.pass(&write);
    assert!(second.goes());
    scene.pass(&second);
    scene.is_empty();
}

#[test]
fn one_whose_body_is_with_its_client_asks_last_and_one_whose_body_comes_does_not() {
    let mut scene = Scene::new(SETTINGS);
    let with = |body| Guest { body, ..guest() };
    let mut slow = scene.try_park(1, Reason::Fenced, with(Body::There));
    let slow = slow.as_mut().unwrap();
    let mut slower = scene.try_park(1, Reason::Fenced, with(Body::Comes));
    let slower = slower.as_mut().unwrap();
    let mut never = scene.try_park(1, Reason::Fenced, with(Body::Comes));
    let never = never.as_mut().unwrap();
    let mut whole = scene.park(1);
    scene.after(10);
    assert!(whole.goes() && !slow.goes());
    scene.back(&mut whole).unwrap();
    scene.leave(&whole);
    scene.lot.whole(shop(1), slower.number, scene.now);
    scene.after(100);
    assert!(slower.goes() && !slow.goes());
    scene.leave(slower);
    scene.after(100);
    assert!(slow.goes(), "with nobody else it does, without its body");
    // Each time: nothing of it is lost.
    scene.back(slow).unwrap();
    scene.after(100);
    assert!(slow.goes());
    scene.leave(slow);
    let due = scene.after(100).unwrap();
    assert!(
        due > scene.now + Duration::from_secs(10),
        "there is nothing to do"
    );
    assert!(!never.goes());
    scene.lot.scouted(shop(1), scene.now);
    assert!(never.goes(), "an open shop does not wait for it");
    scene.pass(never);
    scene.is_empty();
}

#[test]
fn a_new_row_or_a_mark_opens_the_gate_and_an_old_one_does_not() {
    let mut scene = Scene::new(SETTINGS);
    let mut client = scene.park(1);
    // The table may have changed before the request was refused: it is looked up once.
    assert_eq!(scene.lot.take_fresh(), [shop(1)]);
    assert_eq!(scene.lot.take_fresh(), []);
    let offline = Row {
        offline: true,
        ..at(1, 1)
    };
    scene.lot.routed(shop(1), Some(at(1, 1)), scene.now);
    scene
        .lot
        .marked(shop(1), at(2, 1).pod, at(2, 1).epoch, scene.now);
    assert_eq!(client.heard(), None);
    scene
        .lot
        .marked(shop(1), at(2, 2).pod, at(2, 2).epoch, scene.now);
    let there = Some((at(2, 2).pod, at(2, 2).epoch));
    assert_eq!(client.heard(), Some(Turn::Follow(there)));
    scene.leave(&client);
    for row in [Some(at(2, 2)), Some(offline), None] {
        let mut client = scene.park(1);
        scene.lot.routed(shop(1), row, scene.now);
        assert!(client.goes(), "{row:?}");
        scene.leave(&client);
    }
    scene.is_empty();
}

// Limits, and what is left over.
mod limits;
// A pod with thousands of shops loses its primary.
mod pods;
// What must be so whenever nothing happens.
mod settled;
// The slots of pods.
mod slots;
