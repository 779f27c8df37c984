//! An operator that dies, or loses its lease, between an intent and its effect. Its successor finds the intent, settles it, and the
//! change ends as if nothing had happened.

mod full;
mod sweep;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, Member, MemberPod, members};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::Verdict;
use serde_json::json;

use crate::interrupts::{
    Intent, intent_written, kill_and_restart, member_pod, spec, wait_converged,
    wait_healthy_through, wait_idle,
};

/// Returns the member list of any Ready member. Before the bootstrap is finished the Service routes to no member.
fn membership(cluster: &Cluster<'_>) -> Option<Vec<Member>> {
    let ask = |ip: &str| {
        cluster
            .etcdctl_at(ip, &["member", "list", "--write-out=json"])
            .ok()
    };
    let pods = cluster.pods();
    pods.iter()
        .filter(|pod| pod.ready)
        .find_map(|pod| ask(&pod.ip))
        .map(|printed| members(&printed))
}

/// Asserts that an intent is recorded, but not executed.
fn assert_not_executed(story: &Story, cluster: &Cluster<'_>, intent: &Intent, listed: &[Member]) {
    let voters = listed.iter().filter(|member| !member.learner).count();
    assert_eq!(
        voters, intent.voters,
        "{intent:?} is executed already: {listed:?}"
    );
    if intent.kind == "Add" {
        // By peer URLs, because a member that has not started has no name in the list. All others have pods; the one to be added has a pod
        // already during bootstrap, and later gets it after it was added.
        let added = member_pod(story, cluster.name(), intent.serial);
        let added = added.as_ref().map(|pod| &pod["metadata"]["name"]);
        let mut others = cluster.pods();
        others.retain(|pod| added.is_none_or(|added| *added != pod.name));
        let is_of = |member: &Member, pod: &MemberPod| {
            member
                .peer_urls
                .iter()
                .any(|url| url.contains(&format!("//{}.", pod.name)))
        };
        assert!(
            listed
                .iter()
                .all(|member| others.iter().any(|pod| is_of(member, pod))),
            "{intent:?} is executed already: {listed:?}"
        );
    }
}

/// Kills the operator after each recorded intent, before it gets the answer and could execute the intent, until the cluster is
/// healthy again. Returns the intents.
fn kill_after_each_intent(
    story: &Story,
    operator: &mut Operator,
    cluster: &Cluster<'_>,
    members: usize,
    begin: impl FnOnce(),
) -> Vec<Intent> {
    let name = cluster.name().to_owned();
    operator
        .proxy()
        .rule(move |write| match intent_written(write, &name) {
            Some(_) => Verdict::HoldAfter,
            None => Verdict::Pass,
        });
    let mut intents = Vec::new();
    begin();
    wait_healthy_through(operator, cluster, members, |operator, held| {
        let intent = intent_written(&held.write, cluster.name()).unwrap();
        assert_eq!(held.answered, Some(200), "{intent:?} is not recorded");
        let change = format!("{}(Serial({}))", intent.kind, intent.serial);
        assert!(
            operator.log_has(&format!("change: {change}")),
            "the log does not contain {change}"
        );
        let mut before = None;
        story.eventually("a member answers", || {
            before = membership(cluster);
            before.is_some()
        });
        assert_not_executed(story, cluster, &intent, &before.unwrap());
        kill_and_restart(story, operator, held);
        println!("{}: killed after recording {intent:?}", story.namespace());
        intents.push(intent);
    });
    operator.proxy().pass();
    assert!(
        !operator.log_has("intent recorded"),
        "the operator logged a recorded intent before it was killed"
    );
    intents
}

fn kinds(intents: &[Intent]) -> Vec<&str> {
    intents.iter().map(|intent| intent.kind.as_str()).collect()
}

/// Bootstraps three members, then loses the data of one, and kills the operator after each intent.
fn crash_after_each_intent(name: &str, storage: &str, lose_data: impl Fn(&Story, &str)) {
    let story = Story::begin(name);
    let mut operator = Operator::start(&story);
    let cluster = Cluster::named(&story, "a");
    let bootstrap = kill_after_each_intent(&story, &mut operator, &cluster, 3, || {
        cluster.set(&format!("version: 3.6.16\nmembers: 3\nstorage: {storage}"));
    });
    // If all those starts take longer than the operator's limit, a learner is promoted before the next one is added.
    let mut bootstrap = kinds(&bootstrap);
    bootstrap.sort_unstable();
    assert_eq!(bootstrap, ["Add", "Add", "Promote", "Promote"]);
    let cluster_id = wait_converged(&story, &cluster, 3);

    let workload = cluster.workload();
    let lost = cluster.pods().remove(1);
    let replacement = kill_after_each_intent(&story, &mut operator, &cluster, 3, || {
        lose_data(&story, &lost.name);
        // Otherwise the cluster is healthy before the operator has noticed.
        story.eventually("the pod is gone", || {
            cluster.pods().iter().all(|pod| pod.uid != lost.uid)
        });
    });
    assert_eq!(kinds(&replacement), ["Remove", "Add", "Promote"]);
    assert_eq!(wait_converged(&story, &cluster, 3), cluster_id);
    assert!(
        cluster.pods().iter().all(|pod| pod.name != lost.name),
        "a name was used again"
    );
    workload.finish();
    wait_idle(&operator);
    cluster.wait_same_data();
}

#[test]
fn three_members_on_volumes_form_and_recover_despite_operator_crashes() {
    crash_after_each_intent("killed-volumes", "{size: 1Gi}", |story, name| {
        story.kubectl(&[
            "delete",
            &format!("pod/{name}"),
            &format!("pvc/{name}"),
            "--wait=false",
        ]);
    });
}
