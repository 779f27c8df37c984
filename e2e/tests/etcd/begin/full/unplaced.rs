//! A node that cannot take its member: the others do not wait for it, whichever it is, and it follows by itself.
//!
//! Stories run side by side, so nodes are not cordoned: a story's cluster goes to nodes with the story's own label only, or
//! wants an image of the story's own.

use std::time::Instant;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, members};
use evenkeel_e2e::operator::Operator;
use evenkeel_lab::command::Cmd;
use evenkeel_lab::machine::Machine;
use evenkeel_lab::node::CONTAINERD_SOCKET;
use serde_json::Value;

use crate::look::{LONG, until_right};
use crate::middle::{
    Stops, comes_to_rest, creates_pod_of, ends_well, identity, member_pod, pod_of, spec,
};

/// A label of a story's own, on nodes. It goes with the story.
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

    /// As a spec's node selector.
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
        // Best effort: a label that nobody selects by harms nobody.
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

/// What the status says of a member.
fn told_of(cluster: &Cluster<'_>, member: &str) -> Value {
    let status = cluster.status();
    let mut all = status["memberList"].as_array().into_iter().flatten();
    all.find(|told| told["name"] == member)
        .cloned()
        .unwrap_or_default()
}

/// The names of the voters, as etcd tells; none while it does not answer.
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
fn the_third_that_no_node_takes_does_not_hold_the_others_up_and_joins_when_one_does() {
    let story = Story::begin("unplaced");
    let operator = Operator::start(&story);
    let (label, nodes) = (Label::of(&story), nodes(&story));
    let [first, second, third] = nodes.as_slice() else {
        panic!("three nodes, and not {nodes:?}")
    };
    label.put(first);
    label.put(second);
    let scheduling = format!(
        "scheduling: {{{}, spread: {{require: true}}}}",
        label.selector()
    );
    let began = Instant::now();
    let cluster = Cluster::apply(&story, "a", &format!("{}\n{scheduling}", spec(3)));
    cluster.wait_ready(LONG);
    println!(
        "{}: Ready after {:.0} s without the third",
        story.namespace(),
        began.elapsed().as_secs_f64()
    );

    assert_eq!(identity(&story, "a")["bootstrapped"], true);
    // It is Ready with one voter, too, when the second took longer than the operator is patient; and then there may be another
    // third.
    let unlucky = until_all_but_one_vote(&story, &cluster);
    // It is said who is held up and why, in Kubernetes' own words.
    until_right("its trouble is told", || {
        let (degraded, told) = (cluster.condition("Degraded"), told_of(&cluster, &unlucky));
        let said = told["message"]
            .as_str()
            .is_some_and(|why| why.contains("nodes are available"));
        let conditions = cluster.status()["conditions"].to_string();
        let who = conditions.contains(&format!("no node takes {unlucky}"));
        let right = degraded == ("True".to_owned(), "Unschedulable".to_owned()) && said && who;
        if right {
            Ok(())
        } else {
            Err(format!("{told}, {conditions}"))
        }
    });
    comes_to_rest(&operator);

    let workload = cluster.workload();
    label.put(third);
    ends_well(&story, &cluster, 3);
    workload.finish();
    assert_eq!(cluster.pod(&unlucky).node, *third);
    assert_eq!(identity(&story, "a")["epoch"], 1);
    comes_to_rest(&operator);
    cluster.holds_the_same_everywhere();
}

/// Waits until two members of three vote, and the third has no pod on any node: with `require` it rather waits than share.
/// Says which it is.
fn until_all_but_one_vote(story: &Story, cluster: &Cluster<'_>) -> String {
    let mut unlucky = None;
    story.within(LONG, "two vote, and the third is on no node", || {
        let (mut pods, voting) = (cluster.pods(), voters(cluster));
        pods.retain(|pod| pod.node.is_empty());
        unlucky = pods
            .first()
            .map(|pod| pod.name.clone())
            .filter(|name| !voting.contains(name));
        pods.len() == 1 && unlucky.is_some() && voting.len() == 2
    });
    unlucky.expect("else the wait had not ended")
}

/// The image of etcd under a name of the story's own, on one node.
fn give_image(story: &Story, node: &str) {
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
fn the_second_whose_node_lacks_the_image_does_not_hold_up_the_third() {
    let story = Story::begin("imageless");
    let operator = Operator::start(&story);
    let (label, nodes) = (Label::of(&story), nodes(&story));
    let [first, second, third] = nodes.as_slice() else {
        panic!("three nodes, and not {nodes:?}")
    };
    give_image(&story, first);
    give_image(&story, third);
    // Each is created when there is one node only that it can go to.
    let stops = Stops::before(operator.proxy(), |write| {
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
        let (stopped_at, stopped) = stops.next();
        assert_eq!(stopped_at, serial.to_string());
        goes_to(serial - 1, last);
        label.take(last);
        label.put(node);
        stops.let_go(&stopped_at);
        stopped.go_on();
        last = node;
    }
    goes_to(2, third);
    operator.proxy().pass();
    cluster.wait_ready(LONG);

    // A third that took longer than the operator is patient follows after the seal, maybe as another member.
    let unlucky = pod_of(&story, "a", 1);
    story.within(
        LONG,
        "whoever is on the third node votes, and the second does not",
        || {
            let (mut pods, voting) = (cluster.pods(), voters(&cluster));
            pods.retain(|pod| pod.node == *third);
            pods.iter().any(|pod| voting.contains(&pod.name)) && !voting.contains(&unlucky)
        },
    );
    story.eventually("its trouble is told", || {
        told_of(&cluster, &unlucky)["message"]
            .as_str()
            .is_some_and(|why| why.contains("cannot be pulled"))
    });

    let workload = cluster.workload();
    // The kubelet looks again by itself, after longer and longer; as a person would, help it on. First the pod, then the image:
    // a member that has started, and of which nobody has noted yet on what, would be replaced when its pod goes.
    label.take(third);
    label.put(second);
    story.kubectl(&["delete", "pod", &unlucky]);
    give_image(&story, second);
    ends_well(&story, &cluster, 3);
    workload.finish();
    let listed = cluster.member_list();
    assert!(
        listed.iter().any(|member| member.name == unlucky),
        "the same member, under its own name: {listed:?}"
    );
    comes_to_rest(&operator);
    cluster.holds_the_same_everywhere();
}
