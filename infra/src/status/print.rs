//! `podctl status` for people.

use std::fmt::Display;

use super::report::{Pod, Report, Server};
use crate::output::{or_dash, table};

/// The report as tables: what runs, the shops, and moves where there are open ones.
pub fn text(report: &Report) -> String {
    let mut rows = Vec::new();
    for control in &report.controls {
        rows.push(row("control", "", control.http.as_ref(), control.pid));
    }
    for edge in &report.edges {
        rows.push(row("edge", "", edge.http.as_ref(), edge.pid));
    }
    for pod in &report.pods {
        pod_rows(pod, &mut rows);
    }
    let runs = table(
        "nothing runs; start it with `podctl up`",
        ["what", "pod", "where", "pid"],
        rows,
    );
    let shops = report.shops.iter().map(|shop| {
        let pod = report.pods.iter().find(|pod| pod.id == shop.pod);
        [
            shop.id.to_string(),
            shop.handle.to_string(),
            pod.map_or_else(|| shop.pod.to_string(), |pod| pod.name.clone()),
            shop.epoch.get().to_string(),
            shop.state.as_str().into(),
            or_dash(shop.r#move.as_ref()),
            shop.hosts.join(" "),
        ]
    });
    if report.unreachable.contains(&"control") {
        return runs;
    }
    let header = ["id", "handle", "pod", "epoch", "state", "move", "hosts"];
    let none = "no shops; make one with `podctl shop create <handle>`";
    let mut parts = vec![runs, table(none, header, shops.collect())];
    if !report.moves.is_empty() {
        let rows = report.moves.iter().map(|it| {
            [
                it.id.to_string(),
                it.shop.to_string(),
                it.from.clone(),
                it.to.clone(),
                it.state.to_string(),
                or_dash(it.note.as_ref()),
            ]
        });
        let header = ["move", "shop", "from", "to", "state", "note"];
        parts.push(table("", header, rows.collect()));
    }
    parts.join("\n\n")
}

fn pod_rows(pod: &Pod, rows: &mut Vec<[String; 4]>) {
    let title = if pod.status == "active" {
        pod.name.clone()
    } else {
        format!("{} ({})", pod.name, pod.status)
    };
    for process in &pod.processes {
        rows.push(row("process", &title, process.http.as_ref(), process.pid));
    }
    let address = |server: &Server| format!("{}:{}", server.host, server.port);
    if let Some(server) = &pod.mysql.primary {
        rows.push(row("primary", &title, Some(address(server)), server.pid));
    }
    for server in &pod.mysql.replicas {
        rows.push(row("replica", &title, Some(address(server)), server.pid));
    }
    rows.push(row("redis", &title, pod.redis.url.as_ref(), pod.redis.pid));
}

fn row(what: &str, pod: &str, place: Option<impl Display>, pid: Option<u32>) -> [String; 4] {
    let pid = pid.map_or_else(|| "not running".into(), |pid| pid.to_string());
    [what.into(), pod.into(), or_dash(place), pid]
}
