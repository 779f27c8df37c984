//! In the middle of something: the operator's writes by what they are for, its death between two of them, and what must
//! be so once all is over, whatever happened meanwhile.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Proxy, Stopped, Verdict, Write};
use evenkeel_e2e::{PATIENCE, Story};
use serde_json::Value;

use crate::look::{LONG, says, until_whole, what_is_amiss};

/// For how long nothing must be written for a cluster to count as at rest.
const QUIET: Duration = Duration::from_secs(4);

/// How often to look whether a cluster is whole: a look is half a dozen processes, on two cores.
const LOOK: Duration = Duration::from_millis(800);

/// A change of the membership, as it was written down before etcd is asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    /// `Add`, `Promote` or `Remove`.
    pub(crate) kind: String,
    /// Which member's.
    pub(crate) serial: u64,
    /// How many voters there were when it was decided.
    pub(crate) voters: usize,
}

/// What a write makes of a cluster's identity.
pub(crate) fn identity_in(write: &Write, cluster: &str) -> Option<Value> {
    let it = write.verb == "PUT" && write.is_to("configmaps");
    let it = it && write.name()?.strip_suffix("-etcd-identity") == Some(cluster);
    let text = write
        .body
        .pointer("/data/identity")
        .filter(|_| it)?
        .as_str()?;
    serde_json::from_str(text).ok()
}

/// The intent that a write notes in a cluster's identity.
pub(crate) fn intent_in(write: &Write, cluster: &str) -> Option<Intent> {
    let identity = identity_in(write, cluster)?;
    let intent = identity.get("intent").filter(|intent| intent.is_object())?;
    let (kind, serial) = intent["change"].as_object()?.iter().next()?;
    let voters = intent["voters"].as_array()?.len();
    Some(Intent {
        kind: kind.clone(),
        serial: serial.as_u64()?,
        voters,
    })
}

/// Whether a write notes such an intent about this member.
pub(crate) fn notes(write: &Write, cluster: &str, kind: &str, serial: u64) -> bool {
    intent_in(write, cluster).is_some_and(|intent| intent.kind == kind && intent.serial == serial)
}

/// The serial of the member whose pod a write creates.
pub(crate) fn creates_pod_of(write: &Write, cluster: &str) -> Option<u64> {
    let it = write.verb == "POST" && write.is_to("pods") && write.subresource().is_none();
    let metadata = write.body.get("metadata").filter(|_| it)?;
    let ours = metadata.pointer("/labels/etcd.evenkeel.dev~1cluster")? == cluster;
    metadata
        .pointer("/annotations/evenkeel.dev~1serial")
        .filter(|_| ours)?
        .as_str()?
        .parse()
        .ok()
}

/// The identity of a cluster, as it is.
pub(crate) fn identity(story: &Story, cluster: &str) -> Value {
    identity_object(story, cluster).1
}

/// The ConfigMap with a cluster's identity, and the identity.
fn identity_object(story: &Story, cluster: &str) -> (Value, Value) {
    let object = story
        .read("/api/v1", &format!("configmaps/{cluster}-etcd-identity"))
        .unwrap_or_default();
    let text = object["data"]["identity"]
        .as_str()
        .expect("there is an identity");
    let identity = serde_json::from_str(text).expect("an identity is JSON");
    (object, identity)
}

/// The pod of a cluster's member, if there is one.
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

/// The name of the pod of a cluster's member.
pub(crate) fn pod_of(story: &Story, cluster: &str, serial: u64) -> String {
    let pod = member_pod(story, cluster, serial);
    let name = pod
        .as_ref()
        .and_then(|pod| pod["metadata"]["name"].as_str());
    name.unwrap_or_else(|| panic!("{cluster} has no pod of member {serial}"))
        .to_owned()
}

/// The names of a cluster's objects of a sort; volumes that former members left, and that are kept for a while, apart.
pub(crate) fn names(story: &Story, cluster: &str, sort: &str) -> BTreeSet<String> {
    let plural = if sort == "pvc" {
        "persistentvolumeclaims"
    } else {
        sort
    };
    let list = story.read(
        "/api/v1",
        &format!("{plural}?labelSelector=etcd.evenkeel.dev%2Fcluster%3D{cluster}"),
    );
    let list = list.unwrap_or_else(|| panic!("there are no {plural}"));
    let is_kept = |object: &&Value| {
        object["metadata"]["annotations"]
            .get("evenkeel.dev/removed-at")
            .is_some()
    };
    let all = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|object| !is_kept(object));
    let names = all.map(|object| &object["metadata"]["name"]);
    names
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

/// A cluster on volumes as small as they may be: the lab's disks are one disk.
pub(crate) fn spec(members: usize) -> String {
    format!("version: 3.6.16\nmembers: {members}\nstorage: {{size: 1Gi}}")
}

/// Writes that are stopped, a kind of them each until it is let go. An operator that waits too long for an answer tries
/// again: whatever it sends meanwhile is stopped, too.
pub(crate) struct Stops<'p> {
    proxy: &'p Proxy,
    of: fn(&Write) -> Option<String>,
    gone: Arc<Mutex<BTreeSet<String>>>,
}

