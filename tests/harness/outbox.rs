//! Events as a consumer of a pod's Redis stream gets them.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use redis::streams::StreamRangeReply;

use crate::{Fleet, Shop, wait_until};

/// Committed, relayed, read: far below this on a machine that does nothing else.
const RELAYED_MAX: Duration = Duration::from_secs(20);

/// One event of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The consumer's idempotency key.
    pub id: String,
    /// Whose it is.
    pub shop: u64,
    /// What happened.
    pub kind: String,
    /// To what, and the rest.
    pub fields: String,
}

/// All events of a pod's stream, in its order, repeats included.
pub async fn all(fleet: &Fleet, pod: u32) -> Result<Vec<Event>> {
    let status = fleet.status().await?;
    let mut redis = status.pod(pod)?.redis.connect().await?;
    let streams: Vec<String> = redis::cmd("scan")
        .arg(0)
        .arg("count")
        .arg(100_000)
        .arg("type")
        .arg("stream")
        .query_async::<(String, Vec<String>)>(&mut redis)
        .await
        .context("find streams")?
        .1;
    let mut events = Vec::new();
    for stream in streams {
        let reply: StreamRangeReply = redis::cmd("xrange")
            .arg(&stream)
            .arg("-")
            .arg("+")
            .query_async(&mut redis)
            .await
            .context("read a stream")?;
        for entry in reply.ids {
            let fields: HashMap<String, String> = entry
                .map
                .iter()
                .filter_map(|(name, value)| {
                    Some((name.clone(), redis::from_redis_value_ref(value).ok()?))
                })
                .collect();
            let field = |name: &str| {
                fields
                    .get(name)
                    .cloned()
                    .with_context(|| format!("no {name}: {fields:?}"))
            };
            events.push(Event {
                id: field("id")?,
                shop: field("shop")?.parse().context("an event's shop")?,
                kind: field("kind")?,
                fields: format!("{fields:?}"),
            });
        }
    }
    Ok(events)
}

/// The events of one shop, once there are so many of them (repeats not counted).
pub async fn events_of(fleet: &Fleet, shop: &Shop, at_least: usize) -> Result<Vec<Event>> {
    let pod = shop.pod.to_string().parse().context("a pod id")?;
    let what = format!("{at_least} events of {}", shop.handle);
    wait_until(&what, RELAYED_MAX, async || {
        let mut events = all(fleet, pod).await?;
        events.retain(|e| e.shop == shop.id.get());
        let mut ids: Vec<&String> = events.iter().map(|e| &e.id).collect();
        ids.sort_unstable();
        ids.dedup();
        ensure!(ids.len() >= at_least, "{} are relayed", ids.len());
        Ok(events)
    })
    .await
}
