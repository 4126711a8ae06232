//! The state that handlers get.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::keys::PodKeys;

use crate::{Call, Consistency, Entity, Error, First, Reader, Reply, Shop, Tx};

/// The state that handlers get; cheap to clone.
#[derive(Clone, Debug)]
pub struct App(Arc<()>);

impl App {
    /// One write: effect and answer in one transaction under the call's key. The closure is run again whole after a
    /// deadlock, a lock wait or an unknown commit, so it changes nothing but rows.
    pub async fn write<F>(&self, _shop: &Shop, _call: Call, _run: F) -> Result<Reply, Error>
    where
        F: for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<Reply, Error>> + Send + Sync + 'static,
    {
        todo!()
    }

    /// The first step of a call that does something outside between two transactions (a payment). The closure's bytes
    /// are noted under the key in the same transaction. A call that was begun before is not run again: its note comes
    /// back, unless another request is at it just now (waits, then 409 `in-flight`).
    pub async fn begin<F>(&self, _shop: &Shop, _call: Call, _run: F) -> Result<First, Error>
    where
        F: for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<Vec<u8>, Error>> + Send + Sync + 'static,
    {
        todo!()
    }

    /// The last step of a call that [`Self::begin`] began: effect and answer in one transaction. Once it is done, the
    /// stored answer comes back and the closure is not run.
    pub async fn finish<F>(&self, _shop: &Shop, _call: Call, _run: F) -> Result<Reply, Error>
    where
        F: for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<Reply, Error>> + Send + Sync + 'static,
    {
        todo!()
    }

    /// A write without a key, for jobs: the closure must be safe to run again by itself.
    pub async fn transact<T, F>(&self, _shop: &Shop, _run: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'t> Fn(&'t mut Tx) -> BoxFuture<'t, Result<T, Error>> + Send + Sync + 'static,
    {
        todo!()
    }

    /// A read, of one consistent snapshot.
    pub async fn read<T, F>(&self, _shop: &Shop, _need: Consistency, _run: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'r> Fn(&'r mut Reader) -> BoxFuture<'r, Result<T, Error>> + Send + Sync + 'static,
    {
        todo!()
    }

    /// An `eventual` read through the cache; `None` is cached too.
    pub async fn cached<T, F>(&self, _shop: &Shop, _entity: &'static Entity, _id: &str, _load: F) -> Result<Option<Arc<T>>, Error>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
        F: for<'r> Fn(&'r mut Reader) -> BoxFuture<'r, Result<Option<T>, Error>> + Send + Sync + 'static,
    {
        todo!()
    }

    /// The pod's keys, to seal what clients bring back (order access tokens, cursors).
    pub fn keys(&self) -> &PodKeys {
        todo!()
    }
}
