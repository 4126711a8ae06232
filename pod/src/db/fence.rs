//! The first round trip of each transaction and read: it begins, and says what the home allows.

use shared::error::Kind;
use shared::home::{Access, Home, HomeState, Mark, Verdict, decide};
use shared::wire::Fence;
use shared::{Epoch, PodId, ShopId};
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;

use crate::Error;
use crate::actor::Actor;
use crate::db::statement::GUARD_SAVEPOINT;

/// The one row that decides. No home is no row of `shop_home`, hence the outer join; `pod_identity` has one row.
const COLUMNS: &str = "i.pod, i.term, i.incarnation, i.reconciled_incarnation, \
     @@global.read_only or @@global.super_read_only as closed, \
     h.epoch, h.state, h.mark_pod, h.mark_epoch, h.ready_gtid";

/// Begins a write: the home and the identity are locked until the end, so that a mover's update of that row waits for
/// this write. `nowait` fails at once (3572) where a mover holds the row **or waits for it**, and never because of
/// another writer. A frozen process would hold its locks for the server's eight hours, hence `wait_timeout`, which holds
/// between two statements; it is put back with the end of the transaction, since idle connections live longer.
pub(crate) fn begin_write(shop: ShopId, wait_timeout_s: u64) -> String {
    format!(
        "set session wait_timeout = {wait_timeout_s}; begin; savepoint {GUARD_SAVEPOINT}; {} for share nowait",
        select(shop)
    )
}

/// Begins a read: home and rows are of one snapshot, and nothing can be changed. The executed set is asked for before the
/// snapshot is made, so that the snapshot holds at least that (what is in the set is visible; tried 684,716 times).
pub(crate) fn begin_read(shop: ShopId, wait_timeout_s: u64) -> String {
    format!(
        "set session wait_timeout = {wait_timeout_s}, @executed = @@global.gtid_executed; \
         start transaction with consistent snapshot, read only; {}",
        select(shop).replacen("select ", "select @executed as executed, ", 1)
    )
}

/// A look at the home without a transaction.
pub(crate) fn look(shop: ShopId) -> String {
    select(shop)
}

/// The texts are sent as they are, several in one packet, which the server does not prepare: they hold numbers only.
fn select(shop: ShopId) -> String {
    format!(
        "select {COLUMNS} from pod_identity i left join shop_home h on h.shop_id = {shop} where i.one = 1"
    )
}

/// What the row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub pod: PodId,
    pub term: u64,
    pub reconciled: bool,
    /// The server takes no writes: nobody has opened it as the primary.
    pub closed: bool,
    pub home: Option<Home>,
    /// The set that a replica must hold before it may answer for this shop.
    pub ready_gtid: Option<String>,
}

impl Seen {
    /// Reads the row. A value that no writer of ours writes is an error: it must not pass for "no home".
    pub(crate) fn read(row: &MySqlRow) -> Result<Self, Error> {
        let bad = |e: sqlx::Error| Error::bug(format!("a row of pod_identity and shop_home: {e}"));
        let number = |name: &str| row.try_get::<u64, _>(name).map_err(bad);
        let maybe = |name: &str| row.try_get::<Option<u64>, _>(name).map_err(bad);
        let home = match maybe("epoch")? {
            None => None,
            Some(raw) => {
                let word: String = row.try_get("state").map_err(bad)?;
                Some(Home {
                    epoch: epoch(raw)?,
                    state: HomeState::parse(&word).ok_or_else(|| {
                        Error::bug(format!("a home is {word:?}, which is no state"))
                    })?,
                    mark: mark(maybe("mark_pod")?, maybe("mark_epoch")?)?,
                })
            }
        };
        Ok(Self {
            pod: PodId::new(number("pod")?).map_err(|e| Error::bug(e.to_string()))?,
            term: number("term")?,
            reconciled: number("incarnation")? == number("reconciled_incarnation")?,
            closed: row.try_get::<i64, _>("closed").map_err(bad)? != 0,
            home,
            ready_gtid: row.try_get("ready_gtid").map_err(bad)?,
        })
    }

    /// Whether this actor may do this here, as the design's table has it, on a server that is the primary.
    pub(crate) fn allows(
        &self,
        this_pod: PodId,
        actor: &Actor,
        access: Access,
    ) -> Result<(), Error> {
        if self.pod != this_pod {
            return Err(Error::bug(format!("this database is pod {}'s", self.pod)));
        }
        if access == Access::Write && !self.reconciled {
            return Err(Error::because(
                Kind::Unavailable,
                "The shop's database went back in time and is not reconciled yet; it takes no changes.",
            ));
        }
        match decide(this_pod, self.home.as_ref(), actor.claim(), access) {
            Verdict::Run => {}
            Verdict::Misdirected(fence) => return Err(Error::Fence(fence)),
            Verdict::Frozen => return Err(Error::new(Kind::Frozen)),
            Verdict::Offline => return Err(Error::new(Kind::Offline)),
        }
        // The target of a move answers requests a moment before it is the owner, and starts nothing by itself.
        if actor.is_job() && self.home.is_some_and(|h| h.state != HomeState::Serving) {
            return Err(Error::Fence(Fence::Fenced));
        }
        Ok(())
    }
}

fn epoch(raw: u64) -> Result<Epoch, Error> {
    Epoch::try_from(raw).map_err(|e| Error::bug(format!("a home: {e}")))
}

fn mark(pod: Option<u64>, at: Option<u64>) -> Result<Option<Mark>, Error> {
    match (pod, at) {
        (None, None) => Ok(None),
        (Some(pod), Some(at)) => Ok(Some(Mark {
            pod: PodId::new(pod).map_err(|e| Error::bug(format!("a home's mark: {e}")))?,
            epoch: epoch(at)?,
        })),
        (Some(_), None) | (None, Some(_)) => Err(Error::bug("a home has half a mark")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn seen(state: HomeState) -> Seen {
        Seen {
            pod: PodId::new(1).unwrap(),
            term: 1,
            reconciled: true,
            closed: false,
            home: Some(Home {
                epoch: Epoch::FIRST,
                state,
                mark: None,
            }),
            ready_gtid: None,
        }
    }

    fn actors() -> (Actor, Actor) {
        let shop = ShopId::new(7).unwrap();
        let pod = PodId::new(1).unwrap();
        let route = shared::wire::Route {
            shop,
            pod,
            epoch: Epoch::FIRST,
            request: Uuid::now_v7(),
        };
        (Actor::request(route), Actor::job(shop, pod, Epoch::FIRST))
    }

    #[test]
    fn jobs_run_only_where_the_home_serves() {
        let pod = PodId::new(1).unwrap();
        let (request, job) = actors();
        assert!(
            seen(HomeState::Ready)
                .allows(pod, &request, Access::Write)
                .is_ok()
        );
        assert!(
            seen(HomeState::Ready)
                .allows(pod, &job, Access::Write)
                .is_err()
        );
        assert!(
            seen(HomeState::Serving)
                .allows(pod, &job, Access::Write)
                .is_ok()
        );
    }

    #[test]
    fn a_database_that_went_back_in_time_is_read_only() {
        let pod = PodId::new(1).unwrap();
        let (request, _) = actors();
        let seen = Seen {
            reconciled: false,
            ..seen(HomeState::Serving)
        };
        assert!(seen.allows(pod, &request, Access::Read).is_ok());
        assert!(matches!(
            seen.allows(pod, &request, Access::Write),
            Err(Error::Problem {
                kind: Kind::Unavailable,
                ..
            })
        ));
    }
}
