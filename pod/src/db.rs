//! The database of a pod. Only this module's files open connections, begin and end transactions.

mod read;
mod tx;

pub use read::Reader;
pub use tx::Tx;

/// What a read must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Every write acknowledged before the read began: the primary.
    Strong,
    /// This client's own writes.
    Session,
    /// What a replica in band has.
    Eventual,
}
