//! What a move would do: everything that `preparing` asks, without a move.

use std::sync::Arc;
use std::time::Duration;

use shared::moves::MoveId;
use tokio_util::sync::CancellationToken;

use super::driver::end_of;
use super::error::MoveError;
use super::job::Job;
use super::preflight;
use super::progress::Progress;
use super::run::Mover;
use crate::api::{MoveCheck, TableSize};
use crate::catalog::{MoveRef, Planned};

/// All its questions together: whoever asks waits for the answer. A pod that does not answer is told long before.
const WITHIN: Duration = Duration::from_secs(20);

/// Asks both pods. Changes nothing.
pub(crate) async fn dry_run(
    mover: &Arc<Mover>,
    planned: &Planned,
    observe: Duration,
) -> Result<MoveCheck, MoveError> {
    let Planned {
        shop,
        target,
        back_of,
    } = planned;
    let job = Job {
        id: MoveId::random(),
        owner: 0,
        shop: shop.id,
        source: end_of(mover, shop.pod.id).await?,
        target: end_of(mover, target.id).await?,
        source_epoch: shop.epoch,
        target_epoch: shop.epoch.next(),
        back: back_of.is_some(),
        observe,
        source_gone: false,
        dir: mover.dir.clone(),
        limits: Arc::clone(&mover.limits),
        progress: Arc::new(Progress::default()),
        stop: CancellationToken::new(),
    };
    let checked = tokio::time::timeout(
        WITHIN,
        Box::pin(preflight::check(&job, preflight::Documents::Ask)),
    )
    .await;
    let checked = checked.map_err(|_| MoveError::Timeout {
        pod: job.source.pod,
        doing: "asking whether the shop can move",
        limit: WITHIN,
    })??;
    let estimate = checked.estimate;
    let strays = match back_of {
        Some(id) => {
            let forth = mover.catalog.move_row(&MoveRef::Id(*id)).await?;
            forth.detail.strays_told()
        }
        None => 0,
    };
    Ok(MoveCheck {
        back: back_of.is_some(),
        strays,
        tables: estimate
            .tables
            .into_iter()
            .map(|it| TableSize {
                name: it.name,
                rows: it.rows,
                bytes: it.bytes,
            })
            .collect(),
        rows: estimate.rows,
        bytes: estimate.bytes,
        seconds: estimate.seconds,
        seconds_beside_shops: estimate.seconds_beside_shops,
    })
}
