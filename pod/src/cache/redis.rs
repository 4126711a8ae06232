//! The layer in Redis, and the pod's other processes behind it.
//!
//! Optional at every moment: each command has a deadline, and after a failure Redis is left alone for a moment. A value
//! is `V<unix ms>\n<set>\n<json>`, the mark of a drop `D<set>` (or `D?`). A fill is a compare-and-set against what was
//! there before the read, so that a drop in between wins. What Redis missed ends with the entry's age.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::{ConnectionManager, ConnectionManagerConfig};
use ::redis::{Client, RedisError, Script};
use futures::StreamExt as _;
use shared::PodId;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{DROP_MARK, Key};
use crate::App;
use crate::db::GtidSet;

/// After a failure Redis is not asked for so long: a request waits for it once, not each time.
const LEAVE_ALONE: Duration = Duration::from_millis(500);

/// Connecting, over a network; nobody waits for it longer than the cache's own deadline.
const CONNECT: Duration = Duration::from_secs(1);

/// The relay's commands carry some hundred events.
const RESPONSE: Duration = Duration::from_secs(1);

/// Between tries to subscribe.
const RESUBSCRIBE: Duration = Duration::from_millis(500);

/// Sets only what nobody changed since it was looked at. `ARGV[1]` is what was there, or empty.
const COMPARE_AND_SET: &str = "local now = redis.call('get', KEYS[1]) \
     if (now or '') ~= ARGV[1] then return 0 end \
     redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3]) return 1";

/// A value as Redis has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) loaded_ms: u64,
    pub(super) executed: GtidSet,
    pub(super) text: String,
}

/// What was there before the read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Observed {
    Nothing,
    Value(Stored),
    /// It was dropped a moment ago: the mark, and the set to have seen.
    Dropped(String, Option<GtidSet>),
    /// Something else, or an entry too old: replaced by the next fill.
    Other(String),
    /// Redis cannot be asked.
    Away,
}

impl Observed {
    fn parse(raw: Option<String>) -> Self {
        let Some(raw) = raw else {
            return Self::Nothing;
        };
        if let Some(set) = raw.strip_prefix('D') {
            let set = GtidSet::parse(set).ok();
            return Self::Dropped(raw, set);
        }
        let stored = raw.strip_prefix('V').and_then(|rest| {
            let (loaded_ms, rest) = rest.split_once('\n')?;
            let (executed, text) = rest.split_once('\n')?;
            Some(Stored {
                loaded_ms: loaded_ms.parse().ok()?,
                executed: GtidSet::parse(executed).ok()?,
                text: text.to_owned(),
            })
        });
        stored.map_or(Self::Other(raw), Self::Value)
    }
}

/// The pod's Redis.
pub(crate) struct Redis {
    client: Client,
    manager: ConnectionManager,
    pod: PodId,
    wait: Duration,
    started: Instant,
    /// Milliseconds after `started` until which it is left alone.
    alone_until_ms: AtomicU64,
    /// Whether the last command failed, for one line in the log at each change.
    away: AtomicBool,
    /// Tells this process's own messages from others'.
    me: Uuid,
    fill: Script,
}

