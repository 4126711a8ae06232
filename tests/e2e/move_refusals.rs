//! What an operator may order of moves and shops, and what is said to an order that cannot be done: a table of refusals, and
//! every command in every state.

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tests::moves::ControlDoor;
use tests::suite::Test;
use tests::{Call, Fleet, tests};

// Moves held in each of their states.
mod states;
use states::every_command_in_every_state_has_its_answer;

pub(crate) fn list() -> Vec<Test> {
    tests![
        shares: a_slip_in_a_name_is_told_as_such;
        alone: a_dry_run_counts_the_rows_of_its_own_shop,
            a_move_that_cannot_be_is_refused_with_the_way_out,
            a_move_is_followed_and_taken_back,
            every_command_in_every_state_has_its_answer;
        long: a_hot_shop_gets_a_pod_of_its_own;
    ]
}

/// Runs `podctl`, wants the exit code 1, and every one of these parts in what it says.
async fn refused(fleet: &Fleet, args: &[&str], parts: &[&str]) -> Result<()> {
    let said = fleet.podctl.refused(args, 1).await?;
    let missing: Vec<_> = parts.iter().filter(|part| !said.contains(**part)).collect();
    ensure!(
        missing.is_empty(),
        "{args:?} does not say {missing:?}: {said}"
    );
    ensure!(!said.contains("panicked"), "{said}");
    Ok(())
}

async fn a_slip_in_a_name_is_told_as_such(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let handle = shop.handle.as_str();
    refused(
        fleet,
        &["shop", "move", "nobody-here", "--to", "2"],
        &["nobody-here", "podctl shop list"],
    )
    .await?;
    refused(
        fleet,
        &["shop", "move", handle, "--to", "nowhere"],
        &["nowhere", "podctl pod list"],
    )
    .await?;
    refused(
        fleet,
        &["shop", "move", handle, "--to", "1"],
        &["is at pod", "already", "another pod"],
    )
    .await?;
    refused(fleet, &["shop", "pin", "nobody-here"], &["nobody-here"]).await?;
    refused(fleet, &["shop", "unpin", handle], &["pin"]).await?;
    refused(fleet, &["shop", "isolate", "nobody-here"], &["nobody-here"]).await?;
    for command in ["show", "watch", "pause", "resume", "abort", "finish"] {
        refused(
            fleet,
            &["move", command, "nobody-here"],
            &["no move or shop", "nobody-here"],
        )
        .await?;
        refused(
            fleet,
            &["move", command, handle],
            &["move of the shop", handle],
        )
        .await?;
    }
    refused(fleet, &["move", "list", "--pod", "nowhere"], &["nowhere"]).await?;
    refused(
        fleet,
        &["move", "list", "--shop", "nobody-here"],
        &["nobody-here"],
    )
    .await?;
    ensure!(
        ControlDoor::of(fleet)
            .await?
            .of_shop(shop.id)
            .await?
            .is_empty(),
        "something was begun"
    );
    Ok(())
}

/// A server that is not asked in the right way tells the average of its shops: as much of the one with nothing as of the one
/// with nearly all.
async fn a_dry_run_counts_the_rows_of_its_own_shop(fleet: &Fleet) -> Result<()> {
    let counted = rows_are_counted(fleet).await;
    fleet.on_both("drop table if exists x_sizes").await?;
    counted
}

async fn rows_are_counted(fleet: &Fleet) -> Result<()> {
    fleet
        .on_both(
            "create table x_sizes (shop_id bigint unsigned not null, id int not null, \
             pad varchar(200) not null, primary key (shop_id, id))",
        )
        .await?;
    let fill = |rows: u32| {
        format!(
            "insert into x_sizes with recursive n as (select 1 n union all select n + 1 from n where n < {rows}) \
             select {{shop}}, n, repeat('pad ', 25) from n"
        )
    };
    let (large, small) = (
        fleet.shop_with_rows(&fill(900)).await?,
        fleet.shop_with_rows(&fill(40)).await?,
    );
    let empty = fleet.shop(1).await?;
    // The optimizer takes the size of the table from its statistics, which come some time after the rows.
    let primary = fleet.primary(1).await?;
    primary
        .run("analyze no_write_to_binlog table x_sizes")
        .await?;
    for (shop, told) in [(&large, 600..1500), (&small, 20..80), (&empty, 0..1)] {
        let line = [
            "shop",
            "move",
            shop.handle.as_str(),
            "--to",
            "2",
            "--dry-run",
        ];
        let check: Value = fleet.podctl.json(&line).await?;
        let tables = check["tables"].as_array().context("tables")?;
        let table = tables.iter().find(|it| it["name"] == "x_sizes");
        let rows = table.context("x_sizes")?["rows"].as_u64().context("rows")?;
        ensure!(
            told.contains(&rows),
            "{}: {rows} rows: {check}",
            shop.handle
        );
    }
    Ok(())
}

