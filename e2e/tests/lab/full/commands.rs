//! The commands for faults: each has the effect of the library function. The stories of the library check more.

mod alone;

use evenkeel_e2e::{Story, accepts_connections, checkout, http_get};
use evenkeel_lab::command::Cmd;

use crate::host::{nodes, ready};
use crate::pods;
use crate::volumes::{STORE_POD, create_store, run_in_store};

/// Runs `lab` on the stories' lab; it must succeed. Returns its output.
fn lab(story: &Story, args: &[&str]) -> String {
    let name = story.lab().name().to_string();
    let command = Cmd::new(checkout().join("bin/lab"))
        .args(["--name", &name])
        .args(args);
    command.run().unwrap_or_else(|error| panic!("{error:#}"))
}

#[test]
fn commands_inject_faults_into_pods_and_volumes() {
    let story = Story::begin("typed-pod");
    story.apply(&pods::server("web", ""));
    create_store(&story, "lab-disk");
    pods::wait_for(&story, &["web"]);
    let (address, pod) = (
        pods::address(&story, "web", 8080),
        format!("{}/web", story.namespace()),
    );
    let answers = || http_get(&address, "/").is_some();
    story.eventually("the pod answers", answers);

    lab(&story, &["pod", "cut", &pod]);
    assert!(!answers(), "the pod answers although it is cut off");
    lab(&story, &["pod", "mend", &pod]);
    story.eventually("the pod answers again", answers);
    lab(&story, &["pod", "freeze", &pod, "--process", "httpd"]);
    assert!(!answers(), "the pod answers although it is frozen");
    lab(&story, &["pod", "thaw", &pod, "--container", "main"]);
    story.eventually("the pod answers again", answers);
    lab(&story, &["pod", "kill", &pod]);
    story.eventually("the container was restarted", || {
        pods::restarts(&story, "web") == 1 && answers()
    });

    let store_manifest = format!("{}/{STORE_POD}", story.namespace());
    lab(&story, &["volume", "fill", &store_manifest]);
    let full = story
        .shell(STORE_POD, "dd if=/dev/zero of=/data/some bs=4k count=1")
        .unwrap_err();
    assert!(full.contains("No space left on device"), "{full}");
    lab(&story, &["volume", "free", &store_manifest]);
    run_in_store(&story, "echo kept > /data/note");
    lab(&story, &["volume", "wipe", &store_manifest]);
    assert_eq!(run_in_store(&story, "ls /data"), "");
}
