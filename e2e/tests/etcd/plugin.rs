//! `kubectl evenkeel` as users call it: without a cluster, on a healthy one, on a broken one, and without permission.

mod full;

use std::process::Command;

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::{Operator, binary};
use serde_json::Value;

use crate::assertions::{CLUSTER_LIMIT, create_orders, follower, leader, wait_healthy};
use crate::interrupts::spec;

/// The output of the plugin.
pub(crate) struct PluginOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `kubectl evenkeel` in the story's namespace.
pub(crate) fn evenkeel(story: &Story, args: &[&str]) -> PluginOutput {
    let kubeconfig = story.lab().kubeconfig().to_string_lossy().into_owned();
    evenkeel_as(story, &kubeconfig, args)
}

#[expect(clippy::disallowed_methods, reason = "the exit code is asserted")]
fn evenkeel_as(story: &Story, kubeconfig: &str, args: &[&str]) -> PluginOutput {
    let programs = story.lab().programs().to_string_lossy().into_owned();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(binary("kubectl-evenkeel"));
    command
        .args(["--namespace", story.namespace()])
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env("PATH", path);
    let output = command.output().expect("the plugin was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let output = PluginOutput {
        code: output.status.code().unwrap_or(-1),
        out: text(&output.stdout),
        err: text(&output.stderr),
    };
    println!(
        "{}: kubectl evenkeel {}: {}\n{}{}",
        story.namespace(),
        args.join(" "),
        output.code,
        output.out,
        output.err
    );
    output
}

/// Transfers leadership. The plugin refuses while the next leader does not answer, as may happen on a busy machine.
fn move_leader(story: &Story, args: &[&str]) -> PluginOutput {
    let args = [&["move-leader"], args].concat();
    let mut output = evenkeel(story, &args);
    story.eventually("leadership is transferred", || {
        if output.err.contains("does not respond") {
            output = evenkeel(story, &args);
        }
        output.code == 0
    });
    output
}

