//! Another server of a pod becomes its primary under moves in each state: the former one is dead and stays away. What does
//! this in the product's place is an operator at a prompt, in the order of "Primary lost" of the design.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;
use tests::fleet::RECOVER_MAX;
use tests::moves::ControlDoor;
use tests::{Call, Fleet, Server, wait_until};
use toml::{Table, Value};

use super::lanes::{Held, Lanes, on_lanes};
use super::primaries::begun_again;

/// A replica applies what it has received in moments; this is for one on a machine that has more to do.
const APPLIED_MAX: Duration = Duration::from_secs(60);

/// The source's primary is replaced under a move in each state, then the target's under moves in each state again. Every move
/// arrives, those that could still be undone after beginning again with the changed keys, and nothing acknowledged is
/// missing or doubled.
pub(super) async fn inv3_a_primary_replaced_in_each_state_of_a_move() -> Result<()> {
    let fleet = Fleet::start().await?;
    on_lanes(&fleet, &Held::ALL, true, replaced).await?;
    fleet.stop().await
}

async fn replaced(lanes: &mut Lanes<'_>) -> Result<()> {
    let fleet = lanes.fleet;
    for (to, replaced) in [(2, Some(1)), (1, None), (2, Some(2))] {
        let way = async {
            lanes.hold(to).await?;
            if let Some(pod) = replaced {
                fleet.kill_and_hold_down(&format!("mysql-{pod}-1")).await?;
                lanes.go_on();
                promote(fleet, &lanes.control, pod)
                    .await
                    .context("promote")?;
            } else {
                lanes.go_on();
            }
            lanes.arrive(to, |_| true).await?;
            if replaced.is_some() {
                begun_again(lanes, false).await?;
            }
            anyhow::Ok(())
        };
        way.await
            .with_context(|| format!("to pod {to}, the primary of {replaced:?} replaced"))?;
    }
    Ok(())
}

/// Makes the replica that has received most the primary of its pod, and the other one follow it.
async fn promote(fleet: &Fleet, control: &ControlDoor, pod: u32) -> Result<()> {
    let former = fleet.status().await?.pod(pod)?.mysql.primary.port;
    let servers = fleet.replicas(pod).await?;
    let mut received = Vec::new();
    for server in &servers {
        // Nobody acknowledges to the former primary any more.
        server.run("stop replica io_thread").await?;
        let set = server
            .text("select received_transaction_set from performance_schema.replication_connection_status")
            .await?;
        received.push(set.replace('\n', ""));
    }
    let [a, b] = servers.as_slice() else {
        anyhow::bail!("{} replicas", servers.len())
    };
    let subset = format!("select gtid_subset('{}', '{}')", received[1], received[0]);
    let (new, other, all) = if a.number(&subset).await? == 1 {
        (a, b, &received[0])
    } else {
        (b, a, &received[1])
    };
    wait_until(
        "all that was received is applied",
        APPLIED_MAX,
        async || {
            let applied = format!("select gtid_subset('{all}', @@global.gtid_executed)");
            ensure!(new.number(&applied).await? == 1, "not yet");
            Ok(())
        },
    )
    .await?;
    new.run("stop replica").await?;
    let source = format!(
        "stop replica; change replication source to source_host = '127.0.0.1', source_port = {}; start replica",
        new.port
    );
    other.run(&source).await?;
    let term = new.number("select term from pod_identity").await?;
    let call = Call::new(Method::PUT, format!("/v1/pods/{pod}/primary"));
    let body = json!({"address": format!("127.0.0.1:{}", new.port), "term": term});
    control.send(call.json(&body)).await?.wants(200)?;
    processes_follow(fleet, pod, former, new).await?;
    wait_until("the new primary is open", RECOVER_MAX, async || {
        ensure!(new.writable().await?, "not yet");
        Ok(())
    })
    .await
}

/// The pod's processes learn of their primary by their configs.
async fn processes_follow(fleet: &Fleet, pod: u32, former: u16, new: &Server) -> Result<()> {
    for process in 1..=2 {
        let path = fleet.home().join(format!("pod-{pod}/pod-{process}.toml"));
        let text = fs::read_to_string(&path).context("read a config")?;
        let mut config: Table = text.parse().context("read a config")?;
        let mysql = config.get_mut("mysql").and_then(Value::as_table_mut);
        let mysql = mysql.context("a config without [mysql]")?;
        let replicas = mysql.get_mut("replicas").and_then(Value::as_array_mut);
        let port = |port: u16| Value::Integer(port.into());
        for replica in replicas.context("a config without replicas")? {
            let replica = replica.as_table_mut().context("a replica")?;
            if replica.get("port") == Some(&port(new.port)) {
                replica.insert("port".into(), port(former));
            }
        }
        let primary = mysql.get_mut("primary").and_then(Value::as_table_mut);
        primary
            .context("a config without a primary")?
            .insert("port".into(), port(new.port));
        fs::write(&path, config.to_string()).context("write a config")?;
        fleet.unit(&format!("pod-{pod}-{process}"))?.kill().await?;
    }
    Ok(())
}
