//! The edge: maps each request to its shop, the shop to its pod, and forwards it there.
//!
//! In reading order. What must never come in here: SQL, anything of a pod's application, a blocking DNS look-up.
//! Pingora is named only in `proxy`, `reply`, `connection`, `listener`, `upstream` and `run`; what is decided is decided
//! by pure functions in `identify`, `retry`, `headers` and `limits`.

mod config;
pub use config::Config;

mod run;
pub use run::App;

/// Accepting connections.
mod listener;
/// A client's connection.
mod connection;
/// A request's way through the edge, as Pingora's phases.
mod proxy;
/// What is known of a request on its way.
mod context;
/// Which shop a request is for.
mod identify;
/// The cookie that remembers a shop on the platform domain.
mod cookie;
/// What is taken from and added to a request and an answer.
mod headers;
/// What follows an answer "not here".
mod retry;
/// Limits on what is in flight.
mod limits;
/// The edge's own answers.
mod reply;
/// The pods and their processes.
mod upstream;
/// The route table in use.
mod routes;
/// Following the catalog.
mod catalog;
/// Keeping the route table on disk.
mod disk;
/// The fleet's keys.
mod keys;
/// One line a request.
mod access_log;
/// What is counted.
mod metrics;
/// The admin port.
mod admin;
