//! The faults as commands: what a person types does what the library does. The library's own stories look closer.

mod alone;

use evenkeel_e2e::{Story, accepts, checkout, http_get};
use evenkeel_lab::command::Cmd;

use crate::host::{nodes, ready};
use crate::pods;
use crate::volumes::{KEEPER, inside, keep};

/// Runs `lab` on the stories' lab, which must succeed; what it printed.
fn lab(story: &Story, args: &[&str]) -> String {
    let name = story.lab().name().to_string();
    let command = Cmd::new(checkout().join("bin/lab"))
        .args(["--name", &name])
        .args(args);
    command.run().unwrap_or_else(|error| panic!("{error:#}"))
}

#[test]
fn what_is_done_to_a_pod_or_its_volume_can_be_typed() {
    let story = Story::begin("typed-pod");
    story.apply(&pods::server("web", ""));
    keep(&story, "lab-disk");
    pods::wait_for(&story, &["web"]);
    let (address, pod) = (
        pods::address(&story, "web", 8080),
        format!("{}/web", story.namespace()),
    );
    let answers = || http_get(&address, "/").is_some();
    story.eventually("it answers", answers);

    lab(&story, &["pod", "cut", &pod]);
    assert!(!answers(), "it answers although it is cut off");
    lab(&story, &["pod", "mend", &pod]);
    story.eventually("it answers again", answers);
    lab(&story, &["pod", "freeze", &pod, "--process", "httpd"]);
    assert!(!answers(), "it answers although it is frozen");
    lab(&story, &["pod", "thaw", &pod, "--container", "main"]);
    story.eventually("it answers again", answers);
    lab(&story, &["pod", "kill", &pod]);
    story.eventually("it was started again", || {
        pods::restarts(&story, "web") == 1 && answers()
    });

    let keeper = format!("{}/{KEEPER}", story.namespace());
    lab(&story, &["volume", "fill", &keeper]);
    let full = story
        .shell(KEEPER, "dd if=/dev/zero of=/data/some bs=4k count=1")
        .unwrap_err();
    assert!(full.contains("No space left on device"), "{full}");
    lab(&story, &["volume", "free", &keeper]);
    inside(&story, "echo kept > /data/note");
    lab(&story, &["volume", "wipe", &keeper]);
    assert_eq!(inside(&story, "ls /data"), "");
}
