//! How a request finds its shop: four ways of naming it, and what the edge answers when there is none to serve.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::suite::Test;
use tests::{Answer, Call, Fleet, Shop, tests, wait_until};

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        four_ways_of_naming_a_shop,
        inv10_a_shop_cookie_that_the_edge_did_not_sign_names_nobody,
        a_host_is_compared_as_a_lower_case_a_label,
        an_unknown_host_is_a_404_for_people_and_machines,
        a_removed_host_names_nobody_within_a_second,
        a_frozen_shop_reads_and_an_offline_one_does_not,
        both_processes_of_a_pod_get_requests,
    ]
}

const LIST: &str = "/api/v1/products";
/// A change of the catalog is at the edge after one answer of the long poll.
const AT_EDGE_MAX: Duration = Duration::from_secs(2);

/// A shop with one product named after it, so that an answer tells whose it is.
async fn marked_shop(fleet: &Fleet, pod: u32) -> Result<Shop> {
    let shop = fleet.shop(pod).await?;
    shop.product(&format!("of {}", shop.handle), "1.00", 1)
        .await?;
    // The list is read from replicas.
    wait_until("the product is listed", AT_EDGE_MAX, async || {
        is_of(&shop, shop.get(LIST).await?)
    })
    .await?;
    Ok(shop)
}

/// The answer is this shop's list of products and nobody else's.
fn is_of(shop: &Shop, answer: Answer) -> Result<()> {
    let list: Value = answer.wants(200)?.json()?;
    let titles: Vec<&str> = list["products"]
        .as_array()
        .context("products")?
        .iter()
        .filter_map(|p| p["title"].as_str())
        .collect();
    ensure!(
        titles == [format!("of {}", shop.handle)],
        "not of {}: {titles:?}",
        shop.handle
    );
    Ok(())
}

/// The name of the shop cookie with its value, as a client sends it back.
fn shop_cookie(answer: &Answer) -> Result<String> {
    let cookies = answer.headers.get_all("set-cookie");
    let cookie = cookies
        .iter()
        .filter_map(|c| c.to_str().ok())
        .find(|c| c.starts_with("podhost_shop="));
    let cookie = cookie.context("the edge set no shop cookie")?;
    Ok(cookie.split(';').next().unwrap_or(cookie).to_owned())
}

/// A registered domain, `<handle>.<base_domain>`, `/s/<handle>/` on the platform domain and the signed cookie there
/// all reach the same shop; of two ways in one request the first of that order wins.
async fn four_ways_of_naming_a_shop(fleet: &Fleet) -> Result<()> {
    let (shop, other) = (marked_shop(fleet, 1).await?, marked_shop(fleet, 2).await?);
    let domain = format!("www.{}.example", shop.handle);
    fleet
        .podctl
        .ok(&["shop", "host", "add", &shop.handle, &domain])
        .await?;
    let edge = &fleet.edge;
    wait_until("the new host answers", AT_EDGE_MAX, async || {
        is_of(&shop, edge.send(&domain, &Call::get(LIST)).await?)
    })
    .await?;
    is_of(&shop, shop.get(LIST).await?)?;

    let by_path = format!("/s/{}{LIST}", shop.handle);
    let named = edge.send("localhost", &Call::get(by_path.as_str())).await?;
    let cookie = shop_cookie(&named)?;
    is_of(&shop, named)?;
    is_of(
        &shop,
        edge.send("localhost", &Call::get(LIST).header("cookie", &cookie))
            .await?,
    )?;

    // The path comes before the cookie, and a shop's own domain before both.
    let others = Call::get(format!("/s/{}{LIST}", other.handle)).header("cookie", &cookie);
    is_of(&other, edge.send("localhost", &others).await?)?;
    is_of(
        &other,
        other
            .send(Call::get(LIST).header("cookie", &cookie))
            .await?,
    )?;
    let not_a_path_here = edge.send(&domain, &Call::get(by_path.as_str())).await?;
    not_a_path_here.wants_problem(404, "not-found")?;

    // Pages served under the prefix link to where they are.
    let page = edge
        .send(
            "localhost",
            &Call::get(format!("/s/{}/", shop.handle)).browser(),
        )
        .await?;
    let page = page.wants(200)?.text();
    assert!(
        page.contains(&format!("/s/{}/products/", shop.handle)),
        "links without the prefix"
    );
    Ok(())
}

