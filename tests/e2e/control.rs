//! The control server's interface, asked past `podctl`: who may ask what, and what bad input gets.

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tests::suite::Test;
use tests::{Answer, Call, Edge, Fleet, status, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![shares:
        roles_open_what_they_are_for,
        bad_input_to_the_control_server_names_the_field,
        every_path_of_the_interface_is_in_its_openapi,
        inv2_a_placement_is_kept_with_its_history,
        routes_are_a_table_and_then_changes,
    ]
}

struct Control {
    http: Edge,
    operator: String,
    edge: String,
    pod: String,
}

impl Control {
    async fn of(fleet: &Fleet) -> Result<Self> {
        let status = fleet.status().await?;
        let control = status.controls.first().context("a control server")?;
        let secret = |name: &str| tests::mysql::secret(&fleet.home().join("secrets").join(name));
        Ok(Self {
            http: Edge::new(status::address(&control.http)?)?,
            operator: tests::mysql::secret(control.operator_token_file.as_ref())?,
            edge: secret("edge-token")?,
            pod: secret("pod-1-token")?,
        })
    }

    async fn send(&self, call: &Call) -> Result<Answer> {
        self.http.send("control", call).await
    }

    async fn operator(&self, call: Call) -> Result<Answer> {
        self.send(&call.token(&self.operator)).await
    }
}

/// Without a token and with an invented one: 401. An edge reads routes and nothing else, a pod its own topology and
/// not another's, the operator everything.
async fn roles_open_what_they_are_for(fleet: &Fleet) -> Result<()> {
    let control = Control::of(fleet).await?;
    let shops = Call::get("/v1/shops");
    control
        .send(&shops)
        .await?
        .wants_problem(401, "unauthorized")?;
    control
        .send(&shops.clone().token("invented"))
        .await?
        .wants_problem(401, "unauthorized")?;
    let make = Call::post("/v1/shops").json(&json!({"handle": "by-an-edge"}));
    for token in [&control.edge, &control.pod] {
        control
            .send(&shops.clone().token(token))
            .await?
            .wants_problem(403, "forbidden")?;
        control
            .send(&make.clone().token(token))
            .await?
            .wants_problem(403, "forbidden")?;
    }
    control
        .send(&Call::get("/v1/routes").token(&control.edge))
        .await?
        .wants(200)?;
    let own = Call::get("/v1/pods/1/topology").token(&control.pod);
    let topology: Value = control.send(&own).await?.wants(200)?.json()?;
    ensure!(
        topology["term"].as_u64().is_some_and(|t| t >= 1),
        "{topology}"
    );
    let other = Call::get("/v1/pods/2/topology").token(&control.pod);
    control
        .send(&other)
        .await?
        .wants_problem(403, "forbidden")
        .context("another pod's topology")?;
    control.operator(other).await?.wants(200)?;
    control.operator(shops).await?.wants(200)?;
    ensure!(
        fleet.status().await?.shop("by-an-edge").is_err(),
        "a refused shop is there"
    );
    Ok(())
}

/// Each a 4xx problem with the field, and no shop made.
async fn bad_input_to_the_control_server_names_the_field(fleet: &Fleet) -> Result<()> {
    let control = Control::of(fleet).await?;
    let before = fleet.status().await?.shops.len();
    for (body, field) in [
        (json!({}), "handle"),
        (json!({"handle": 7}), "handle"),
        (json!({"handle": "Not A Label"}), "handle"),
        (
            json!({"handle": "bad-1", "currency": "dollars"}),
            "currency",
        ),
        (json!({"handle": "bad-2", "pod": "nobody"}), "pod"),
        (json!({"handle": "bad-3", "hosts": ["a b"]}), "hosts"),
        (json!({"handle": "bad-4", "colour": "red"}), "colour"),
        (json!({"handle": "bad-5", "region": "nowhere"}), ""),
    ] {
        let answer = control
            .operator(Call::post("/v1/shops").json(&body))
            .await?;
        ensure!(
            (400..500).contains(&answer.status),
            "{body}: {} {}",
            answer.status,
            answer.text()
        );
        let problem: Value = answer.json()?;
        let named = problem["field"].as_str().unwrap_or_default();
        ensure!(
            named.starts_with(field),
            "{body}: field {named:?}: {problem}"
        );
    }
    for (method, path, status) in [
        ("GET", "/v1/nothing", 404),
        ("DELETE", "/v1/shops", 405),
        ("GET", "/v1/shops/nobody", 404),
        ("GET", "/v1/shops?limit=0", 400),
        ("GET", "/v1/shops?limit=x", 400),
        ("GET", "/v1/routes/changes", 400),
        ("GET", "/v1/routes/changes?incarnation=1&after=-1", 400),
        ("GET", "/v1/pods/999", 404),
    ] {
        let answer = control
            .operator(Call::new(method.parse::<Method>()?, path))
            .await?;
        ensure!(
            answer.status == status,
            "{method} {path}: {} {}",
            answer.status,
            answer.text()
        );
        ensure!(
            answer.header("content-type") == Some("application/problem+json"),
            "{method} {path}"
        );
    }
    assert_eq!(
        fleet.status().await?.shops.len(),
        before,
        "a refused shop is there"
    );
    names_who_is_not_there(&control).await
}

async fn names_who_is_not_there(control: &Control) -> Result<()> {
    let answer = control.operator(Call::get("/v1/shops/nobody")).await?;
    let problem = answer.wants_problem(404, "not-found")?;
    ensure!(
        problem["detail"].to_string().contains("nobody"),
        "who is not there is not said: {problem}"
    );
    Ok(())
}

