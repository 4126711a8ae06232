//! Limits on parked requests, and what is known when nobody waits any more.

use super::*;

#[test]
fn a_shop_that_is_full_leaves_room_for_others() {
    let mut scene = Scene::new(Settings {
        shop_max: 3,
        ..SETTINGS
    });
    let clients = scene.parks(1, 3);
    let full = scene.try_park(1, Reason::Fenced, guest());
    assert_eq!(full.err(), Some(Why::Shop));
    let other = scene.park(2);
    scene.leave(&clients[0]);
    let again = scene.park(1);
    for client in clients.iter().chain([&other, &again]) {
        scene.leave(client);
    }
    scene.is_empty();
}

#[test]
fn where_all_is_full_the_shop_with_the_most_gives_way() {
    let small = Settings {
        all_max: 6,
        ..SETTINGS
    };
    let little = Settings {
        bytes_max: 60,
        ..SETTINGS
    };
    for (settings, why) in [(small, Why::All), (little, Why::Bytes)] {
        let mut scene = Scene::new(settings);
        let mut large = scene.parks(1, 6);
        let own = scene.try_park(1, Reason::Fenced, guest());
        assert_eq!(own.err(), Some(why));
        let mut other = scene.parks(2, 3);
        let newest = large.iter_mut().skip(3).map(Client::heard);
        assert!(newest.into_iter().all(|h| h == Some(Turn::Refused(why))));
        assert!(large[..3].iter_mut().all(|c| c.heard().is_none()));
        let equal = scene.try_park(2, Reason::Fenced, guest());
        assert_eq!(
            equal.err(),
            Some(why),
            "its share is as large as the other's"
        );
        assert!(other.iter_mut().all(|c| c.heard().is_none()));
        for client in large.iter().chain(&other) {
            scene.leave(client);
        }
        scene.is_empty();
    }
}

#[test]
fn nobody_gives_way_where_that_makes_no_room() {
    let settings = Settings {
        bytes_max: 130,
        ..SETTINGS
    };
    let mut scene = Scene::new(settings);
    let with = |bytes| Guest { bytes, ..guest() };
    let mut clients = scene.parks(1, 5);
    for id in [2, 3] {
        clients.push(scene.try_park(id, Reason::Fenced, with(40)).unwrap());
    }
    for _ in 0..3 {
        let none = scene.try_park(4, Reason::Fenced, with(40));
        assert_eq!(none.err(), Some(Why::Bytes));
    }
    assert!(clients.iter_mut().all(|c| c.heard().is_none()));
    clients.push(scene.try_park(4, Reason::Fenced, with(10)).unwrap());
    assert_eq!(clients[4].heard(), Some(Turn::Refused(Why::Bytes)));
    for client in &clients {
        scene.leave(client);
    }
    scene.is_empty();
    // The shop with the most has not what is missing; the next one has.
    let mut scene = Scene::new(settings);
    let mut clients = scene.parks(1, 3);
    for id in [2, 2, 3] {
        clients.push(scene.try_park(id, Reason::Fenced, with(50)).unwrap());
    }
    let refused = Some(Turn::Refused(Why::Bytes));
    let heard: Vec<_> = clients.iter_mut().map(Client::heard).collect();
    assert_eq!(heard, [None, None, None, None, refused, None]);
    for client in &clients {
        scene.leave(client);
    }
    scene.is_empty();
}

#[test]
fn who_lost_the_seat_while_it_was_out_is_refused() {
    let mut scene = Scene::new(SETTINGS);
    let mut client = scene.park(1);
    scene.leave(&client);
    assert_eq!(scene.back(&mut client).err(), Some(Why::All));
    scene.is_empty();
}

#[test]
fn one_for_which_the_edge_has_no_room_tries_again_and_closes_nothing() {
    let mut scene = Scene::new(SETTINGS);
    let mut clients = scene.parks(1, 6);
    scene.after(10);
    assert!(clients[0].goes());
    scene.pass(&clients[0]);
    assert!(clients[1].goes());
    let busy = |scene: &mut Scene, client: &mut Client| {
        let unsent = Refused {
            by_pod: None,
            ..scene.refused(1, Reason::Fenced)
        };
        let (waker, turn) = channel();
        client.turn = turn;
        let back = scene.lot.back(unsent, client.number, waker, scene.now);
        assert_eq!(back, Ok(()));
        scene.is_settled();
    };
    busy(&mut scene, &mut clients[1]);
    assert_eq!(scene.lot.arrive(shop(1), true, scene.now), Ok(Arrival::Go));
    assert_eq!(scene.lot.why_over(shop(1)), Why::Busy);
    scene.after(99);
    assert!(!clients[1].goes() && !clients[5].goes(), "nobody tries");
    scene.after(1);
    assert!(clients[1].goes() && !clients[5].goes(), "the first again");
    // Another one got through meanwhile: now there is room.
    busy(&mut scene, &mut clients[1]);
    scene.pass(&clients[2]);
    assert!(clients[1].goes() && clients[5].goes());
    assert_eq!(scene.lot.why_over(shop(1)), Why::Window);
    // Who was to ask finds no room: that says nothing of the pod, and the gate stays as it is.
    let mut asks = scene.park(2);
    scene.after(10);
    assert!(asks.goes());
    let unsent = Refused {
        by_pod: None,
        ..scene.refused(2, Reason::Fenced)
    };
    let (waker, turn) = channel();
    asks.turn = turn;
    let back = scene.lot.back(unsent, asks.number, waker, scene.now);
    assert_eq!(back, Ok(()));
    scene.after(99);
    assert!(!asks.goes());
    scene.after(1);
    assert_eq!(asks.heard(), Some(Turn::Probe(None)));
    assert_eq!(scene.lot.why_over(shop(2)), Why::Busy);
    for client in clients.iter().chain([&asks]) {
        scene.leave(client);
    }
    let ended = scene.lot.take_ended();
    assert!(ended.iter().all(|(_, period)| period.refused == 0));
    scene.is_empty();
}

