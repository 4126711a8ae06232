//! `podctl shop`.

use anyhow::anyhow;
use serde::Serialize;
use shared::{PlacementState, PodId};
use uuid::Uuid;

use super::Context;
use super::pod::or_known_pods;
use crate::api::{PlacementAt, PlacementEvent, Pod, Shop, ShopNew, StateChange, TokenNew};
use crate::cli::{Change, HostCommand, ShopCommand, ShopCreate, TokenArgs, TokenCommand};
use crate::client::{Control, Error};
use crate::output::{facts, instant, note, or_dash, table, the_pod};
use crate::suggest;

mod clear;
mod place;

/// From so many shops a mistyped name is guessed; reading all of a large fleet for a guess would take minutes.
const SUGGEST_SHOPS_MAX: u32 = 500;

/// Runs one.
pub async fn run(cx: &Context, command: ShopCommand) -> anyhow::Result<()> {
    let control = cx.control()?;
    let change = |change: Change, state| set_state(cx, &control, change, state);
    match command {
        ShopCommand::Create(wish) => create(cx, &control, wish).await,
        ShopCommand::List { pod, state } => list(cx, &control, pod.as_deref(), state).await,
        ShopCommand::Show { shop } => {
            let shop = known(&control, &shop, control.shop(&shop).await).await?;
            Ok(cx.out.result(&shop, shop_facts)?)
        }
        ShopCommand::History { shop } => {
            let history = known(&control, &shop, control.shop_history(&shop).await).await?;
            let pods = control.pods().await?;
            Ok(cx.out.result(&history, |h| event_table(&h.events, &pods))?)
        }
        ShopCommand::Where { shop, at } => {
            let answer = control.shop_placement(&shop, at).await;
            let placement = known(&control, &shop, answer).await?;
            Ok(cx.out.result(&placement, placement_line)?)
        }
        ShopCommand::Token(args) => token(cx, &control, args).await,
        ShopCommand::Freeze(wish) => {
            let wish = unless(&control, wish, PlacementState::Offline, "online").await?;
            change(wish, PlacementState::Frozen).await
        }
        ShopCommand::Offline(wish) => change(wish, PlacementState::Offline).await,
        ShopCommand::Unfreeze(wish) => {
            let wish = unless(&control, wish, PlacementState::Offline, "online").await?;
            change(wish, PlacementState::Serving).await
        }
        ShopCommand::Online(wish) => {
            let wish = unless(&control, wish, PlacementState::Frozen, "unfreeze").await?;
            change(wish, PlacementState::Serving).await
        }
        ShopCommand::Move(wish) => place::move_to(cx, &control, wish).await,
        ShopCommand::Isolate(wish) => place::isolate(cx, &control, wish).await,
        ShopCommand::Clear(wish) => clear::at(cx, &control, wish).await,
        ShopCommand::Pin(wish) => place::pin(cx, &control, wish).await,
        ShopCommand::Unpin { shop } => place::unpin(cx, &control, &shop).await,
        ShopCommand::Host(command) => host(cx, &control, command).await,
    }
}

async fn create(cx: &Context, control: &Control, wish: ShopCreate) -> anyhow::Result<()> {
    let ShopCreate {
        handle,
        pod,
        host,
        region,
        plan,
        currency,
    } = wish;
    let new = ShopNew {
        handle: handle.as_str().into(),
        plan,
        currency,
        region,
        pod,
        hosts: host.iter().map(|h| h.as_str().to_owned()).collect(),
    };
    let answer = control.shop_create(&new, Uuid::now_v7()).await;
    let shop = match &new.pod {
        Some(pod) => or_known_pods(control, pod, answer).await?,
        None => answer?,
    };
    Ok(cx.out.result(&shop, shop_facts)?)
}

#[derive(Serialize)]
struct Shops {
    shops: Vec<Shop>,
}

async fn list(
    cx: &Context,
    control: &Control,
    pod: Option<&str>,
    state: Option<PlacementState>,
) -> anyhow::Result<()> {
    let pod = match pod {
        Some(reference) => {
            let pod = or_known_pods(control, reference, control.pod(reference).await).await?;
            Some(pod.id)
        }
        None => None,
    };
    let mut shops = control.shops().await?;
    shops.retain(|shop| pod.is_none_or(|id| shop.pod.id == id));
    shops.retain(|shop| state.is_none_or(|state| shop.state == state));
    Ok(cx.out.result(&Shops { shops }, |list| {
        let none = "no shops; make one with `podctl shop create <handle>`";
        let rows = list.shops.iter().map(shop_row).collect();
        table(
            none,
            ["id", "handle", "pod", "epoch", "state", "move", "hosts"],
            rows,
        )
    })?)
}

