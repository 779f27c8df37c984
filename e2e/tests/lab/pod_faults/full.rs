//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_pod_that_is_cut_off_answers_nobody_while_its_neighbours_do_until_it_is_mended() {
    let story = Story::begin("pod-cut");
    let here = pods::on(&story.lab().nodes()[0].name);
    let there = pods::on(&story.lab().nodes()[1].name);
    story.apply(
        &(pods::server("victim", &here)
            + &pods::server("neighbour", &here)
            + &pods::idle("asker", &there)),
    );
    pods::wait_for(&story, &["victim", "neighbour", "asker"]);
    let victim = pods::address(&story, "victim", 8080);
    let from_pod = || story.shell("asker", &format!("timeout 3 wget -qO- http://{victim}/"));
    story.eventually("both answer", || {
        answers(&story, "victim") && answers(&story, "neighbour")
    });
    story.eventually("a pod reaches it", || {
        from_pod().is_ok_and(|said| said.trim() == "victim")
    });

    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .cut()
        .unwrap();
    assert!(!accepts(&victim), "the victim is cut off from this machine");
    assert!(from_pod().is_err(), "and from pods of other nodes");
    let outwards = format!(
        "timeout 3 wget -qO- http://{}/",
        pods::address(&story, "neighbour", 8080)
    );
    assert!(
        story.shell("victim", &outwards).is_err(),
        "and reaches not even its neighbour"
    );
    story.eventually("the neighbour is well", || answers(&story, "neighbour"));
    story.eventually("and so is the victim, in itself", || {
        story
            .shell("victim", "timeout 3 wget -qO- http://127.0.0.1:8080/")
            .is_ok()
    });

    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .mend()
        .unwrap();
    story.eventually("the victim answers again", || {
        answers(&story, "victim") && from_pod().is_ok()
    });
    story.eventually("and reaches others again", || {
        story.shell("victim", &outwards).is_ok()
    });
    assert_eq!(pods::restarts(&story, "victim"), 0);
}

#[test]
fn a_pod_whose_processes_are_killed_is_started_again_and_serves() {
    let story = Story::begin("pod-killed");
    story.apply(&pods::server("victim", ""));
    pods::wait_for(&story, &["victim"]);
    story.eventually("it answers", || answers(&story, "victim"));
    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .kill(None, None)
        .unwrap();
    story.eventually("Kubernetes has counted a restart", || {
        pods::restarts(&story, "victim") == 1
    });
    let how = ".status.containerStatuses[0].lastState.terminated.exitCode";
    assert_eq!(
        story.field(&["pod", "victim"], how),
        "137",
        "it died of SIGKILL"
    );
    story.eventually("it answers again", || answers(&story, "victim"));
}

#[test]
fn only_the_container_that_is_named_is_killed() {
    let story = Story::begin("pod-container");
    let shown = story
        .command(&["create", "--dry-run=client", "-o", "json", "-f", "-"])
        .input(pods::server("victim", ""));
    let mut pod: serde_json::Value = serde_json::from_str(&shown.run().unwrap()).unwrap();
    let mut twin = pod["spec"]["containers"][0].clone();
    twin["name"] = "second".into();
    twin["command"] = serde_json::json!(["sleep", "1000000"]);
    pod["spec"]["containers"].as_array_mut().unwrap().push(twin);
    story.apply(&pod.to_string());
    pods::wait_for(&story, &["victim"]);
    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .kill(Some("second"), None)
        .unwrap();
    let restarts = |name: &str| {
        let path = format!(".status.containerStatuses[?(@.name==\"{name}\")].restartCount");
        story.field(&["pod", "victim"], &path)
    };
    story.eventually("the second was started again", || restarts("second") == "1");
    assert_eq!(restarts("main"), "0");
    assert_eq!(
        story
            .shell("victim", "cat /tmp/falls 2>/dev/null; true")
            .unwrap(),
        "",
        "the web server never fell"
    );
}

#[test]
fn a_process_that_is_killed_by_name_takes_no_other_with_it() {
    let story = Story::begin("pod-process");
    story.apply(&pods::server("victim", ""));
    pods::wait_for(&story, &["victim"]);
    story.eventually("it answers", || answers(&story, "victim"));
    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .kill(None, Some("httpd"))
        .unwrap();
    story.eventually("the shell has seen its web server fall", || {
        story
            .shell("victim", "cat /tmp/falls")
            .is_ok_and(|falls| falls == "fell\n")
    });
    story.eventually("it has started another, which answers", || {
        answers(&story, "victim")
    });
    assert_eq!(
        pods::restarts(&story, "victim"),
        0,
        "the container lived on"
    );
}

#[test]
fn a_container_that_is_frozen_whole_is_still_there_when_thawed() {
    let story = Story::begin("pod-frozen-whole");
    story.apply(&pods::server("victim", ""));
    pods::wait_for(&story, &["victim"]);
    story.eventually("it answers", || answers(&story, "victim"));
    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .freeze(Some("main"), None)
        .unwrap();
    assert_eq!(answer(&story, "victim"), None);
    assert_eq!(
        (
            states(&story, "victim", "sh")[0].as_str(),
            states(&story, "victim", "httpd")[0].as_str()
        ),
        ("T", "T")
    );
    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .thaw(Some("main"), None)
        .unwrap();
    story.eventually("it answers again", || answers(&story, "victim"));
    assert_eq!(pods::restarts(&story, "victim"), 0);
}

#[test]
fn what_is_not_there_is_named_together_with_what_is() {
    let story = Story::begin("pod-errors");
    keep(&story, "lab-disk");
    let nobody = format!(
        "{:#}",
        story.lab().pod(story.namespace(), "nobody").unwrap_err()
    );
    assert!(nobody.contains("pods \"nobody\" not found"), "{nobody}");

    let pod = story.lab().pod(story.namespace(), KEEPER).unwrap();
    let shown = format!("{}/{KEEPER}", story.namespace());
    let container = pod.kill(Some("nope"), None).unwrap_err().to_string();
    assert_eq!(
        container,
        format!("pod {shown} has no running container nope; its containers are: main")
    );
    let process = pod.freeze(None, Some("nope")).unwrap_err().to_string();
    assert_eq!(
        process,
        format!("container main of pod {shown} has no process named nope")
    );
    let claim = pod.fill_volume(Some("nope")).unwrap_err().to_string();
    assert_eq!(
        claim,
        format!("pod {shown} has no claim nope; its claims are: {CLAIM}")
    );
    assert_eq!(pods::restarts(&story, KEEPER), 0, "nothing was done");
}
