//! Moves that meet a fault: a transaction that is held open across the fence, a pod's primary that changes, is killed or
//! stays away, a target that is gone, a shop that is frozen under way.
//!
//! Some shops move side by side on one fleet, each held in another state of its move when the fault comes, and trade
//! meanwhile; their histories are checked.

use tests::suite::Test;
use tests::tests;

// A shop for each state of a move, held there.
mod lanes;
// Transactions that are open when a fence closes.
mod held;
// The primaries of source and target.
mod primaries;
// Another server of the pod is made its primary.
mod promoted;
// A target that is gone for good.
mod gone;
// Shops that are frozen or taken offline under way.
mod frozen;

use frozen::a_shop_frozen_under_way_sells_nothing_and_arrives_frozen;
use gone::inv3_a_target_that_is_gone_costs_only_its_move;
use held::{
    inv1_inv3_a_fence_without_acknowledgements_is_lifted_and_tried_again,
    inv1_inv3_a_transaction_open_across_the_fence_is_before_it_or_undone,
};
use primaries::{
    inv3_a_primary_away_for_long_in_each_state_of_a_move,
    inv3_a_primary_killed_or_named_anew_in_each_state_of_a_move,
};
use promoted::inv3_a_primary_replaced_in_each_state_of_a_move;

pub(crate) fn list() -> Vec<Test> {
    tests![
        alone: inv1_inv3_a_transaction_open_across_the_fence_is_before_it_or_undone,
            inv3_a_primary_killed_or_named_anew_in_each_state_of_a_move,
            inv3_a_target_that_is_gone_costs_only_its_move,
            a_shop_frozen_under_way_sells_nothing_and_arrives_frozen;
        long: inv1_inv3_a_fence_without_acknowledgements_is_lifted_and_tried_again,
            inv3_a_primary_away_for_long_in_each_state_of_a_move,
            inv3_a_primary_replaced_in_each_state_of_a_move;
    ]
}
