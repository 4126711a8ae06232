//! A pod with thousands of shops loses its primary: what it is asked, how soon all are served, and what others notice.

use std::collections::VecDeque;

use super::*;

const SHOPS: u64 = 5_000;

/// As in production.
const LARGE: Settings = Settings {
    shop_max: 1_000,
    all_max: 20_000,
    drain_shop_max: 8,
    drain_pod_max: 32,
    ..SETTINGS
};

/// What a pod takes to answer, in ms.
const ANSWER: u32 = 5;

/// Shops with one parked request each, and the pods' answers on their way.
struct Crowd {
    scene: Scene,
    began: Instant,
    waiting: Vec<(u64, Client)>,
    sent: VecDeque<(Instant, u64, Client)>,
    /// Those that were answered, and when, in ms after the beginning.
    served: Vec<(ShopId, u128)>,
    /// When one was sent to pod 1, in ms.
    asked: Vec<u128>,
    /// The most that were on their way to pod 1.
    most: usize,
}

impl Crowd {
    fn new(settings: Settings) -> Self {
        let scene = Scene::new(settings);
        Self {
            began: scene.now,
            scene,
            waiting: Vec::new(),
            sent: VecDeque::new(),
            served: Vec::new(),
            asked: Vec::new(),
            most: 0,
        }
    }

    /// A request of the shop is refused at this pod.
    fn parks(&mut self, pod: u64, id: u64, reason: Reason, guest: Guest) {
        let refused = Refused {
            place: at(pod, 1),
            ..self.scene.refused(id, reason)
        };
        let (waker, turn) = channel();
        let now = self.scene.now;
        let number = self.scene.lot.sit(refused, guest, waker, now).unwrap();
        let shop = shop(id);
        self.waiting.push((pod, Client { shop, number, turn }));
    }

    fn ms(&self) -> u128 {
        (self.scene.now - self.began).as_millis()
    }

    /// Whoever still waits or is on its way leaves, and nothing is held any more.
    fn ends(mut self) {
        let waiting = self.waiting.iter().map(|(_, client)| client);
        for client in waiting.chain(self.sent.iter().map(|(.., client)| client)) {
            self.scene.leave(client);
        }
        self.scene.is_empty();
    }

    /// One ms, in which the pods answer: with what they refuse for, if they do.
    fn tick(&mut self, refuses: impl Fn(u64, &Client) -> Option<Reason>) {
        self.scene.now += Duration::from_millis(1);
        let now = self.scene.now;
        while self.sent.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, pod, mut client) = self.sent.pop_front().unwrap();
            match refuses(pod, &client) {
                None => {
                    self.scene.lot.passed(client.shop, client.number, true, now);
                    self.served.push((client.shop, self.ms()));
                }
                Some(reason) => {
                    let refused = Refused {
                        place: at(pod, 1),
                        by_pod: Some((reason, now - Duration::from_millis(ANSWER.into()))),
                        shop: client.shop,
                    };
                    let (waker, turn) = channel();
                    client.turn = turn;
                    let back = self.scene.lot.back(refused, client.number, waker, now);
                    back.unwrap();
                    self.waiting.push((pod, client));
                }
            }
        }
        while self.scene.lot.advance(now).is_some_and(|due| due <= now) {}
        self.hear();
    }

    fn hear(&mut self) {
        let (now, ms) = (self.scene.now, self.ms());
        for (pod, mut client) in std::mem::take(&mut self.waiting) {
            match client.heard() {
                Some(Turn::Probe(_) | Turn::Follow(_)) => {
                    if pod == 1 {
                        self.asked.push(ms);
                    }
                    let at = now + Duration::from_millis(ANSWER.into());
                    self.sent.push_back((at, pod, client));
                }
                Some(Turn::Refused(why)) => panic!("{why:?}"),
                None => self.waiting.push((pod, client)),
            }
        }
        let out = self.sent.iter().filter(|(_, pod, _)| *pod == 1).count();
        self.most = self.most.max(out);
    }

    /// How often pod 1 was asked within any second.
    fn asked_within_a_second(&self) -> usize {
        let within = |from: u128| {
            let asked = self.asked.iter();
            asked.filter(|at| (from..from + 1_000).contains(at)).count()
        };
        let most = self.asked.iter().map(|from| within(*from)).max();
        most.unwrap_or(0)
    }
}

const fn all_unready(_: u64, _: &Client) -> Option<Reason> {
    Some(Reason::Unready)
}

