//! `podctl shop move|isolate|pin|unpin`: where a shop is, and may be.

use std::time::Duration;

use anyhow::{anyhow, bail};
use serde::Serialize;
use shared::PlacementState;
use shared::moves::MoveState;

use super::known;
use crate::api::{Move, MoveCheck, MoveNew, Pin, PinPut, Pod, PodStatus, Shop};
use crate::cli::{MoveHow, PodAdd, ShopIsolate, ShopMove, ShopPin};
use crate::client::Control;
use crate::command::pod::or_known_pods;
use crate::command::{Context, fleet, moves};
use crate::fleet_file::PodWish;
use crate::output::{count, facts, note, table, the_pod};

/// A refusal may be one pod's business; what several say is the shop's. Each is asked for some seconds.
const PODS_ASKED: usize = 3;

/// `podctl shop move`.
pub(super) async fn move_to(cx: &Context, control: &Control, wish: ShopMove) -> anyhow::Result<()> {
    let ShopMove {
        shop,
        to,
        how,
        despite_strays,
        dry_run,
    } = wish;
    // Asked for first: a slip in a name gets a better answer than a move could give.
    let found = known(control, &shop, control.shop(&shop).await).await?;
    or_known_pods(control, &to, control.pod(&to).await).await?;
    let new = MoveNew {
        despite_strays,
        ..order(shop, to, &how)
    };
    if dry_run {
        let check = control.move_check(&new).await?;
        return Ok(cx.out.result(&check, |check| {
            check_text(check) + &stopped(&found).unwrap_or_default()
        })?);
    }
    begin(cx, control, &new, how.watch).await
}

fn order(shop: String, to: String, how: &MoveHow) -> MoveNew {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    MoveNew {
        shop,
        to,
        reason: how.reason.clone(),
        observe_ms: how.observe.map(ms),
        despite_strays: 0,
    }
}

async fn begin(cx: &Context, control: &Control, new: &MoveNew, watch: bool) -> anyhow::Result<()> {
    let begun = control.move_begin(new).await?;
    follow(cx, control, &begun, watch).await
}

async fn follow(cx: &Context, control: &Control, begun: &Move, watch: bool) -> anyhow::Result<()> {
    if watch {
        return moves::watch::to_arrival(cx, control, begun).await;
    }
    Ok(cx.out.result(begun, |it| {
        format!(
            "{}\nfollow it with `podctl move watch {}`",
            moves::print::headline(it),
            it.shop.handle
        )
    })?)
}

fn check_text(check: &MoveCheck) -> String {
    let MoveCheck {
        back,
        strays,
        tables,
        rows,
        bytes,
        seconds,
        seconds_beside_shops,
    } = check;
    let lines = tables.iter().map(|it| {
        [
            it.name.clone(),
            it.rows.to_string(),
            indicatif::HumanBytes(it.bytes).to_string(),
        ]
    });
    let list = table("no tables", ["table", "rows", "size"], lines.collect());
    let sums = facts(&[
        ("rows", rows.to_string()),
        ("size", indicatif::HumanBytes(*bytes).to_string()),
        (
            "estimate",
            format!(
                "about {seconds} s until the shop changes hands, {seconds_beside_shops} s where shops sell meanwhile"
            ),
        ),
    ]);
    let kind = if *back {
        "it can move back: what is there already is compared and not copied again"
    } else {
        "it can move"
    };
    let strays = (*strays > 0).then(|| {
        format!(
            "\n{} there since the shop left will be undone, and no dump has them (`podctl move show`)",
            count(*strays, "stray change")
        )
    });
    format!(
        "{list}\n\n{sums}\n{kind}; nothing was begun{}",
        strays.unwrap_or_default()
    )
}

/// That an operator stopped the shop: it arrives so.
fn stopped(shop: &Shop) -> Option<String> {
    let handle = &shop.handle;
    match shop.state {
        PlacementState::Serving => None,
        PlacementState::Frozen => Some(format!(
            "\n{handle} is frozen, and will be there too (`podctl shop unfreeze {handle}` gives its writes back)"
        )),
        PlacementState::Offline => Some(format!(
            "\n{handle} is offline, and will be there too (`podctl shop online {handle}` gives it back)"
        )),
    }
}

/// What `isolate` answers where there is nothing to do.
#[derive(Serialize)]
struct AloneAlready<'a> {
    shop: &'a Shop,
    alone: bool,
}

