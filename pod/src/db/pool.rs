//! One pool of connections to one server in one role.
//!
//! Not sqlx's: its release sends a ping without a deadline, its `begin` hands an open transaction to the next borrower
//! when it is dropped, and a statement dropped while it is prepared loses its slot for good (`tests` show both). Here a
//! connection goes back only by [`Conn::give_back`], which the guards call after the server has confirmed the end; any
//! other way out, a dropped future too, closes the socket and frees the slot at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shared::ShopId;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::db::breaker::Breaker;
use crate::db::fault::{Fault, Lost};
use crate::meter;

/// A connection used this recently is taken without asking whether it still lives: a round trip saved on each
/// transaction of a busy pod. A dead one shows in the first round trip, before anything was executed.
const PING_AFTER: Duration = Duration::from_secs(1);

/// What a pool is told at its making.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `write`, `read` or `replica`: the label in metrics, and the role in "one pool per server and role".
    pub role: &'static str,
    /// Connections at most.
    pub max: u32,
    /// How long to wait for one before the request is shed.
    pub wait: Duration,
    /// How long connecting may take, log-in included.
    pub connect: Duration,
    /// How long a ping may take.
    pub ping: Duration,
    /// Unused connections are closed after this.
    pub idle: Duration,
    /// Connections are closed at this age, so that a server's memory for them is bounded.
    pub life: Duration,
    /// How many may wait for a connection.
    pub queue: u32,
    /// How many connections one shop may hold.
    pub per_shop: u32,
    /// How many of one shop may wait for its share.
    pub queue_per_shop: u32,
    /// What each new connection is told first.
    pub session: String,
    /// The server's.
    pub breaker: Arc<Breaker>,
}

#[derive(Debug)]
struct Inner {
    options: MySqlConnectOptions,
    settings: Settings,
    slots: Arc<Queue>,
    idle: Mutex<Vec<Idle>>,
    shares: Shares,
}

#[derive(Debug)]
struct Idle {
    raw: MySqlConnection,
    id: u64,
    born: Instant,
    since: Instant,
}

/// A pool; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Pool(Arc<Inner>);

/// A borrowed connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Conn {
    raw: MySqlConnection,
    id: u64,
    born: Instant,
    reused: bool,
    pool: Pool,
    place: Place,
}

/// A connection's place in its pool and in its shop's share. It outlives a connection whose session stands on at the
/// server.
#[derive(Debug)]
pub(crate) struct Place {
    _slot: OwnedSemaphorePermit,
    _share: Option<OwnedSemaphorePermit>,
}

impl Pool {
    pub(crate) fn new(options: MySqlConnectOptions, settings: Settings) -> Self {
        let slots = Queue::new(settings.max, settings.queue);
        let shares = Shares {
            per_shop: settings.per_shop,
            queue: settings.queue_per_shop,
            shops: Mutex::default(),
        };
        Self(Arc::new(Inner {
            // Statements carry customers' data in bound values only, and are measured by the guards.
            options: options.disable_statement_logging(),
            settings,
            slots,
            idle: Mutex::default(),
            shares,
        }))
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// A connection for a shop, within `wait`: first the shop's share, then a slot, then one that lives.
    pub(crate) async fn acquire(&self, shop: Option<ShopId>) -> Result<Conn, Fault> {
        if !self.0.settings.breaker.lets_through() {
            return Err(Fault::Silent(
                "ask a server that did not answer a moment ago",
            ));
        }
        let started = Instant::now();
        let slots = async {
            let share = match shop {
                Some(shop) => Some(self.0.shares.of(shop).await?),
                None => None,
            };
            Some((self.0.slots.enter().await?, share))
        };
        let waited = timeout(self.0.settings.wait, slots).await;
        let got = matches!(waited, Ok(Some(_)));
        meter::pool_wait(self.0.settings.role, started.elapsed(), got);
        let Ok(Some((slot, share))) = waited else {
            return Err(Fault::Busy);
        };
        let place = Place {
            _slot: slot,
            _share: share,
        };
        while let Some(idle) = self.pop() {
            if let Some((raw, idle)) = self.alive(idle).await {
                return Ok(Conn {
                    raw,
                    id: idle.0,
                    born: idle.1,
                    reused: true,
                    pool: self.clone(),
                    place,
                });
            }
        }
        let (raw, id) = self.connect().await?;
        Ok(Conn {
            raw,
            id,
            born: Instant::now(),
            reused: false,
            pool: self.clone(),
            place,
        })
    }

    fn pop(&self) -> Option<Idle> {
        self.0.idle.lock().pop()
    }

    async fn alive(&self, mut idle: Idle) -> Option<(MySqlConnection, (u64, Instant))> {
        let unused = idle.since.elapsed();
        if unused > self.0.settings.idle || idle.born.elapsed() > self.0.settings.life {
            return None;
        }
        if unused > PING_AFTER
            && !matches!(
                timeout(self.0.settings.ping, idle.raw.ping()).await,
                Ok(Ok(()))
            )
        {
            // The others are likely dead too, and each would cost this request another wait for its ping.
            self.drop_idle();
            return None;
        }
        Some((idle.raw, (idle.id, idle.born)))
    }

    /// A connection outside of the pool's count: for killing a session when all slots may hang.
    pub(crate) async fn connect(&self) -> Result<(MySqlConnection, u64), Fault> {
        let settings = &self.0.settings;
        let open = async {
            let mut raw = self.0.options.connect().await?;
            raw.execute(sqlx::AssertSqlSafe(settings.session.clone()))
                .await?;
            let (id,): (u64,) = sqlx::query_as("select connection_id()")
                .fetch_one(&mut raw)
                .await?;
            Ok::<_, sqlx::Error>((raw, id))
        };
        match timeout(settings.connect, open).await {
            Ok(Ok(opened)) => {
                settings.breaker.answered();
                Ok(opened)
            }
            Ok(Err(error)) => {
                let fault = Fault::of("connect to the database", error, Lost::Before);
                if let Fault::Gone { .. } = fault {
                    settings.breaker.silent();
                }
                Err(fault)
            }
            Err(_) => {
                settings.breaker.silent();
                Err(Fault::Silent("connect to the database"))
            }
        }
    }

    /// Closes what is idle: after one dead connection the others are likely dead too.
    pub(crate) fn drop_idle(&self) {
        self.0.idle.lock().clear();
    }

    /// Closes what has been idle for too long; a task calls it, since a quiet pool is never asked.
    pub(crate) fn sweep(&self) {
        let settings = &self.0.settings;
        let keep =
            |i: &Idle| i.since.elapsed() <= settings.idle && i.born.elapsed() <= settings.life;
        let old: Vec<Idle> = {
            let mut idle = self.0.idle.lock();
            let (keep, old) = idle.drain(..).partition(keep);
            *idle = keep;
            old
        };
        drop(old);
        self.0.shares.sweep();
        let borrowed = settings.max as usize - self.0.slots.places.available_permits();
        let idle = self.0.idle.lock().len();
        meter::pool_size(settings.role, borrowed + idle);
    }
}

impl Conn {
    pub(crate) fn raw(&mut self) -> &mut MySqlConnection {
        &mut self.raw
    }

