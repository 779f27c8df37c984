//! What the operator costs with many clusters, how soon it acts on what happens to one of them, and how soon after its start it
//! has seen them all: measured on a lab that does nothing else, for `make bench`. Not a story: nothing here fails for being
//! slow, and `cargo test` leaves it out.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what cannot be measured ends the measuring"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::manifest;
use evenkeel_e2e::measured::{
    LIMIT, machine, median, milliseconds, number, percentile, seconds, today, until,
};
use evenkeel_e2e::operator::{Operator, Options};
use evenkeel_e2e::proxy::Verdict;
use evenkeel_e2e::{Story, checkout, http_get};
use serde_json::{Value, json};

const CORE: &str = "/api/v1";
const GROUP: &str = "/apis/evenkeel.dev/v1alpha1";
/// How many clusters are made at a time: with all at once, kubelets and certificates keep two cores busy until probes fail.
const AT_ONCE: usize = 10;
/// How long so many may take; a machine that needs longer carries no more.
const BATCH_LIMIT: Duration = Duration::from_secs(300);
/// How long nothing is written before an idle time begins, and before something is done to the next cluster.
const AT_REST: Duration = Duration::from_secs(20);
const BETWEEN: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(60);
/// How often the operator is started again: the one in the middle counts.
const STARTS: usize = 3;

/// What it says when all its watches have brought everything.
const LISTED: &str = "caches synced";
/// How it counts what it has reconciled.
const RECONCILED: &str = r#"evenkeel_reconciles_total{kind="EtcdCluster",outcome="done"} "#;

/// As little of a cluster as there can be.
fn small(name: &str) -> Value {
    let mut cluster = manifest(name, 1, "3.6.16", None);
    cluster["spec"]["storage"] = json!({"ephemeral": true});
    cluster["spec"]["resources"] = json!({"requests": {"cpu": "10m", "memory": "64Mi"}});
    cluster
}

/// The Service for its clients.
fn service(cluster: &str) -> String {
    format!("{cluster}-etcd-client")
}

fn healthy(story: &Story) -> usize {
    let list = story.read(GROUP, "etcdclusters").unwrap_or_default();
    let all = list["items"].as_array().into_iter().flatten();
    let well = |status: &Value| status["summary"] == "Healthy" && status["ready"] == "1/1";
    all.filter(|cluster| well(&cluster["status"])).count()
}

fn become_healthy(story: &Story, clusters: usize) -> bool {
    let began = Instant::now();
    while healthy(story) < clusters && began.elapsed() < BATCH_LIMIT {
        std::thread::sleep(Duration::from_millis(500));
    }
    healthy(story) >= clusters
}

/// Makes as many clusters as are wanted, or as the machine carries, and says what they are called.
fn fleet(story: &Story, wanted: usize) -> Vec<String> {
    let mut carried: Vec<String> = Vec::new();
    while carried.len() < wanted {
        let next = carried.len()..wanted.min(carried.len() + AT_ONCE);
        let batch: Vec<String> = next.map(|n| format!("fleet-{n:03}")).collect();
        let items: Vec<Value> = batch.iter().map(|name| small(name)).collect();
        story.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
        if !become_healthy(story, carried.len() + batch.len()) {
            println!(
                "not all of {batch:?} are healthy after {} s: they go",
                BATCH_LIMIT.as_secs()
            );
            let them: Vec<&str> = batch.iter().map(String::as_str).collect();
            story.kubectl(&[&["delete", "etcd"], them.as_slice()].concat());
            break;
        }
        carried.extend(batch);
        println!("{} clusters are healthy", carried.len());
    }
    assert!(!carried.is_empty(), "there is no cluster to measure with");
    assert!(
        become_healthy(story, carried.len()),
        "those that were healthy are not so any more"
    );
    carried
}

/// What the operator costs while nothing happens.
struct Idle {
    memory: u64,
    cpu: Duration,
    requests: usize,
    writes: usize,
}

