//! One shop whose mover loses, and all that can be seen of it from outside.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use shared::moves::{MoveId, MoveState};
use tests::moves::{ControlDoor, Copies, Moving, differences, rows_left, rows_of, rows_rest};
use tests::own_control::OwnControl;
use tests::{Call, Fleet, Product, Server, Shop, wait_until};

use super::case::{Case, Then, Way};
use crate::move_failpoints::ENDS_MAX;

/// Longer than the test.
const OBSERVED_MS: u64 = 3_600_000;
/// A shop has so much to sell that it never ends.
const STOCK: i64 = 1_000_000;
/// A table with a row for each order.
const ORDERS: &str = "shop_order";

/// A move whose mover stands at its place.
#[derive(Debug)]
pub(super) struct Caught {
    pub(super) id: String,
    moving: MoveId,
    /// The loser's number.
    owner: u64,
    to: u32,
}

/// A shop that goes to and fro.
pub(super) struct Lane<'f> {
    fleet: &'f Fleet,
    /// The winner's.
    control: ControlDoor,
    servers: [Server; 2],
    pub(super) shop: Shop,
    product: Product,
    /// Orders that were acknowledged.
    sold: AtomicI64,
}

impl<'f> Lane<'f> {
    pub(super) async fn new(fleet: &'f Fleet) -> Result<Self> {
        let shop = fleet.shop(1).await?;
        let product = shop
            .product("A thing that is moved", "10.00", STOCK)
            .await?;
        let lane = Self {
            fleet,
            control: ControlDoor::of(fleet).await?,
            servers: [fleet.primary(1).await?, fleet.primary(2).await?],
            shop,
            product,
            sold: AtomicI64::new(0),
        };
        lane.sells().await?;
        Ok(lane)
    }

    /// Orders the move at the loser, while the other server is frozen, and waits until it stands at its place. None, if it
    /// ended before.
    pub(super) async fn begin(&self, own: &OwnControl, case: &Case) -> Result<Option<Caught>> {
        let begun = self.try_begin(own, case).await;
        begun.with_context(|| format!("{case:?} (shop {})", self.shop.id))
    }

    async fn try_begin(&self, own: &OwnControl, case: &Case) -> Result<Option<Caught>> {
        let (shop, door) = (self.shop.id, &own.door);
        let mut from = self.at(door).await?;
        if case.way == Way::TakenBack {
            let id = self.order(door, 3 - from, OBSERVED_MS).await?;
            door.reaches(id, &[MoveState::Observing], ENDS_MAX).await?;
            from = 3 - from;
        }
        let to = 3 - from;
        if !case.holds_locks() {
            own.have_patience(shop)?;
        }
        own.set(shop, case.place(), &case.what)?;
        let observe_ms = if case.way == Way::Ends {
            0
        } else {
            OBSERVED_MS
        };
        let by_the_way = match case.way {
            Way::Plain | Way::Ends | Way::TakenBack => None,
            Way::Undone => Some(("copied.after", "stop")),
            Way::FenceMissed => Some(("followed.before", "error")),
            Way::BegunAnew => Some(("compare.after", "fail")),
        };
        if let Some((place, what)) = by_the_way {
            own.set(shop, place, what)?;
        }
        let moving = self.order(door, to, observe_ms).await?;
        if let Some((place, _)) = by_the_way {
            stands(own, self, place).await?;
            if case.way == Way::Undone {
                door.tell(moving, "abort").await?.wants(200)?;
            }
            own.go_on(shop, place);
            if case.way == Way::BegunAnew {
                wait_until("the move has failed", ENDS_MAX, async || {
                    let now = door.show(moving).await?;
                    ensure!(now.state == MoveState::Failed, "{}", now.words());
                    Ok(())
                })
                .await?;
                door.tell(moving, "resume").await?.wants(200)?;
            }
        }
        let caught = wait_until("the mover stands there", ENDS_MAX, async || {
            if own.happened(shop, case.place()) {
                return Ok(true);
            }
            let now = door.show(moving).await?;
            ensure!(now.state == MoveState::Done, "{}", now.words());
            Ok(false)
        })
        .await?;
        if !caught {
            own.unset(shop, case.place());
            return Ok(None);
        }
        Ok(Some(Caught {
            id: moving.to_string(),
            moving,
            owner: door.show(moving).await?.owner,
            to,
        }))
    }

    /// The other server takes the move over and ends it; then what comes after it.
    pub(super) async fn carry_on(&self, case: &Case, caught: &Caught) -> Result<()> {
        let carried = self.try_carry_on(case, caught).await;
        carried.with_context(|| format!("{case:?} (shop {})", self.shop.id))
    }

