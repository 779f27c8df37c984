//! A node that cannot run its member: the other members do not wait for it, whichever it is, and it joins later by itself.
//!
//! Stories run at the same time, so nodes are not cordoned: the cluster selects nodes by a label of the story, or uses an image of
//! the story.

use std::time::Instant;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, members};
use evenkeel_e2e::operator::Operator;
use evenkeel_lab::command::Cmd;
use evenkeel_lab::machine::Machine;
use evenkeel_lab::node::CONTAINERD_SOCKET;
use serde_json::Value;

use crate::assertions::{CLUSTER_LIMIT, wait_until_ok};
use crate::interrupts::{
    HeldWrites, creates_pod_of, identity, member_pod, pod_name, spec, wait_converged, wait_idle,
};

/// A node label of the story, removed on drop.
struct Label<'a> {
    story: &'a Story,
    key: String,
}

impl<'a> Label<'a> {
    fn of(story: &'a Story) -> Self {
        Self {
            story,
            key: format!("story.evenkeel.dev/{}", story.namespace()),
        }
    }

    /// Returns the label as a node selector of the spec.
    fn selector(&self) -> String {
        format!("nodeSelector: {{{}: here}}", self.key)
    }

    fn put(&self, node: &str) {
        self.story
            .kubectl(&["label", "node", node, &format!("{}=here", self.key)]);
    }

    fn take(&self, node: &str) {
        self.story
            .kubectl(&["label", "node", node, &format!("{}-", self.key)]);
    }
}

impl Drop for Label<'_> {
    fn drop(&mut self) {
        // Best effort: a label that is left over has no effect.
        let _ = self
            .story
            .try_kubectl(&["label", "nodes", "--all", &format!("{}-", self.key)]);
    }
}

fn nodes(story: &Story) -> Vec<String> {
    story
        .lab()
        .nodes()
        .iter()
        .map(|node| node.name.clone())
        .collect()
}

/// Returns the status of a member.
fn member_status(cluster: &Cluster<'_>, member: &str) -> Value {
    let status = cluster.status();
    let mut all = status["memberList"].as_array().into_iter().flatten();
    all.find(|reported| reported["name"] == member)
        .cloned()
        .unwrap_or_default()
}

/// Returns the names of the voters that etcd reports; none while it does not answer.
fn voters(cluster: &Cluster<'_>) -> Vec<String> {
    let listed = cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
    let listed = listed.map(|printed| members(&printed)).unwrap_or_default();
    listed
        .into_iter()
        .filter(|member| !member.learner)
        .map(|member| member.name)
        .collect()
}

#[test]
fn an_unschedulable_third_member_does_not_block_the_others_and_joins_later() {
    let story = Story::begin("unplaced");
    let operator = Operator::start(&story);
    let (label, nodes) = (Label::of(&story), nodes(&story));
    let [first, second, third] = nodes.as_slice() else {
        panic!("the story needs three nodes, not {nodes:?}")
    };
    label.put(first);
    label.put(second);
    let scheduling = format!(
        "scheduling: {{{}, spread: {{require: true}}}}",
        label.selector()
    );
    let began = Instant::now();
    let cluster = Cluster::apply(&story, "a", &format!("{}\n{scheduling}", spec(3)));
    cluster.wait_ready(CLUSTER_LIMIT);
    println!(
        "{}: Ready after {:.0} s without the third member",
        story.namespace(),
        began.elapsed().as_secs_f64()
    );

    assert_eq!(identity(&story, "a")["bootstrapped"], true);
    // The cluster is Ready with one voter, too, if the second member took longer than the operator's limit; the third member may then
    // be another one.
    let unscheduled = wait_two_vote(&story, &cluster);
    // The status names the member and the message of the scheduler.
    wait_until_ok("the status reports the unscheduled member", || {
        let (degraded, reported) = (
            cluster.condition("Degraded"),
            member_status(&cluster, &unscheduled),
        );
        let output = reported["message"]
            .as_str()
            .is_some_and(|why| why.contains("nodes are available"));
        let conditions = cluster.status()["conditions"].to_string();
        let who = conditions.contains(&format!("Member {unscheduled} cannot start"));
        let is_reported =
            degraded == ("True".to_owned(), "Unschedulable".to_owned()) && output && who;
        if is_reported {
            Ok(())
        } else {
            Err(format!("{reported}, {conditions}"))
        }
    });
    wait_idle(&operator);

    let workload = cluster.workload();
    label.put(third);
    wait_converged(&story, &cluster, 3);
    workload.finish();
    assert_eq!(cluster.pod(&unscheduled).node, *third);
    assert_eq!(identity(&story, "a")["epoch"], 1);
    wait_idle(&operator);
    cluster.wait_same_data();
}

