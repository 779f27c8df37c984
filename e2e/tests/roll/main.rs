//! The duration of a rolling upgrade of three members, compared with three restarts of a bare pod in the same run, and how long clients
//! cannot write meanwhile: measured on an otherwise idle lab for `make bench`. Not a story: nothing here fails because it is slow, and
//! `cargo test` does not run it.
#![expect(
    clippy::unwrap_used,
    reason = "a measurement that fails ends the program"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::measurement::{
    CLIENT_TIMEOUT, MEASUREMENT_LIMIT, high_rate, is_healthy, machine, median, median_and_worst,
    milliseconds, number, seconds, today, wait_settled, wait_until,
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

/// Returns the PVC of the bare pod: with the class and size of the members' PVCs.
fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "bare"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// Returns a bare pod: a single etcd with the members' image and readiness probe.
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

/// Measures how long the bare pod is away: deleted, created again as soon as it is gone, until it is Ready.
fn restart(story: &Story) -> Duration {
    let began = Instant::now();
    story.send("DELETE", CORE, "pods/bare", None);
    wait_until("the bare pod is gone", || {
        story.read(CORE, "pods/bare").is_none()
    });
    story.send("POST", CORE, "pods", Some(&bare()));
    wait_until("the bare pod is Ready", || bare_is_ready(story)) - began
}

/// Whether all members run this version and are Ready, according to Kubernetes.
fn all_ready_on(story: &Story, cluster: &Cluster<'_>, version: &str) -> bool {
    let query = format!(
        "pods?labelSelector=etcd.evenkeel.dev%2Fcluster%3D{}",
        cluster.name()
    );
    let list = story.read(CORE, &query).unwrap_or_default();
    let pods: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
    let expected = image(version);
    let runs = |pod: &Value| {
        pod["spec"]["containers"][0]["image"] == expected.as_str()
            && pod["metadata"]["deletionTimestamp"].is_null()
    };
    pods.len() == MEMBERS && pods.into_iter().all(|pod| runs(pod) && is_ready(pod))
}

/// The measurements of all rounds.
#[derive(Default)]
struct Measurements {
    /// The restarts of the bare pod.
    restarts: Vec<Duration>,
    /// From the edit until all members are Ready with the new version.
    upgrades: Vec<Duration>,
    /// … and until the status reports it, too.
    reported: Vec<Duration>,
    /// The longest time without an acknowledged write of the worst client, by kind.
    gaps: BTreeMap<ClientKind, Vec<Duration>>,
}

impl Measurements {
    /// Upgrades a new cluster while clients write, and restarts the bare pod beside the same clients: both share the two cores with
    /// them.
    fn round(&mut self, story: &Story, name: &str) {
        let spec = format!(
            "version: {FROM}\nmembers: {MEMBERS}\nstorage: {{size: 1Gi, onDelete: Delete}}\nresources: {{requests: {{cpu: 10m, \
             memory: 64Mi}}}}"
        );
        let cluster = Cluster::apply(story, name, &spec);
        cluster.wait_ready(MEASUREMENT_LIMIT);
        wait_settled(story, &cluster, MEMBERS);
        let clients = cluster.workload_with(high_rate());
        std::thread::sleep(Duration::from_secs(2));
        for _ in 0..RESTARTS {
            self.restarts.push(restart(story));
            std::thread::sleep(Duration::from_secs(1));
        }
        let since = clients.now();
        self.upgrade(story, &cluster);
        wait_settled(story, &cluster, MEMBERS);
        for (kind, gap) in clients.stats(since).longest_write_gap_by_kind {
            self.gaps.entry(kind).or_default().push(gap);
        }
        clients.finish();
        story.kubectl(&["delete", "etcd", name]);
        story.within(MEASUREMENT_LIMIT, "the pods are gone", || {
            cluster.pods().is_empty()
        });
    }

    fn upgrade(&mut self, story: &Story, cluster: &Cluster<'_>) {
        let began = Instant::now();
        let edit = json!({"spec": {"version": TO}});
        story.send(
            "PATCH",
            GROUP,
            &format!("etcdclusters/{}", cluster.name()),
            Some(&edit),
        );
        let ready = wait_until("all members are Ready with the new version", || {
            all_ready_on(story, cluster, TO)
        });
        let reported = wait_until("the status reports the new version", || {
            is_healthy(cluster, MEMBERS) && cluster.status()["version"] == TO
        });
        self.upgrades.push(ready - began);
        self.reported.push(reported - began);
    }

    /// Returns the duration of an upgrade divided by that of as many restarts of the bare pod as there are members.
    fn ratio(&self) -> f64 {
        let restarts = median(&self.restarts).as_secs_f64() * MEMBERS as f64;
        median(&self.upgrades).as_secs_f64() / restarts
    }

    fn page(&self, rounds: usize) -> String {
        let gap = |kind: ClientKind| {
            self.gaps
                .get(&kind)
                .map(|gaps| median_and_worst(gaps))
                .unwrap_or_default()
        };
        let mut page = format!(
            "# Duration of a rolling upgrade\n\n`make bench`, {}, on {}: medians of {rounds} upgrades of three members on \
             volumes from {FROM} to {TO}, each of a new cluster, and of {} restarts of a bare pod in between. The bare pod is \
             one etcd of the same image on a volume of the same kind, without an operator and without TLS: deleted, created \
             again as soon as it is gone, until it is Ready. Clients write to the cluster continuously, each about 65 times a \
             second, and try another member after {} ms without an answer; a gap is the longest time without an \
             acknowledged write of the worst client of its kind, from the edit until the cluster has been healthy for five seconds. The \
             lab is otherwise idle.\n\n| | measured | at most |\n|---|---|---|\n",
            today(),
            machine(),
            self.restarts.len(),
            CLIENT_TIMEOUT.as_millis(),
        );
        for (what, figure, most) in [
            ("a bare pod's restart", seconds(median(&self.restarts)), "–"),
            (
                "three members upgraded: from the edit until all are Ready",
                median_and_worst(&self.upgrades),
                "–",
            ),
            (
                "… ÷ three restarts of the bare pod",
                format!("{:.2}", self.ratio()),
                "2",
            ),
            (
                "… until the status reports it, too",
                median_and_worst(&self.reported),
                "–",
            ),
            (
                "longest gap of a client that knows all members",
                gap(ClientKind::AllMembers),
                "0.3 s",
            ),
            (
                "longest gap of a client of the Service",
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
            milliseconds(&self.upgrades),
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
    wait_until("the bare pod is Ready", || bare_is_ready(&story));
    let (rounds, mut measurement) = (number("ROUNDS", 5), Measurements::default());
    for round in 1..=rounds {
        measurement.round(&story, &format!("roll-{round}"));
        let (upgrade, gaps) = (measurement.upgrades.last(), &measurement.gaps);
        println!("round {round} of {rounds}: {upgrade:?}, gaps so far {gaps:?}");
    }
    let page = measurement.page(rounds);
    println!("{page}");
    std::fs::write(checkout().join("bench/results/roll.md"), page).unwrap();
}