/// `podctl shop isolate`: to a pod with no other shop.
pub(super) async fn isolate(
    cx: &Context,
    control: &Control,
    wish: ShopIsolate,
) -> anyhow::Result<()> {
    let ShopIsolate { shop, how } = wish;
    let shop = known(control, &shop, control.shop(&shop).await).await?;
    let open = open_move(control, &shop).await?;
    let pods = control.pods().await?;
    if is_alone(&shop, &pods, open.as_ref()) {
        let alone = AloneAlready {
            shop: &shop,
            alone: true,
        };
        return Ok(cx.out.result(&alone, |it| {
            format!(
                "{} is alone in {} already",
                it.shop.handle, it.shop.pod.name
            )
        })?);
    }
    // A shop that is on its way is asked for again when it has arrived.
    if let Some(open) = open {
        bail!(
            "{} has an open move, {}, which is {}; see `podctl move show {1}`",
            shop.handle,
            open.id,
            open.state
        );
    }
    // What would refuse the move anyway must not cost a new pod first.
    if let Some(pin) = &shop.pinned {
        let why = shop.pin_reason.as_ref().map(|why| format!(" ({why})"));
        bail!(
            "{0} is pinned to {1}{2}; take the pin away with `podctl shop unpin {0}`",
            shop.handle,
            pin.name,
            why.unwrap_or_default()
        );
    }
    let mut added = None;
    let target = match empty_pod(&shop, &pods) {
        Some(pod) => {
            if pod.max_shops > 1 {
                note(&format!(
                    "{0} takes up to {1} shops; `podctl pod drain {0}` keeps others out once the shop is there",
                    pod.name, pod.max_shops
                ));
            }
            pod.id
        }
        None => {
            try_elsewhere(control, &shop, &pods, &how).await?;
            let pod = add_pod(cx, &shop).await?;
            added = Some(pod.name);
            pod.id
        }
    };
    let new = order(shop.id.to_string(), target.to_string(), &how);
    let begun = control.move_begin(&new).await.map_err(|error| {
        let refused = anyhow!(error);
        match &added {
            Some(pod) => refused.context(format!(
                "{pod} was added for {0} and stays, empty; when what follows is mended, `podctl shop isolate {0}` takes it",
                shop.handle,
                pod = the_pod(pod)
            )),
            None => refused,
        }
    })?;
    follow(cx, control, &begun, how.watch).await
}

/// What refuses any move of the shop must not cost a new pod first: asked of other pods, of which one will do.
async fn try_elsewhere(
    control: &Control,
    shop: &Shop,
    pods: &[Pod],
    how: &MoveHow,
) -> anyhow::Result<()> {
    let mut refused = None;
    for pod in pods.iter().filter(|pod| takes(shop, pod)).take(PODS_ASKED) {
        let new = order(shop.id.to_string(), pod.id.to_string(), how);
        match control.move_check(&new).await {
            Ok(_) => return Ok(()),
            Err(error) => refused = Some((pod, error)),
        }
    }
    let Some((pod, error)) = refused else {
        return Ok(());
    };
    let handle = &shop.handle;
    Err(anyhow!(error).context(format!(
        "no pod is empty, and none is added: {handle} could not move to {} either. If that is for that pod's sake alone, \
         `podctl pod add`, then `podctl shop isolate {handle}`",
        pod.name
    )))
}

/// Whether the shop could be there, as far as that is the pod's business.
fn takes(shop: &Shop, pod: &Pod) -> bool {
    pod.id != shop.pod.id
        && pod.status == PodStatus::Active
        && pod.shops < pod.max_shops
        && shop.region.as_ref().is_none_or(|r| *r == pod.region)
}

async fn open_move(control: &Control, shop: &Shop) -> anyhow::Result<Option<Move>> {
    match control.move_show(&shop.id.to_string()).await {
        Ok(latest) => Ok(latest.open.then_some(latest)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether nothing is to be done: it is the only one in its pod, also where its move there is being observed yet.
fn is_alone(shop: &Shop, pods: &[Pod], open: Option<&Move>) -> bool {
    let own = pods.iter().find(|pod| pod.id == shop.pod.id);
    let arrived = open.is_none_or(|it| {
        it.target.id == shop.pod.id
            && matches!(it.state, MoveState::Observing | MoveState::Retiring)
    });
    arrived && own.is_some_and(|pod| pod.shops == 1)
}

/// An active pod of the shop's region without any shop, and with none on its way there.
fn empty_pod<'a>(shop: &Shop, pods: &'a [Pod]) -> Option<&'a Pod> {
    pods.iter().find(|pod| {
        pod.status == PodStatus::Active
            && pod.shops == 0
            && pod.max_shops > 0
            && shop.region.as_ref().is_none_or(|r| *r == pod.region)
    })
}

/// Adds one with room for this shop alone.
async fn add_pod(cx: &Context, shop: &Shop) -> anyhow::Result<PodWish> {
    if cx.is_remote() {
        bail!("no pod is empty; add one where the fleet runs (`podctl pod add`), then repeat this");
    }
    note("no pod is empty; adding one with room for this shop alone");
    let wish = PodAdd {
        name: None,
        id: None,
        region: shop.region.clone(),
        pool: None,
        class: None,
        max_shops: Some(1),
    };
    fleet::add(cx, wish).await.map_err(|e| {
        anyhow!(e).context(format!(
            "the pod for {0} could not be added; when `podctl apply` has brought it up, repeat `podctl shop isolate {0}`",
            shop.handle
        ))
    })
}

/// `podctl shop pin`.
pub(super) async fn pin(cx: &Context, control: &Control, wish: ShopPin) -> anyhow::Result<()> {
    let ShopPin { shop, pod, reason } = wish;
    if let Some(pod) = &pod {
        or_known_pods(control, pod, control.pod(pod).await).await?;
    }
    let answer = control.shop_pin(&shop, &PinPut { pod, reason }).await;
    let pin: Pin = known(control, &shop, answer).await?;
    Ok(cx.out.result(&pin, |pin| {
        format!("{} is pinned to {}", pin.shop.handle, pin.pod.name)
    })?)
}

/// `podctl shop unpin`.
pub(super) async fn unpin(cx: &Context, control: &Control, shop: &str) -> anyhow::Result<()> {
    known(control, shop, control.shop_unpin(shop).await).await?;
    let shop = control.shop(shop).await?;
    Ok(cx
        .out
        .result(&shop, |shop| format!("{} may be moved again", shop.handle))?)
}

#[cfg(test)]
mod tests;
