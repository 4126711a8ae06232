//! Whether a pod answers at all: before an operator's word that it is gone for good is taken, and before anything is tried
//! there again.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use secrecy::SecretString;
use shared::PodId;
use tokio::net::lookup_host;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::job::End;
use super::run::Mover;
use super::session::Session;
use crate::api::Address;
use crate::catalog::CatalogError;
use crate::secrets::Account;

/// A resolver that hangs knows no more than one that says no.
const NAME_LIMIT: Duration = Duration::from_secs(3);

/// A server of the pod that answers, whatever it says; `None` where all are silent. All are asked at once, each for as long
/// as its name may take to be found and a connection to be made.
pub(crate) async fn answering(
    mover: &Arc<Mover>,
    pod: PodId,
) -> Result<Option<Address>, CatalogError> {
    let (_, servers) = mover.catalog.mysql_servers(pod).await?;
    let asked = servers.into_iter().map(|server| async move {
        let store = Arc::clone(&mover.store);
        let address = server.address.clone();
        // Without the password the server refuses, and that is an answer.
        let password = tokio::task::spawn_blocking(move || store.password(pod, &server)).await;
        let end = End {
            pod,
            primary: address.clone(),
            replicas: Vec::new(),
            term: 0,
            user: Account::Operator.user().to_owned(),
            password: password
                .ok()
                .and_then(Result::ok)
                .unwrap_or_else(|| SecretString::from(String::new())),
            unknown: None,
            commits: Arc::default(),
        };
        answers(&end).await.then_some(address)
    });
    Ok(join_all(asked).await.into_iter().flatten().next())
}

async fn answers(end: &End) -> bool {
    // A pod's name may be gone with it.
    let place = (end.primary.host.as_str(), end.primary.port);
    if !matches!(timeout(NAME_LIMIT, lookup_host(place)).await, Ok(Ok(_))) {
        return false;
    }
    match Session::open_at(end, &end.primary, &CancellationToken::new()).await {
        Ok(session) => {
            session.close().await;
            true
        }
        Err(error) => !error.is_silence(),
    }
}