/// All that it has asked of Kubernetes, beside its lease.
fn requests(operator: &Operator) -> usize {
    let all = operator.proxy().requests();
    all.into_iter()
        .filter(|((_, path), _)| !path.contains("leases"))
        .map(|(_, count)| count)
        .sum()
}

fn idle(operator: &Operator) -> Idle {
    operator.proxy().becomes_quiet(AT_REST, LIMIT);
    let (pid, asked, cpu, since) = (
        operator.pid(),
        requests(operator),
        operator.cpu(),
        Instant::now(),
    );
    std::thread::sleep(IDLE);
    assert_eq!(
        operator.pid(),
        pid,
        "it was started anew in between, and has cost nothing yet"
    );
    Idle {
        cpu: operator.cpu() - cpu,
        memory: operator.rss(),
        requests: requests(operator) - asked,
        writes: operator.proxy().writes_since(since).len(),
    }
}

/// How long after a cluster's Service was asked to be deleted the operator's first write for it comes: the API server's work,
/// the watch, the look and the decision are in it.
fn first_action(story: &Story, operator: &Operator, cluster: &str) -> Duration {
    let (tell, told) = mpsc::channel();
    let service = service(cluster);
    let path = format!("services/{service}");
    operator.proxy().rule(move |write| {
        if write.is_to("services") && write.name() == Some(service.as_str()) {
            // Only the first is waited for.
            let _ = tell.send(Instant::now());
        }
        Verdict::Pass
    });
    let began = Instant::now();
    story.send("DELETE", CORE, &path, None);
    let acted = told
        .recv_timeout(LIMIT)
        .expect("the operator makes the Service anew");
    operator.proxy().pass();
    operator.proxy().becomes_quiet(BETWEEN, LIMIT);
    acted - began
}

/// Does that to clusters that chance chooses, one after the other; the same in every run. The shortest time first.
fn first_actions(
    story: &Story,
    operator: &Operator,
    clusters: &[String],
    samples: usize,
) -> Vec<Duration> {
    let mut chance: u64 = 1;
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..samples {
        // Knuth's numbers; their upper bits are the better ones.
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let chosen = &clusters[(chance >> 33) as usize % clusters.len()];
        times.push(first_action(story, operator, chosen));
    }
    times.sort();
    times
}

/// How many reconciles this life of the operator has done, by its own count.
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
        .find_map(|line| line.strip_prefix(RECONCILED)?.trim().parse().ok())
        .unwrap_or(0)
}

/// How long the operator takes from its start, after one that ended in order and gave its lease back.
#[derive(Default)]
struct Starts {
    /// Until all its watches have brought everything.
    listed: Vec<Duration>,
    /// Until it has looked at every single cluster.
    looked: Vec<Duration>,
    /// Until it has acted for every single cluster, to each of which something was done while it was away.
    acted: Vec<Duration>,
}

impl Starts {
    /// Nothing has happened while it was away.
    fn to_rest(&mut self, operator: &mut Operator, clusters: usize) {
        operator.proxy().becomes_quiet(BETWEEN, LIMIT);
        operator.stop();
        let before = operator.log().matches(LISTED).count();
        let began = Instant::now();
        operator.restart();
        let now: &Operator = operator;
        let listed = until("all watches have brought everything", || {
            now.log().matches(LISTED).count() > before
        });
        // Its first look at a cluster is live, and reads the resource by its name. Reconciles alone do not tell whose they were.
        let looked = until("every cluster has been looked at", || {
            now.proxy().read_since("etcdclusters", began).len() >= clusters
                && reconciled(now) >= clusters
        });
        self.listed.push(listed - began);
        self.looked.push(looked - began);
    }

