//! What passes between client, edge and pod besides the body, and what must not.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;
use shared::wire::{LETS_IN, Route};
use tests::suite::Test;
use tests::{Call, Fleet, Shop, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        inv10_a_client_cannot_choose_shop_pod_or_epoch,
        inv10_a_client_cannot_make_the_edge_drop_its_own_headers,
        inv10_a_pod_refuses_what_the_edge_did_not_sign,
        an_answer_names_its_request_and_nothing_of_the_inside,
        malformed_and_ambiguous_requests_are_refused,
        an_absolute_target_says_the_same_as_the_host,
    ]
}

const LIST: &str = "/api/v1/products";

/// One request as bytes, with header lines of the test's choice.
fn request(shop: &Shop, path: &str, lines: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{lines}\r\n",
        shop.host
    )
}

fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

/// Headers that name another shop, pod or epoch, in any spelling that a server might fold to the reserved one, change
/// nothing: the answer is that of the shop in the host.
async fn inv10_a_client_cannot_choose_shop_pod_or_epoch(fleet: &Fleet) -> Result<()> {
    let (mine, victim) = (fleet.shop(1).await?, fleet.shop(2).await?);
    mine.product("Mine", "1.00", 1).await?;
    victim.product("Victim", "1.00", 1).await?;
    let spellings = |name: &str, value: &str| {
        let folded = [
            name.to_owned(),
            name.to_uppercase(),
            name.replace('-', "_"),
            name.replace('-', "."),
            name.to_uppercase().replace('-', "_"),
        ];
        folded.map(|name| format!("{name}: {value}\r\n")).concat()
    };
    let id = victim.id.to_string();
    let lines = [
        spellings("podhost-shop", &id),
        spellings("podhost-pod", "2"),
        spellings("podhost-epoch", "999"),
        spellings("podhost-request", "018f0000-0000-7000-8000-000000000000"),
        spellings("podhost-signature", "t=1,k=k1,v1=AAAA"),
        spellings("podhost-fence", "fenced"),
        spellings("podhost-anything", "x"),
        "podhost_token: x\r\nx-forwarded-prefix: /s/evil\r\n".to_owned(),
    ];
    for lines in [lines.concat(), lines[0].clone(), lines[2].clone()] {
        let answer = fleet
            .edge
            .raw(request(&mine, LIST, &lines).as_bytes())
            .await?;
        assert_eq!(status_of(&answer), "200", "{answer}");
        assert!(
            answer.contains("Mine") && !answer.contains("Victim"),
            "{answer}"
        );
        assert!(!answer.contains("/s/evil"), "{answer}");
    }
    Ok(())
}

/// `Connection: podhost-shop` asks a proxy to drop that header on the next hop: the edge drops what the client sent,
/// never what it says itself.
async fn inv10_a_client_cannot_make_the_edge_drop_its_own_headers(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    shop.product("Mine", "1.00", 1).await?;
    let names = "podhost-shop, podhost-pod, podhost-epoch, podhost-request, podhost-signature";
    let bytes = format!(
        "GET {LIST} HTTP/1.1\r\nHost: {}\r\nConnection: close, {names}\r\n\r\n",
        shop.host
    );
    let answer = fleet.edge.raw(bytes.as_bytes()).await?;
    assert_eq!(status_of(&answer), "200", "{answer}");
    assert!(answer.contains("Mine"), "{answer}");
    Ok(())
}

/// A request straight to a pod is refused without a signature, with one of another pod's key, for another path or
/// method, too old or of the future, and with a header more than once.
async fn inv10_a_pod_refuses_what_the_edge_did_not_sign(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let door = fleet.pod_door(shop.pod).await?;
    let call = Call::get(LIST);
    door.send(shop.id, shop.epoch, &call)
        .await?
        .wants(200)
        .context("signed")?;
    door.send_unsigned(&call)
        .await?
        .wants_problem(403, "forbidden")?;
    let claims = call
        .clone()
        .header("podhost-shop", shop.id)
        .header("podhost-pod", shop.pod)
        .header("podhost-epoch", 1)
        .header("podhost-request", uuid::Uuid::now_v7())
        .header("podhost-signature", "t=1,k=k1,v1=AAAA");
    door.send_unsigned(&claims)
        .await?
        .wants_problem(403, "forbidden")?;

    let other = fleet.shop(2).await?;
    let with_other_key = tests::PodDoor::new(door.address(), shop.pod, fleet.pod_keys(other.pod)?)?;
    with_other_key
        .send(shop.id, shop.epoch, &call)
        .await?
        .wants_problem(403, "forbidden")?;
    // The question before a large body is a POST; by another method its path is one of the application's.
    let asks = door.send(shop.id, shop.epoch, &Call::post(LETS_IN)).await?;
    asks.wants(204)?;
    let reads = door.send(shop.id, shop.epoch, &Call::get(LETS_IN)).await?;
    reads.wants_problem(404, "not-found")?;
    only_what_was_signed(fleet, &shop).await
}

