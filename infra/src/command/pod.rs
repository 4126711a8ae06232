//! `podctl pod`; `add` is an apply and stands with that.

use anyhow::anyhow;

use super::Context;
use crate::api::{Pod, PodList, PodStatus, PodStatusChange};
use crate::cli::PodCommand;
use crate::client::{Control, Error};
use crate::output::{facts, or_dash, table};
use crate::suggest;

/// Runs one.
pub async fn run(cx: &Context, command: PodCommand) -> anyhow::Result<()> {
    match command {
        PodCommand::Add(wish) => super::fleet::pod_add(cx, wish).await,
        PodCommand::List => list(cx).await,
        PodCommand::Show { pod } => show(cx, &pod).await,
        PodCommand::Drain { pod, reason } => {
            set_status(cx, &pod, PodStatus::Draining, reason).await
        }
        PodCommand::Undrain { pod, reason } => {
            set_status(cx, &pod, PodStatus::Active, reason).await
        }
    }
}

async fn list(cx: &Context) -> anyhow::Result<()> {
    let pods = cx.control()?.pods().await?;
    Ok(cx.out.result(&PodList { pods }, |list| {
        let rows = list.pods.iter().map(pod_row).collect();
        let header = [
            "id", "name", "status", "region", "pool", "class", "shops", "term",
        ];
        table("no pods; add one with `podctl pod add`", header, rows)
    })?)
}

async fn show(cx: &Context, reference: &str) -> anyhow::Result<()> {
    let control = cx.control()?;
    let pod = or_known_pods(&control, reference, control.pod(reference).await).await?;
    Ok(cx.out.result(&pod, pod_facts)?)
}

async fn set_status(
    cx: &Context,
    reference: &str,
    status: PodStatus,
    reason: Option<String>,
) -> anyhow::Result<()> {
    let control = cx.control()?;
    let answer = control
        .pod_status(reference, &PodStatusChange { status, reason })
        .await;
    let pod = or_known_pods(&control, reference, answer).await?;
    Ok(cx.out.result(&pod, |pod| {
        let stay = match (pod.status, pod.shops) {
            (PodStatus::Draining, 1) => "; its one shop stays".into(),
            (PodStatus::Draining, 2..) => format!("; its {} shops stay", pod.shops),
            (PodStatus::Draining | PodStatus::Active | PodStatus::Offline, _) => String::new(),
        };
        format!("{} is {}{stay}", pod.name, pod.status.as_str())
    })?)
}

/// Passes an answer on; where no pod has that name, says which ones there are.
pub(super) async fn or_known_pods<T>(
    control: &Control,
    reference: &str,
    answer: Result<T, Error>,
) -> anyhow::Result<T> {
    match answer {
        Err(error) if error.is_not_found() => {
            let pods = control.pods().await.unwrap_or_default();
            let names = pods.iter().map(|pod| pod.name.as_str());
            let meant = suggest::did_you_mean(&suggest::near(reference, names));
            Err(anyhow!(
                "there is no pod {reference:?}{meant} (all of them: podctl pod list)"
            ))
        }
        answer => Ok(answer?),
    }
}

fn pod_row(pod: &Pod) -> [String; 8] {
    [
        pod.id.to_string(),
        pod.name.clone(),
        pod.status.as_str().into(),
        pod.region.clone(),
        pod.pool.clone(),
        pod.class.clone(),
        format!("{} of {}", pod.shops, pod.max_shops),
        pod.term.to_string(),
    ]
}

fn pod_facts(pod: &Pod) -> String {
    let Pod {
        id,
        name,
        region,
        pool,
        class,
        max_shops,
        status,
        shops,
        term,
        version,
        endpoints,
    } = pod;
    let head = facts(&[
        ("id", id.to_string()),
        ("name", name.clone()),
        ("status", status.as_str().into()),
        ("region", region.clone()),
        ("pool", pool.clone()),
        ("class", class.clone()),
        ("shops", format!("{shops} of {max_shops}")),
        ("term", term.to_string()),
        ("version", version.to_string()),
    ]);
    let rows = endpoints.iter().map(|endpoint| {
        [
            endpoint.kind.as_str().into(),
            endpoint.role.as_str().into(),
            endpoint.address.clone(),
            or_dash(endpoint.socket.as_ref()),
        ]
    });
    let servers = table(
        "no servers",
        ["kind", "role", "address", "socket"],
        rows.collect(),
    );
    format!("{head}\n\n{servers}")
}