/// The document names each path that answers, and each path that it names answers something else than "no such path".
async fn every_path_of_the_interface_is_in_its_openapi(fleet: &Fleet) -> Result<()> {
    let control = Control::of(fleet).await?;
    let document: Value = control
        .operator(Call::get("/v1/openapi.json"))
        .await?
        .wants(200)?
        .json()?;
    let paths = document["paths"].as_object().context("paths")?;
    for wanted in [
        "/v1/routes",
        "/v1/routes/changes",
        "/v1/shops",
        "/v1/pods",
        "/v1/operations",
        "/v1/status",
    ] {
        ensure!(
            paths.contains_key(wanted),
            "{wanted} is not in the document"
        );
    }
    ensure!(paths.len() >= 15, "only {} paths", paths.len());
    for (path, methods) in paths {
        let methods = methods.as_object().context("methods of a path")?;
        for method in methods.keys().filter(|m| m.as_str() == "get") {
            let filled = path
                .split('/')
                .map(|part| if part.starts_with('{') { "1" } else { part });
            let filled: Vec<&str> = filled.collect();
            let call = Call::new(method.to_uppercase().parse::<Method>()?, filled.join("/"));
            let answer = control.operator(call).await?;
            ensure!(
                answer.status != 405 && answer.status < 500,
                "{method} {path}: {}",
                answer.status
            );
        }
    }
    Ok(())
}

/// Every change of a placement has an event, who owned the shop at an instant is answered from them, and the epoch does
/// not move without a move.
async fn inv2_a_placement_is_kept_with_its_history(fleet: &Fleet) -> Result<()> {
    let before = now()?;
    let shop = fleet.shop(2).await?;
    fleet
        .podctl
        .ok(&["shop", "freeze", &shop.handle, "--reason", "stocktaking"])
        .await?;
    let frozen_at = now()?;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    fleet.podctl.ok(&["shop", "unfreeze", &shop.handle]).await?;
    let control = Control::of(fleet).await?;
    let history: Value = control
        .operator(Call::get(format!("/v1/shops/{}/history", shop.id)))
        .await?
        .wants(200)?
        .json()?;
    let events = history["events"].as_array().context("events")?;
    assert_eq!(events.len(), 3, "{history}");
    let numbers: Vec<u64> = events
        .iter()
        .filter_map(|e| e["sequence"].as_u64())
        .collect();
    ensure!(numbers.is_sorted() && numbers.len() == 3, "{numbers:?}");
    assert_eq!(events[1]["reason"], "stocktaking");
    let at = |instant: &str| {
        let instant = instant.replace('+', "%2B");
        control.operator(Call::get(format!(
            "/v1/shops/{}/placement?at={instant}",
            shop.id
        )))
    };
    let then: Value = at(&frozen_at).await?.wants(200)?.json()?;
    assert_eq!(
        (&then["state"], &then["pod"]["id"], &then["epoch"]),
        (&json!("frozen"), &json!(2), &json!(1))
    );
    at(&before)
        .await?
        .wants(404)
        .context("before it was made")?;
    let owner: Value = fleet.podctl.json(&["shop", "where", &shop.handle]).await?;
    assert_eq!(
        (&owner["pod"]["id"], &owner["state"]),
        (&json!(2), &json!("serving"))
    );
    Ok(())
}

fn now() -> Result<String> {
    let format = time::format_description::well_known::Rfc3339;
    time::OffsetDateTime::now_utc()
        .format(&format)
        .context("write the time")
}

/// The whole table has every shop and ends with its counts; a change after it comes as one change with the next
/// version; a position of another incarnation or of the future is 410.
async fn routes_are_a_table_and_then_changes(fleet: &Fleet) -> Result<()> {
    let control = Control::of(fleet).await?;
    let shop = fleet.shop(1).await?;
    let read = |path: String| control.send_owned(Call::get(path).token(&control.edge));
    let table = read("/v1/routes".into()).await?.wants(200)?.text();
    let lines: Vec<Value> = table
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let head = lines.first().context("a first line")?;
    let end = &lines.last().context("a last line")?["end"];
    let shops = lines.iter().filter(|l| l.get("shop").is_some()).count();
    assert_eq!(end["shops"].as_u64(), Some(u64::try_from(shops)?));
    ensure!(
        lines.iter().any(|l| l["shop"]["id"] == shop.id.get()),
        "the shop is not in the table"
    );
    let incarnation = &head["incarnation"];
    let version = head["version"].as_u64().context("a version")?;
    let changes =
        format!("/v1/routes/changes?incarnation={incarnation}&after={version}&wait_ms=5000");
    let (answer, frozen) = tokio::join!(read(changes), async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        fleet.podctl.ok(&["shop", "freeze", &shop.handle]).await
    });
    frozen?;
    let answer: Value = answer?.wants(200)?.json()?;
    let all = answer["changes"].as_array().context("changes")?;
    ensure!(
        !all.is_empty() && all.iter().all(|c| c["version"].as_u64() > Some(version)),
        "{answer}"
    );
    for (incarnation, after) in [
        (json!(12345), 0),
        (incarnation.clone(), version + 1_000_000),
    ] {
        let path =
            format!("/v1/routes/changes?incarnation={incarnation}&after={after}&wait_ms=100");
        read(path).await?.wants(410)?;
    }
    Ok(())
}

impl Control {
    /// For closures, whose future may borrow nothing of the call.
    async fn send_owned(&self, call: Call) -> Result<Answer> {
        self.send(&call).await
    }
}
