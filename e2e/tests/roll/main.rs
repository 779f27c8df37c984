//! How long a rolling upgrade of three members takes, against three restarts of a bare pod in the same run, and for how long
//! clients cannot write meanwhile: measured on a lab that does nothing else, for `make bench`. Not a story: nothing here fails
//! for being slow, and `cargo test` leaves it out.
#![expect(
    clippy::unwrap_used,
    reason = "what cannot be measured ends the measuring"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::measured::{
    LIMIT, PATIENCE, eager, is_whole, machine, median, median_and_worst, milliseconds, number,
    seconds, settle, today, until,
};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::{Story, checkout};
use evenkeel_history::ClientKind;
use serde_json::{Value, json};

const FROM: &str = "3.5.35";
const TO: &str = "3.6.16";
const MEMBERS: usize = 3;
/// How often the bare pod is restarted before each upgrade.
const RESTARTS: usize = 3;

const CORE: &str = "/api/v1";
const GROUP: &str = "/apis/evenkeel.dev/v1alpha1";

/// The volume of the bare pod: of the class and size that members have.
fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "bare"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// A bare pod: etcd as members have it, asked as often whether it is ready, and nobody but itself to find.
fn bare() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"},
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "etcd",
                "image": image(TO),
                "command": ["/usr/local/bin/etcd"],
                "args": [
                    "--name=bare",
                    "--data-dir=/var/lib/etcd/data",
                    "--listen-client-urls=http://0.0.0.0:2379",
                    "--advertise-client-urls=http://localhost:2379",
                    "--listen-metrics-urls=http://0.0.0.0:2381",
                ],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 2381}, "periodSeconds": 1},
                "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "bare"}}],
        },
    })
}

