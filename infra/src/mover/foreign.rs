//! What a pod has of a shop that it does not own: looked at before an operator's order to clear it is taken.

use std::sync::Arc;

use shared::home::HomeState;
use shared::{PodId, ShopId};
use tokio_util::sync::CancellationToken;

use super::driver::end_of;
use super::error::MoveError;
use super::home;
use super::preflight::target::tables_with_rows;
use super::run::Mover;
use super::session::Session;
use super::table::discover;

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// The home, where it says anything else than that the shop is elsewhere: the rows may be somebody's.
    pub(crate) home: Option<String>,
    /// Whether any table has rows of the shop.
    pub(crate) rows: bool,
}

/// Asks the pod's primary. Changes nothing.
pub(crate) async fn look(
    mover: &Arc<Mover>,
    shop: ShopId,
    pod: PodId,
) -> Result<Foreign, MoveError> {
    let end = end_of(mover, pod).await?;
    let mut session = Session::open_primary(&end, &CancellationToken::new()).await?;
    let home = home::look(&mut session, shop).await?;
    let home = home.filter(|row| row.state != HomeState::Moved);
    let tables = discover(&mut session).await?;
    let rows = tables_with_rows(&mut session, shop, &tables).await?;
    let found = Foreign {
        home: home.map(|row| row.told()),
        rows: !rows.is_empty(),
    };
    session.close().await;
    Ok(found)
}
