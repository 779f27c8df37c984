//! Interruptions: the operator's writes by purpose, its crash between two of them, and the checks at the end of every change.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{HeldWrite, Proxy, Verdict, Write};
use evenkeel_e2e::{Story, WAIT_LIMIT};
use serde_json::Value;

use crate::assertions::{CLUSTER_LIMIT, endpoint_status, unhealthy_reason, wait_healthy};

/// How long nothing must be written for a cluster to count as idle.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// The interval at which health is checked: a check is half a dozen processes, on two cores.
const CHECK_INTERVAL: Duration = Duration::from_millis(800);

/// A recorded membership change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    /// `Add`, `Promote` or `Remove`.
    pub(crate) kind: String,
    /// The serial of the member.
    pub(crate) serial: u64,
    /// The number of voters at the time of the decision.
    pub(crate) voters: usize,
}

/// Returns the identity of a cluster that a write contains.
pub(crate) fn identity_written(write: &Write, cluster: &str) -> Option<Value> {
    let is_match = write.verb == "PUT" && write.is_to("configmaps");
    let is_match = is_match && write.name()?.strip_suffix("-etcd-identity") == Some(cluster);
    let text = write
        .body
        .pointer("/data/identity")
        .filter(|_| is_match)?
        .as_str()?;
    serde_json::from_str(text).ok()
}

/// Returns the intent that a write records in a cluster's identity.
pub(crate) fn intent_written(write: &Write, cluster: &str) -> Option<Intent> {
    let identity = identity_written(write, cluster)?;
    let intent = identity.get("intent").filter(|intent| intent.is_object())?;
    let (kind, serial) = intent["change"].as_object()?.iter().next()?;
    let voters = intent["voters"].as_array()?.len();
    Some(Intent {
        kind: kind.clone(),
        serial: serial.as_u64()?,
        voters,
    })
}

/// Whether a write records such an intent for this member.
pub(crate) fn records_intent(write: &Write, cluster: &str, kind: &str, serial: u64) -> bool {
    intent_written(write, cluster)
        .is_some_and(|intent| intent.kind == kind && intent.serial == serial)
}

/// Returns the serial of the member whose pod a write creates.
pub(crate) fn creates_pod_of(write: &Write, cluster: &str) -> Option<u64> {
    let is_match = write.verb == "POST" && write.is_to("pods") && write.subresource().is_none();
    let metadata = write.body.get("metadata").filter(|_| is_match)?;
    let ours = metadata.pointer("/labels/etcd.evenkeel.dev~1cluster")? == cluster;
    metadata
        .pointer("/annotations/evenkeel.dev~1serial")
        .filter(|_| ours)?
        .as_str()?
        .parse()
        .ok()
}

/// Returns the identity of a cluster.
pub(crate) fn identity(story: &Story, cluster: &str) -> Value {
    identity_object(story, cluster).1
}

/// Returns the ConfigMap of a cluster's identity, and the identity.
fn identity_object(story: &Story, cluster: &str) -> (Value, Value) {
    let object = story
        .read("/api/v1", &format!("configmaps/{cluster}-etcd-identity"))
        .unwrap_or_default();
    let text = object["data"]["identity"]
        .as_str()
        .expect("the ConfigMap has an identity");
    let identity = serde_json::from_str(text).expect("an identity is JSON");
    (object, identity)
}

/// Returns the pod of a cluster's member, if there is one.
pub(crate) fn member_pod(story: &Story, cluster: &str, serial: u64) -> Option<Value> {
    let pods = story.read(
        "/api/v1",
        &format!("pods?labelSelector=etcd.evenkeel.dev%2Fcluster%3D{cluster}"),
    );
    let pods = pods.unwrap_or_default();
    let serial = serial.to_string();
    let has =
        |pod: &&Value| pod["metadata"]["annotations"]["evenkeel.dev/serial"] == serial.as_str();
    pods["items"]
        .as_array()
        .into_iter()
        .flatten()
        .find(has)
        .cloned()
}

/// Returns the name of the pod of a cluster's member.
pub(crate) fn pod_name(story: &Story, cluster: &str, serial: u64) -> String {
    let pod = member_pod(story, cluster, serial);
    let name = pod
        .as_ref()
        .and_then(|pod| pod["metadata"]["name"].as_str());
    name.unwrap_or_else(|| panic!("{cluster} has no pod of member {serial}"))
        .to_owned()
}

/// Returns the names of a cluster's objects of a kind, without retained PVCs of removed members.
pub(crate) fn names(story: &Story, cluster: &str, kind: &str) -> BTreeSet<String> {
    let plural = if kind == "pvc" {
        "persistentvolumeclaims"
    } else {
        kind
    };
    let list = story.read(
        "/api/v1",
        &format!("{plural}?labelSelector=etcd.evenkeel.dev%2Fcluster%3D{cluster}"),
    );
    let list = list.unwrap_or_else(|| panic!("there are no {plural}"));
    let is_retained = |object: &&Value| {
        object["metadata"]["annotations"]
            .get("evenkeel.dev/removed-at")
            .is_some()
    };
    let all = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|object| !is_retained(object));
    let names = all.map(|object| &object["metadata"]["name"]);
    names
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

/// Returns the spec of a cluster with small volumes: the lab's volumes share one disk.
pub(crate) fn spec(members: usize) -> String {
    format!("version: 3.6.16\nmembers: {members}\nstorage: {{size: 1Gi}}")
}