fn image(version: &str) -> String {
    format!("gcr.io/etcd-development/etcd:v{version}")
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn bare_is_ready(story: &Story) -> bool {
    story
        .read(CORE, "pods/bare")
        .is_some_and(|pod| is_ready(&pod))
}

/// How long the bare pod is away: deleted, created again as soon as it is gone, until its etcd says that it is ready.
fn restart(story: &Story) -> Duration {
    let began = Instant::now();
    story.send("DELETE", CORE, "pods/bare", None);
    until("the bare pod is gone", || {
        story.read(CORE, "pods/bare").is_none()
    });
    story.send("POST", CORE, "pods", Some(&bare()));
    until("the bare pod is Ready", || bare_is_ready(story)) - began
}

/// Whether Kubernetes says that all members run this version and are Ready.
fn all_ready_on(story: &Story, cluster: &Cluster<'_>, version: &str) -> bool {
    let query = format!(
        "pods?labelSelector=etcd.evenkeel.dev%2Fcluster%3D{}",
        cluster.name()
    );
    let list = story.read(CORE, &query).unwrap_or_default();
    let pods: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
    let wanted = image(version);
    let runs = |pod: &Value| {
        pod["spec"]["containers"][0]["image"] == wanted.as_str()
            && pod["metadata"]["deletionTimestamp"].is_null()
    };
    pods.len() == MEMBERS && pods.into_iter().all(|pod| runs(pod) && is_ready(pod))
}

/// What was measured, a round after the other.
#[derive(Default)]
struct Measured {
    /// The bare pod's restarts.
    restarts: Vec<Duration>,
    /// From the edit until all members are Ready on the new version.
    rolls: Vec<Duration>,
    /// … and until the operator says so, too.
    told: Vec<Duration>,
    /// The longest time without an acknowledged write of the worst client of a kind.
    gaps: BTreeMap<ClientKind, Vec<Duration>>,
}

impl Measured {
    /// Upgrades a new cluster while clients write, and restarts the bare pod beside the same clients: both have the same two
    /// cores less what they take.
    fn round(&mut self, story: &Story, name: &str) {
        let spec = format!(
            "version: {FROM}\nmembers: {MEMBERS}\nstorage: {{size: 1Gi, onDelete: Delete}}\nresources: {{requests: {{cpu: 10m, \
             memory: 64Mi}}}}"
        );
        let cluster = Cluster::apply(story, name, &spec);
        cluster.wait_ready(LIMIT);
        settle(story, &cluster, MEMBERS);
        let clients = cluster.workload_with(eager());
        std::thread::sleep(Duration::from_secs(2));
        for _ in 0..RESTARTS {
            self.restarts.push(restart(story));
            std::thread::sleep(Duration::from_secs(1));
        }
        let since = clients.now();
        self.roll(story, &cluster);
        settle(story, &cluster, MEMBERS);
        for (kind, gap) in clients.stats(since).longest_write_gap_by_kind {
            self.gaps.entry(kind).or_default().push(gap);
        }
        clients.finish();
        story.kubectl(&["delete", "etcd", name]);
        story.within(LIMIT, "its pods are gone", || cluster.pods().is_empty());
    }

    fn roll(&mut self, story: &Story, cluster: &Cluster<'_>) {
        let began = Instant::now();
        let edit = json!({"spec": {"version": TO}});
        story.send(
            "PATCH",
            GROUP,
            &format!("etcdclusters/{}", cluster.name()),
            Some(&edit),
        );
        let ready = until("all members are Ready on the new version", || {
            all_ready_on(story, cluster, TO)
        });
        let told = until("the status says so", || {
            is_whole(cluster, MEMBERS) && cluster.status()["version"] == TO
        });
        self.rolls.push(ready - began);
        self.told.push(told - began);
    }

    /// An upgrade against as many restarts of the bare pod as it has members.
    fn ratio(&self) -> f64 {
        let restarts = median(&self.restarts).as_secs_f64() * MEMBERS as f64;
        median(&self.rolls).as_secs_f64() / restarts
    }

    fn page(&self, rounds: usize) -> String {
        let gap = |kind: ClientKind| {
            self.gaps
                .get(&kind)
                .map(|gaps| median_and_worst(gaps))
                .unwrap_or_default()
        };
        let mut page = format!(
            "# How long a rolling upgrade takes\n\n`make bench`, {}, on {}: medians of {rounds} upgrades of three members on \
             volumes from {FROM} to {TO}, each of a new cluster, and of {} restarts of a bare pod in between. The bare pod is \
             one etcd of the same image on a volume of the same kind, without an operator and without TLS: deleted, created \
             again as soon as it is gone, until it is Ready. Clients write to the cluster all the time, each about 65 times a \
             second, and wait for an answer for {} ms before they ask another member; a gap is the longest time without an \
             acknowledged write of the worst client of its kind, from the edit until all has been well for five seconds. The \
             lab does nothing else.\n\n| | measured | at most |\n|---|---|---|\n",
            today(),
            machine(),
            self.restarts.len(),
            PATIENCE.as_millis(),
        );
        for (what, figure, most) in [
            ("a bare pod's restart", seconds(median(&self.restarts)), "–"),
            (
                "three members upgraded: from the edit until all are Ready",
                median_and_worst(&self.rolls),
                "–",
            ),
            (
                "… ÷ three restarts of the bare pod",
                format!("{:.2}", self.ratio()),
                "2",
            ),
            (
                "… until the status says so, too",
                median_and_worst(&self.told),
                "–",
            ),
            (
                "longest gap of a client that knows all members",
                gap(ClientKind::AllMembers),
                "0.3 s",
            ),
            (
                "longest gap of a client that goes through the Service",
                gap(ClientKind::Service),
                "–",
            ),
        ] {
            writeln!(page, "| {what} | {figure} | {most} |").unwrap();
        }
        let everywhere = self
            .gaps
            .get(&ClientKind::AllMembers)
            .map(|gaps| milliseconds(gaps))
            .unwrap_or_default();
        writeln!(
            page,
            "\nAll rounds in ms: restarts {}; upgrades {}; gaps knowing all members {everywhere}.",
            milliseconds(&self.restarts),
            milliseconds(&self.rolls),
        )
        .unwrap();
        page
    }
}

#[test]
fn an_upgrade_beside_restarts_of_a_bare_pod() {
    let story = Story::alone("roll");
    let _operator = Operator::start(&story);
    story.apply(&claim().to_string());
    story.apply(&bare().to_string());
    until("the bare pod is Ready", || bare_is_ready(&story));
    let (rounds, mut measured) = (number("ROUNDS", 5), Measured::default());
    for round in 1..=rounds {
        measured.round(&story, &format!("roll-{round}"));
        let (roll, gaps) = (measured.rolls.last(), &measured.gaps);
        println!("round {round} of {rounds}: {roll:?}, gaps so far {gaps:?}");
    }
    let page = measured.page(rounds);
    println!("{page}");
    std::fs::write(checkout().join("bench/results/roll.md"), page).unwrap();
}
