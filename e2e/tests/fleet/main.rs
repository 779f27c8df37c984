//! The cost of the operator with many clusters, its reaction time, and the time after its start until it has observed all of them:
//! measured on an otherwise idle lab for `make bench`. Not a story: nothing here fails because it is slow, and `cargo test` does not
//! run it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measurement that fails ends the program"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::manifest;
use evenkeel_e2e::measurement::{
    MEASUREMENT_LIMIT, machine, median, milliseconds, number, percentile, seconds, today,
    wait_until,
};
use evenkeel_e2e::operator::{Operator, Options};
use evenkeel_e2e::proxy::Verdict;
use evenkeel_e2e::{Story, checkout, http_get};
use serde_json::{Value, json};

const CORE: &str = "/api/v1";
const GROUP: &str = "/apis/evenkeel.dev/v1alpha1";
/// How many clusters are created at a time: all at once, kubelets and certificates would keep two cores busy until probes fail.
const BATCH_SIZE: usize = 10;
/// The limit for a batch. On a machine that needs longer, no more clusters are created.
const BATCH_LIMIT: Duration = Duration::from_secs(300);
/// How long nothing is written before the idle time begins, and between two samples.
const IDLE_BEFORE: Duration = Duration::from_secs(20);
const PAUSE_BETWEEN: Duration = Duration::from_secs(1);
const IDLE_TIME: Duration = Duration::from_secs(60);
/// How often the operator is restarted; the median counts.
const STARTS: usize = 3;

/// The operator's message when all caches are filled.
const SYNCED_MESSAGE: &str = "caches synced";
/// The operator's counter of reconciles.
const RECONCILES_METRIC: &str = r#"evenkeel_reconciles_total{kind="EtcdCluster",outcome="done"} "#;

/// Returns the smallest possible cluster.
fn small(name: &str) -> Value {
    let mut cluster = manifest(name, 1, "3.6.16", None);
    cluster["spec"]["storage"] = json!({"ephemeral": true});
    cluster["spec"]["resources"] = json!({"requests": {"cpu": "10m", "memory": "64Mi"}});
    cluster
}

/// Returns the name of the client Service.
fn service(cluster: &str) -> String {
    format!("{cluster}-etcd-client")
}

fn count_healthy(story: &Story) -> usize {
    let list = story.read(GROUP, "etcdclusters").unwrap_or_default();
    let all = list["items"].as_array().into_iter().flatten();
    let well = |status: &Value| status["summary"] == "Healthy" && status["ready"] == "1/1";
    all.filter(|cluster| well(&cluster["status"])).count()
}

fn wait_all_healthy(story: &Story, clusters: usize) -> bool {
    let began = Instant::now();
    while count_healthy(story) < clusters && began.elapsed() < BATCH_LIMIT {
        std::thread::sleep(Duration::from_millis(500));
    }
    count_healthy(story) >= clusters
}

/// Creates the desired number of clusters, or as many as the machine supports, and returns their names.
fn fleet(story: &Story, planned: usize) -> Vec<String> {
    let mut carried: Vec<String> = Vec::new();
    while carried.len() < planned {
        let next = carried.len()..planned.min(carried.len() + BATCH_SIZE);
        let batch: Vec<String> = next.map(|n| format!("fleet-{n:03}")).collect();
        let items: Vec<Value> = batch.iter().map(|name| small(name)).collect();
        story.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
        if !wait_all_healthy(story, carried.len() + batch.len()) {
            println!(
                "not all of {batch:?} are healthy after {} s: deleting them",
                BATCH_LIMIT.as_secs()
            );
            let them: Vec<&str> = batch.iter().map(String::as_str).collect();
            story.kubectl(&[&["delete", "etcd"], them.as_slice()].concat());
            break;
        }
        carried.extend(batch);
        println!("{} clusters are healthy", carried.len());
    }
    assert!(!carried.is_empty(), "no cluster is healthy");
    assert!(
        wait_all_healthy(story, carried.len()),
        "not all clusters stay healthy"
    );
    carried
}

/// The cost of the idle operator.
struct IdleCost {
    memory: u64,
    cpu: Duration,
    requests: usize,
    writes: usize,
}

/// Counts the requests, without those for the lease.
fn requests(operator: &Operator) -> usize {
    let all = operator.proxy().requests();
    all.into_iter()
        .filter(|((_, path), _)| !path.contains("leases"))
        .map(|(_, count)| count)
        .sum()
}