/// The shop cookie is signed: with another shop's name, a changed signature or an invented one it names nobody.
async fn inv10_a_shop_cookie_that_the_edge_did_not_sign_names_nobody(fleet: &Fleet) -> Result<()> {
    let (shop, other) = (marked_shop(fleet, 1).await?, marked_shop(fleet, 2).await?);
    let named = fleet
        .edge
        .send("localhost", &Call::get(format!("/s/{}{LIST}", shop.handle)))
        .await?;
    let good = shop_cookie(&named)?;
    let mut changed = good.clone().into_bytes();
    let last = changed.last_mut().context("a cookie has a value")?;
    *last = if *last == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).context("a cookie is text")?;
    let of_another = good
        .replace(&shop.handle, &other.handle)
        .replace(&shop.id.to_string(), &other.id.to_string());
    assert_ne!(of_another, good, "the cookie names the shop");
    let invented = format!("podhost_shop={}", other.handle);
    for bad in [changed, of_another, invented] {
        let answer = fleet
            .edge
            .send("localhost", &Call::get(LIST).header("cookie", &bad))
            .await?;
        answer
            .wants_problem(404, "unknown-shop")
            .with_context(|| bad)?;
    }
    Ok(())
}

/// Case, a port and a trailing dot of a host make no difference, neither when it is registered nor when it is asked for;
/// a name in Unicode is refused with the way out.
async fn a_host_is_compared_as_a_lower_case_a_label(fleet: &Fleet) -> Result<()> {
    let shop = marked_shop(fleet, 1).await?;
    let unicode = ["shop", "host", "add", &shop.handle, "bücher.example"];
    let said = fleet.podctl.refused(&unicode, tests::podctl::USAGE).await?;
    ensure!(said.contains("xn--"), "the way out is not said: {said}");
    let label = format!("XN--BCHER-KVA.{}.Example", shop.handle);
    fleet
        .podctl
        .ok(&["shop", "host", "add", &shop.handle, &label])
        .await?;
    let status = fleet.status().await?;
    let label = status
        .shop(&shop.handle)?
        .hosts
        .get(1)
        .context("the new host")?
        .clone();
    assert!(
        label.starts_with("xn--") && label == label.to_lowercase(),
        "{label}"
    );
    wait_until("the new host answers", AT_EDGE_MAX, async || {
        is_of(&shop, fleet.edge.send(&label, &Call::get(LIST)).await?)
    })
    .await?;
    for spelling in [
        label.to_uppercase(),
        format!("{label}."),
        format!("{label}:8080"),
        format!("{}.:443", shop.host.to_uppercase()),
    ] {
        let answer = fleet.edge.send(&spelling, &Call::get(LIST)).await?;
        is_of(&shop, answer).with_context(|| spelling)?;
    }
    Ok(())
}

/// A host that no shop has is told so, as a problem for machines and as a page for people.
async fn an_unknown_host_is_a_404_for_people_and_machines(fleet: &Fleet) -> Result<()> {
    let call = Call::get("/");
    for host in [
        "nobody.example",
        "nobody.localhost",
        "127.0.0.1",
        "localhost",
    ] {
        let answer = fleet.edge.send(host, &call).await?;
        answer
            .wants_problem(404, "unknown-shop")
            .with_context(|| host)?;
        let page = fleet
            .edge
            .send(host, &call.clone().browser())
            .await?
            .wants(404)?;
        assert!(
            page.header("content-type")
                .unwrap_or_default()
                .starts_with("text/html"),
            "{host}"
        );
        assert!(
            page.header("x-request-id").is_some(),
            "an answer of the edge has its request id too"
        );
    }
    Ok(())
}

