//! The faults of single pods, seen by their clients on this machine, by `kubectl` and by the kernel.

mod full;

use evenkeel_e2e::{Story, accepts, http_get};

use crate::pods;
use crate::volumes::{CLAIM, KEEPER, keep};

/// What the pod's web server answers this machine.
fn answer(story: &Story, pod: &str) -> Option<String> {
    http_get(&pods::address(story, pod, 8080), "/")
}

fn answers(story: &Story, pod: &str) -> bool {
    answer(story, pod).as_deref() == Some(pod)
}

/// How a process of the pod's only container fares, by its name: one letter of the kernel's, `T` for stopped.
fn states(story: &Story, pod: &str, process: &str) -> Vec<String> {
    // A process may end while it is looked at.
    let all = story
        .shell(pod, "cat /proc/[0-9]*/stat 2>/dev/null; true")
        .unwrap();
    let name = format!("({process}) ");
    all.lines()
        .filter_map(|line| line.split_once(&name))
        .map(|(_, rest)| rest[..1].to_owned())
        .collect()
}

#[test]
fn a_frozen_process_takes_connections_but_answers_only_when_thawed() {
    let story = Story::begin("pod-frozen");
    story.apply(&pods::server("victim", ""));
    pods::wait_for(&story, &["victim"]);
    story.eventually("it answers", || answers(&story, "victim"));
    let address = pods::address(&story, "victim", 8080);

    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .freeze(None, Some("httpd"))
        .unwrap();
    assert!(
        accepts(&address),
        "the kernel still takes connections for it"
    );
    assert_eq!(answer(&story, "victim"), None);
    // One more of them, if it was about to answer somebody.
    let frozen = states(&story, "victim", "httpd");
    assert!(
        !frozen.is_empty() && frozen.iter().all(|state| state == "T"),
        "{frozen:?}"
    );
    assert_ne!(
        states(&story, "victim", "sh")[0],
        "T",
        "the shell beside it goes on"
    );

    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .thaw(None, Some("httpd"))
        .unwrap();
    story.eventually("it answers again", || answers(&story, "victim"));
    assert_eq!(pods::restarts(&story, "victim"), 0);
    assert_eq!(
        story
            .shell("victim", "cat /tmp/falls 2>/dev/null; true")
            .unwrap(),
        "",
        "it is the same process"
    );
}
