//! The application host of a pod: it links an application's routes to one shop at a time, and gives them tenancy,
//! fencing, idempotency, read routing, caching and an outbox, so that the application writes none of these.
//!
//! ```text
//! Host::build(config).await?     start-up checks, listeners bound, nothing running
//!     .mount(routes)             an application's table of routes
//!     .job(job)                  for shops that are `serving`, in one process of the pod at a time
//!     .serve(shutdown).await     until the shutdown future ends, then drains
//! ```
//!
//! In reading order:

/// The config file, and the limits with their reasons.
pub mod config;
/// What can go wrong, and what a client is told of it.
pub mod error;
pub use error::Error;
/// The answer of a write: stored under its idempotency key in the same transaction as its effect.
pub mod reply;
pub use reply::Reply;
/// What a handler asks of a request: the shop, the key, the body, the merchant.
pub mod extract;
pub use extract::{Form, IdempotencyKey, Json, Merchant, NoBody, RequiredKey, Shop};
/// For whom a transaction or a read runs.
mod actor;
/// Idempotency: one effect and one answer for a key.
pub mod idempotency;
pub use idempotency::{Call, Fingerprint, First};
/// The database: pools, the guarded transaction, reads.
pub mod db;
pub use db::{Consistency, Reader, Tx};
/// The cache in the process and in Redis.
pub mod cache;
/// The process's cached homes.
mod home;
pub use cache::Entity;
/// Domain events, relayed in order.
pub mod outbox;
pub use outbox::Event;
/// The state that handlers get.
pub mod app;
pub use app::App;
/// The table of an application's routes.
pub mod routes;
pub use routes::{Routes, Who};
/// The admin port.
mod admin;
/// What runs without a request.
mod background;
/// Build, mount, serve.
pub mod host;
/// Metrics.
mod meter;
/// The HTTP server towards the edges.
mod server;
/// Start-up checks.
mod startup;
pub use host::Host;
/// The commerce application: the reference user of this library.
pub mod shop;