#[test]
fn a_shop_that_is_fenced_for_too_long_is_not_waited_for_until_one_saw_it_open() {
    let mut scene = Scene::new(SETTINGS);
    let mut asking = scene.park(1);
    let mut waiting = scene.park(1);
    scene.after(10);
    assert!(asking.goes());
    scene.after(19_995);
    assert_eq!(waiting.heard(), Some(Turn::Refused(Why::Fence)));
    assert_eq!(scene.back(&mut asking), Err(Why::Fence));
    let none = scene.try_park(1, Reason::Fenced, guest());
    assert_eq!(none.err(), Some(Why::Fence));
    scene.leave(&asking);
    scene.leave(&waiting);
    assert_eq!(scene.lot.seats(), 0);
    // One in a while asks; the others are refused at once, and reads may be served.
    scene.after(100);
    assert_eq!(
        scene.lot.arrive(shop(1), true, scene.now),
        Ok(Arrival::Scout)
    );
    assert_eq!(scene.lot.arrive(shop(1), true, scene.now), Err(Why::Fence));
    assert_eq!(scene.lot.arrive(shop(1), false, scene.now), Ok(Arrival::Go));
    // One that was to wait when it came takes no seat where nobody asks any more.
    let unsent = Refused {
        by_pod: None,
        ..scene.refused(1, Reason::Fenced)
    };
    let seat = scene.lot.sit(unsent, guest(), channel().0, scene.now);
    assert_eq!(seat, Err(Why::Fence));
    scene.after(60_000);
    assert_eq!(
        scene.lot.arrive(shop(1), true, scene.now),
        Ok(Arrival::Scout)
    );
    assert_eq!(scene.lot.arrive(shop(1), true, scene.now), Err(Why::Fence));
    scene.lot.scouted(shop(1), scene.now);
    assert_eq!(scene.lot.arrive(shop(1), true, scene.now), Ok(Arrival::Go));
    let again = scene.park(1);
    scene.leave(&again);
    scene.is_empty();
}

#[test]
fn a_pod_that_loses_its_primary_again_soon_is_not_waited_for_and_a_fence_is() {
    let mut scene = Scene::new(SETTINGS);
    let mut client = scene.try_park(1, Reason::Unready, guest()).unwrap();
    scene.after(10);
    assert!(client.goes());
    scene.pass(&client);
    scene.after(59_000);
    let soon = scene.try_park(1, Reason::Unready, guest());
    assert_eq!(soon.err(), Some(Why::Gap));
    assert_eq!(scene.lot.arrive(shop(1), true, scene.now), Ok(Arrival::Go));
    let mut fenced = scene.park(1);
    scene.after(10);
    assert!(fenced.goes());
    scene.pass(&fenced);
    scene.after(1_000);
    let later = scene.try_park(1, Reason::Unready, guest()).unwrap();
    scene.leave(&later);
    scene.is_empty();
}

#[test]
fn a_drain_that_meets_no_primary_again_goes_on_waiting() {
    let mut scene = Scene::new(SETTINGS);
    let mut clients: Vec<_> = (0..8)
        .map(|_| scene.try_park(1, Reason::Unready, guest()).unwrap())
        .collect();
    scene.after(10);
    assert!(clients[0].goes());
    scene.pass(&clients[0]);
    assert!(clients[1].goes());
    let refused = scene.refused(1, Reason::Unready);
    let (waker, _turn) = channel();
    let number = clients[1].number;
    let back = scene.lot.back(refused, number, waker, scene.now);
    assert_eq!(back, Ok(()), "the period is not over");
    for client in &clients {
        scene.leave(client);
    }
    scene.is_empty();
}