/// Waits until two of three members vote and the third is on no node: with `require` it waits rather than shares a node. Returns
/// its name.
fn wait_two_vote(story: &Story, cluster: &Cluster<'_>) -> String {
    let mut unscheduled = None;
    story.within(
        CLUSTER_LIMIT,
        "two members vote, and the third is on no node",
        || {
            let (mut pods, voting) = (cluster.pods(), voters(cluster));
            pods.retain(|pod| pod.node.is_empty());
            unscheduled = pods
                .first()
                .map(|pod| pod.name.clone())
                .filter(|name| !voting.contains(name));
            pods.len() == 1 && unscheduled.is_some() && voting.len() == 2
        },
    );
    unscheduled.expect("the wait found the pod")
}

/// Tags etcd's image with a name of the story on one node.
fn tag_image(story: &Story, node: &str) {
    let socket = Machine::of(story.lab(), node)
        .and_then(|it| it.path_inside(CONTAINERD_SOCKET))
        .unwrap();
    let ctr = Cmd::new(story.lab().programs().join("ctr"))
        .arg("--address")
        .arg(socket);
    let (from, to) = (
        "gcr.io/etcd-development/etcd:v3.6.16",
        format!("{}:v3.6.16", repository(story)),
    );
    ctr.args(["--namespace", "k8s.io", "images", "tag", from, &to])
        .run()
        .unwrap();
}

fn repository(story: &Story) -> String {
    format!("story.invalid/{}", story.namespace())
}

#[test]
fn a_second_member_without_an_image_does_not_block_the_third() {
    let story = Story::begin("imageless");
    let operator = Operator::start(&story);
    let (label, nodes) = (Label::of(&story), nodes(&story));
    let [first, second, third] = nodes.as_slice() else {
        panic!("the story needs three nodes, not {nodes:?}")
    };
    tag_image(&story, first);
    tag_image(&story, third);
    // Each pod is created when only one node matches.
    let held_writes = HeldWrites::before(operator.proxy(), |write| {
        creates_pod_of(write, "a")
            .filter(|serial| *serial > 0)
            .map(|serial| serial.to_string())
    });
    let goes_to = |serial: u64, node: &str| {
        story.eventually(&format!("member {serial} is on {node}"), || {
            member_pod(&story, "a", serial).is_some_and(|pod| pod["spec"]["nodeName"] == node)
        });
    };
    let spec = format!(
        "{}\nimage: {{repository: {}}}\nscheduling: {{{}}}",
        spec(3),
        repository(&story),
        label.selector()
    );
    label.put(first);
    let cluster = Cluster::apply(&story, "a", &spec);
    let mut last = first;
    for (serial, node) in [(1, second), (2, third)] {
        let (stopped_at, held) = held_writes.next();
        assert_eq!(stopped_at, serial.to_string());
        goes_to(serial - 1, last);
        label.take(last);
        label.put(node);
        held_writes.release(&stopped_at);
        held.resume();
        last = node;
    }
    goes_to(2, third);
    operator.proxy().pass();
    cluster.wait_ready(CLUSTER_LIMIT);

    // If the third member takes longer than the operator's limit, it joins after bootstrap, maybe as another member.
    let unscheduled = pod_name(&story, "a", 1);
    story.within(
        CLUSTER_LIMIT,
        "the member on the third node votes, and the one on the second does not",
        || {
            let (mut pods, voting) = (cluster.pods(), voters(&cluster));
            pods.retain(|pod| pod.node == *third);
            pods.iter().any(|pod| voting.contains(&pod.name)) && !voting.contains(&unscheduled)
        },
    );
    story.eventually("the status reports the failed pull", || {
        member_status(&cluster, &unscheduled)["message"]
            .as_str()
            .is_some_and(|why| why.contains("cannot be pulled"))
    });

    let workload = cluster.workload();
    // The kubelet retries with growing delays; deleting the pod speeds it up, as a user would do. First the pod, then the image: a
    // member that has started, but whose volume is not recorded yet, would be replaced when its pod is deleted.
    label.take(third);
    label.put(second);
    story.kubectl(&["delete", "pod", &unscheduled]);
    tag_image(&story, second);
    wait_converged(&story, &cluster, 3);
    workload.finish();
    let listed = cluster.member_list();
    assert!(
        listed.iter().any(|member| member.name == unscheduled),
        "the member was replaced: {listed:?}"
    );
    wait_idle(&operator);
    cluster.wait_same_data();
}