    async fn try_carry_on(&self, case: &Case, caught: &Caught) -> Result<()> {
        let end = match case.way {
            Way::Plain | Way::FenceMissed | Way::BegunAnew | Way::TakenBack => MoveState::Observing,
            Way::Ends => MoveState::Done,
            Way::Undone => MoveState::Aborted,
        };
        self.control
            .reaches(caught.moving, &[end], ENDS_MAX)
            .await?;
        wait_until("the winner has it", ENDS_MAX, async || {
            let now = self.control.show(caught.moving).await?;
            ensure!(now.owner > caught.owner, "{}", now.words());
            Ok(())
        })
        .await?;
        match case.then {
            Then::Sold | Then::Frozen => {}
            Then::Back => self.moves(3 - caught.to).await?,
            // Refused while the operation that deletes the copy goes on.
            Then::Again => self.moves(caught.to).await?,
        }
        self.sells().await?;
        // Of the table that is copied first, which a sale only adds to: a late copy of it would be seen.
        let shop = self.shop.id;
        let changed = format!(
            "update bogus_charge set created_at = created_at + interval 1 second where shop_id = {shop}"
        );
        let at = self.at(&self.control).await?;
        self.server(at).run(&changed).await?;
        if case.then == Then::Frozen {
            let freeze = ["shop", "freeze", &self.shop.handle];
            self.fleet.podctl.ok(&freeze).await?;
        }
        self.rests().await
    }

    /// Waits until the shop's last move only looks on: whoever has it has both homes.
    async fn rests(&self) -> Result<()> {
        wait_until("the winner looks on", ENDS_MAX, async || {
            let moves = self.control.of_shop(self.shop.id).await?;
            let last = moves.first().context("a move")?;
            ensure!(last.state == MoveState::Observing, "{}", last.words());
            let owners = format!(
                "select concat(ifnull(move_id, '-'), ' ', owner) from shop_home where shop_id = {}",
                self.shop.id
            );
            for server in &self.servers {
                let owner = server.text(&owners).await?;
                ensure!(
                    owner == format!("{} {}", last.id, last.owner),
                    "it is {owner}'s"
                );
            }
            Ok(())
        })
        .await
    }

    /// A move at the winner, until its target sells.
    async fn moves(&self, to: u32) -> Result<()> {
        let id = self.order(&self.control, to, OBSERVED_MS).await?;
        let observing = self.control.reaches(id, &[MoveState::Observing], ENDS_MAX);
        observing.await.map(drop)
    }

    async fn order(&self, door: &ControlDoor, to: u32, observe_ms: u64) -> Result<MoveId> {
        let body = json!({"shop": self.shop.id.to_string(), "to": to.to_string(), "observe_ms": observe_ms});
        wait_until("a move is ordered", ENDS_MAX, async || {
            let answer = door.send(Call::post("/v1/moves").json(&body)).await?;
            Ok(answer.wants(201)?.json::<Moving>()?.id)
        })
        .await
    }

    /// The pod that has it, as a control server says.
    async fn at(&self, door: &ControlDoor) -> Result<u32> {
        let history = door
            .send(Call::get(format!("/v1/shops/{}/history", self.shop.id)))
            .await?;
        let history: Value = history.wants(200)?.json()?;
        let mut owners = BTreeMap::new();
        for event in history["events"].as_array().context("events")? {
            let pod = event["new_pod"].as_u64().context("an owner")?;
            let epoch = event["new_epoch"].as_u64().context("an epoch")?;
            let before = owners.insert(epoch, pod);
            ensure!(
                before.is_none_or(|before| before == pod),
                "epoch {epoch} has two owners: {history}"
            );
        }
        let (_, pod) = owners.last_key_value().context("an owner")?;
        Ok(u32::try_from(*pod)?)
    }

    /// An order is acknowledged, and its events are relayed: no row changes by itself after that.
    async fn sells(&self) -> Result<()> {
        let number = self.sold.fetch_add(1, Ordering::Relaxed);
        let key = format!("order {number} of {}", self.shop.handle);
        wait_until("the shop sells", ENDS_MAX, async || {
            self.shop.buy(&key, &[(&self.product, 1)]).await
        })
        .await?;
        let at = self.at(&self.control).await?;
        rows_rest(self.server(at), self.shop.id, ENDS_MAX).await
    }

    fn server(&self, pod: u32) -> &Server {
        &self.servers[usize::from(pod == 2)]
    }

