//! An operator that dies, or is overtaken, between what it noted and what it was about to do. Its successor finds the
//! intent, settles it, and all ends as if nothing had happened.

mod full;
mod sweep;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, Member, MemberPod, members};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::Verdict;
use serde_json::json;

use crate::middle::{
    Intent, comes_to_rest, ends_well, intent_in, kill_and_restart, member_pod, spec,
    until_whole_through,
};

/// The members, by the word of whoever serves. Before the seal nobody can be asked through the Service.
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

/// That what was noted has not been done: the intent is there, and etcd has not heard of it.
fn is_not_done(story: &Story, cluster: &Cluster<'_>, intent: &Intent, listed: &[Member]) {
    let voters = listed.iter().filter(|member| !member.learner).count();
    assert_eq!(
        voters, intent.voters,
        "{intent:?} is done already: {listed:?}"
    );
    if intent.kind == "Add" {
        // By their peer URLs, since who has not started yet has no name in the list. All others have their pods; the one that
        // is to be added has one already while the cluster begins, and later gets it when it was added.
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
            "{intent:?} is done already: {listed:?}"
        );
    }
}

/// Has the operator die after each intent that it notes, before it has heard that it is noted and could do it; until the
/// cluster is whole again. Says which intents there were.
fn killed_after_each_intent(
    story: &Story,
    operator: &mut Operator,
    cluster: &Cluster<'_>,
    members: usize,
    begin: impl FnOnce(),
) -> Vec<Intent> {
    let name = cluster.name().to_owned();
    operator
        .proxy()
        .rule(move |write| match intent_in(write, &name) {
            Some(_) => Verdict::StopAfter,
            None => Verdict::Pass,
        });
    let mut intents = Vec::new();
    begin();
    until_whole_through(operator, cluster, members, |operator, stopped| {
        let intent = intent_in(&stopped.write, cluster.name()).unwrap();
        assert_eq!(stopped.answered, Some(200), "{intent:?} is noted");
        let change = format!("{}(Serial({}))", intent.kind, intent.serial);
        assert!(
            operator.log_has(&format!("change: {change}")),
            "its log has no word of {change}"
        );
        let mut before = None;
        story.eventually("somebody serves", || {
            before = membership(cluster);
            before.is_some()
        });
        is_not_done(story, cluster, &intent, &before.unwrap());
        kill_and_restart(story, operator, stopped);
        println!("{}: killed after noting {intent:?}", story.namespace());
        intents.push(intent);
    });
    operator.proxy().pass();
    assert!(
        !operator.log_has("intent recorded"),
        "it never lived to hear that an intent was noted"
    );
    intents
}

fn kinds(intents: &[Intent]) -> Vec<&str> {
    intents.iter().map(|intent| intent.kind.as_str()).collect()
}

/// Bootstraps three with a death after each intent; then takes one's data away, with a death after each intent.
fn of_storage(name: &str, storage: &str, take: impl Fn(&Story, &str)) {
    let story = Story::begin(name);
    let mut operator = Operator::start(&story);
    let cluster = Cluster::named(&story, "a");
    let bootstrap = killed_after_each_intent(&story, &mut operator, &cluster, 3, || {
        cluster.set(&format!("version: 3.6.16\nmembers: 3\nstorage: {storage}"));
    });
    // When all those lives take longer than the operator is patient, one gets its vote before the next one is added.
    let mut bootstrap = kinds(&bootstrap);
    bootstrap.sort_unstable();
    assert_eq!(bootstrap, ["Add", "Add", "Promote", "Promote"]);
    let formed = ends_well(&story, &cluster, 3);

    let workload = cluster.workload();
    let taken = cluster.pods().remove(1);
    let replacement = killed_after_each_intent(&story, &mut operator, &cluster, 3, || {
        take(&story, &taken.name);
        // Else it would be whole before anybody has noticed.
        story.eventually("its pod is gone", || {
            cluster.pods().iter().all(|pod| pod.uid != taken.uid)
        });
    });
    assert_eq!(kinds(&replacement), ["Remove", "Add", "Promote"]);
    assert_eq!(ends_well(&story, &cluster, 3), formed);
    assert!(
        cluster.pods().iter().all(|pod| pod.name != taken.name),
        "a name is never used again"
    );
    workload.finish();
    comes_to_rest(&operator);
    cluster.holds_the_same_everywhere();
}

#[test]
fn three_on_volumes_are_bootstrapped_and_one_replaced_though_the_operator_dies_after_each_intent() {
    of_storage("killed-volumes", "{size: 1Gi}", |story, name| {
        story.kubectl(&[
            "delete",
            &format!("pod/{name}"),
            &format!("pvc/{name}"),
            "--wait=false",
        ]);
    });
}
