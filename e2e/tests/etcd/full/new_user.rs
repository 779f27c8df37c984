//! A new user with the charts and the plugin: `kubectl evenkeel status` and `why` alone report what happened, what the operator does
//! about it and what comes next. The assertions use nothing else.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::{install, load_operator_image};
use serde_json::Value;

use crate::assertions::CLUSTER_LIMIT;
use crate::full::charts::{IMAGE, chart, helm, shown};
use crate::plugin::{PluginOutput, evenkeel};

/// The output for a user: the screen without line breaks, the JSON, and the exit code.
struct Screen {
    text: String,
    json: Value,
    code: i32,
}

fn run_plugin(story: &Story, verb: &[&str]) -> Screen {
    let PluginOutput { code, out, .. } = evenkeel(story, verb);
    let json = evenkeel(story, &[verb, &["-o", "json"]].concat()).out;
    let json = serde_json::from_str(&json).unwrap_or_default();
    Screen {
        text: out.split_whitespace().collect::<Vec<_>>().join(" "),
        json,
        code,
    }
}

/// Repeats a command until its output satisfies a condition; panics with the last output.
fn wait_reported(
    story: &Story,
    verb: &[&str],
    what: &str,
    holds: impl Fn(&Screen) -> bool,
) -> Screen {
    let began = Instant::now();
    loop {
        let screen = run_plugin(story, verb);
        if holds(&screen) {
            return screen;
        }
        assert!(
            began.elapsed() < CLUSTER_LIMIT,
            "`{}` does not report that {what}: {}",
            verb.join(" "),
            screen.text
        );
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Asserts that the screen contains all words.
fn assert_contains(screen: &Screen, text: &[&str]) {
    for word in text {
        assert!(
            screen.text.contains(word),
            "`{word}` is missing: {}",
            screen.text
        );
    }
}

fn is_healthy(screen: &Screen) -> bool {
    screen.code == 0
        && screen.text.contains(
            "Health OK reads and writes are served; checked now Tolerates 1 member failure",
        )
        && screen.text.contains("Operation none spec generation")
}

/// Returns the names of the leader, or of all others.
fn members(screen: &Screen, is_leading: bool) -> BTreeSet<String> {
    let all = screen.json["members"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let selected = all
        .iter()
        .filter(|one| (one["role"] == "leader") == is_leading);
    selected
        .filter_map(|one| one["name"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn status_and_why_alone_explain_failures_to_a_new_user() {
    let story = Story::begin("new-user");
    load_operator_image(&story, IMAGE);
    // All stories share the CRDs; the page `docs/installation/install.md` installs them from the chart.
    install(&story);
    let only = format!("namespaces={{{}}}", story.namespace());
    let values = [
        "--set",
        &only,
        "--set",
        "crds.install=false",
        "--set",
        "userRoles=false",
        "--set",
        "admissionWarnings=false",
        "--wait",
        "--timeout=3m",
    ];
    let operator = shown(&chart("evenkeel"));
    helm(
        &story,
        &[&["install", story.namespace(), &operator], &values[..]].concat(),
    )
    .unwrap();
    let cluster = |members: &str| {
        let members = format!("spec.members={members}");
        // One member per node, and three nodes.
        let values = [
            "--set",
            &members,
            "--set",
            "spec.storage.size=1Gi",
            "--set",
            "spec.scheduling.spread.require=true",
        ];
        helm(
            &story,
            &[
                &[
                    "upgrade",
                    "--install",
                    "orders",
                    &shown(&chart("etcd-cluster")),
                ],
                &values[..],
            ]
            .concat(),
        )
        .unwrap();
    };
    cluster("3");
    let well = wait_reported(&story, &["status"], "the cluster is healthy", is_healthy);
    assert_contains(
        &well,
        &[
            "etcd 3.6.16 (cluster ID ",
            "Tolerates 1 member failure, 1 node failure, 1 zone failure (3 members on 3 nodes",
        ],
    );
    assert_contains(
        &run_plugin(&story, &["why"]),
        &["Blocker: none", "Action required: none"],
    );

    lose_volume(&story, &well);

    // Scaled up without room.
    cluster("5");
    let screen = wait_reported(
        &story,
        &["status"],
        "no node fits the new member",
        |screen| {
            // Screen and JSON are from two calls.
            let words = ["promotes member", "nodes are available", "to join"];
            screen.code == 3
                && screen.json["problems"][0]["reason"] == "Unschedulable"
                && words.iter().all(|word| screen.text.contains(word))
        },
    );
    assert_eq!(
        (screen.code, &screen.json["health"]["writes"]),
        (3, &Value::from(true)),
        "{}",
        screen.text
    );
    assert_contains(
        &screen,
        &[
            "Health DEGRADED",
            "Problem Member orders-",
            "nodes are available",
            "You can Add or uncordon a node",
            "Operation scale",
            "3 of 5",
        ],
    );
    let why = run_plugin(&story, &["why"]);
    assert_contains(
        &why,
        &[
            "Goal: 5 members",
            "Blocker: Member orders-",
            "0/3 nodes",
            "Unschedulable",
            "Action required: Add or uncordon a node",
        ],
    );
    assert!(
        why.json["actionsRequired"][0]
            .as_str()
            .is_some_and(|it| it.contains("spec.scheduling")),
        "{:#}",
        why.json
    );
    cluster("3");
    let well = wait_reported(&story, &["status"], "the cluster is healthy", is_healthy);

    lose_quorum(&story, &well);
    helm(&story, &["uninstall", "orders"]).unwrap();
    helm(&story, &["uninstall", story.namespace(), "--wait"]).unwrap();
}

/// Deletes a member's pod and volume.
fn lose_volume(story: &Story, well: &Screen) {
    let lost = members(well, false).pop_first().unwrap();
    story.kubectl(&[
        "delete",
        &format!("pod/{lost}"),
        &format!("pvc/{lost}"),
        "--wait=false",
    ]);
    let mut doing = BTreeSet::new();
    let began = Instant::now();
    loop {
        let screen = run_plugin(story, &["status"]);
        // Steps may be missed between two calls; each status that is seen must be correct.
        assert_eq!(
            screen.json["health"]["writes"], true,
            "the status reports that clients cannot write: {}",
            screen.text
        );
        let operation = screen.json["operation"]["message"].as_str();
        doing.extend(operation.map(str::to_owned));
        if is_healthy(&screen) && !screen.text.contains(&lost) {
            break;
        }
        assert!(
            began.elapsed() < CLUSTER_LIMIT,
            "the status does not report a healthy cluster: {}",
            screen.text
        );
        std::thread::sleep(Duration::from_millis(300));
    }
    println!("{}: reported {doing:?}", story.namespace());
    let why = run_plugin(story, &["why", "--last", "40"]);
    assert_contains(&why, &["Blocker: none", "Action required: none"]);
    let removing = format!(
        "decision removing member {lost} reason PersistentVolumeClaim {lost} is gone, and its data with it"
    );
    assert_contains(
        &why,
        &[
            &removing,
            &format!("{lost} voter"),
            " lost ",
            "as a learner",
            "to voter",
        ],
    );
}

/// Freezes two of three members.
fn lose_quorum(story: &Story, well: &Screen) {
    let frozen = members(well, false);
    let pods: Vec<_> = frozen
        .iter()
        .map(|name| story.lab().pod(story.namespace(), name).unwrap())
        .collect();
    pods.iter()
        .for_each(|pod| pod.freeze(Some("etcd"), None).unwrap());
    let screen = wait_reported(story, &["status"], "the quorum is lost", |screen| {
        // Screen and JSON are from two calls, and may differ.
        let problem = &screen.json["problems"][0];
        problem["reason"] == "QuorumLost"
            && problem["source"] == "Operator"
            && screen.text.contains("1 of 3 voters responds")
    });
    assert_eq!(
        (screen.code, &screen.json["health"]["writes"]),
        (4, &Value::from(false)),
        "{}",
        screen.text
    );
    assert_contains(
        &screen,
        &[
            "Health UNAVAILABLE for ",
            "reads and writes are not served",
            "Tolerates nothing: the quorum of 2 is lost",
            "1 of 3 voters responds",
            "waiting loses no data",
        ],
    );
    let why = run_plugin(story, &["why"]);
    assert_contains(
        &why,
        &[
            "1 of 3 voters responds",
            "0 of 3 voters answer a linearizable read now",
            "QuorumLost, reported since",
            "waiting loses no data",
        ],
    );
    for name in &frozen {
        assert_contains(&screen, &[name]);
        assert!(
            why.json["evidence"].to_string().contains(name),
            "{:#}",
            why.json
        );
    }
    pods.iter()
        .for_each(|pod| pod.thaw(Some("etcd"), None).unwrap());
    wait_reported(
        story,
        &["status"],
        "the cluster is healthy again",
        is_healthy,
    );
    assert_contains(
        &run_plugin(story, &["why"]),
        &["Blocker: none", "Action required: none"],
    );
}