#[test]
fn the_last_of_a_drain_may_meet_a_process_that_has_no_primary_yet() {
    let mut scene = Scene::new(SETTINGS);
    let mut clients: Vec<_> = (0..2)
        .map(|_| scene.try_park(1, Reason::Unready, guest()).unwrap())
        .collect();
    scene.after(10);
    assert!(clients[0].goes());
    scene.pass(&clients[0]);
    assert!(clients[1].goes());
    scene.after(5);
    assert!(
        scene.lot.take_ended().is_empty(),
        "one is still on its way, and may come back"
    );
    let refused = scene.refused(1, Reason::Unready);
    let (waker, turn) = channel();
    let number = clients[1].number;
    assert_eq!(scene.lot.back(refused, number, waker, scene.now), Ok(()));
    clients[1].turn = turn;
    // Nor is it the end for one that comes only now, and finds that process.
    let late = scene.try_park(1, Reason::Unready, guest()).unwrap();
    scene.after(100);
    assert!(clients[1].goes());
    scene.pass(&clients[1]);
    scene.leave(&late);
    scene.is_empty();
}

#[test]
fn an_absence_settles_for_a_while_and_one_that_comes_and_goes_is_waited_for_only_so_long() {
    let mut scene = Scene::new(SETTINGS);
    let begun = scene.now;
    let mut rounds = 0;
    loop {
        match scene.try_park(1, Reason::Unready, guest()) {
            Ok(client) => scene.leave(&client),
            Err(why) => {
                assert_eq!(why, Why::Gap);
                break;
            }
        }
        // Another request of the shop finds the primary, and the next one does not.
        scene.lot.scouted(shop(1), scene.now);
        scene.after(1_900);
        rounds += 1;
    }
    assert_eq!(rounds, 11);
    assert_eq!(scene.now - begun, Duration::from_millis(20_900));
    let mut scene = Scene::new(SETTINGS);
    let client = scene.try_park(1, Reason::Unready, guest()).unwrap();
    scene.leave(&client);
    scene.lot.scouted(shop(1), scene.now);
    scene.after(2_000);
    let soon = scene.try_park(1, Reason::Unready, guest());
    assert_eq!(soon.err(), Some(Why::Gap));
    scene.is_empty();
}

#[test]
fn a_slow_one_that_was_sent_does_not_keep_a_period_open() {
    let mut scene = Scene::new(SETTINGS);
    let mut client = scene.park(1);
    scene.after(10);
    assert!(client.goes());
    scene.lot.scouted(shop(1), scene.now);
    let due = scene.after(10).unwrap();
    assert!(scene.lot.take_ended().is_empty());
    scene.now = due;
    scene.lot.advance(due);
    assert_eq!(scene.lot.take_ended().len(), 1);
    scene.pass(&client);
    scene.is_empty();
}

#[test]
fn what_is_known_of_a_fence_that_nobody_waits_for_is_forgotten() {
    let mut scene = Scene::new(SETTINGS);
    let client = scene.park(1);
    scene.leave(&client);
    scene.after(900);
    assert_eq!(
        scene.lot.arrive(shop(1), true, scene.now),
        Ok(Arrival::Wait)
    );
    scene.after(600);
    let read = scene.lot.arrive(shop(1), false, scene.now);
    assert_eq!(read, Ok(Arrival::Go), "and readers keep nothing known");
    scene.after(500);
    assert_eq!(scene.lot.shops(), 0);
    assert_eq!(scene.lot.arrive(shop(1), true, scene.now), Ok(Arrival::Go));
}

#[test]
fn the_shops_of_a_pod_share_its_slots_in_turn() {
    let mut scene = Scene::new(SETTINGS);
    let mut shops: Vec<Vec<Client>> = (1..=3).map(|id| scene.parks(id, 10)).collect();
    for id in 1..=3 {
        scene.lot.routed(shop(id), Some(at(2, 2)), scene.now);
    }
    let mut done = [0; 3];
    for _ in 0..1000 {
        let mut going = Vec::new();
        for (index, clients) in shops.iter_mut().enumerate() {
            let told = clients.iter_mut().enumerate();
            going.extend(told.filter_map(|(i, c)| c.goes().then_some((index, i))));
        }
        if going.is_empty() {
            break;
        }
        assert!(going.len() <= 6, "{going:?}");
        for (index, i) in going {
            scene.pass(&shops[index][i]);
            done[index] += 1;
        }
        let (most, least) = (done.iter().max().unwrap(), done.iter().min().unwrap());
        assert!(most - least <= 4 || *least == 10, "{done:?}");
    }
    assert_eq!(done, [10, 10, 10]);
    scene.is_empty();
}

#[test]
fn an_answer_that_says_nothing_of_the_home_opens_nothing() {
    let mut scene = Scene::new(SETTINGS);
    let mut clients = scene.parks(1, 6);
    for next in 0..5 {
        scene.after(if next == 0 { 10 } else { 9 });
        assert!(!clients[next + 1].goes());
        assert!(clients[next].goes() || next > 0);
        let (shop, number) = (clients[next].shop, clients[next].number);
        scene.lot.passed(shop, number, false, scene.now);
        scene.after(1);
        scene.after(9);
        assert!(clients[next + 1].goes(), "{next}: the next one asks soon");
    }
    scene.pass(&clients[5]);
    scene.is_empty();
}
