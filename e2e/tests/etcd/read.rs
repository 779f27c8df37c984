//! A cluster at rest, and all that can be read of it. No step changes the cluster, so they share one.

use evenkeel_e2e::Story;

use crate::look::formed;
use crate::middle::{comes_to_rest, spec};
use crate::plan::what_would_be_refused_is_not_planned;
use crate::refused::edits_are_refused;
use crate::truth::members_are_named_as_they_are;
use crate::truth::secret::{are_told_nowhere, loud};
use crate::upgrade::uids;

/// Runs a step, and prints its name for the output of a story that fails in it.
fn step(name: &str, run: impl FnOnce()) {
    println!("step: {name}");
    run();
}

#[test]
fn a_cluster_at_rest_says_who_is_who_refuses_bad_edits_and_plans_and_shows_no_private_key() {
    let story = Story::begin("read");
    let operator = loud(&story);
    let cluster = formed(&story, &spec(3), 3);
    comes_to_rest(&operator);
    let (resource, pods) = (story.get(&["etcd/orders"]), uids(&cluster));
    step("the status names members as they are", || {
        members_are_named_as_they_are(&story, &cluster)
    });
    step("bad edits are refused, with the reason", || {
        edits_are_refused(&story)
    });
    step("a plan for a bad edit is refused, too", || {
        what_would_be_refused_is_not_planned(&story)
    });
    step("private keys are in Secrets and nowhere else", || {
        are_told_nowhere(&story, &cluster, &operator)
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
