//! Faults of single pods, observed by clients on this machine, by `kubectl` and through `/proc`.

mod full;

use evenkeel_e2e::{Story, accepts_connections, http_get};

use crate::pods;
use crate::volumes::{CLAIM, STORE_POD, create_store};

/// Returns the answer of the pod's web server.
fn answer(story: &Story, pod: &str) -> Option<String> {
    http_get(&pods::address(story, pod, 8080), "/")
}

fn answers(story: &Story, pod: &str) -> bool {
    answer(story, pod).as_deref() == Some(pod)
}

/// Returns the states of the processes with this name in the pod's only container, as in `/proc`: `T` means stopped.
fn states(story: &Story, pod: &str, process: &str) -> Vec<String> {
    // A process may exit while its file is read.
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
fn a_frozen_process_accepts_connections_and_answers_when_thawed() {
    let story = Story::begin("pod-frozen");
    story.apply(&pods::server("victim", ""));
    pods::wait_for(&story, &["victim"]);
    story.eventually("the pod answers", || answers(&story, "victim"));
    let address = pods::address(&story, "victim", 8080);

    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .freeze(None, Some("httpd"))
        .unwrap();
    assert!(
        accepts_connections(&address),
        "the kernel does not accept connections"
    );
    assert_eq!(answer(&story, "victim"), None);
    // There may be a second one, forked for an answer.
    let frozen = states(&story, "victim", "httpd");
    assert!(
        !frozen.is_empty() && frozen.iter().all(|state| state == "T"),
        "{frozen:?}"
    );
    assert_ne!(
        states(&story, "victim", "sh")[0],
        "T",
        "the shell was frozen, too"
    );

    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .thaw(None, Some("httpd"))
        .unwrap();
    story.eventually("the pod answers again", || answers(&story, "victim"));
    assert_eq!(pods::restarts(&story, "victim"), 0);
    assert_eq!(
        story
            .shell("victim", "cat /tmp/falls 2>/dev/null; true")
            .unwrap(),
        "",
        "the web server was restarted"
    );
}