async fn token(cx: &Context, control: &Control, args: TokenArgs) -> anyhow::Result<()> {
    let TokenArgs {
        command,
        shop,
        label,
    } = args;
    match (command, shop) {
        (None, Some(shop)) => {
            let answer = control.token_make(&shop, &TokenNew { label }).await;
            let made = known(control, &shop, answer).await?;
            if !cx.out.is_json() {
                note(&format!(
                    "token {} is shown this once; revoke it by that id",
                    made.id
                ));
            }
            Ok(cx.out.result(&made, |made| made.token.clone())?)
        }
        (Some(TokenCommand::List { shop }), _) => {
            let list = known(control, &shop, control.tokens(&shop).await).await?;
            Ok(cx.out.result(&list, |list| {
                let none = "no tokens; make one with `podctl shop token <shop>`";
                let rows = list.tokens.iter().map(|token| {
                    let revoked = token.revoked_at.map(instant);
                    [
                        token.id.clone(),
                        token.label.clone(),
                        instant(token.created_at),
                        or_dash(revoked),
                    ]
                });
                table(none, ["id", "label", "created", "revoked"], rows.collect())
            })?)
        }
        (Some(TokenCommand::Revoke { shop, id }), _) => {
            known(control, &shop, control.token_revoke(&shop, &id).await).await?;
            Ok(cx.out.result(&serde_json::json!({ "revoked": id }), |_| {
                format!("revoked {id}")
            })?)
        }
        (None, None) => Err(anyhow!("name a shop: podctl shop token <shop>")),
    }
}

/// Passes the change on unless the shop is in a state that only its own command ends: who ends a freeze does not mean
/// to bring back what somebody took offline.
async fn unless(
    control: &Control,
    change: Change,
    barred: PlacementState,
    way_out: &str,
) -> anyhow::Result<Change> {
    let shop = known(control, &change.shop, control.shop(&change.shop).await).await?;
    if shop.state != barred {
        return Ok(change);
    }
    Err(anyhow!(
        "{0} is {1}, and stays so until `podctl shop {way_out} {0}`",
        shop.handle,
        barred.as_str()
    ))
}

async fn set_state(
    cx: &Context,
    control: &Control,
    change: Change,
    state: PlacementState,
) -> anyhow::Result<()> {
    let Change { shop, reason } = change;
    let answer = control
        .shop_state(&shop, &StateChange { state, reason })
        .await;
    let shop = known(control, &shop, answer).await?;
    Ok(cx.out.result(&shop, |shop| {
        format!("{} is {}", shop.handle, shop.state.as_str())
    })?)
}

async fn host(cx: &Context, control: &Control, command: HostCommand) -> anyhow::Result<()> {
    let shop = match command {
        HostCommand::Add { shop, host } => {
            known(control, &shop, control.host_add(&shop, host.as_str()).await).await?
        }
        HostCommand::Remove { shop, host } => {
            // Looked up first: the domain that is taken away may be the very name that was typed.
            let before = known(control, &shop, control.shop(&shop).await).await?;
            let id = before.id.to_string();
            control.host_remove(&id, host.as_str()).await?;
            control.shop(&id).await?
        }
    };
    Ok(cx.out.result(&shop, |shop| shop.hosts.join("\n"))?)
}