/// A host that was taken away names nobody a second later, and may be given to another shop.
async fn a_removed_host_names_nobody_within_a_second(fleet: &Fleet) -> Result<()> {
    let (first, second) = (marked_shop(fleet, 1).await?, marked_shop(fleet, 2).await?);
    let host = format!("shared.{}.example", first.handle);
    let call = Call::get(LIST);
    fleet
        .podctl
        .ok(&["shop", "host", "add", &first.handle, &host])
        .await?;
    wait_until("the host answers", AT_EDGE_MAX, async || {
        is_of(&first, fleet.edge.send(&host, &call).await?)
    })
    .await?;
    let taken = fleet
        .podctl
        .refused(&["shop", "host", "add", &second.handle, &host], 1)
        .await?;
    assert!(
        taken.contains(&host) && taken.contains(&first.handle),
        "who has it is not said: {taken}"
    );
    fleet
        .podctl
        .ok(&["shop", "host", "remove", &first.handle, &host])
        .await?;
    wait_until("the host names nobody", AT_EDGE_MAX, async || {
        fleet
            .edge
            .send(&host, &call)
            .await?
            .wants_problem(404, "unknown-shop")
    })
    .await?;
    fleet
        .podctl
        .ok(&["shop", "host", "add", &second.handle, &host])
        .await?;
    wait_until("the host names the other shop", AT_EDGE_MAX, async || {
        is_of(&second, fleet.edge.send(&host, &call).await?)
    })
    .await?;
    Ok(())
}

/// A frozen shop is read and refuses changes at once; an offline one does neither; both come back, and the history
/// says who did what.
async fn a_frozen_shop_reads_and_an_offline_one_does_not(fleet: &Fleet) -> Result<()> {
    let shop = marked_shop(fleet, 1).await?;
    let product = json!({"title": "New", "price": "1.00", "currency": "USD", "available": 1});
    let write = || shop.merchant_post(LIST, &product);
    let state = |wanted: &'static str| fleet.podctl.ok_owned(["shop", wanted, &shop.handle]);

    state("freeze").await?;
    let refused = write().await?;
    assert!(refused.header("retry-after").is_some());
    refused.wants_problem(503, "frozen")?;
    is_of(&shop, shop.get(LIST).await?)?;
    state("unfreeze").await?;
    wait_until("writes again", AT_EDGE_MAX, async || {
        write().await?.wants(201)
    })
    .await?;

    state("offline").await?;
    for answer in [shop.get(LIST).await?, write().await?] {
        assert!(answer.header("retry-after").is_some());
        answer.wants_problem(503, "offline")?;
    }
    state("online").await?;
    wait_until("serves again", AT_EDGE_MAX, async || {
        write().await?.wants(201)
    })
    .await?;

    let history: Value = fleet
        .podctl
        .json(&["shop", "history", &shop.handle])
        .await?;
    let events = history["events"].as_array().context("events")?;
    let states: Vec<&str> = events.iter().filter_map(|e| e["state"].as_str()).collect();
    assert_eq!(
        states,
        ["serving", "frozen", "serving", "offline", "serving"]
    );
    assert!(
        events
            .iter()
            .all(|e| e["new_epoch"] == 1 && e["actor"].is_string()),
        "{history}"
    );
    Ok(())
}

/// Round robin: of forty requests both processes of the pod get some.
async fn both_processes_of_a_pod_get_requests(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(2).await?;
    let status = fleet.status().await?;
    let processes = &status.pod(2)?.processes;
    assert!(processes.len() >= 2, "two processes by default");
    let mut before = Vec::new();
    for process in processes {
        before.push(tests::metrics::total(&process.admin, "podhost_requests_total").await?);
    }
    for _ in 0..40 {
        shop.get(LIST).await?.wants(200)?;
    }
    for (process, before) in processes.iter().zip(before) {
        let now = tests::metrics::total(&process.admin, "podhost_requests_total").await?;
        assert!(
            now >= before + 10.0,
            "{} got {} of 40",
            process.http,
            now - before
        );
    }
    Ok(())
}
