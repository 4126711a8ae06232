//! What stands at the target already.

use shared::ShopId;
use shared::home::HomeState;

use super::{Job, MoveError, Session, Table, text};

/// Looks at the shop's home and rows at the target. What an earlier try of this same move left is gone by now.
pub(super) async fn look(
    target: &mut Session,
    job: &Job,
    tables: &[Table],
    reasons: &mut Vec<String>,
) -> Result<(), MoveError> {
    let pod = job.target.pod;
    let sql = format!(
        "select state, move_id from shop_home where shop_id = {}",
        job.shop
    );
    let rows = target.rows("read the home", &sql).await?;
    let home = rows.first();
    let state = home.and_then(|row| text(row, 0));
    let ours = home.and_then(|row| text(row, 1)) == Some(job.id.to_string());
    match state.as_deref().map(HomeState::parse) {
        None | Some(Some(HomeState::Moved)) => {}
        Some(Some(HomeState::Incoming)) if ours => {}
        Some(_) => reasons.push(format!(
            "pod {pod} has a home of shop {} that says {}: it may belong to another move, or serve; run `podctl doctor`",
            job.shop,
            state.as_deref().unwrap_or("nothing")
        )),
    }
    let found = tables_with_rows(target, job.shop, tables).await?;
    if !found.is_empty() && !job.back {
        reasons.push(format!(
            "pod {pod} has rows of shop {0} already, in {1}: an aborted move's rows are deleted by themselves \
             (`podctl move list` shows it), anybody else's are dumped and deleted by `podctl shop clear {0} --at {pod}` \
             (infra/runbooks/move.md, \"Rows that no move made\")",
            job.shop,
            found.join(", ")
        ));
    }
    Ok(())
}

/// Those of the tables that have rows of the shop.
pub(in crate::mover) async fn tables_with_rows<'a>(
    session: &mut Session,
    shop: ShopId,
    tables: &'a [Table],
) -> Result<Vec<&'a str>, MoveError> {
    let mut found = Vec::new();
    for table in tables {
        let sql = format!("select 1 {} where shop_id = {shop} limit 1", table.by_key());
        if !session.rows("look for rows", &sql).await?.is_empty() {
            found.push(table.name.as_str());
        }
    }
    Ok(found)
}