#[test]
fn inv6_a_pod_without_primary_is_asked_by_a_few_however_many_of_its_shops_wait() {
    let mut crowd = Crowd::new(LARGE);
    for id in 1..=SHOPS {
        crowd.parks(1, id, Reason::Unready, guest());
    }
    for _ in 0..3_000 {
        crowd.tick(all_unready);
    }
    let most = crowd.asked_within_a_second();
    assert!((40..=51).contains(&most), "{most} in a second");
    assert!(crowd.most <= LARGE.probe_pod_max, "{} at once", crowd.most);
    crowd.scene.is_settled();
    // It is back: the first to hear of it opens the way, and the others follow as many at a time as a drain sends.
    let back = crowd.ms();
    for _ in 0..1_500 {
        crowd.tick(|_, _| None);
    }
    assert_eq!(crowd.served.len() as u64, SHOPS);
    let last = crowd.served.last().unwrap().1 - back;
    // A ms more than an answer for each 32.
    assert!(
        last <= 25 + (u128::from(ANSWER) + 1) * 157 + 10,
        "{last} ms"
    );
    assert_eq!(crowd.most, LARGE.drain_pod_max);
    crowd.scene.is_empty();
}

#[test]
fn a_pod_whose_processes_hang_is_asked_by_a_few_a_second() {
    let mut crowd = Crowd::new(LARGE);
    for id in 1..=100 {
        crowd.parks(1, id, Reason::Unready, guest());
    }
    for _ in 0..3_000 {
        crowd.scene.now += Duration::from_millis(1);
        crowd.scene.lot.advance(crowd.scene.now);
        crowd.hear();
    }
    // Each gives up its place after a second.
    assert_eq!(crowd.asked.len(), 3 * LARGE.probe_pod_max);
    for (.., client) in &crowd.sent {
        crowd.scene.pass(client);
    }
    assert!(crowd.waiting.iter_mut().any(|(_, client)| client.goes()));
    crowd.ends();
}

#[test]
fn a_pod_that_loses_its_primary_again_is_asked_by_a_few_again() {
    let mut crowd = Crowd::new(LARGE);
    for id in 1..=SHOPS {
        crowd.parks(1, id, Reason::Unready, guest());
    }
    for _ in 0..1_000 {
        crowd.tick(all_unready);
    }
    for _ in 0..100 {
        crowd.tick(|_, _| None);
    }
    let served = crowd.served.len();
    assert!((100..1_000).contains(&served), "{served}");
    let asked = crowd.asked.len();
    for _ in 0..2_000 {
        crowd.tick(all_unready);
    }
    let asked = crowd.asked.len() - asked;
    assert!(asked <= 101 + LARGE.drain_pod_max, "{asked}");
    assert_eq!(crowd.served.len(), served);
    for _ in 0..1_500 {
        crowd.tick(|_, _| None);
    }
    assert_eq!(crowd.served.len() as u64, SHOPS);
    crowd.scene.is_empty();
}

#[test]
fn one_process_without_primary_holds_up_nobody_for_long() {
    let mut crowd = Crowd::new(LARGE);
    for id in 1..=SHOPS {
        crowd.parks(1, id, Reason::Unready, guest());
    }
    for _ in 0..500 {
        crowd.tick(all_unready);
    }
    let back = crowd.ms();
    // Requests find one process or the other; their numbers say nothing of when they ask.
    let turn = std::cell::Cell::new(0);
    let other = |_: u64, _: &Client| {
        turn.set(turn.get() + 1);
        (turn.get() % 2 == 0).then_some(Reason::Unready)
    };
    while crowd.served.len() as u64 != SHOPS {
        crowd.tick(other);
        assert!(crowd.ms() < back + 4_000, "{} served", crowd.served.len());
    }
    crowd.scene.is_empty();
}

#[test]
fn inv6_who_looks_at_the_lot_looks_at_what_is_due_and_other_pods_notice_nothing() {
    let mut crowd = Crowd::new(LARGE);
    for id in 1..=SHOPS {
        crowd.parks(1, id, Reason::Unready, guest());
    }
    for _ in 0..1_000 {
        crowd.tick(all_unready);
    }
    // A shop at another pod is fenced, and one is without primary.
    crowd.parks(2, 90_001, Reason::Fenced, guest());
    crowd.parks(3, 90_002, Reason::Unready, guest());
    let (visits, asked) = (crowd.scene.lot.visits, crowd.asked.len());
    for ms in 0..1_000 {
        let opens = ms > 500;
        crowd.tick(|pod, _| match pod {
            1 => Some(Reason::Unready),
            2 => (!opens).then_some(Reason::Fenced),
            _ => (!opens).then_some(Reason::Unready),
        });
    }
    let visits = crowd.scene.lot.visits - visits;
    // 70 requests were sent and refused in this second, of 5,000 that wait.
    let asked = crowd.asked.len() - asked + 20;
    assert!(visits <= asked * 4, "{visits} visits, {asked} sent");
    let served: Vec<_> = crowd.served.iter().map(|(_, at)| at - 1_000).collect();
    assert_eq!(served.len(), 2, "{served:?}");
    assert!(served.iter().all(|at| *at <= 620), "{served:?}");
    crowd.ends();
}