/// Each thing that stands in the way of a move is told with what to do about it, by the move and by its dry run alike, and
/// nothing is recorded.
async fn a_move_that_cannot_be_is_refused_with_the_way_out(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let _neighbour = fleet.shop(1).await?;
    let control = ControlDoor::of(fleet).await?;
    by_what_operators_have_set(fleet, &control, &shop.handle).await?;
    by_what_a_pod_is(fleet, &shop.handle).await?;
    let begun = control.of_shop(shop.id).await?;
    ensure!(begun.is_empty(), "something was begun");
    let check: Value = fleet.podctl.json(&to_two(&shop.handle, true)).await?;
    let tables = check["tables"].as_array().context("tables")?;
    let product = tables.iter().any(|table| table["name"] == "product");
    ensure!(
        product && check["back"] == false && check["seconds"].is_u64(),
        "{check}"
    );
    Ok(())
}

fn to_two(handle: &str, dry_run: bool) -> Vec<&str> {
    let mut words = vec!["shop", "move", handle, "--to", "2"];
    words.extend(dry_run.then_some("--dry-run"));
    words
}

async fn not_to_two(fleet: &Fleet, handle: &str, parts: &[&str]) -> Result<()> {
    for dry_run in [true, false] {
        refused(fleet, &to_two(handle, dry_run), parts).await?;
    }
    Ok(())
}

async fn by_what_operators_have_set(
    fleet: &Fleet,
    control: &ControlDoor,
    handle: &str,
) -> Result<()> {
    let podctl = &fleet.podctl;
    podctl.ok(&["pod", "drain", "2"]).await?;
    not_to_two(fleet, handle, &["draining", "podctl pod undrain"]).await?;
    podctl.ok(&["pod", "undrain", "2"]).await?;

    // As many as there are, and one at least.
    fleet.shop(2).await?;
    let max_shops = set_max_shops(control, 2, None).await?;
    not_to_two(fleet, handle, &["full", "max_shops", "podctl pod add"]).await?;
    set_max_shops(control, 2, Some(max_shops)).await?;

    let pinned = ["pinned", "podctl shop unpin"];
    podctl
        .ok(&["shop", "pin", handle, "--reason", "a contract"])
        .await?;
    not_to_two(fleet, handle, &pinned).await?;
    refused(fleet, &["shop", "isolate", handle], &pinned).await?;
    podctl.ok(&["shop", "unpin", handle]).await.map(drop)
}

async fn by_what_a_pod_is(fleet: &Fleet, handle: &str) -> Result<()> {
    let target = fleet.primary(2).await?;
    for (change, undo, parts) in [
        (
            "alter table product add column colour varchar(9) null",
            "alter table product drop column colour",
            &["product", "colour"][..],
        ),
        (
            "create table stray_table (id bigint primary key)",
            "drop table stray_table",
            &["stray_table"][..],
        ),
    ] {
        target.run(change).await?;
        let refused = not_to_two(fleet, handle, parts).await;
        target.run(undo).await?;
        refused.context(change)?;
    }
    fleet.hold_down("mysql-2-1").await?;
    not_to_two(fleet, handle, &["pod 2", "nothing was begun"]).await?;
    fleet.restore().await
}

/// Sets how many shops a pod takes, as `podctl apply` does: as many as it has without a number. Gives the number before.
async fn set_max_shops(control: &ControlDoor, pod: u32, max_shops: Option<u64>) -> Result<u64> {
    let path = format!("/v1/pods/{pod}");
    let now: Value = control.send(Call::get(&path)).await?.wants(200)?.json()?;
    let shops = now["shops"].as_u64();
    let mut put = json!({ "max_shops": max_shops.or(shops) });
    for key in ["name", "region", "pool", "class", "status", "endpoints"] {
        put[key] = now[key].clone();
    }
    let call = Call::new(Method::PUT, &path).json(&put);
    control.send(call).await?.wants(200)?;
    now["max_shops"].as_u64().context("max_shops")
}

