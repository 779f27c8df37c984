//! A crash of the operator between an intent and its effect, for stories about something else: a membership change in them is then
//! begun by one process and finished by another.

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::Verdict;

use crate::assertions::CLUSTER_LIMIT;
use crate::interrupts::{Intent, intent_written, start_after_kill};

/// Kills the operator after it has recorded an intent of this kind, which `begin` causes, before it gets the answer and could execute
/// it. Does not restart the operator.
pub(crate) fn kill_after_intent(
    operator: &mut Operator,
    cluster: &Cluster<'_>,
    kind: &'static str,
    begin: impl FnOnce(),
) -> Intent {
    let name = cluster.name().to_owned();
    operator.proxy().once(Verdict::HoldAfter, move |write| {
        intent_written(write, &name).is_some_and(|intent| intent.kind == kind)
    });
    begin();
    let held = operator.proxy().wait_held(CLUSTER_LIMIT);
    assert_eq!(held.answered, Some(200), "the intent is not recorded");
    operator.kill();
    operator.proxy().pass();
    intent_written(&held.write, cluster.name()).expect("only intents are held")
}

/// The same, and starts a successor, which finds the intent.
pub(crate) fn kill_after_intent_and_restart(
    story: &Story,
    operator: &mut Operator,
    cluster: &Cluster<'_>,
    kind: &'static str,
    begin: impl FnOnce(),
) {
    let intent = kill_after_intent(operator, cluster, kind, begin);
    println!("{}: killed after recording {intent:?}", story.namespace());
    start_after_kill(story, operator);
}

/// Deletes a member's pod and PVC without waiting, so that the member must be replaced.
pub(crate) fn delete_pod_and_claim(story: &Story, member: &str) {
    story.kubectl(&[
        "delete",
        &format!("pod/{member}"),
        &format!("pvc/{member}"),
        "--wait=false",
    ]);
}