/// Holds writes by key, until a key is released. An operator that waits too long for an answer repeats its write, which is then held,
/// too.
pub(crate) struct HeldWrites<'p> {
    proxy: &'p Proxy,
    key: fn(&Write) -> Option<String>,
    released: Arc<Mutex<BTreeSet<String>>>,
}

impl<'p> HeldWrites<'p> {
    /// Holds, before they are applied, the writes for which `key` returns a key.
    pub(crate) fn before(proxy: &'p Proxy, key: fn(&Write) -> Option<String>) -> Self {
        let released: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let in_rule = Arc::clone(&released);
        proxy.rule(move |write| match key(write) {
            Some(kind)
                if !in_rule
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .contains(&kind) =>
            {
                Verdict::HoldBefore
            }
            _ => Verdict::Pass,
        });
        Self {
            proxy,
            key,
            released,
        }
    }

    /// Waits for the next key with a held write.
    pub(crate) fn next(&self) -> (String, HeldWrite) {
        loop {
            let held = self.proxy.wait_held(CLUSTER_LIMIT);
            let kind = (self.key)(&held.write).expect("only writes with a key are held");
            if !self
                .released
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(&kind)
            {
                return (kind, held);
            }
        }
    }

    /// Lets later writes with this key pass.
    pub(crate) fn release(&self, kind: &str) {
        self.released
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(kind.to_owned());
    }
}

/// Kills the operator and starts it again. The held write is dropped without an answer.
pub(crate) fn kill_and_restart(story: &Story, operator: &mut Operator, held: HeldWrite) {
    operator.kill();
    drop(held);
    start_after_kill(story, operator);
}

/// Starts a killed operator. Deletes its lease first: how long a successor waits for a lease is a matter of the stories with two
/// operators.
pub(crate) fn start_after_kill(story: &Story, operator: &mut Operator) {
    story.kubectl(&["delete", "lease", "evenkeel-operator", "--ignore-not-found"]);
    operator.restart();
}

/// Waits until a cluster is healthy, and calls `at` for each write that is held meanwhile. Each held write extends the limit, up to
/// a total.
pub(crate) fn wait_healthy_through(
    operator: &mut Operator,
    cluster: &Cluster<'_>,
    members: usize,
    mut at: impl FnMut(&mut Operator, HeldWrite),
) {
    let (first, mut began, mut observed) = (Instant::now(), Instant::now(), Instant::now());
    loop {
        if let Some(held) = operator.proxy().try_held() {
            assert!(
                first.elapsed() < 5 * CLUSTER_LIMIT,
                "{} has held writes without end: {:?}",
                cluster.name(),
                held.write
            );
            at(operator, held);
            began = Instant::now();
        } else if observed.elapsed() > CHECK_INTERVAL {
            let Some(problem) = unhealthy_reason(cluster, members) else {
                return;
            };
            assert!(
                began.elapsed() < CLUSTER_LIMIT,
                "{} does not become healthy: {problem}\n{:#}",
                cluster.name(),
                cluster.status()
            );
            observed = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a cluster is healthy, and checks its end state: all members report the cluster ID of the identity, each has a PVC if
/// data outlives pods, and nothing else is left over. Returns the cluster ID.
pub(crate) fn wait_converged(story: &Story, cluster: &Cluster<'_>, members: usize) -> u64 {
    wait_healthy(story, cluster, members);
    let name = cluster.name();
    let pods = cluster.pods();
    print_if_not_bootstrapped(story, name);
    // The cluster may be healthy a moment before the last intent is settled.
    story.eventually(
        "the last intent is settled, and the bootstrap is finished",
        || {
            let identity = identity(story, name);
            identity["intent"].is_null() && identity["bootstrapped"] == true
        },
    );
    let identity = identity(story, name);
    let cluster_id = identity["cluster_id"]
        .as_u64()
        .expect("the identity of a bootstrapped cluster has its ID");
    for pod in &pods {
        let mut output = Value::Null;
        story.eventually(&format!("{} answers", pod.name), || {
            output = endpoint_status(cluster, pod).unwrap_or_default();
            !output.is_null()
        });
        assert_eq!(
            output["header"]["cluster_id"], cluster_id,
            "{} is in another cluster: {output}",
            pod.name
        );
    }
    let expected_claims = pods
        .iter()
        .filter(|pod| !pod.claim.is_empty())
        .map(|pod| pod.claim.clone())
        .collect();
    story.eventually(&format!("no object of {name} is left over"), || {
        let running: BTreeSet<_> = pods.iter().map(|pod| pod.name.clone()).collect();
        names(story, name, "pods") == running && names(story, name, "pvc") == expected_claims
    });
    cluster_id
}

/// Prints the identity of a healthy cluster whose bootstrap is not finished. That does not fail a story if it is finished a moment
/// later; the output serves to find the cause.
fn print_if_not_bootstrapped(story: &Story, cluster: &str) {
    let (object, identity) = identity_object(story, cluster);
    if identity["bootstrapped"] != true {
        let [uid, version] = ["uid", "resourceVersion"].map(|field| &object["metadata"][field]);
        eprintln!(
            "{}/{cluster} is healthy, but its bootstrap is not finished: the identity, uid {uid}, resourceVersion {version}, is {identity}",
            story.namespace()
        );
    }
}

/// Waits until the operator writes nothing any more.
pub(crate) fn wait_idle(operator: &Operator) {
    operator.proxy().wait_idle(IDLE_TIME, WAIT_LIMIT);
}
