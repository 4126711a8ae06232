//! Where the pods' primaries are, and the job of a run. Passwords are read for each run, and forgotten with it; hands that
//! are kept for the next run (`kept`) keep those of the run that made them.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use shared::PodId;
use shared::moves::MoveState;
use tokio_util::sync::CancellationToken;

use crate::catalog::MoveRow;
use crate::mover::error::MoveError;
use crate::mover::job::{End, Job};
use crate::mover::run::{Mover, limits};
use crate::pod_store::PodStoreError;
use crate::secrets::Account;

/// The job of one run.
pub(in crate::mover) async fn job_of(mover: &Arc<Mover>, row: &MoveRow) -> Result<Job, MoveError> {
    let (source, target) = match (
        end_of(mover, row.source).await,
        end_of(mover, row.target).await,
    ) {
        (Ok(source), Ok(target)) => (source, target),
        // The source must serve whatever has become of the target.
        (Ok(source), Err(error)) if needs_source_alone(row.state) => {
            let target = nowhere(&source, row.target, &error);
            (source, target)
        }
        (Err(error), Ok(target)) if row.detail.source_gone => {
            let source = nowhere(&target, row.source, &error);
            (source, target)
        }
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    let dir = mover.dir.join(row.id.to_string());
    tokio::fs::create_dir_all(&dir)
        .await
        .map_err(|source| MoveError::File {
            doing: format!("make the folder {}", dir.display()),
            source,
        })?;
    let progress = mover.moves.enter(row.id);
    progress.go_on(&row.detail.record);
    Ok(Job {
        id: row.id,
        owner: row.owner,
        shop: row.shop,
        source,
        target,
        source_epoch: row.source_epoch,
        target_epoch: row.epoch,
        back: row.detail.back_of.is_some() && !row.detail.recopy,
        observe: Duration::from_millis(row.detail.observe_ms),
        source_gone: row.detail.source_gone,
        dir,
        limits: limits(mover),
        progress,
        // Not the server's: a fence that stands is ended before the server stops.
        stop: CancellationToken::new(),
    })
}

const fn needs_source_alone(state: MoveState) -> bool {
    match state {
        MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Paused
        | MoveState::Failed
        | MoveState::Aborting => true,
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Done
        | MoveState::Aborted => false,
    }
}

/// A pod whose servers or password are not known: whoever wants to do something there is told why. What else it says is not
/// that pod's.
fn nowhere(like: &End, pod: PodId, error: &MoveError) -> End {
    End {
        pod,
        term: 0,
        password: SecretString::from(String::new()),
        unknown: Some(error.brief().into()),
        replicas: Vec::new(),
        ..like.clone()
    }
}

/// The primary of a pod, as the catalog names it now.
pub(in crate::mover) async fn end_of(mover: &Arc<Mover>, pod: PodId) -> Result<End, MoveError> {
    let (term, servers) = mover.catalog.mysql_servers(pod).await?;
    let primary = servers
        .iter()
        .find(|server| server.primary)
        .cloned()
        .ok_or(PodStoreError::NoPrimary { pod })?;
    let replicas = servers
        .into_iter()
        .filter(|server| !server.primary)
        .map(|server| server.address)
        .collect();
    let (store, asked) = (Arc::clone(&mover.store), primary.clone());
    // A file or a command: neither may hold up the runtime.
    let password = tokio::task::spawn_blocking(move || store.password(pod, &asked))
        .await
        .map_err(|_| MoveError::Unexpected("reading a password did not end"))??;
    Ok(End {
        pod,
        primary: primary.address,
        replicas,
        term,
        user: Account::Operator.user().to_owned(),
        password,
        unknown: None,
        commits: mover.commits(pod),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Address;
    use crate::mover::error::Verdict;
    use crate::mover::session::Session;

    /// Not with an empty password at another pod's server, which would also say that a primary changed.
    #[tokio::test]
    async fn a_session_at_a_pod_whose_password_is_not_known_is_refused_with_the_cause() {
        let like = End {
            pod: PodId::new(1).unwrap(),
            primary: Address {
                host: "127.0.0.1".into(),
                port: 1,
            },
            replicas: Vec::new(),
            term: 4,
            user: "nobody".into(),
            password: "secret".to_owned().into(),
            unknown: None,
            commits: Arc::default(),
        };
        let target = PodId::new(2).unwrap();
        let cause = MoveError::Waits("the vault is closed".to_owned());
        let end = nowhere(&like, target, &cause);
        let opened = Session::open_at(&end, &end.primary, &CancellationToken::new()).await;
        let fault = opened.unwrap_err();
        assert_eq!(fault.verdict(), Verdict::Again);
        let text = fault.brief();
        assert!(
            text.contains("pod 2") && text.contains("the vault is closed"),
            "{text}"
        );
    }
}
