//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_leader_frozen_before_its_intent_landed_wakes_up_too_late_for_it() {
    leader_freezes("frozen-before", Verdict::StopBefore);
}
