//! The edge: maps each request to its shop, the shop to its pod, and forwards it there.
//!
//! In reading order. What must never come in here: SQL, anything of a pod's application, a blocking DNS look-up.
//! Pingora is used only in `proxy`, `reply`, `connection`, `listener`, `upstream` and `run`; what is decided is decided
//! by pure functions and structures in `identify`, `retry`, `headers`, `limits` and `park`.

mod config;
pub use config::Config;

mod run;
pub use run::App;

// One line a request.
mod access_log;
// The admin port.
mod admin;
// Following the catalog.
mod catalog;
// A client's connection.
mod connection;
// What is known of a request on its way.
mod context;
// The cookie that remembers a shop on the platform domain.
mod cookie;
// Keeping the route table on disk.
mod disk;
// What is taken from and added to a request and an answer.
mod headers;
// Which shop a request is for.
mod identify;
// The fleet's keys.
mod keys;
// Limits on what is in flight.
mod limits;
// Accepting connections.
mod listener;
// What is counted.
mod metrics;
// Requests that wait for their shop's pod.
mod park;
// A request's way through the edge, as Pingora's phases.
mod proxy;
// The edge's own answers.
mod reply;
// What follows an answer "not here".
mod retry;
// The route table in use.
mod routes;
// Which peers may say for whom they speak.
mod trusted;
// The pods and their processes.
mod upstream;