/// `--watch` ends when the shop sells at its new pod, events are told in order and by a long poll, a pin holds the shop, and
/// the way back is open while the former copy is observed.
async fn a_move_is_followed_and_taken_back(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let handle = shop.handle.as_str();
    let control = ControlDoor::of(fleet).await?;
    let line = format!("shop move {handle} --to 2 --reason launch --observe 1h --watch --json");
    let words: Vec<&str> = line.split(' ').collect();
    let ended = fleet.podctl.run(&words).await?;
    ensure!(ended.code == Some(0), "{}", ended.text());
    let moved: Value = serde_json::from_str(&ended.stdout).context("the move")?;
    ensure!(
        moved["state"] == "observing" && moved["reason"] == "launch",
        "{moved}"
    );
    for state in [
        "copying",
        "catching_up",
        "verifying",
        "fenced",
        "cutover",
        "observing",
    ] {
        let told = ended.stderr.contains(state);
        ensure!(told, "{state} was not told: {}", ended.stderr);
    }
    let id = moved["id"].as_str().context("an id")?;
    let last = events_are_in_order(&control, id).await?;
    shown_everywhere(fleet, handle, id).await?;

    // Pinned to where it is, not even the way back is open; without the pin it is.
    let pin = ["shop", "pin", handle, "--reason", "black friday"];
    fleet.podctl.ok(&pin).await?;
    let home = ["shop", "move", handle, "--to", "1"];
    refused(
        fleet,
        &home,
        &["pinned", "black friday", "podctl shop unpin"],
    )
    .await?;
    fleet.podctl.ok(&["shop", "unpin", handle]).await?;
    let check: Value = fleet
        .podctl
        .json(&[&home[..], &["--dry-run"]].concat())
        .await?;
    ensure!(check["back"] == true, "{check}");
    let quick = [&home[..], &["--observe", "0s", "--watch"]].concat();
    // Somebody who follows the first move hears at once that it is taken back.
    let (heard, back) = tokio::join!(
        events(&control, id, last, 20_000),
        fleet.podctl.json::<Value>(&quick)
    );
    let (heard, back) = (heard?, back?);
    ensure!(
        heard["events"][0]["state"] == "done" && heard["move"]["open"] == false,
        "{heard}"
    );
    ensure!(back["state"] == "done" && back["back_of"] == id, "{back}");
    // Of other shops of the fleet it may have something to say: tests before this one set their homes by hand.
    let doctor = fleet.podctl.run(&["doctor"]).await?.text();
    let mut words = doctor.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    ensure!(words.all(|word| word != handle), "{doctor}");
    Ok(())
}

async fn shown_everywhere(fleet: &Fleet, handle: &str, id: &str) -> Result<()> {
    let shown: Value = fleet.podctl.json(&["shop", "show", handle]).await?;
    let latest = (&shown["move"], &shown["move_id"], &shown["pod"]["id"]);
    ensure!(
        latest == (&json!("observing"), &json!(id), &json!(2)),
        "{shown}"
    );
    let status: Value = fleet.podctl.json(&["status"]).await?;
    let open = status["moves"].as_array().context("moves")?;
    let found = open.iter().any(|it| it["id"] == id && it["shop"] == handle);
    ensure!(found, "{status}");
    let list = ["move", "list", "--shop", handle, "--open"];
    let listed: Value = fleet.podctl.json(&list).await?;
    ensure!(listed["moves"][0]["id"] == id, "{listed}");
    let text = fleet.podctl.ok(&["move", "show", id]).await?;
    ensure!(text.contains("launch") && text.contains("fence"), "{text}");
    Ok(())
}

async fn events(control: &ControlDoor, id: &str, after: u64, wait_ms: u64) -> Result<Value> {
    let path = format!("/v1/moves/{id}/events?after={after}&wait_ms={wait_ms}");
    control.send(Call::get(path)).await?.wants(200)?.json()
}

/// What happened is told in order, and once; gives the last sequence.
async fn events_are_in_order(control: &ControlDoor, id: &str) -> Result<u64> {
    let first = events(control, id, 0, 0).await?;
    let listed = first["events"].as_array().context("events")?;
    let sequences: Vec<u64> = listed
        .iter()
        .filter_map(|e| e["sequence"].as_u64())
        .collect();
    ensure!(sequences.is_sorted() && sequences.len() > 6, "{first}");
    let next = first["next"].as_u64().context("next")?;
    ensure!(sequences.last() == Some(&next), "{first}");
    // Nothing new: it waits, and says so.
    let none = events(control, id, next, 200).await?;
    ensure!(
        none["events"] == json!([]) && none["next"] == next,
        "{none}"
    );
    Ok(next)
}

/// An empty pod is taken; without one a pod with room for one shop is added; a shop that is alone stays.
async fn a_hot_shop_gets_a_pod_of_its_own() -> Result<()> {
    let fleet = Fleet::start().await?;
    let [hot, warm, _cold] = [
        fleet.shop(1).await?,
        fleet.shop(1).await?,
        fleet.shop(1).await?,
    ];
    let isolate = async |handle: &str| -> Result<Value> {
        let line = ["shop", "isolate", handle, "--observe", "0s", "--watch"];
        fleet.podctl.json(&line).await
    };
    let taken = isolate(&hot.handle).await?;
    ensure!(
        taken["state"] == "done" && taken["target"]["id"] == 2,
        "{taken}"
    );
    let alone = isolate(&hot.handle).await?;
    ensure!(alone["alone"] == true, "{alone}");
    let added = isolate(&warm.handle).await?;
    ensure!(
        added["state"] == "done" && added["target"]["id"] == 3,
        "{added}"
    );
    let pod: Value = fleet.podctl.json(&["pod", "show", "3"]).await?;
    ensure!(pod["shops"] == 1 && pod["max_shops"] == 1, "{pod}");
    warm.get("/api/v1/products").await?.wants(200)?;
    fleet.stop().await
}