impl<'p> Stops<'p> {
    /// Stops, before they are applied, the writes that `of` has a word for.
    pub(crate) fn before(proxy: &'p Proxy, of: fn(&Write) -> Option<String>) -> Self {
        let gone: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let let_go = Arc::clone(&gone);
        proxy.rule(move |write| match of(write) {
            Some(kind)
                if !let_go
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .contains(&kind) =>
            {
                Verdict::StopBefore
            }
            _ => Verdict::Pass,
        });
        Self { proxy, of, gone }
    }

    /// The next kind that is stopped.
    pub(crate) fn next(&self) -> (String, Stopped) {
        loop {
            let stopped = self.proxy.stopped(LONG);
            let kind =
                (self.of)(&stopped.write).expect("only those are stopped that it has a word for");
            if !self
                .gone
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(&kind)
            {
                return (kind, stopped);
            }
        }
    }

    /// From now on this kind passes.
    pub(crate) fn let_go(&self, kind: &str) {
        self.gone
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(kind.to_owned());
    }
}

/// Kills the operator where it stands, and starts it again. What was held goes with it, unanswered.
pub(crate) fn kill_and_restart(story: &Story, operator: &mut Operator, stopped: Stopped) {
    operator.kill();
    drop(stopped);
    lives_again(story, operator);
}

/// Starts a dead operator. Its lease goes: how long a successor waits for it is for the stories of two operators, and a dead one
/// needs it no more.
pub(crate) fn lives_again(story: &Story, operator: &mut Operator) {
    story.kubectl(&["delete", "lease", "evenkeel-operator", "--ignore-not-found"]);
    operator.restart();
}

/// Waits until a cluster is whole, with something done `at` each write that is stopped meanwhile. Each of them has its time, and
/// yet they must come to an end.
pub(crate) fn until_whole_through(
    operator: &mut Operator,
    cluster: &Cluster<'_>,
    members: usize,
    mut at: impl FnMut(&mut Operator, Stopped),
) {
    let (first, mut began, mut looked) = (Instant::now(), Instant::now(), Instant::now());
    loop {
        if let Some(stopped) = operator.proxy().try_stopped() {
            assert!(
                first.elapsed() < 5 * LONG,
                "{} is stopped without end: {:?}",
                cluster.name(),
                stopped.write
            );
            at(operator, stopped);
            began = Instant::now();
        } else if looked.elapsed() > LOOK {
            let Some(amiss) = what_is_amiss(cluster, members) else {
                return;
            };
            assert!(
                began.elapsed() < LONG,
                "{} ends never: {amiss}\n{:#}",
                cluster.name(),
                cluster.status()
            );
            looked = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a cluster is whole, and checks what must be so at every end: all members take themselves to be in one and the
/// same cluster, the one that the identity names, there is a claim for each where data outlives pods, and nothing else is
/// left of whatever was begun. Says what etcd calls the cluster.
pub(crate) fn ends_well(story: &Story, cluster: &Cluster<'_>, members: usize) -> u64 {
    until_whole(story, cluster, members);
    let name = cluster.name();
    let pods = cluster.pods();
    tell_if_unsealed(story, name);
    // Whole it may be a moment before the last intent is settled.
    story.eventually(
        "the last intent is settled, and the identity sealed",
        || {
            let identity = identity(story, name);
            identity["intent"].is_null() && identity["bootstrapped"] == true
        },
    );
    let identity = identity(story, name);
    let known = identity["cluster_id"]
        .as_u64()
        .expect("a sealed identity knows its cluster");
    for pod in &pods {
        let mut said = Value::Null;
        story.eventually(&format!("{} says how it is", pod.name), || {
            said = says(cluster, pod).unwrap_or_default();
            !said.is_null()
        });
        assert_eq!(
            said["header"]["cluster_id"], known,
            "{} is in another cluster: {said}",
            pod.name
        );
    }
    let claimed = pods
        .iter()
        .filter(|pod| !pod.claim.is_empty())
        .map(|pod| pod.claim.clone())
        .collect();
    story.eventually(&format!("nothing is left over of {name}"), || {
        let running: BTreeSet<_> = pods.iter().map(|pod| pod.name.clone()).collect();
        names(story, name, "pods") == running && names(story, name, "pvc") == claimed
    });
    known
}

/// Who is called healthy should be sealed. One that is not, and is a moment later, does not fail a story; but it is told, with
/// what is needed to find out how that came to be.
fn tell_if_unsealed(story: &Story, cluster: &str) {
    let (object, identity) = identity_object(story, cluster);
    if identity["bootstrapped"] != true {
        let [uid, version] = ["uid", "resourceVersion"].map(|field| &object["metadata"][field]);
        eprintln!(
            "{}/{cluster} is healthy and not sealed: its identity, uid {uid}, resourceVersion {version}, is {identity}",
            story.namespace()
        );
    }
}

/// Waits until the operator has nothing left to write.
pub(crate) fn comes_to_rest(operator: &Operator) {
    operator.proxy().becomes_quiet(QUIET, PATIENCE);
}