/// A good signature opens nothing but its own path and method, neither late nor early, and with each header once.
async fn only_what_was_signed(fleet: &Fleet, shop: &Shop) -> Result<()> {
    let door = fleet.pod_door(shop.pod).await?;
    let keys = fleet.pod_keys(shop.pod)?;
    let route = Route {
        shop: shop.id,
        pod: shop.pod,
        epoch: shop.epoch,
        request: uuid::Uuid::now_v7(),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now = u64::try_from(now.as_millis())?;
    for (at, method, path, status) in [
        (now, "GET", LIST, 200),
        (now, "GET", "/api/v1/orders", 403),
        (now, "POST", LIST, 403),
        (now - 60_000, "GET", LIST, 403),
        (now + 60_000, "GET", LIST, 403),
    ] {
        let mut call = Call::get(LIST);
        for (name, value) in route.headers(&keys, at, method, path) {
            call = call.header(name, value);
        }
        let answer = door.send_unsigned(&call).await?;
        answer
            .wants(status)
            .with_context(|| format!("signed for {method} {path} at {at}, now {now}"))?;
        let twice = door
            .send_unsigned(&call.header("podhost-shop", shop.id))
            .await?;
        twice.wants(403).context("a header twice")?;
    }
    Ok(())
}

/// Each answer has a request id that is in the logs of edge and pod, and no header of the inside; what the pod names as
/// hop-by-hop stays behind.
async fn an_answer_names_its_request_and_nothing_of_the_inside(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let answer = shop.get(LIST).await?.wants(200)?;
    let id = answer
        .header("x-request-id")
        .context("no x-request-id")?
        .to_owned();
    assert_eq!(uuid::Uuid::parse_str(&id)?.get_version_num(), 7);
    for name in answer.headers.keys().map(|n| n.as_str()) {
        assert!(
            !name.starts_with("podhost-") || name == "podhost-token",
            "{name} reached the client"
        );
        assert!(
            !["keep-alive", "proxy-connection", "te", "upgrade"].contains(&name),
            "{name}"
        );
    }
    let again = shop.get(LIST).await?;
    assert_ne!(
        again.header("x-request-id"),
        Some(id.as_str()),
        "each request has its own"
    );
    let forged = shop
        .send(Call::get(LIST).header("x-request-id", &id))
        .await?;
    assert_ne!(
        forged.header("x-request-id"),
        Some(id.as_str()),
        "a client does not choose it"
    );

    let logged = async || {
        let log = std::fs::read_to_string(fleet.home().join("logs/edge-1.log"))
            .context("the edge's log")?;
        anyhow::ensure!(log.contains(&id), "request {id} is not in the access log");
        Ok(())
    };
    tests::wait_until(
        "the access log names the request",
        std::time::Duration::from_secs(2),
        logged,
    )
    .await
}

/// What HTTP leaves open is refused by the edge: no host, two hosts, a host that is none, two lengths, a length and
/// chunks, a header too large, too many headers. No such request reaches a pod.
async fn malformed_and_ambiguous_requests_are_refused(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let host = &shop.host;
    let large = "a".repeat(100_000);
    let fields = |count: u32| -> String { (0..count).map(|n| format!("x-{n}: 1\r\n")).collect() };
    let cases = [
        (
            "no host",
            format!("GET {LIST} HTTP/1.1\r\nConnection: close\r\n\r\n"),
            vec!["400"],
        ),
        (
            "two hosts",
            format!(
                "GET {LIST} HTTP/1.1\r\nHost: {host}\r\nHost: x.example\r\nConnection: close\r\n\r\n"
            ),
            vec!["400"],
        ),
        (
            "no host name",
            format!("GET {LIST} HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n"),
            vec!["400"],
        ),
        (
            "empty host",
            format!("GET {LIST} HTTP/1.1\r\nHost: \r\nConnection: close\r\n\r\n"),
            vec!["400"],
        ),
        (
            "two lengths",
            format!(
                "GET {LIST} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\nContent-Length: 3\r\nConnection: close\r\n\r\n{{}}"
            ),
            vec!["400"],
        ),
        (
            "a length and chunks",
            format!(
                "GET {LIST} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n"
            ),
            vec!["400"],
        ),
        (
            "a large header",
            request(&shop, LIST, &format!("x-large: {large}\r\n")),
            vec!["431", "400"],
        ),
        (
            "many headers",
            request(&shop, LIST, &fields(2_000)),
            vec!["431", "400"],
        ),
        // More than the edge takes, fewer than its HTTP library or a pod would.
        (
            "110 headers",
            request(&shop, LIST, &fields(110)),
            vec!["431"],
        ),
        ("no HTTP", "HELLO\r\n\r\n".to_owned(), vec!["400", "none"]),
    ];
    for (what, bytes, wanted) in cases {
        let answer = fleet.edge.raw(bytes.as_bytes()).await?;
        let status = status_of(&answer);
        assert!(wanted.contains(&status), "{what}: {answer}");
    }
    // And the edge is well after all this.
    let list: Value = shop.get(LIST).await?.wants(200)?.json()?;
    assert!(list["products"].is_array());
    Ok(())
}

/// An absolute target must say the same as the host.
async fn an_absolute_target_says_the_same_as_the_host(fleet: &Fleet) -> Result<()> {
    let shop = fleet.shop(1).await?;
    let host = &shop.host;
    let other =
        format!("GET http://x.example{LIST} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = fleet.edge.raw(other.as_bytes()).await?;
    assert!(["400", "404"].contains(&status_of(&answer)), "{answer}");
    Ok(())
}
