//! Where events go: a Redis stream, the log, or what an application adds.

use futures::future::BoxFuture;
use shared::{PodId, ShopId};
use uuid::Uuid;

use crate::App;

/// An event on its way out. The id is the consumer's idempotency key: an event may come twice.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns of the outbox")]
pub struct Relayed {
    pub shop: ShopId,
    pub position: u64,
    pub id: Uuid,
    pub epoch: u64,
    pub kind: String,
    pub subject: String,
    pub payload: String,
    pub created_ms: u64,
}

/// A sink that could not take events: they wait, nothing is lost.
#[derive(Debug, thiserror::Error)]
#[error("{sink} does not take events: {text}")]
pub struct SinkError {
    /// Which.
    pub sink: &'static str,
    /// Why.
    pub text: String,
}

/// Takes events of one shop, in order, all of them or an error (then they come again).
pub trait Sink: Send + Sync {
    /// Takes them.
    fn take<'a>(&'a self, events: &'a [Relayed]) -> BoxFuture<'a, Result<(), SinkError>>;
}

/// The log: which events there were, without what they say of people.
#[derive(Debug)]
pub(crate) struct LogSink;

impl Sink for LogSink {
    fn take<'a>(&'a self, events: &'a [Relayed]) -> BoxFuture<'a, Result<(), SinkError>> {
        for event in events {
            tracing::info!(
                target: "pod::event",
                shop = %event.shop,
                id = %event.id,
                kind = event.kind,
                subject = event.subject,
                "domain event"
            );
        }
        Box::pin(async { Ok(()) })
    }
}

/// A stream in the pod's Redis, `<pod>:events`.
#[derive(Debug)]
pub(crate) struct RedisSink {
    app: App,
    stream: String,
    len: u32,
}

impl RedisSink {
    pub(crate) fn new(app: App, pod: PodId, len: u32) -> Self {
        Self {
            app,
            stream: format!("{pod}:events"),
            len,
        }
    }

    async fn add(&self, events: &[Relayed]) -> Result<(), redis::RedisError> {
        let Some(redis) = self.app.cache().redis() else {
            return Ok(());
        };
        let mut connection = redis.connection();
        let mut pipe = redis::pipe();
        for event in events {
            pipe.cmd("XADD")
                .arg(&self.stream)
                .arg("MAXLEN")
                .arg("~")
                .arg(self.len)
                .arg("*")
                .arg("id")
                .arg(event.id.to_string())
                .arg("shop")
                .arg(event.shop.get())
                .arg("epoch")
                .arg(event.epoch)
                .arg("kind")
                .arg(&event.kind)
                .arg("subject")
                .arg(&event.subject)
                .arg("at")
                .arg(event.created_ms)
                .arg("payload")
                .arg(&event.payload)
                .ignore();
        }
        pipe.query_async(&mut connection).await
    }
}

impl Sink for RedisSink {
    fn take<'a>(&'a self, events: &'a [Relayed]) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(async {
            self.add(events).await.map_err(|error| SinkError {
                sink: "redis",
                text: error.to_string(),
            })
        })
    }
}
