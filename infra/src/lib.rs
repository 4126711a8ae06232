//! What operators run: `podctl`, the control server with the catalog, and the local fleet.

/// What the control server and its clients say to each other.
pub mod api;

/// The control server's client.
pub mod client;

/// The catalog: which pod owns which shop, and all SQL of it.
pub mod catalog;

/// The one runner of schema changes, for pods and for the catalog.
pub mod migrate;
