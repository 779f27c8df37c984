//! Reads of a converged cluster. No step changes the cluster, so all steps share one.

use evenkeel_e2e::Story;

use crate::assertions::create_orders;
use crate::interrupts::{spec, wait_idle};
use crate::plan::assert_rejected_before_apply;
use crate::rejected_edits::assert_edits_rejected;
use crate::status::assert_members_reported;
use crate::status::secret::{assert_keys_only_in_secrets, start_with_trace};
use crate::upgrade::uids;

/// Runs a step, and prints its name for the output of a story that fails in it.
fn step(name: &str, run: impl FnOnce()) {
    println!("step: {name}");
    run();
}

#[test]
fn a_converged_cluster_reports_its_members_and_rejects_invalid_edits() {
    let story = Story::begin("read");
    let operator = start_with_trace(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    wait_idle(&operator);
    let (resource, pods) = (story.get(&["etcd/orders"]), uids(&cluster));
    step("the status names members as they are", || {
        assert_members_reported(&story, &cluster)
    });
    step("invalid edits are rejected with a reason", || {
        assert_edits_rejected(&story)
    });
    step("a plan for an invalid edit is rejected", || {
        assert_rejected_before_apply(&story)
    });
    step("private keys are in Secrets and nowhere else", || {
        assert_keys_only_in_secrets(&story, &cluster, &operator)
    });
    step("nothing has changed", || {
        let now = story.get(&["etcd/orders"]);
        assert_eq!(now["spec"], resource["spec"]);
        assert_eq!(
            now["metadata"]["generation"],
            resource["metadata"]["generation"]
        );
        assert_eq!(uids(&cluster), pods);
    });
}
