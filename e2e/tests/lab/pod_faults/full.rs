//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn a_pod_that_is_cut_off_does_not_answer_while_its_neighbours_do() {
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
    story.eventually("both pods answer", || {
        answers(&story, "victim") && answers(&story, "neighbour")
    });
    story.eventually("the asker reaches the victim", || {
        from_pod().is_ok_and(|output| output.trim() == "victim")
    });

    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .cut()
        .unwrap();
    assert!(
        !accepts_connections(&victim),
        "the victim accepts connections"
    );
    assert!(
        from_pod().is_err(),
        "a pod on another node reaches the victim"
    );
    let outwards = format!(
        "timeout 3 wget -qO- http://{}/",
        pods::address(&story, "neighbour", 8080)
    );
    assert!(
        story.shell("victim", &outwards).is_err(),
        "the victim reaches its neighbour"
    );
    story.eventually("the neighbour answers", || answers(&story, "neighbour"));
    story.eventually("the victim answers itself", || {
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
    story.eventually("the victim reaches others again", || {
        story.shell("victim", &outwards).is_ok()
    });
    assert_eq!(pods::restarts(&story, "victim"), 0);
}

#[test]
fn a_pod_whose_processes_are_killed_is_restarted() {
    let story = Story::begin("pod-killed");
    story.apply(&pods::server("victim", ""));
    pods::wait_for(&story, &["victim"]);
    story.eventually("the pod answers", || answers(&story, "victim"));
    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .kill(None, None)
        .unwrap();
    story.eventually("the restart is counted", || {
        pods::restarts(&story, "victim") == 1
    });
    let how = ".status.containerStatuses[0].lastState.terminated.exitCode";
    assert_eq!(
        story.field(&["pod", "victim"], how),
        "137",
        "the exit code is not that of SIGKILL"
    );
    story.eventually("the pod answers again", || answers(&story, "victim"));
}

#[test]
fn only_the_named_container_is_killed() {
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
    story.eventually("the second container is restarted", || {
        restarts("second") == "1"
    });
    assert_eq!(restarts("main"), "0");
    assert_eq!(
        story
            .shell("victim", "cat /tmp/falls 2>/dev/null; true")
            .unwrap(),
        "",
        "the web server was restarted"
    );
}

#[test]
fn killing_a_process_by_name_kills_no_other() {
    let story = Story::begin("pod-process");
    story.apply(&pods::server("victim", ""));
    pods::wait_for(&story, &["victim"]);
    story.eventually("the pod answers", || answers(&story, "victim"));
    story
        .lab()
        .pod(story.namespace(), "victim")
        .unwrap()
        .kill(None, Some("httpd"))
        .unwrap();
    story.eventually("the shell has seen its web server exit", || {
        story
            .shell("victim", "cat /tmp/falls")
            .is_ok_and(|falls| falls == "fell\n")
    });
    story.eventually("another web server answers", || answers(&story, "victim"));
    assert_eq!(
        pods::restarts(&story, "victim"),
        0,
        "the container was restarted"
    );
}

#[test]
fn a_frozen_container_continues_when_thawed() {
    let story = Story::begin("pod-frozen-all");
    story.apply(&pods::server("victim", ""));
    pods::wait_for(&story, &["victim"]);
    story.eventually("the pod answers", || answers(&story, "victim"));
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
    story.eventually("the pod answers again", || answers(&story, "victim"));
    assert_eq!(pods::restarts(&story, "victim"), 0);
}

#[test]
fn errors_name_the_missing_object_and_the_existing_ones() {
    let story = Story::begin("pod-errors");
    create_store(&story, "lab-disk");
    let missing = format!(
        "{:#}",
        story.lab().pod(story.namespace(), "missing").unwrap_err()
    );
    assert!(missing.contains("pods \"missing\" not found"), "{missing}");

    let pod = story.lab().pod(story.namespace(), STORE_POD).unwrap();
    let shown = format!("{}/{STORE_POD}", story.namespace());
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
    assert_eq!(
        pods::restarts(&story, STORE_POD),
        0,
        "the container was restarted"
    );
}
