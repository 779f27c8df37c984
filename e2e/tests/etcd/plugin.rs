//! `kubectl evenkeel`, as a user tries it: on nothing, on a cluster that is well, on one that is broken, and without the right to.

mod full;

use std::process::Command;

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::{Operator, built_beside};
use serde_json::Value;

use crate::look::{LONG, follower, formed, leader, until_whole};
use crate::middle::spec;

/// What it says.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// `kubectl evenkeel`, in the story's namespace.
pub(crate) fn evenkeel(story: &Story, args: &[&str]) -> Said {
    let kubeconfig = story.lab().kubeconfig().to_string_lossy().into_owned();
    evenkeel_as(story, &kubeconfig, args)
}

#[expect(
    clippy::disallowed_methods,
    reason = "its exit code is what is looked at"
)]
fn evenkeel_as(story: &Story, kubeconfig: &str, args: &[&str]) -> Said {
    let programs = story.lab().programs().to_string_lossy().into_owned();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(built_beside("kubectl-evenkeel"));
    command
        .args(["--namespace", story.namespace()])
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env("PATH", path);
    let output = command.output().expect("the plugin was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = Said {
        code: output.status.code().unwrap_or(-1),
        out: text(&output.stdout),
        err: text(&output.stderr),
    };
    println!(
        "{}: kubectl evenkeel {}: {}\n{}{}",
        story.namespace(),
        args.join(" "),
        said.code,
        said.out,
        said.err
    );
    said
}

#[test]
fn the_plugin_tells_how_a_cluster_is_and_why_and_does_what_it_is_told() {
    let story = Story::begin("plugin");
    let _operator = Operator::start(&story);
    let said = evenkeel(&story, &["status"]);
    assert_eq!(said.code, 5, "there is none yet");
    assert!(
        said.err.contains("no etcdcluster in the namespace"),
        "{}",
        said.err
    );

    let cluster = formed(&story, &spec(3), 3);
    let mut said = evenkeel(&story, &["status"]);
    story.eventually("it is told as well", || {
        said = evenkeel(&story, &["status"]);
        said.code == 0
    });
    assert!(
        said.out
            .starts_with("orders: writable, survives 1 more failure\n"),
        "{}",
        said.out
    );
    assert!(
        said.out.lines().all(|line| line.chars().count() <= 80),
        "{}",
        said.out
    );
    assert_eq!(said.out.matches("  serves  ").count(), 3, "{}", said.out);
    assert!(said.out.contains("Certs:    good;"), "{}", said.out);
    assert!(
        !said.out.contains('\u{1b}'),
        "no colours where nobody sees them"
    );
    let told: Value =
        serde_json::from_str(&evenkeel(&story, &["status", "orders", "-o", "json"]).out).unwrap();
    assert_eq!(
        (&told["writable"], &told["failureTolerance"]),
        (&Value::from(true), &Value::from(1)),
        "{told:#}"
    );
    assert!(
        told["members"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["dbBytes"].as_u64() > Some(1000)),
        "{told:#}"
    );
    assert!(
        evenkeel(&story, &["status", "-o", "yaml"])
            .out
            .contains("writable: true")
    );
    let said = evenkeel(&story, &["status", "order"]);
    assert!(
        said.code == 5 && said.err.contains("there are orders"),
        "{}",
        said.err
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

    let said = evenkeel(&story, &["etcdctl", "orders", "put", "greeting", "hello"]);
    assert_eq!((said.code, said.out.trim()), (0, "OK"));
    let said = evenkeel(
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
    assert_eq!(said.out.trim(), "hello");
    assert_ne!(
        evenkeel(&story, &["etcdctl", "orders", "frobnicate"]).code,
        0,
        "etcdctl's own code"
    );

    let said = evenkeel(&story, &["logs", "--tail", "1"]);
    assert_eq!(
        said.out.lines().count(),
        3,
        "a line of each member: {}",
        said.out
    );
    let before = leader(&story, &cluster).name;
    let said = evenkeel(&story, &["move-leader"]);
    assert_eq!(said.code, 0);
    let after = leader(&story, &cluster).name;
    let shown = evenkeel(&story, &["status"]).out;
    let leads = |line: &str| line.starts_with(&after) && line.contains("  leader  ");
    assert!(shown.lines().any(leads), "it is seen at once: {shown}");
    assert!(
        after != before
            && said
                .out
                .contains(&format!("{after} leads now; {before} did")),
        "{}",
        said.out
    );

    // Paused, it is left alone; then it is looked after again, and can tell why it did what it did.
    assert_eq!(evenkeel(&story, &["pause"]).code, 0);
    story.eventually("it is paused", || cluster.status()["summary"] == "Paused");
    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name]);
    let is_told =
        |said: &Said| said.out.contains("it is paused") && said.out.contains("no further failure");
    story.eventually("one is missed", || is_told(&evenkeel(&story, &["status"])));
    assert!(
        cluster.pods().iter().all(|pod| pod.name != victim.name),
        "nothing is healed"
    );
    assert_eq!(evenkeel(&story, &["resume"]).code, 0);
    story.within(LONG, "it is back", || {
        cluster
            .pods()
            .iter()
            .any(|pod| pod.name == victim.name && pod.ready)
    });
    until_whole(&story, &cluster, 3);
    let said = evenkeel(&story, &["why", "--last", "40"]);
    let words = [
        "3 members of etcd 3.6.16".to_owned(),
        format!("creating the pod of {}", victim.name),
        format!("the pod of {} is gone", victim.name),
        "spec.paused is set".to_owned(),
        "letting clients in".to_owned(),
        format!(
            "{}: a voter, no pod, its own data, did not answer",
            victim.name
        ),
    ];
    let told = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(told.contains(&word), "{word} is not in {}", said.out);
    }
    // And what it rested on is there in full: the very facts that would be decided on again.
    let told: Value =
        serde_json::from_str(&evenkeel(&story, &["why", "--facts", "-o", "json"]).out).unwrap();
    assert!(
        told["decisions"][0]["facts"]["cluster"]["members"] == 3,
        "{told:#}"
    );
}