fn measure_idle(operator: &Operator) -> IdleCost {
    operator.proxy().wait_idle(IDLE_BEFORE, MEASUREMENT_LIMIT);
    let (pid, asked, cpu, since) = (
        operator.pid(),
        requests(operator),
        operator.cpu(),
        Instant::now(),
    );
    std::thread::sleep(IDLE_TIME);
    assert_eq!(
        operator.pid(),
        pid,
        "the operator was restarted during the measurement"
    );
    IdleCost {
        cpu: operator.cpu() - cpu,
        memory: operator.rss(),
        requests: requests(operator) - asked,
        writes: operator.proxy().writes_since(since).len(),
    }
}

/// Measures the time from the request that deletes a cluster's Service to the operator's first write for it. It includes the API
/// server, the watch, the reconcile and the decision.
fn first_action(story: &Story, operator: &Operator, cluster: &str) -> Duration {
    let (sender, receiver) = mpsc::channel();
    let service = service(cluster);
    let path = format!("services/{service}");
    operator.proxy().rule(move |write| {
        if write.is_to("services") && write.name() == Some(service.as_str()) {
            // Only the first message is received.
            let _ = sender.send(Instant::now());
        }
        Verdict::Pass
    });
    let began = Instant::now();
    story.send("DELETE", CORE, &path, None);
    let acted = receiver
        .recv_timeout(MEASUREMENT_LIMIT)
        .expect("the operator creates the Service again");
    operator.proxy().pass();
    operator.proxy().wait_idle(PAUSE_BETWEEN, MEASUREMENT_LIMIT);
    acted - began
}

/// Measures pseudo-randomly chosen clusters one after the other, the same in every run. Returns the times in ascending order.
fn first_actions(
    story: &Story,
    operator: &Operator,
    clusters: &[String],
    samples: usize,
) -> Vec<Duration> {
    let mut chance: u64 = 1;
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..samples {
        // Knuth's linear congruential generator; the upper bits are more random.
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let chosen = &clusters[(chance >> 33) as usize % clusters.len()];
        times.push(first_action(story, operator, chosen));
    }
    times.sort();
    times
}

/// Returns the number of reconciles since the operator's start, from its metrics.
fn reconciled(operator: &Operator) -> usize {
    let log = operator.log();
    let serving = log
        .lines()
        .rev()
        .find(|line| line.contains("serving /livez"));
    let serving: Value = serving
        .and_then(|line| serde_json::from_str(line).ok())
        .unwrap_or_default();
    let page = serving["address"]
        .as_str()
        .and_then(|address| http_get(address, "/metrics"));
    let page = page.unwrap_or_default();
    page.lines()
        .find_map(|line| line.strip_prefix(RECONCILES_METRIC)?.trim().parse().ok())
        .unwrap_or(0)
}

/// Times from the operator's start, after an operator that exited in order and released its lease.
#[derive(Default)]
struct StartTimes {
    /// Until all caches are filled.
    synced: Vec<Duration>,
    /// Until every cluster has been observed.
    observed: Vec<Duration>,
    /// Until the operator has acted on every cluster, each of which lost its Service while the operator was stopped.
    acted: Vec<Duration>,
}

impl StartTimes {
    /// Measures a start after nothing has happened.
    fn measure_idle_start(&mut self, operator: &mut Operator, clusters: usize) {
        operator.proxy().wait_idle(PAUSE_BETWEEN, MEASUREMENT_LIMIT);
        operator.stop();
        let before = operator.log().matches(SYNCED_MESSAGE).count();
        let began = Instant::now();
        operator.restart();
        let now: &Operator = operator;
        let synced = wait_until("all caches are filled", || {
            now.log().matches(SYNCED_MESSAGE).count() > before
        });
        // The first observation of a cluster reads the resource by name. The counter of reconciles does not tell clusters apart.
        let observed = wait_until("every cluster has been observed", || {
            now.proxy().read_since("etcdclusters", began).len() >= clusters
                && reconciled(now) >= clusters
        });
        self.synced.push(synced - began);
        self.observed.push(observed - began);
    }

