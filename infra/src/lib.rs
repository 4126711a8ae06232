//! What operators run: `podctl`, the control server with the catalog, and the local fleet.
//!
//! In reading order; each module says in its own first lines what it is for.

// The command line: what may be typed.
pub mod cli;

// What the commands do.
pub mod command;

// How `podctl` speaks.
pub mod output;

// What a mistyped name may have meant.
pub mod suggest;

// What the control server and its clients say to each other.
pub mod api;

// The control server's client.
pub mod client;

// The catalog: which pod owns which shop, and all SQL of it.
pub mod catalog;

// The one runner of schema changes, for pods and for the catalog.
pub mod migrate;

// The home folder of a local fleet: what lies where.
pub mod home_dir;

// The fleet's secrets, a file each.
pub mod secrets;

// `fleet.toml`, the wish.
pub mod fleet_file;

// Templates to files.
mod render;

// Ports of a fleet's processes on this machine.
pub mod ports;

// The MySQL server program.
pub mod mysqld;

// What a fleet consists of on one machine.
mod layout;

// Looking at a fleet.
mod observe;

// The difference between the wish and what was observed.
pub mod plan;

// The steps of a plan.
pub mod step;

// Doing a plan.
pub mod apply;

// What the supervisor shall run, and what it runs.
pub mod unit;

// Runs a fleet's processes.
pub mod supervisor;

// `podctl up`: a fleet in the foreground.
pub mod up;

// `podctl down`: ends the fleet that runs.
pub mod down;

// What runs, where, and what it serves.
pub mod status;

// What is wrong with a fleet, and what to do.
pub mod doctor;

// Work on one thing is done one after the other.
mod turns;

// The control server's way into the databases of pods.
pub mod pod_store;

// Moves a shop to another pod while it sells.
pub mod mover;

// The control server.
pub mod serve;
