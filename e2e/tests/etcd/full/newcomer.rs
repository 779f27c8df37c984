//! A new user, with the charts and the plugin and nothing else: what happened, what is done about it and what comes next can be
//! told from `kubectl evenkeel status` and `why` alone. Nothing here is asserted on anything else.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::{built, install, load_image};
use serde_json::Value;

use crate::full::charts::{IMAGE, chart, helm, shown};
use crate::look::LONG;
use crate::plugin::{Said, evenkeel};

/// What a user has read: the screen without its line breaks, the same for programs, and the exit code.
struct Read {
    words: String,
    told: Value,
    code: i32,
}

fn ask(story: &Story, verb: &[&str]) -> Read {
    let Said { code, out, .. } = evenkeel(story, verb);
    let told = evenkeel(story, &[verb, &["-o", "json"]].concat()).out;
    let told = serde_json::from_str(&told).unwrap_or_default();
    Read {
        words: out.split_whitespace().collect::<Vec<_>>().join(" "),
        told,
        code,
    }
}

/// Asks until it is told so; fails with what was told last.
fn until_told(story: &Story, verb: &[&str], what: &str, so: impl Fn(&Read) -> bool) -> Read {
    let began = Instant::now();
    loop {
        let read = ask(story, verb);
        if so(&read) {
            return read;
        }
        assert!(
            began.elapsed() < LONG,
            "`{}` does not tell that {what}: {}",
            verb.join(" "),
            read.words
        );
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// All that a user must be able to read.
fn says(read: &Read, words: &[&str]) {
    for word in words {
        assert!(
            read.words.contains(word),
            "`{word}` is not told: {}",
            read.words
        );
    }
}

fn is_well(read: &Read) -> bool {
    read.code == 0
        && read
            .words
            .contains("orders: writable, survives 1 more failure")
        && read.words.contains(" Healthy ")
}

/// The members by their role.
fn members(read: &Read, leads: bool) -> BTreeSet<String> {
    let all = read.told["members"].as_array().cloned().unwrap_or_default();
    let wanted = all.iter().filter(|one| (one["role"] == "leader") == leads);
    wanted
        .filter_map(|one| one["name"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn a_new_user_can_tell_from_status_and_why_alone_what_happened_what_is_done_and_what_comes_next() {
    let story = Story::begin("newcomer");
    load_image(&story, IMAGE, &built());
    // The definitions are for all stories; the page `docs/install.md` has the chart bring them.
    install(&story);
    let only = format!("namespaces={{{}}}", story.namespace());
    let values = [
        "--set",
        &only,
        "--set",
        "crds.install=false",
        "--set",
        "userRoles=false",
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
        // One member a node, and three nodes.
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
    let well = until_told(&story, &["status"], "it is well", is_well);
    says(
        &well,
        &[
            "etcd 3.6.16, 3/3 members serve",
            "Doing: nothing",
            "Because: everything is as the spec says",
        ],
    );
    says(
        &ask(&story, &["why"]),
        &[
            "Blocker: nothing is in the way",
            "You can: leave it alone: nothing needs you",
        ],
    );

    loses_a_volume(&story, &well);

    // It is to grow, and there is no room.
    cluster("5");
    let read = until_told(&story, &["status"], "no node takes the newcomer", |read| {
        // Words and JSON are of two looks, one after the other.
        let told = ["Next: it gets its vote", "nodes are available", "must join"];
        read.code == 3
            && read.told["degraded"]["reason"] == "Unschedulable"
            && told.iter().all(|word| read.words.contains(word))
    });
    assert_eq!(
        (read.code, &read.told["writable"]),
        (3, &Value::from(true)),
        "{}",
        read.words
    );
    says(
        &read,
        &[
            "3/5 members serve",
            "Joining orders-",
            "nodes are available",
            "Waits: orders-",
            "must join",
        ],
    );
    let why = ask(&story, &["why"]);
    says(
        &why,
        &[
            "Goal: 5 members",
            "Blocker: orders-",
            "must join: 0/3 nodes",
            "Unschedulable",
            "You can: give it room: add a node",
        ],
    );
    assert!(
        why.told["advice"][0]
            .as_str()
            .is_some_and(|it| it.contains("take back the edit")),
        "{:#}",
        why.told
    );
    cluster("3");
    let well = until_told(&story, &["status"], "it is well", is_well);

    loses_its_quorum(&story, &well);
    helm(&story, &["uninstall", "orders"]).unwrap();
    helm(&story, &["uninstall", story.namespace(), "--wait"]).unwrap();
}

/// A member's pod and volume are deleted.
fn loses_a_volume(story: &Story, well: &Read) {
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
        let read = ask(story, &["status"]);
        // Between two looks it may have been done already; whatever is seen makes sense.
        assert_eq!(
            read.told["writable"], true,
            "clients go on, and that is told: {}",
            read.words
        );
        doing.extend(read.told["summary"].as_str().map(str::to_owned));
        if is_well(&read) && !read.words.contains(&lost) {
            break;
        }
        assert!(
            began.elapsed() < LONG,
            "it is not told that it is well again: {}",
            read.words
        );
        std::thread::sleep(Duration::from_millis(300));
    }
    println!("{}: was told {doing:?}", story.namespace());
    let why = ask(story, &["why", "--last", "40"]);
    says(
        &why,
        &["Blocker: nothing is in the way", "nothing needs you"],
    );
    let removing =
        format!("decided removing {lost} because its claim is gone, and its data with it");
    says(
        &why,
        &[
            &removing,
            &format!("{lost}: a voter"),
            "its data gone",
            "as a learner",
            "its vote",
        ],
    );
}

/// Two of three members do not answer.
fn loses_its_quorum(story: &Story, well: &Read) {
    let frozen = members(well, false);
    let pods: Vec<_> = frozen
        .iter()
        .map(|name| story.lab().pod(story.namespace(), name).unwrap())
        .collect();
    pods.iter()
        .for_each(|pod| pod.freeze(Some("etcd"), None).unwrap());
    let read = until_told(story, &["status"], "the quorum is lost", |read| {
        // Asked twice, and it may come to be told in between.
        read.told["degraded"]["reason"] == "QuorumLost"
            && read.words.contains("No quorum: 1 of 3 answer")
    });
    assert_eq!(
        (read.code, &read.told["writable"]),
        (4, &Value::from(false)),
        "{}",
        read.words
    );
    says(
        &read,
        &[
            "orders: NOT writable",
            "No quorum: 1 of 3 answer",
            "a majority of voters must answer; silent:",
        ],
    );
    says(
        &read,
        &["Next: members that are missing are brought back or replaced"],
    );
    let why = ask(story, &["why"]);
    says(
        &why,
        &[
            "Blocker: a majority of voters must answer",
            "Degraded for",
            "QuorumLost",
            "nothing is lost by waiting",
        ],
    );
    for name in &frozen {
        says(&read, &[name]);
        assert!(
            why.told["evidence"].to_string().contains(name),
            "{:#}",
            why.told
        );
    }
    pods.iter()
        .for_each(|pod| pod.thaw(Some("etcd"), None).unwrap());
    until_told(story, &["status"], "it is well again", is_well);
    says(
        &ask(story, &["why"]),
        &["Blocker: nothing is in the way", "nothing needs you"],
    );
}