    /// Every cluster has lost the Service for its clients while it was away.
    fn to_work(&mut self, story: &Story, operator: &mut Operator, clusters: &[String]) {
        operator.proxy().becomes_quiet(BETWEEN, LIMIT);
        operator.stop();
        let mut left: BTreeSet<String> = clusters.iter().map(|cluster| service(cluster)).collect();
        for service in &left {
            story.send("DELETE", CORE, &format!("services/{service}"), None);
        }
        let (tell, told) = mpsc::channel();
        operator.proxy().rule(move |write| {
            if let (true, Some(name)) = (write.is_to("services"), write.name()) {
                // Nobody waits for it once all have been seen.
                let _ = tell.send((name.to_owned(), Instant::now()));
            }
            Verdict::Pass
        });
        let began = Instant::now();
        operator.restart();
        let mut last = began;
        while !left.is_empty() {
            let (name, at) = told
                .recv_timeout(LIMIT)
                .expect("the operator makes every Service anew");
            if left.remove(&name) {
                last = at;
            }
        }
        operator.proxy().pass();
        self.acted.push(last - began);
    }
}

fn page(
    wanted: usize,
    clusters: usize,
    idle: &Idle,
    actions: &[Duration],
    starts: &Starts,
) -> String {
    let carried = if clusters < wanted {
        format!(" ({wanted} were wanted; the machine carried no more)")
    } else {
        String::new()
    };
    let mut page = format!(
        "# What the operator costs with many clusters, and how soon it acts\n\n`make bench`, {}, on {}, which carries \
         Kubernetes and every etcd as well: {clusters} clusters{carried} of one member each, without volumes and idle, looked after by \
         one operator (release build, logging as by default) that runs beside the lab, through a proxy that times its \
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
            "processor in an idle minute",
            format!(
                "{cpu:.2} s ({:.1} % of a core)",
                100.0 * cpu / IDLE.as_secs_f64()
            ),
        ),
        (
            "requests in an idle minute, beside its lease",
            idle.requests.to_string(),
        ),
        (
            "writes in an idle minute, beside its lease",
            idle.writes.to_string(),
        ),
        (
            "from an event to the first action, p50",
            shown(percentile(actions, 50)),
        ),
        (
            "from an event to the first action, p99",
            shown(percentile(actions, 99)),
        ),
        (
            "from an event to the first action, worst",
            shown(percentile(actions, 100)),
        ),
        (
            "from the operator's start until all watches have brought everything",
            seconds(median(&starts.listed)),
        ),
        (
            "… until every cluster has been looked at",
            seconds(median(&starts.looked)),
        ),
        (
            "… until all have been acted for, when each has lost its Service meanwhile",
            seconds(median(&starts.acted)),
        ),
    ] {
        writeln!(page, "| {what} | {figure} |").unwrap();
    }
    writeln!(
        page,
        "\nThe event is the deletion of the Service for clients, {} times, each time of a cluster that chance chose; the time \
         is from the request to delete it until the operator's write that makes it anew comes to the proxy. Starts are those \
         after an operator that ended in order, medians of {STARTS}; after one that was killed, its lease has to run out first \
         (15 s).\n\nAll in ms: first actions {}; watches {}; looked at {}; acted for {}.",
        actions.len(),
        milliseconds(actions),
        milliseconds(&starts.listed),
        milliseconds(&starts.looked),
        milliseconds(&starts.acted),
    )
    .unwrap();
    page
}

/// To the millisecond.
fn shown(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

#[test]
fn many_clusters_and_one_operator() {
    let story = Story::alone("fleet");
    // As it is installed: the stories have it log more.
    let env = vec![("EVENKEEL_LOG".to_owned(), "info".to_owned())];
    let mut operator = Operator::with(
        &story,
        Options {
            env,
            ..Options::default()
        },
    );
    let wanted = number("FLEET", 50);
    let clusters = fleet(&story, wanted);
    let idle = idle(&operator);
    println!(
        "{} MiB, {:?} of processor in an idle minute",
        idle.memory >> 20,
        idle.cpu
    );
    let actions = first_actions(&story, &operator, &clusters, number("SAMPLES", 100));
    println!("first actions after ms: {}", milliseconds(&actions));
    let mut starts = Starts::default();
    for _ in 0..STARTS {
        starts.to_rest(&mut operator, clusters.len());
        starts.to_work(&story, &mut operator, &clusters);
    }
    let page = page(wanted, clusters.len(), &idle, &actions, &starts);
    println!("{page}");
    std::fs::write(checkout().join("bench/results/fleet.md"), page).unwrap();
}