    /// The server's number for this session, to kill it by.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Whether it had been idle: then a failure of the first round trip says nothing of the server.
    pub(crate) const fn reused(&self) -> bool {
        self.reused
    }

    pub(crate) const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Closes it; its place is free once that is dropped too.
    pub(crate) fn close(self) -> Place {
        self.place
    }

    /// Back into the pool. Only for a connection whose last answer was read whole and which is in no transaction.
    pub(crate) fn give_back(self) {
        let Self {
            raw,
            id,
            born,
            reused: _,
            pool,
            place: _place,
        } = self;
        pool.0.idle.lock().push(Idle {
            raw,
            id,
            born,
            since: Instant::now(),
        });
    }
}

/// Places, and a bounded queue for them.
#[derive(Debug)]
struct Queue {
    places: Arc<Semaphore>,
    waiting: AtomicU32,
    waiting_max: u32,
}

impl Queue {
    fn new(places: u32, waiting_max: u32) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(places as usize)),
            waiting: AtomicU32::new(0),
            waiting_max,
        })
    }

    /// A place; `None` at once where too many wait already.
    async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        let waiter = Waiter(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= self.waiting_max {
            return None;
        }
        let place = self.places.clone().acquire_owned().await.ok();
        drop(waiter);
        place
    }
}

/// Leaves the queue, also when its time is over.
struct Waiter<'a>(&'a AtomicU32);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How many connections each shop holds. A shop's queue lives while it is used.
#[derive(Debug)]
struct Shares {
    per_shop: u32,
    queue: u32,
    shops: Mutex<HashMap<ShopId, Arc<Queue>>>,
}

impl Shares {
    async fn of(&self, shop: ShopId) -> Option<OwnedSemaphorePermit> {
        let queue = self
            .shops
            .lock()
            .entry(shop)
            .or_insert_with(|| Queue::new(self.per_shop, self.queue))
            .clone();
        queue.enter().await
    }

    /// Forgets the shops that hold and want nothing. A place holds the semaphore, a waiter the queue.
    fn sweep(&self) {
        self.shops
            .lock()
            .retain(|_, q| Arc::strong_count(q) > 1 || Arc::strong_count(&q.places) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shop_gets_its_share_and_no_more() {
        let shares = Shares {
            per_shop: 2,
            queue: 1,
            shops: Mutex::default(),
        };
        let shop = ShopId::new(7).unwrap();
        let a = shares.of(shop).await.unwrap();
        let _b = shares.of(shop).await.unwrap();
        let soon = Duration::from_millis(20);
        assert!(timeout(soon, shares.of(shop)).await.is_err());
        assert!(
            timeout(soon, shares.of(ShopId::new(8).unwrap()))
                .await
                .is_ok()
        );
        {
            let mut first = Box::pin(shares.of(shop));
            assert!(
                futures::poll!(&mut first).is_pending(),
                "the queue has one place"
            );
            assert!(shares.of(shop).await.is_none(), "and no more");
        }
        shares.sweep();
        drop(a);
        assert!(timeout(soon, shares.of(shop)).await.is_ok());
    }
}