    /// All that a loser could have changed.
    pub(super) async fn seen(&self) -> Result<Seen> {
        let shop = self.shop.id;
        let mut facts = Vec::new();
        let mut moves = Vec::new();
        let list = self
            .control
            .send(Call::get(format!("/v1/moves?shop={shop}")));
        let mut list: Value = list.await?.wants(200)?.json()?;
        for moving in list["moves"].as_array_mut().context("moves")? {
            moves.push(moving["id"].as_str().context("an id")?.to_owned());
            // What a server has done for it since it started, and that its winner notes how far it has watched.
            if let Some(moving) = moving.as_object_mut() {
                moving.remove("progress");
                moving.remove("changed_at");
            }
            // An edge tells what it parked some time after it did, on behalf of no mover.
            if let Some(record) = moving.get_mut("record").and_then(Value::as_object_mut) {
                for told in ["late_arrivals", "requests_parked", "longest_park_ms"] {
                    record.remove(told);
                }
            }
            facts.push(format!("the record of a move: {moving}"));
        }
        for id in &moves {
            let events = Call::get(format!("/v1/moves/{id}/events?wait_ms=0"));
            let events: Value = self.control.send(events).await?.wants(200)?.json()?;
            facts.push(format!("what happened to it: {}", events["events"]));
        }
        let history = Call::get(format!("/v1/shops/{shop}/history"));
        let history = self.control.send(history).await?;
        facts.push(format!("who had the shop: {}", history.wants(200)?.text()));
        let home = format!(
            "select concat_ws(' ', state, epoch, ifnull(move_id, '-'), owner, ifnull(ready_gtid, '-'), \
             ifnull(mark_pod, '-'), ifnull(mark_epoch, '-')) from shop_home where shop_id = {shop}"
        );
        let marks = format!(
            "select concat_ws(' ', move_id, part, changes, ifnull(hex(at), '-')) from move_mark \
             where move_id in ('{}') order by move_id, part",
            moves.join("', '")
        );
        for server in &self.servers {
            facts.push(format!("a home: {:?}", server.texts(&home).await?));
            facts.push(format!("marks of moves: {:?}", server.texts(&marks).await?));
        }
        let [one, two] = &self.servers;
        let rows = [rows_of(one, shop).await?, rows_of(two, shop).await?];
        Ok(Seen { facts, rows })
    }

    /// The shop still sells, its moves end, and it is whole at one pod with every order that was acknowledged.
    pub(super) async fn finish(&self, case: &Case) -> Result<()> {
        let finished = self.try_finish(case).await;
        finished.with_context(|| format!("{case:?} (shop {}): after it", self.shop.id))
    }

    async fn try_finish(&self, case: &Case) -> Result<()> {
        if case.then == Then::Frozen {
            let unfreeze = ["shop", "unfreeze", &self.shop.handle];
            self.fleet.podctl.ok(&unfreeze).await?;
        }
        self.sells().await?;
        for moving in self.control.of_shop(self.shop.id).await? {
            if moving.state.is_open() {
                self.control.tell(moving.id, "finish").await?.wants(200)?;
                let done = self
                    .control
                    .reaches(moving.id, &[MoveState::Done], ENDS_MAX);
                done.await?;
            }
        }
        let at = self.at(&self.control).await?;
        let left = rows_left(self.server(3 - at), self.shop.id).await?;
        ensure!(left == 0, "{left} rows are left at pod {}", 3 - at);
        let orders = self.server(at).rows(ORDERS, self.shop.id).await?;
        let sold = self.sold.load(Ordering::Relaxed);
        ensure!(
            orders == sold,
            "{orders} orders at pod {at}, {sold} were acknowledged"
        );
        let (mark, _) = self.server(3 - at).home(self.shop.id).await?;
        ensure!(mark == "moved", "the other home is {mark}");
        Ok(())
    }
}

async fn stands(own: &OwnControl, lane: &Lane<'_>, place: &str) -> Result<()> {
    wait_until(place, ENDS_MAX, async || {
        ensure!(own.happened(lane.shop.id, place), "not yet");
        Ok(())
    })
    .await
}

/// All that is known of a shop at one moment: its rows at both pods, and everything else in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    facts: Vec<String>,
    rows: [Copies; 2],
}

impl Seen {
    /// It is the same later.
    pub(super) fn must_be(&self, later: &Self) -> Result<()> {
        for (before, after) in self.facts.iter().zip(&later.facts) {
            ensure!(
                before == after,
                "before it was\n{before}\nand after it\n{after}"
            );
        }
        ensure!(
            self.facts.len() == later.facts.len(),
            "there are other moves"
        );
        for (pod, (before, after)) in (1..).zip(self.rows.iter().zip(&later.rows)) {
            let found = differences(before, after);
            ensure!(found.is_empty(), "rows at pod {pod}: {found:?}");
        }
        Ok(())
    }
}
