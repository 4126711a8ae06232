//! Placements against homes, hosts against shops.

use std::collections::{BTreeMap, BTreeSet};

use shared::home::HomeState;
use shared::{PlacementState, PodId, ShopId};

use super::Found;
use crate::api::{OperationState, Shop};
use crate::doctor::Severity;
use crate::doctor::facts::{Catalog, Home, Pod};

/// Each name must reach one shop.
pub(super) fn hosts(catalog: &Catalog, found: &mut Found) {
    let mut owners: BTreeMap<&str, &Shop> = BTreeMap::new();
    for shop in &catalog.shops {
        let first = format!("{}.{}", shop.handle, catalog.status.base_domain);
        if shop.hosts.first() != Some(&first) {
            found.error(
                "host",
                &shop.handle,
                format!("its first host is not {first}"),
                "compare base_domain in control.toml and fleet.toml, and restart the control server",
            );
        }
        for host in &shop.hosts {
            if let Some(other) = owners.insert(host, shop) {
                found.error(
                    "host",
                    host,
                    format!("it names two shops, {} and {}", other.handle, shop.handle),
                    format!("take it from one: podctl shop host remove <shop> {host}"),
                );
            }
        }
    }
}

/// Exactly the owner has a home, at the placement's epoch and in its state.
pub(super) fn homes(catalog: &Catalog, pods: &BTreeMap<PodId, Pod>, found: &mut Found) {
    let busy: BTreeSet<&str> = catalog
        .operations
        .iter()
        .filter(|operation| operation.state == OperationState::Running)
        .map(|operation| operation.subject.as_str())
        .collect();
    let by_id: BTreeMap<ShopId, &Shop> = catalog.shops.iter().map(|s| (s.id, s)).collect();
    for shop in &catalog.shops {
        let Some(Ok(contents)) = pods.get(&shop.pod.id).map(|pod| pod.contents.as_ref()) else {
            // That its pod cannot be asked is a finding of its own.
            continue;
        };
        let in_hand = busy.contains(shop.handle.as_str());
        at_owner(shop, contents.homes.get(&shop.id), in_hand, found);
    }
    for (pod, facts) in pods {
        let Ok(contents) = &facts.contents else {
            continue;
        };
        for (id, home) in &contents.homes {
            match by_id.get(id) {
                Some(shop) if shop.pod.id == *pod => {}
                Some(shop) => elsewhere(shop, *pod, home, found),
                None => unknown(*id, *pod, home, !busy.is_empty(), found),
            }
        }
    }
}

fn at_owner(shop: &Shop, home: Option<&Home>, in_hand: bool, found: &mut Found) {
    let severity = if in_hand {
        Severity::Warning
    } else {
        Severity::Error
    };
    let (pod, epoch, state) = (&shop.pod.name, shop.epoch.get(), shop.state.as_str());
    let Some(home) = home else {
        let fix = if in_hand {
            "an operation on this shop is unfinished: the control server finishes it; look again in a minute".into()
        } else {
            format!(
                "nobody serves it. If its rows are in {pod}, give it its home back on that pod's primary: insert into \
                 shop_home (shop_id, epoch, state) values ({}, {epoch}, '{state}')",
                shop.id
            )
        };
        found.add(
            severity,
            "placement",
            &shop.handle,
            format!("{pod} has no home for it"),
            fix,
        );
        return;
    };
    if home.epoch != shop.epoch {
        found.add(
            severity,
            "placement",
            &shop.handle,
            format!("its home in {pod} has epoch {}, its placement {epoch}", home.epoch.get()),
            "a restored catalog or database does this; nothing may be written until a person has decided which of the \
             two is right",
        );
        return;
    }
    if in_a_move(home) || fits(home.state, shop.state) {
        return;
    }
    let word = match shop.state {
        PlacementState::Serving => "unfreeze",
        PlacementState::Frozen => "freeze",
        PlacementState::Offline => "offline",
    };
    found.add(
        severity,
        "placement",
        &shop.handle,
        format!(
            "its home in {pod} is {}, its placement {state}",
            home.state.as_str()
        ),
        format!(
            "say again what it shall be: podctl shop {word} {}",
            shop.handle
        ),
    );
}

/// Homes that a move has in hand, or should have, are judged with the moves.
const fn in_a_move(home: &Home) -> bool {
    match home.state {
        HomeState::Incoming | HomeState::Ready | HomeState::Fenced | HomeState::Handing => true,
        HomeState::Serving | HomeState::Frozen | HomeState::Offline | HomeState::Moved => {
            home.move_id.is_some()
        }
    }
}

/// What a home may say while the catalog says this and no move is under way.
const fn fits(home: HomeState, placement: PlacementState) -> bool {
    match home {
        HomeState::Serving => matches!(placement, PlacementState::Serving),
        HomeState::Frozen => matches!(placement, PlacementState::Frozen),
        HomeState::Offline => matches!(placement, PlacementState::Offline),
        HomeState::Incoming
        | HomeState::Ready
        | HomeState::Fenced
        | HomeState::Handing
        | HomeState::Moved => false,
    }
}

fn elsewhere(shop: &Shop, pod: PodId, home: &Home, found: &mut Found) {
    // A mark that shows the way, or a copy that a move fills.
    if home.state == HomeState::Moved || in_a_move(home) {
        return;
    }
    found.error(
        "placement",
        &shop.handle,
        format!(
            "pod {pod} has a home for it ({}, epoch {}), though {} owns it",
            home.state.as_str(),
            home.epoch.get(),
            shop.pod.name
        ),
        format!(
            "edges send it to {}; take the other home away on the primary of pod {pod} once no row of shop {} is \
             missed there: delete from shop_home where shop_id = {}",
            shop.pod.name, shop.id, shop.id
        ),
    );
}

fn unknown(shop: ShopId, pod: PodId, home: &Home, creating: bool, found: &mut Found) {
    let severity = if creating {
        Severity::Warning
    } else {
        Severity::Error
    };
    found.add(
        severity,
        "placement",
        format!("shop {shop}"),
        format!(
            "pod {pod} has a home for it ({}, epoch {}), and the catalog knows no such shop",
            home.state.as_str(),
            home.epoch.get()
        ),
        "an unfinished creation is undone by the control server; if it stays, the catalog is older than the pod: a \
         person must decide",
    );
}