/// Passes an answer on; where no shop has that name, says which ones are near.
async fn known<T>(
    control: &Control,
    reference: &str,
    answer: Result<T, Error>,
) -> anyhow::Result<T> {
    let error = match answer {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    // Something of a shop that exists may be what was not found.
    if !error.is_not_found()
        || !control
            .shop(reference)
            .await
            .is_err_and(|e| e.is_not_found())
    {
        return Err(error.into());
    }
    let page = control.shop_page(None, SUGGEST_SHOPS_MAX).await;
    let shops = page.map(|page| page.shops).unwrap_or_default();
    let names = shops.iter().map(|shop| shop.handle.as_str());
    let meant = suggest::did_you_mean(&suggest::near(reference, names));
    Err(anyhow!(
        "there is no shop {reference:?}{meant} (all of them: podctl shop list)"
    ))
}

fn shop_row(shop: &Shop) -> [String; 7] {
    [
        shop.id.to_string(),
        shop.handle.to_string(),
        shop.pod.name.clone(),
        shop.epoch.get().to_string(),
        shop.state.as_str().into(),
        or_dash(shop.r#move.as_ref()),
        shop.hosts.join(" "),
    ]
}

fn shop_facts(shop: &Shop) -> String {
    let Shop {
        id,
        handle,
        plan,
        currency,
        region,
        status,
        hosts,
        pod,
        epoch,
        state,
        version,
        r#move,
        move_id,
        pinned,
        pin_reason,
    } = shop;
    let pin = pinned.as_ref().map(|pod| match pin_reason {
        Some(why) => format!("{}: {why}", pod.name),
        None => pod.name.clone(),
    });
    facts(&[
        ("id", id.to_string()),
        ("handle", handle.to_string()),
        ("hosts", hosts.join(" ")),
        ("pod", format!("{} ({})", pod.name, pod.id)),
        ("epoch", epoch.get().to_string()),
        ("state", state.as_str().into()),
        ("status", status.clone()),
        ("plan", plan.clone()),
        ("currency", currency.clone()),
        ("region", or_dash(region.as_ref())),
        ("pinned", or_dash(pin)),
        ("move", move_fact(r#move.as_ref(), move_id.as_ref())),
        ("version", version.to_string()),
    ])
}

/// The state of the latest move, and its id, by which `podctl move` knows it.
fn move_fact(state: Option<&String>, id: Option<&String>) -> String {
    match (state, id) {
        (Some(state), Some(id)) => format!("{state} ({id})"),
        (state, _) => or_dash(state),
    }
}

fn event_table(events: &[PlacementEvent], pods: &[Pod]) -> String {
    let named = |id: PodId| {
        let pod = pods.iter().find(|pod| pod.id == id);
        pod.map_or_else(|| id.to_string(), |pod| pod.name.clone())
    };
    let rows = events.iter().map(|event| {
        [
            event.sequence.to_string(),
            instant(event.at),
            change(event.old_pod.map(named), event.new_pod.map(named)),
            change(
                event.old_epoch.map(|e| e.get()),
                event.new_epoch.map(|e| e.get()),
            ),
            event.state.as_str().into(),
            event.actor.clone(),
            or_dash(event.reason.as_ref()),
        ]
    });
    let header = ["sequence", "at", "pod", "epoch", "state", "actor", "reason"];
    table("no changes", header, rows.collect())
}

fn change<T: ToString + PartialEq>(old: Option<T>, new: Option<T>) -> String {
    match (old, new) {
        (Some(old), Some(new)) if old != new => {
            format!("{} -> {}", old.to_string(), new.to_string())
        }
        (old, new) => or_dash(new.or(old)),
    }
}

fn placement_line(placement: &PlacementAt) -> String {
    let PlacementAt {
        shop,
        pod,
        epoch,
        state,
        since,
    } = placement;
    format!(
        "shop {shop}: {} ({}), epoch {}, {} since {}",
        the_pod(&pod.name),
        pod.id,
        epoch.get(),
        state.as_str(),
        instant(*since)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_names_pods() {
        let json = serde_json::json!([{ "sequence": 7, "shop": 1, "old_pod": 1, "old_epoch": 1, "new_pod": 2, "new_epoch": 2,
            "state": "serving", "actor": "ops", "reason": null, "at": "2026-01-31T12:00:00Z" }]);
        let events: Vec<PlacementEvent> = serde_json::from_value(json).unwrap();
        let json = serde_json::json!([{ "id": 2, "name": "south", "region": "eu", "pool": "shared", "class": "small",
            "max_shops": 5, "status": "active", "shops": 1, "term": 1, "version": 1, "endpoints": [] }]);
        let pods: Vec<Pod> = serde_json::from_value(json).unwrap();
        // One that is no more is told by its number.
        let text = event_table(&events, &pods);
        assert!(text.contains("1 -> south"), "{text}");
    }

    #[test]
    fn a_change_shows_both_sides_only_where_they_differ() {
        assert_eq!(change(Some(1), Some(2)), "1 -> 2");
        assert_eq!(change(Some(1), Some(1)), "1");
        assert_eq!(change(None, Some(1)), "1");
        assert_eq!(change::<u64>(None, None), "-");
    }
}
