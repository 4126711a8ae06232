//! The application host of a pod: it links an application's routes to one shop at a time, and gives them tenancy,
//! fencing, idempotency, read routing, caching and an outbox, so that the application writes none of these.
//!
//! ```text
//! Host::build(config).await?     listeners bound, start-up checks; only the admin port answers
//!     .mount(routes)             an application's table of routes
//!     .job(job)                  for shops that are `serving`, in one process of the pod at a time
//!     .serve(shutdown).await     until the shutdown future ends, then drains
//! ```
//!
//! In reading order:

// The config file, and the limits with their reasons.
pub mod config;

// What can go wrong, and what a client is told of it.
pub mod error;
pub use error::Error;

// The answer of a write: stored under its idempotency key in the same transaction as its effect.
pub mod reply;
pub use reply::Reply;

// What a handler asks of a request: the shop, the key, the body, the merchant.
pub mod extract;
pub use extract::{Form, IdempotencyKey, Json, Merchant, NoBody, RequiredKey, Shop};

// For whom a transaction or a read runs: a request or a job.
mod actor;

// Idempotency: one effect and one answer for a key.
pub mod idempotency;
pub use idempotency::{Call, Fingerprint, First};

// The database: what may be sent, the fence, the guarded transaction, reads, replicas, pools.
pub mod db;
pub use db::{Consistency, Reader, Tx};

// The process's cached homes.
mod home;

// The cache in the process and in Redis.
pub mod cache;
pub use cache::Entity;

// Domain events, relayed in order.
pub mod outbox;
pub use outbox::Event;

// The state that handlers get.
pub mod app;
pub use app::App;

// The table of an application's routes.
pub mod routes;
pub use routes::{Routes, Who};

// What runs without a request: the lease, the relay, jobs, clean-ups.
mod background;

// Start-up checks.
mod startup;

// The HTTP server towards the edges.
mod server;

// The admin port.
mod admin;

// Metrics.
mod meter;

// Build, mount, serve.
pub mod host;
pub use host::Host;

// The commerce application: the reference user of this library.
pub mod shop;
