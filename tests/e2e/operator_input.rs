//! What an operator can get wrong, and who a token lets in.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::podctl::USAGE;
use tests::suite::Test;
use tests::{Call, Fleet, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        tokens_open_what_they_are_for_and_stop_when_revoked,
        podctl_names_what_is_wrong,
        shops_and_hosts_that_cannot_be_are_refused,
    ]
}

const PRODUCTS: &str = "/api/v1/products";

/// No token, an invented one, another shop's, a revoked one and one in the wrong scheme: 401; the list shows tokens
/// without their text.
async fn tokens_open_what_they_are_for_and_stop_when_revoked(fleet: &Fleet) -> Result<()> {
    let (shop, other) = (fleet.shop(1).await?, fleet.shop(1).await?);
    let body = json!({"title": "Mug", "price": "1.00", "currency": "USD", "available": 1});
    let call = Call::post(PRODUCTS).json(&body);
    shop.send(call.clone())
        .await?
        .wants_problem(401, "unauthorized")
        .context("no token")?;
    for bad in [other.token.as_str(), "pht_invented", "", "x"] {
        shop.send(call.clone().token(bad))
            .await?
            .wants_problem(401, "unauthorized")
            .with_context(|| bad.to_owned())?;
    }
    let basic = call
        .clone()
        .header("authorization", format!("Basic {}", shop.token));
    shop.send(basic)
        .await?
        .wants_problem(401, "unauthorized")
        .context("another scheme")?;

    let made: Value = fleet.podctl.json(&["shop", "token", &shop.handle]).await?;
    let token = made["token"].as_str().context("a token")?;
    ensure!(token.starts_with("pht_"), "{token}");
    shop.send(call.clone().token(token)).await?.wants(201)?;
    let listed = fleet
        .podctl
        .ok(&["shop", "token", "list", &shop.handle, "--json"])
        .await?;
    ensure!(!listed.contains(token), "the list shows a token's text");
    let list: Value = serde_json::from_str(&listed)?;
    let ids: Vec<String> = list["tokens"]
        .as_array()
        .context("tokens")?
        .iter()
        .filter_map(|t| t["id"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(ids.len(), 2);
    let newest = made["id"]
        .as_str()
        .or(ids.first().map(String::as_str))
        .context("an id")?;
    fleet
        .podctl
        .ok(&["shop", "token", "revoke", &shop.handle, newest])
        .await?;
    tests::wait_until(
        "a revoked token is refused",
        std::time::Duration::from_secs(3),
        async || {
            shop.send(call.clone().token(token))
                .await?
                .wants_problem(401, "unauthorized")
        },
    )
    .await?;
    shop.send(call.token(&shop.token))
        .await?
        .wants(201)
        .context("the other token")?;
    Ok(())
}

/// A wrong command line is 64 with the usage; an unknown shop or pod is 1 with its name; nothing panics.
async fn podctl_names_what_is_wrong(fleet: &Fleet) -> Result<()> {
    let podctl = &fleet.podctl;
    for args in [
        &["nothing"][..],
        &["shop"][..],
        &["shop", "create"][..],
        &["shop", "create", "a", "b"][..],
        &["shop", "list", "--nothing"][..],
        &["up", "--edge-port", "x"][..],
    ] {
        let said = podctl.refused(args, USAGE).await?;
        ensure!(
            said.to_lowercase().contains("usage") || said.contains("--help"),
            "{args:?}: {said}"
        );
    }
    for args in [
        &["shop", "show", "nobody"][..],
        &["shop", "freeze", "nobody"][..],
        &["shop", "token", "nobody"][..],
        &["shop", "host", "add", "nobody", "x.example"][..],
        &["pod", "show", "nobody"][..],
        &["shop", "create", "for-no-pod", "--pod", "nobody"][..],
        &["process", "stop", "nobody"][..],
    ] {
        let said = podctl.refused(args, 1).await?;
        ensure!(said.contains("nobody"), "{args:?} does not name it: {said}");
        ensure!(
            !said.contains("panicked") && !said.contains("RUST_BACKTRACE"),
            "{said}"
        );
    }
    Ok(())
}

/// Handles that are no DNS labels or taken, hosts that are none, taken or under the base domain: refused with the name,
/// and the list of shops is as before.
async fn shops_and_hosts_that_cannot_be_are_refused(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let podctl = &fleet.podctl;
    let long = "a".repeat(64);
    for handle in [
        "",
        "-a",
        "a-",
        "A b",
        "a.b",
        "ü",
        "www..",
        &long,
        &shop.handle,
    ] {
        let ended = podctl
            .run(&["shop", "create", "--pod", "1", "--", handle])
            .await?;
        ensure!(
            matches!(ended.code, Some(1 | USAGE)),
            "{handle:?}: {:?} {}",
            ended.code,
            ended.text()
        );
        ensure!(!ended.text().trim().is_empty(), "{handle:?}: not a word");
    }
    for host in [
        "",
        "a b.example",
        "-.example",
        "http://a.example",
        "a.example/path",
        "*.example",
        "other.localhost",
    ] {
        let ended = podctl
            .run(&["shop", "host", "add", &shop.handle, "--", host])
            .await?;
        ensure!(
            matches!(ended.code, Some(1 | USAGE)),
            "{host:?}: {:?} {}",
            ended.code,
            ended.text()
        );
    }
    let status = fleet.status().await?;
    let now = status.shop(&shop.handle)?;
    assert_eq!(now.hosts, std::slice::from_ref(&shop.host));
    let currency = podctl
        .refused(&["shop", "create", "odd-money", "--currency", "dollars"], 1)
        .await;
    ensure!(
        currency.is_ok()
            || podctl
                .refused(&["shop", "create", "odd-money", "--currency", "x"], USAGE)
                .await
                .is_ok()
    );
    ensure!(
        fleet.status().await?.shop("odd-money").is_err(),
        "a refused shop is there"
    );
    Ok(())
}
