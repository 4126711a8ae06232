//! The end-to-end tests: real processes, in the order of the README.

use std::process::ExitCode;

use anyhow::Result;

mod bad_input;
mod cache;
mod catalog_down;
mod checkout;
mod commit_unknown;
mod config_faults;
mod control;
mod doctor;
mod fleet_life;
mod frozen_process;
mod guard;
mod headers;
mod home_table;
mod isolation;
mod jobs;
mod move_again;
mod move_back;
mod move_binlog;
mod move_cleared;
mod move_copy;
mod move_failpoints;
mod move_faults;
mod move_lease;
mod move_limits;
mod move_pace;
mod move_refusals;
mod move_resumed;
mod move_secrets;
mod move_source_gone;
mod move_strays;
mod move_under_load;
mod move_verify;
mod move_zombie;
mod operator_input;
mod orders;
mod outbox;
mod parking;
mod primary_lost;
mod replicas_lost;
mod restart_under_load;
mod routing;
mod secrets;
mod server_restart_orders;
mod sqlx_faults;
mod storefront;
mod wires;

fn main() -> Result<ExitCode> {
    let tests = [
        routing::list(),
        headers::list(),
        bad_input::list(),
        operator_input::list(),
        config_faults::list(),
        control::list(),
        checkout::list(),
        orders::list(),
        storefront::list(),
        isolation::list(),
        secrets::list(),
        jobs::list(),
        cache::list(),
        outbox::list(),
        home_table::list(),
        guard::list(),
        commit_unknown::list(),
        frozen_process::list(),
        doctor::list(),
        parking::list(),
        primary_lost::list(),
        replicas_lost::list(),
        catalog_down::list(),
        restart_under_load::list(),
        move_binlog::list(),
        move_copy::list(),
        move_pace::list(),
        move_limits::list(),
        move_refusals::list(),
        move_resumed::list(),
        move_failpoints::list(),
        move_zombie::list(),
        move_lease::list(),
        move_faults::list(),
        move_source_gone::list(),
        move_strays::list(),
        move_cleared::list(),
        move_back::list(),
        move_secrets::list(),
        move_again::list(),
        move_verify::list(),
        move_under_load::list(),
        server_restart_orders::list(),
        fleet_life::list(),
        sqlx_faults::list(),
        wires::list(),
    ];
    tests::suite::run(tests.concat())
}
