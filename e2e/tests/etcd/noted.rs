//! The operator dies once, between an intent and its effect: whatever else a story is about, a membership that changes in
//! it changes by two hands.

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::Verdict;

use crate::look::LONG;
use crate::middle::{Intent, intent_in, lives_again};

/// Has the operator die when it has noted an intent of this kind, which `begin` leads to, before it has heard that it is
/// noted and could do it. It stays dead.
pub(crate) fn dies_noting(
    operator: &mut Operator,
    cluster: &Cluster<'_>,
    kind: &'static str,
    begin: impl FnOnce(),
) -> Intent {
    let name = cluster.name().to_owned();
    operator.proxy().once(Verdict::StopAfter, move |write| {
        intent_in(write, &name).is_some_and(|intent| intent.kind == kind)
    });
    begin();
    let stopped = operator.proxy().stopped(LONG);
    assert_eq!(stopped.answered, Some(200), "it is noted");
    operator.kill();
    operator.proxy().pass();
    intent_in(&stopped.write, cluster.name()).expect("only those are stopped")
}

/// Both at once: a successor finds the intent.
pub(crate) fn dies_once_noting(
    story: &Story,
    operator: &mut Operator,
    cluster: &Cluster<'_>,
    kind: &'static str,
    begin: impl FnOnce(),
) {
    let intent = dies_noting(operator, cluster, kind, begin);
    println!("{}: died after noting {intent:?}", story.namespace());
    lives_again(story, operator);
}

/// Deletes a member's pod together with its claim, so that it must be replaced. Both may be gone later.
pub(crate) fn take_pod_and_claim(story: &Story, member: &str) {
    story.kubectl(&[
        "delete",
        &format!("pod/{member}"),
        &format!("pvc/{member}"),
        "--wait=false",
    ]);
}