#[test]
fn a_fenced_shop_asks_for_itself_whatever_its_pod_is_asked() {
    let mut crowd = Crowd::new(LARGE);
    for id in 1..=1_000 {
        crowd.parks(1, id, Reason::Unready, guest());
    }
    for _ in 0..200 {
        crowd.tick(all_unready);
    }
    crowd.parks(1, 90_001, Reason::Fenced, guest());
    let fenced = shop(90_001);
    let asked = std::cell::Cell::new(0);
    let refuses = |_: u64, client: &Client| {
        asked.set(asked.get() + u32::from(client.shop == fenced));
        let fenced = client.shop == fenced;
        Some(if fenced {
            Reason::Fenced
        } else {
            Reason::Unready
        })
    };
    for _ in 0..1_000 {
        crowd.tick(refuses);
    }
    assert!((11..=13).contains(&asked.get()), "{}", asked.get());
    // Its fence is lifted; that the pod refuses the others is no matter to it.
    for _ in 0..110 {
        crowd.tick(|_, client| (client.shop != fenced).then_some(Reason::Unready));
    }
    assert_eq!(crowd.served.len(), 1);
    crowd.ends();
}

#[test]
fn of_many_fenced_shops_all_ask_in_turn() {
    let narrow = Settings {
        drain_pod_max: 3,
        ..LARGE
    };
    let mut crowd = Crowd::new(narrow);
    for id in 1..=60 {
        crowd.parks(1, id, Reason::Fenced, guest());
    }
    let asked = std::cell::RefCell::new(HashMap::new());
    for _ in 0..1_000 {
        crowd.tick(|_, client| {
            *asked.borrow_mut().entry(client.shop).or_insert(0) += 1;
            Some(Reason::Fenced)
        });
    }
    assert_eq!(crowd.most, 3);
    let asked = asked.into_inner();
    let (least, most) = (asked.values().min(), asked.values().max());
    assert_eq!(asked.len(), 60);
    assert!(most.unwrap() - least.unwrap() <= 2, "{least:?} {most:?}");
    crowd.ends();
}

#[test]
fn a_read_that_is_served_does_not_call_those_who_write() {
    let mut crowd = Crowd::new(LARGE);
    let read = Guest {
        write: false,
        ..guest()
    };
    for id in 1..=1_000 {
        crowd.parks(1, id, Reason::Unready, guest());
        crowd.parks(1, 2_000 + id, Reason::Unready, read);
    }
    for _ in 0..500 {
        crowd.tick(all_unready);
    }
    let asked = crowd.asked.len();
    for _ in 0..1_000 {
        crowd.tick(|_, client| (client.shop <= shop(2_000)).then_some(Reason::Unready));
    }
    assert_eq!(crowd.served.len(), 1_000, "all reads");
    let asked = crowd.asked.len() - asked - 1_000;
    assert!(asked <= 60, "{asked} writes asked");
    for _ in 0..1_000 {
        crowd.tick(|_, _| None);
    }
    assert_eq!(crowd.served.len(), 2_000);
    crowd.scene.is_empty();
}

#[test]
fn those_that_follow_and_those_that_ask_take_turns_at_a_pod_that_is_back() {
    let narrow = Settings {
        drain_shop_max: 8,
        drain_pod_max: 8,
        ..LARGE
    };
    let mut crowd = Crowd::new(narrow);
    for _ in 0..1_000 {
        crowd.parks(1, 1, Reason::Unready, guest());
    }
    for id in 2..=101 {
        crowd.parks(1, id, Reason::Unready, guest());
    }
    crowd.tick(all_unready);
    for _ in 0..400 {
        crowd.tick(|_, _| None);
    }
    // Half of what is sent is of the one shop, the rest of the hundred.
    let of_one = crowd.served.iter().filter(|(of, _)| *of == shop(1)).count();
    let others = crowd.served.len() - of_one;
    assert_eq!(others, 100);
    assert!(of_one >= 100, "{of_one}");
    assert_eq!(crowd.most, 8);
    crowd.ends();
}
