//! A move back: it closes the one in observation, and makes the copy that this kept equal to the shop again.

use shared::moves::{MoveEvent, MoveId};

use super::{MoveDetail, MoveRow, NewMove, append, by_id, drop_lease, write};
use crate::api::{Pod, Shop};
use crate::catalog::{CatalogError, Change};
use crate::output::{count, the_pod};

/// What a move back would undo of the copy there, and nobody has said that it may. A word is of what was looked at: of more it
/// says nothing, and of fewer it was said of something else. Pure.
pub(super) fn strays_against(
    former: Option<&MoveRow>,
    shop: &Shop,
    target: &Pod,
    new: &NewMove,
) -> Option<String> {
    let strays = former.map_or(0, |former| former.detail.strays_told());
    if strays == new.despite_strays {
        return None;
    }
    let (handle, pod) = (&shop.handle, the_pod(&target.name));
    let so_many = count(strays, "stray change");
    let order = format!("podctl shop move {handle} --to {}", target.name);
    Some(match former {
        None => format!(
            "this is no move back, and `despite_strays` says nothing of another; order it as `{order}`"
        ),
        Some(_) if strays == 0 => {
            format!("shop {handle} has {so_many} at {pod} by now; move it back with `{order}`")
        }
        Some(former) => format!(
            "shop {handle} has {so_many} at {pod} by now, which a move back undoes, and no dump has them; look at them \
             (`podctl move show {}`), then `{order} --despite-strays {strays}`",
            former.id
        ),
    })
}

/// Closes the move in observation for another one, whose detail learns what that one has to know: what the target had executed
/// before it sold, and how far the copy was looked at. Gives what is to be said of strays in the other one's first event.
pub(super) async fn take_back(
    change: &mut Change<'_>,
    former: MoveId,
    by: MoveId,
    back: &mut MoveDetail,
) -> Result<String, CatalogError> {
    let row = by_id(change.conn(), former).await?;
    let next = row
        .state
        .after(MoveEvent::TakenBack)
        .ok_or_else(|| CatalogError::Stale(format!("move {former}")))?;
    let strays = row.detail.strays_told();
    let despite = match strays {
        0 => String::new(),
        _ => format!(" despite {}", count(strays, "stray change")),
    };
    let detail = MoveDetail {
        since_ms: Some(change.at_ms),
        taken_back_by: Some(by),
        strays_let_go: strays,
        ..row.detail
    };
    write(change, former, next, &detail, row.error.as_deref()).await?;
    let note = format!("taken back by move {by}{despite}");
    append(change, former, next, row.owner, Some(&note)).await?;
    drop_lease(change, former).await?;
    back.back_of = Some(former);
    back.back_from = detail.ready_gtid;
    back.back_seen = detail.watched.or(detail.fence_gtid);
    Ok(despite)
}
