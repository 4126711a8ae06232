//! Without one of its rules the protocol breaks: each search must find how.

use crate::breaks;
use crate::properties as p;
use crate::safeguards::Bounds;

/// One write, tried once, up to the observation.
const SHORT: Bounds = Bounds {
    tries: 1,
    finish: false,
    ..Bounds::QUIET
};
/// Nobody buys: for what breaks by itself.
const NO_WRITES: Bounds = Bounds { writes: 0, ..SHORT };
const ABORTED: Bounds = Bounds { aborts: 1, ..SHORT };

#[test]
fn inv3_without_the_share_lock_a_write_is_lost() {
    breaks(|g| g.share_lock = false, SHORT, p::NOT_LOST);
}

#[test]
fn inv1_without_the_share_lock_a_write_goes_on_that_its_home_forbids() {
    breaks(|g| g.share_lock = false, SHORT, p::ONE_WRITER);
}

#[test]
fn inv3_without_the_owner_on_rows_a_write_is_lost() {
    breaks(|g| g.row_owner = false, SHORT, p::NOT_LOST);
}

#[test]
fn inv3_without_a_takeover_at_the_pods_a_write_is_lost() {
    breaks(|g| g.take_over = false, SHORT, p::NOT_LOST);
}

#[test]
fn inv3_without_aborting_first_a_write_is_lost() {
    breaks(|g| g.aborting_first = false, ABORTED, p::NOT_LOST);
}

#[test]
fn inv11_without_handing_a_strong_read_misses_a_write() {
    breaks(|g| g.handing = false, SHORT, p::STRONG);
}

#[test]
fn without_ready_first_the_catalog_names_a_pod_that_cannot_answer() {
    breaks(|g| g.ready_first = false, NO_WRITES, p::OWNER);
}

#[test]
fn inv3_serving_instead_of_ready_loses_what_a_job_wrote() {
    let within = Bounds {
        job: true,
        writes: 1,
        ..ABORTED
    };
    breaks(|g| g.ready_is_quiet = false, within, p::NOT_LOST);
}

#[test]
fn a_frozen_shop_that_becomes_ready_takes_writes() {
    let within = Bounds { orders: 1, ..SHORT };
    breaks(|g| g.ready_as_placed = false, within, p::FROZEN);
}

#[test]
fn inv3_without_the_tail_to_the_fence_a_write_is_lost() {
    breaks(|g| g.tail_to_fence = false, SHORT, p::NOT_LOST);
}

#[test]
fn inv3_a_key_read_before_its_transaction_is_executed_is_lost() {
    let within = Bounds {
        slow_commits: true,
        ..SHORT
    };
    breaks(|g| g.wait_executed = false, within, p::NOT_LOST);
}

#[test]
fn inv2_without_reserved_epochs_one_has_two_owners() {
    let within = Bounds {
        aborts: 1,
        after_abort: Some(2),
        owners: 4,
        ..NO_WRITES
    };
    breaks(|g| g.reserved_epochs = false, within, p::EPOCHS);
}

#[test]
fn inv1_without_reserved_epochs_two_pods_may_write() {
    let within = Bounds {
        aborts: 1,
        after_abort: Some(2),
        owners: 4,
        ..NO_WRITES
    };
    breaks(|g| g.reserved_epochs = false, within, p::ONE_WRITER);
}

#[test]
fn a_fence_given_up_under_the_old_number_falls_later() {
    let within = Bounds {
        unknown: 1,
        ..NO_WRITES
    };
    breaks(|_| {}, within, p::OPEN);
}

#[test]
fn a_fence_lifted_after_the_catalog_step_stays() {
    let within = Bounds {
        fails: 1,
        ..NO_WRITES
    };
    breaks(|g| g.lift_first = false, within, p::OPEN);
}

#[test]
fn a_failed_comparison_that_is_not_noted_before_the_lift_is_forgotten() {
    let within = Bounds {
        fails: 1,
        owners: 3,
        ..NO_WRITES
    };
    breaks(|g| g.must_fail = false, within, p::ARRIVES);
}

#[test]
fn inv3_with_marks_of_an_earlier_try_a_write_is_lost() {
    let within = Bounds {
        fails: 1,
        owners: 3,
        ..SHORT
    };
    breaks(|g| g.cleaned = false, within, p::NOT_LOST);
}

#[test]
fn a_cleared_home_lets_a_late_mover_in_and_no_other_after_it() {
    let within = Bounds {
        aborts: 1,
        ..NO_WRITES
    };
    breaks(|g| g.owner_kept = false, within, p::WAY_ON);
}

#[test]
fn rows_deleted_without_a_takeover_come_back() {
    let within = Bounds {
        owners: 3,
        ..ABORTED
    };
    breaks(|g| g.leftover_taken = false, within, p::CLEAN);
}

#[test]
fn orders_that_do_not_wait_leave_a_shop_closed() {
    let within = Bounds {
        orders: 1,
        ..NO_WRITES
    };
    breaks(|g| g.orders_wait = false, within, p::OPEN);
}

#[test]
fn inv11_a_move_back_that_does_not_wait_for_caches_takes_a_session_back() {
    let within = Bounds {
        reader: true,
        back: true,
        ..SHORT
    };
    breaks(|g| g.caches_expire = false, within, p::SESSION);
}

#[test]
fn inv11_a_replica_without_the_ready_set_takes_a_session_back() {
    let within = Bounds {
        reader: true,
        ..SHORT
    };
    breaks(|g| g.ready_gtid = false, within, p::SESSION);
}

#[test]
fn inv11_a_home_that_is_ready_again_at_once_takes_a_session_back() {
    let within = Bounds {
        reader: true,
        ..SHORT
    };
    breaks(|g| g.caches_expire = false, within, p::SESSION);
}