impl Redis {
    pub(super) fn new(url: &str, pod: PodId, wait: Duration) -> Result<Self, RedisError> {
        let client = Client::open(url)?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(RESPONSE))
            .set_number_of_retries(1);
        Ok(Self {
            // Lazy, so that a pod starts without Redis. It mends itself.
            manager: ConnectionManager::new_lazy_with_config(client.clone(), config)?,
            client,
            pod,
            wait,
            started: Instant::now(),
            alone_until_ms: AtomicU64::new(0),
            away: AtomicBool::new(false),
            me: Uuid::now_v7(),
            fill: Script::new(COMPARE_AND_SET),
        })
    }

    fn name(&self, key: &Key) -> String {
        format!("{}:{}", self.pod, key.as_str())
    }

    fn channel(&self) -> String {
        format!("{}:dropped", self.pod)
    }

    /// A connection for longer commands than the cache's.
    pub(crate) fn connection(&self) -> ConnectionManager {
        self.manager.clone()
    }

    /// One command with the cache's short deadline; `None` where Redis is away.
    async fn ask<T>(
        &self,
        command: impl AsyncFnOnce(&mut ConnectionManager) -> Result<T, RedisError>,
    ) -> Option<T> {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if now_ms < self.alone_until_ms.load(Ordering::Relaxed) {
            return None;
        }
        let mut connection = self.connection();
        let error = match timeout(self.wait, command(&mut connection)).await {
            Ok(Ok(answer)) => {
                if self.away.swap(false, Ordering::Relaxed) {
                    tracing::info!("Redis is back");
                }
                return Some(answer);
            }
            Ok(Err(error)) => error.category().to_owned(),
            Err(_) => "no answer in time".to_owned(),
        };
        let rest_ms = u64::try_from(LEAVE_ALONE.as_millis()).unwrap_or(u64::MAX);
        self.alone_until_ms
            .store(now_ms.saturating_add(rest_ms), Ordering::Relaxed);
        if !self.away.swap(true, Ordering::Relaxed) {
            tracing::warn!(error, "Redis is away; the cache is this process's alone");
        }
        None
    }

    pub(super) async fn get(&self, key: &Key) -> Observed {
        let name = self.name(key);
        let asked = self.ask(async |redis| ::redis::cmd("GET").arg(&name).query_async(redis).await);
        asked.await.map_or(Observed::Away, Observed::parse)
    }

    /// Keeps what was read, if what was observed is still there and the read was late enough.
    pub(super) async fn fill(
        &self,
        key: &Key,
        observed: &Observed,
        loaded_ms: u64,
        executed: &GtidSet,
        text: &str,
        age_max: Duration,
    ) {
        let before = match observed {
            Observed::Away => return,
            Observed::Nothing => String::new(),
            Observed::Dropped(_, needed)
                if !needed.as_ref().is_some_and(|n| executed.contains(n)) =>
            {
                return;
            }
            Observed::Dropped(raw, _) | Observed::Other(raw) => raw.clone(),
            Observed::Value(stored) => show(stored.loaded_ms, &stored.executed, &stored.text),
        };
        let name = self.name(key);
        let value = show(loaded_ms, executed, text);
        let age_ms = u64::try_from(age_max.as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        self.ask(async |redis| {
            let mut call = self.fill.prepare_invoke();
            call.key(&name).arg(&before).arg(&value).arg(age_ms);
            call.invoke_async::<i64>(redis).await
        })
        .await;
    }

    /// Puts a mark in the place of each thing and tells the other processes.
    pub(super) async fn drop_keys(&self, keys: &[Key], executed: Option<&str>) {
        let mark = format!("D{}", executed.unwrap_or("?"));
        let mark_ms = u64::try_from(DROP_MARK.as_millis()).unwrap_or(u64::MAX);
        let mut pipe = ::redis::pipe();
        for key in keys {
            pipe.cmd("SET")
                .arg(self.name(key))
                .arg(&mark)
                .arg("PX")
                .arg(mark_ms)
                .ignore();
            let message = format!("{}\n{mark}\n{}", self.me, key.as_str());
            pipe.cmd("PUBLISH")
                .arg(self.channel())
                .arg(message)
                .ignore();
        }
        self.ask(async |redis| pipe.query_async::<()>(redis).await)
            .await;
    }

    /// Follows the other processes' drops until the token is cancelled. Whenever the line was down, everything in this
    /// process goes: a drop may have been missed.
    pub(crate) async fn follow(app: App, stop: CancellationToken) {
        let Some(redis) = app.cache().redis() else {
            return;
        };
        let follow = async {
            loop {
                let ended = redis.follow_once(&app).await;
                tracing::debug!(?ended, "the subscription to dropped keys ended");
                app.cache().drop_all_here();
                sleep(RESUBSCRIBE).await;
            }
        };
        stop.run_until_cancelled(follow).await;
    }

    async fn follow_once(&self, app: &App) -> Result<(), RedisError> {
        let mut line = self.client.get_async_pubsub().await?;
        line.subscribe(self.channel()).await?;
        // What was dropped before this moment was not heard.
        app.cache().drop_all_here();
        let mut messages = line.on_message();
        while let Some(message) = messages.next().await {
            let text: String = message.get_payload()?;
            let mut parts = text.splitn(3, '\n');
            let (Some(from), Some(mark), Some(key)) = (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            if from != self.me.to_string() {
                let executed = mark.strip_prefix('D').filter(|set| *set != "?");
                app.cache().drop_here(&Key(key.into()), executed).await;
            }
        }
        Ok(())
    }
}

fn show(loaded_ms: u64, executed: &GtidSet, text: &str) -> String {
    format!("V{loaded_ms}\n{executed}\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_marks_are_read_back() {
        let set = GtidSet::parse(
            "bdbea337-ec7c-11f1-86a3-02fc00000001:1-5:8,cdbea337-ec7c-11f1-86a3-02fc00000001:pod:1",
        )
        .unwrap();
        let value = show(12, &set, "{\"a\":\"\\n\"}");
        let Observed::Value(stored) = Observed::parse(Some(value.clone())) else {
            panic!("a value");
        };
        assert_eq!(
            (stored.loaded_ms, &stored.executed, stored.text.as_str()),
            (12, &set, "{\"a\":\"\\n\"}")
        );
        assert_eq!(
            show(stored.loaded_ms, &stored.executed, &stored.text),
            value,
            "the compare-and-set compares texts"
        );
        assert_eq!(
            Observed::parse(Some(format!("D{set}"))),
            Observed::Dropped(format!("D{set}"), Some(set))
        );
        assert_eq!(
            Observed::parse(Some("D?".into())),
            Observed::Dropped("D?".into(), None)
        );
        assert_eq!(
            Observed::parse(Some("x".into())),
            Observed::Other("x".into())
        );
        assert_eq!(Observed::parse(None), Observed::Nothing);
    }
}