#[test]
fn the_plugin_reports_status_and_reasons_and_runs_its_commands() {
    let story = Story::begin("plugin");
    let _operator = Operator::start(&story);
    let output = evenkeel(&story, &["status"]);
    assert_eq!(output.code, 5, "expected exit code 5 without a cluster");
    assert!(
        output.err.contains("no EtcdCluster found in namespace"),
        "{}",
        output.err
    );

    let cluster = create_orders(&story, &spec(3), 3);
    let mut output = evenkeel(&story, &["status"]);
    story.eventually("the plugin reports a healthy cluster", || {
        output = evenkeel(&story, &["status"]);
        output.code == 0
    });
    for line in [
        "Health       OK       reads and writes are served; checked now\n",
        "Tolerates    1 member failure, 1 node failure",
        "Operation    none     spec generation ",
        "Operator     running  ",
        "Certificates valid; next renewal of ",
        "Disruptions  1 eviction allowed now; maintenance: any time\n",
    ] {
        assert!(output.out.contains(line), "{line}: {}", output.out);
    }
    assert!(
        output.out.lines().all(|line| line.chars().count() <= 80),
        "{}",
        output.out
    );
    assert_eq!(output.out.matches("  ok  ").count(), 3, "{}", output.out);
    assert!(
        !output.out.contains('\u{1b}'),
        "colours in the output to a pipe"
    );
    let reported: Value =
        serde_json::from_str(&evenkeel(&story, &["status", "orders", "-o", "json"]).out).unwrap();
    assert_eq!(
        (
            &reported["kind"],
            &reported["health"]["writes"],
            &reported["failureTolerance"]["nodes"]
        ),
        (
            &Value::from("ClusterReport"),
            &Value::from(true),
            &Value::from(1)
        ),
        "{reported:#}"
    );
    assert!(
        reported["members"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["dbSizeBytes"].as_u64() > Some(1000)),
        "{reported:#}"
    );
    assert!(
        evenkeel(&story, &["status", "-o", "yaml"])
            .out
            .contains("apiVersion: plugin.evenkeel.dev/v1alpha1")
    );
    let output = evenkeel(&story, &["status", "order"]);
    assert!(
        output.code == 5 && output.err.contains("existing clusters: orders"),
        "{}",
        output.err
    );
    assert!(
        evenkeel(&story, &["status", "-A"])
            .out
            .contains(story.namespace())
    );
    assert!(
        evenkeel(&story, &["__complete", "status", "or"])
            .out
            .starts_with("orders\n")
    );

    let output = evenkeel(&story, &["etcdctl", "orders", "put", "greeting", "hello"]);
    assert_eq!((output.code, output.out.trim()), (0, "OK"));
    let output = evenkeel(
        &story,
        &[
            "etcdctl",
            "orders",
            "--",
            "get",
            "greeting",
            "--print-value-only",
        ],
    );
    assert_eq!(output.out.trim(), "hello");
    assert_ne!(
        evenkeel(&story, &["etcdctl", "orders", "frobnicate"]).code,
        0,
        "the exit code is not etcdctl's"
    );

    let output = evenkeel(&story, &["logs", "--tail", "1"]);
    assert_eq!(
        output.out.lines().count(),
        3,
        "expected one line per member: {}",
        output.out
    );
    let output = evenkeel(&story, &["move-leader"]);
    assert!(
        output.code == 2 && output.err.contains(": orders"),
        "expected a usage error with the existing clusters: {}",
        output.err
    );
    let before = leader(&story, &cluster).name;
    let output = move_leader(&story, &["orders"]);
    let after = leader(&story, &cluster).name;
    let shown = evenkeel(&story, &["status"]).out;
    let is_leader_line = |line: &str| line.starts_with(&after) && line.contains("  leader  ");
    assert!(
        shown.lines().any(is_leader_line),
        "the new leader is not shown: {shown}"
    );
    assert!(
        after != before
            && output
                .out
                .contains(&format!("transferred leadership from {before} to {after}")),
        "{}",
        output.out
    );
    // The status still names the former leader for some seconds: etcd is asked.
    move_leader(&story, &["orders", "--to", &before]);
    assert_eq!(leader(&story, &cluster).name, before);
    let output = evenkeel(&story, &["-v", "version", "-o", "json"]);
    let versions: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(
        (
            &versions["crd"]["installed"],
            &versions["crd"]["missingFields"]
        ),
        (&Value::from(true), &serde_json::json!([])),
        "{versions:#}"
    );
    assert!(
        output
            .err
            .contains("GET /openapi/v3/apis/evenkeel.dev/v1alpha1 200 in "),
        "{}",
        output.err
    );

    // While paused, nothing is recovered; afterwards the operator continues, and `why` reports its reasons.
    assert_eq!(evenkeel(&story, &["pause", "orders"]).code, 0);
    story.eventually("the status reports the pause", || {
        cluster.status()["summary"] == "Paused"
    });
    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name]);
    let is_reported = |output: &PluginOutput| {
        output.code == 3
            && output.out.contains("spec.paused is set")
            && output
                .out
                .contains("Tolerates    nothing: 2 of 3 voters answer")
    };
    story.eventually("the status reports the missing member", || {
        is_reported(&evenkeel(&story, &["status"]))
    });
    assert!(
        cluster.pods().iter().all(|pod| pod.name != victim.name),
        "the pod was created during the pause"
    );
    assert_eq!(evenkeel(&story, &["resume", "orders"]).code, 0);
    story.within(CLUSTER_LIMIT, "the member is back", || {
        cluster
            .pods()
            .iter()
            .any(|pod| pod.name == victim.name && pod.ready)
    });
    wait_healthy(&story, &cluster, 3);
    let output = evenkeel(&story, &["why", "--last", "40"]);
    let words = [
        "3 members, etcd 3.6.16".to_owned(),
        format!("creating Pod {}", victim.name),
        format!(
            "PersistentVolumeClaim {} exists and the pod does not",
            victim.name
        ),
        "spec.paused to be set to false".to_owned(),
        "finishing bootstrap".to_owned(),
        "MEMBER ROLE POD DATA PROBE".to_owned(),
        format!("{} voter none intact no answer", victim.name),
    ];
    let reported = output.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(reported.contains(&word), "{word} is not in {}", output.out);
    }
    // The complete facts of the decision are included.
    let reported: Value =
        serde_json::from_str(&evenkeel(&story, &["why", "--facts", "-o", "json"]).out).unwrap();
    assert!(
        reported["decisions"][0]["facts"]["cluster"]["members"] == 3,
        "{reported:#}"
    );
}
