//! Every change of a shop's home by a mover: one transaction that locks the row, looks whose it is, and writes it whole.
//!
//! [`rules`] says what each change makes of a row and when it is refused; it does no I/O. A takeover matches whatever the
//! state is: it waits for the former mover's transactions in flight and refuses its later ones, since each of them
//! compares the owner number. Owner numbers grow with each takeover of any move of the shop, and a home keeps its last one
//! for ever.

use mysql_async::{Row, Value};
use shared::gtid::GtidSet;
use shared::home::{HomeState, Mark};
use shared::{Epoch, PlacementState, PodId, ShopId};

use super::error::MoveError;
use super::job::Job;
use super::session::Session;

mod rules;

pub(crate) use rules::{Change, HomeRow};
use rules::{Refusal, Who};

/// One row, as text where the driver's types would differ between the servers' protocols.
const SELECT: &str = "select cast(epoch as char), state, move_id, cast(owner as char), ready_gtid, \
     cast(mark_pod as char), cast(mark_epoch as char) from shop_home where shop_id = ";

/// Does a change at the pod of `session`; gives the row as it stands now, `None` where there is none.
pub(crate) async fn change(
    session: &mut Session,
    job: &Job,
    change: &Change,
) -> Result<Option<HomeRow>, MoveError> {
    change_told(session, job, change, &mut At::default()).await
}

/// How far a change of a home is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum At {
    /// The row is locked, by others before it.
    #[default]
    Lock,
    /// It is the change's; what is left is to write and commit it.
    Commit,
}

/// As [`change`], and says how far it is.
pub(crate) async fn change_told(
    session: &mut Session,
    job: &Job,
    change: &Change,
    at: &mut At,
) -> Result<Option<HomeRow>, MoveError> {
    session.begin().await?;
    let found = read(session, job.shop, " for update").await?;
    *at = At::Commit;
    let who = Who {
        id: job.id.to_string(),
        owner: job.owner,
        source_epoch: job.source_epoch,
        target_epoch: job.target_epoch,
        source: job.source.pod,
        target: job.target.pod,
    };
    let after = match rules::after(change, &who, found.as_ref()) {
        Ok(after) => after,
        Err(refusal) => {
            session.rollback().await?;
            return Err(refused(session.end().pod, refusal));
        }
    };
    if let Some(row) = after.as_ref().filter(|row| Some(*row) != found.as_ref()) {
        write(session, job.shop, row, found.is_some()).await?;
    }
    session.commit().await?;
    Ok(after)
}

/// As [`change`] to `ready`, with the set of transactions that a replica must have before it may serve the shop: all that
/// the mover wrote is committed by now.
pub(crate) async fn ready(
    session: &mut Session,
    job: &Job,
    placement: PlacementState,
) -> Result<GtidSet, MoveError> {
    let executed = session.gtid_executed().await?;
    let ready = Change::Ready(executed.to_string(), placement);
    change(session, job, &ready).await?;
    Ok(executed)
}

/// Reads the source's home and goes on only if it is still `handing` for this mover.
pub(crate) async fn still_handing(session: &mut Session, job: &Job) -> Result<(), MoveError> {
    let row = look(session, job.shop).await?;
    let ours = row.as_ref().is_some_and(|row| {
        row.state == HomeState::Handing
            && row.move_id.as_deref() == Some(job.id.to_string().as_str())
            && row.owner == job.owner
    });
    if ours {
        return Ok(());
    }
    Err(MoveError::NotOwner {
        pod: session.end().pod,
        found: row.map_or_else(|| "no home".to_owned(), |row| row.told()),
    })
}

/// The row, unlocked.
pub(crate) async fn look(
    session: &mut Session,
    shop: ShopId,
) -> Result<Option<HomeRow>, MoveError> {
    read(session, shop, "").await
}

fn refused(pod: PodId, refusal: Refusal) -> MoveError {
    match refusal {
        Refusal::NotOwner(found) => MoveError::NotOwner { pod, found },
        Refusal::State(text) => MoveError::Refused {
            reasons: vec![format!("pod {pod}: {text}")],
        },
    }
}

async fn read(
    session: &mut Session,
    shop: ShopId,
    lock: &str,
) -> Result<Option<HomeRow>, MoveError> {
    let pod = session.end().pod;
    let rows = session
        .rows("read the home", &format!("{SELECT}{shop}{lock}"))
        .await?;
    let Some(row) = rows.into_iter().next() else {
        return Ok(None);
    };
    let bad = || MoveError::Refused {
        reasons: vec![format!(
            "pod {pod}: the home of shop {shop} cannot be read; run `podctl doctor`"
        )],
    };
    parse(&row).map(Some).ok_or_else(bad)
}

fn parse(row: &Row) -> Option<HomeRow> {
    let text = |at: usize| match row.as_ref(at)? {
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
        Value::NULL
        | Value::Int(_)
        | Value::UInt(_)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Date(..)
        | Value::Time(..) => None,
    };
    let number = |at: usize| text(at).and_then(|t| t.parse::<u64>().ok());
    let mark = match (number(5), number(6)) {
        (Some(pod), Some(epoch)) => Some(Mark {
            pod: PodId::new(pod).ok()?,
            epoch: Epoch::try_from(epoch).ok()?,
        }),
        _ => None,
    };
    Some(HomeRow {
        epoch: Epoch::try_from(number(0)?).ok()?,
        state: HomeState::parse(text(1)?)?,
        move_id: text(2).map(str::to_owned),
        owner: number(3)?,
        ready_gtid: text(4).map(str::to_owned),
        mark,
    })
}

async fn write(
    session: &mut Session,
    shop: ShopId,
    row: &HomeRow,
    there: bool,
) -> Result<(), MoveError> {
    let HomeRow {
        epoch,
        state,
        move_id,
        owner,
        ready_gtid,
        mark,
    } = row;
    // Ids, words and sets of GTIDs have no quote and no backslash.
    let text = |it: &Option<String>| {
        it.as_ref()
            .map_or_else(|| "null".to_owned(), |t| format!("'{t}'"))
    };
    let (mark_pod, mark_epoch) = mark.map_or_else(
        || ("null".to_owned(), "null".to_owned()),
        |mark| (mark.pod.to_string(), mark.epoch.get().to_string()),
    );
    let set = format!(
        "epoch = {epoch}, state = '{state}', move_id = {move_id}, owner = {owner}, ready_gtid = {ready}, \
         mark_pod = {mark_pod}, mark_epoch = {mark_epoch}",
        epoch = epoch.get(),
        state = state.as_str(),
        move_id = text(move_id),
        ready = text(ready_gtid),
    );
    let sql = if there {
        format!("update shop_home set {set} where shop_id = {shop}")
    } else {
        format!("insert into shop_home set shop_id = {shop}, {set}")
    };
    session.exec("write the home", &sql).await.map(drop)
}
