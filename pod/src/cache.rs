//! The cache in the process (moka) and in Redis: keys begin with pod, shop and epoch, so that nothing stale follows a
//! moved shop.

use std::time::Duration;

/// A kind of cached thing, as a `static`.
#[derive(Debug)]
pub struct Entity {
    pub(crate) name: &'static str,
    pub(crate) age_max: Duration,
}

impl Entity {
    /// `age_max` is how old an answer from the cache may be, counted from the read that filled it (negative entries
    /// too); commits that name the thing drop it long before.
    pub const fn new(name: &'static str, age_max: Duration) -> Self {
        Self { name, age_max }
    }
}