    /// Measures a start after every cluster has lost its client Service.
    fn measure_busy_start(&mut self, story: &Story, operator: &mut Operator, clusters: &[String]) {
        operator.proxy().wait_idle(PAUSE_BETWEEN, MEASUREMENT_LIMIT);
        operator.stop();
        let mut left: BTreeSet<String> = clusters.iter().map(|cluster| service(cluster)).collect();
        for service in &left {
            story.send("DELETE", CORE, &format!("services/{service}"), None);
        }
        let (sender, receiver) = mpsc::channel();
        operator.proxy().rule(move |write| {
            if let (true, Some(name)) = (write.is_to("services"), write.name()) {
                // The receiver is gone once all have been seen.
                let _ = sender.send((name.to_owned(), Instant::now()));
            }
            Verdict::Pass
        });
        let began = Instant::now();
        operator.restart();
        let mut last = began;
        while !left.is_empty() {
            let (name, at) = receiver
                .recv_timeout(MEASUREMENT_LIMIT)
                .expect("the operator creates every Service again");
            if left.remove(&name) {
                last = at;
            }
        }
        operator.proxy().pass();
        self.acted.push(last - began);
    }
}

fn page(
    planned: usize,
    clusters: usize,
    idle: &IdleCost,
    actions: &[Duration],
    starts: &StartTimes,
) -> String {
    let carried = if clusters < planned {
        format!(" ({planned} were planned; the machine supports no more)")
    } else {
        String::new()
    };
    let mut page = format!(
        "# Cost and reaction time of the operator with many clusters\n\n`make bench`, {}, on {}, which also runs \
         Kubernetes and every etcd: {clusters} idle clusters{carried} of one member each, without volumes, managed by \
         one operator (release build, default log level) that runs beside the lab, behind a proxy that times its \
         requests.\n\n| with {clusters} clusters | measured |\n|---|---|\n",
        today(),
        machine(),
    );
    let cpu = idle.cpu.as_secs_f64();
    for (what, figure) in [
        (
            "memory of the operator (resident)",
            format!("{} MiB", idle.memory >> 20),
        ),
        (
            "processor time in an idle minute",
            format!(
                "{cpu:.2} s ({:.1} % of a core)",
                100.0 * cpu / IDLE_TIME.as_secs_f64()
            ),
        ),
        (
            "requests in an idle minute, without the lease",
            idle.requests.to_string(),
        ),
        (
            "writes in an idle minute, without the lease",
            idle.writes.to_string(),
        ),
        (
            "from an event to the first action, p50",
            format_ms(percentile(actions, 50)),
        ),
        (
            "from an event to the first action, p99",
            format_ms(percentile(actions, 99)),
        ),
        (
            "from an event to the first action, worst",
            format_ms(percentile(actions, 100)),
        ),
        (
            "from the operator's start until all caches are filled",
            seconds(median(&starts.synced)),
        ),
        (
            "… until every cluster has been observed",
            seconds(median(&starts.observed)),
        ),
        (
            "… until the operator has acted on all, when each lost its Service meanwhile",
            seconds(median(&starts.acted)),
        ),
    ] {
        writeln!(page, "| {what} | {figure} |").unwrap();
    }
    writeln!(
        page,
        "\nThe event is the deletion of the client Service, {} times, each time of a pseudo-randomly chosen cluster; the time \
         is from the delete request until the operator's write that creates the Service again reaches the proxy. Start times are \
         those after an operator that exited in order, medians of {STARTS}; after one that was killed, its lease must expire first \
         (15 s).\n\nAll in ms: first actions {}; caches filled {}; observed {}; acted {}.",
        actions.len(),
        milliseconds(actions),
        milliseconds(&starts.synced),
        milliseconds(&starts.observed),
        milliseconds(&starts.acted),
    )
    .unwrap();
    page
}

/// Formats a time in milliseconds.
fn format_ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

#[test]
fn many_clusters_and_one_operator() {
    let story = Story::alone("fleet");
    // As installed: the stories use a higher log level.
    let env = vec![("EVENKEEL_LOG".to_owned(), "info".to_owned())];
    let mut operator = Operator::with(
        &story,
        Options {
            env,
            ..Options::default()
        },
    );
    let planned = number("FLEET", 50);
    let clusters = fleet(&story, planned);
    let idle = measure_idle(&operator);
    println!(
        "{} MiB, {:?} of processor time in an idle minute",
        idle.memory >> 20,
        idle.cpu
    );
    let actions = first_actions(&story, &operator, &clusters, number("SAMPLES", 100));
    println!("first actions after ms: {}", milliseconds(&actions));
    let mut starts = StartTimes::default();
    for _ in 0..STARTS {
        starts.measure_idle_start(&mut operator, clusters.len());
        starts.measure_busy_start(&story, &mut operator, &clusters);
    }
    let page = page(planned, clusters.len(), &idle, &actions, &starts);
    println!("{page}");
    std::fs::write(checkout().join("bench/results/fleet.md"), page).unwrap();
}
