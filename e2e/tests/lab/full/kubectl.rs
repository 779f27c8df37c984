//! Stock `kubectl` on the lab: what reaches into pods, and what people use every day.

mod alone;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;

use evenkeel_e2e::{BUSYBOX_IMAGE, PATIENCE, Story, http_get};
use evenkeel_lab::command::Cmd;
use serde_json::json;

use crate::pods;
use crate::stateless::web;

/// A `kubectl port-forward` to port 8080 of what is named, from a port of this machine that nobody else has.
struct Forward {
    child: Child,
    address: String,
}

impl Forward {
    fn to(story: &Story, what: &str, port: u16) -> Self {
        let command = story.command(&["port-forward", what, &format!(":{port}")]);
        let mut child = command
            .spawn(|command| _ = command.stdout(Stdio::piped()))
            .unwrap();
        let (said, heard) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| said.send(line))
        });
        let line = heard
            .recv_timeout(PATIENCE)
            .expect("port-forward says where it listens");
        let address = line
            .split_whitespace()
            .find(|word| word.starts_with("127.0.0.1:"))
            .expect(&line)
            .to_owned();
        // Later lines tell of connections: somebody must take them.
        std::thread::spawn(move || heard.iter().for_each(drop));
        Self { child, address }
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What makes a pod of `kubectl run` pass the restricted profile.
fn restricted() -> String {
    json!({"spec": {"securityContext": {
        "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
    }}})
    .to_string()
}

#[test]
fn logs_are_shown_whole_followed_to_their_end_and_kept_from_the_container_before() {
    let story = Story::begin("kubectl-logs");
    let counts = "for i in 1 2 3 4 5 6; do echo line $i; sleep 1; done";
    story.apply(&(pods::pod("counter", counts, "restartPolicy: Never", "")));
    // The first life ends on a sign; the second stays.
    let twice = "echo life; until [ -e /tmp/end ]; do sleep 0.1; done; echo end; exit 3";
    story.apply(&pods::pod("twice", twice, "", ""));
    pods::wait_for(&story, &["twice"]);
    story.eventually("it counts", || {
        story
            .try_kubectl(&["logs", "counter"])
            .is_ok_and(|said| said.contains("line 1"))
    });
    let all = "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n";
    assert_eq!(
        story.kubectl(&["logs", "--follow", "counter"]),
        all,
        "followed until the pod ended"
    );
    assert_eq!(
        story.kubectl(&["logs", "--tail=2", "counter"]),
        "line 5\nline 6\n"
    );

    assert!(
        story.try_kubectl(&["logs", "--previous", "twice"]).is_err(),
        "there was no container before"
    );
    story.shell("twice", "touch /tmp/end").unwrap();
    story.eventually("it lives again", || {
        pods::restarts(&story, "twice") == 1 && pods::is_ready(&story, "twice")
    });
    assert_eq!(
        story.kubectl(&["logs", "--previous", "twice"]),
        "life\nend\n"
    );
    // Without a probe a container counts as ready before it has done anything.
    story.eventually("the second life speaks, too", || {
        story.kubectl(&["logs", "twice"]) == "life\n"
    });
}

#[test]
fn exec_passes_input_output_and_the_exit_status() {
    let story = Story::begin("kubectl-exec");
    story.apply(&pods::idle("box", ""));
    pods::wait_for(&story, &["box"]);
    let input = "some text\n".repeat(20_000);
    let echoed = story
        .command(&["exec", "-i", "box", "--", "cat"])
        .input(input.clone())
        .run()
        .unwrap();
    assert!(
        echoed == input,
        "{} of {} bytes came back",
        echoed.len(),
        input.len()
    );
    let failed = story
        .try_kubectl(&["exec", "box", "--", "sh", "-c", "echo woe >&2; exit 7"])
        .unwrap_err();
    assert!(
        failed.contains("woe") && failed.contains("exit code 7"),
        "{failed}"
    );
}

#[test]
fn files_are_copied_into_a_pod_and_out_of_it() {
    let story = Story::begin("kubectl-cp");
    story.apply(&pods::idle("box", ""));
    pods::wait_for(&story, &["box"]);
    let dir = std::env::temp_dir().join(story.namespace());
    std::fs::create_dir_all(dir.join("there")).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(dir.join("there/file"), &bytes).unwrap();
    let run = |from: &str, to: &str| story.command(&["cp", from, to]).dir(&dir).run().unwrap();
    run("there", "box:/tmp/kept");
    run("box:/tmp/kept/file", "back");
    let back = std::fs::read(dir.join("back")).unwrap();
    let sum = story.shell("box", "sha256sum < /tmp/kept/file").unwrap();
    let local = Cmd::new("sha256sum")
        .arg(dir.join("there/file"))
        .run()
        .unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(back == bytes, "{} bytes came back", back.len());
    assert_eq!(
        sum.split_whitespace().next(),
        local.split_whitespace().next(),
        "and inside it is the same"
    );
}

#[test]
fn ports_are_forwarded_to_pods_and_services() {
    let story = Story::begin("kubectl-forward");
    story.apply(&pods::server("server", ""));
    story.kubectl(&["expose", "pod", "server", "--port=80", "--target-port=8080"]);
    pods::wait_for(&story, &["server"]);
    for (what, port) in [("pod/server", 8080), ("service/server", 80)] {
        let forward = Forward::to(&story, what, port);
        story.eventually(&format!("{what} answers"), || {
            http_get(&forward.address, "/").as_deref() == Some("server")
        });
        // More than one connection through the same forward.
        story.eventually(&format!("{what} answers once more"), || {
            http_get(&forward.address, "/").as_deref() == Some("server")
        });
    }
}

#[test]
fn a_pod_can_be_run_talked_to_and_attached_to() {
    let story = Story::begin("kubectl-run");
    let image = format!("--image={BUSYBOX_IMAGE}");
    let secure = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let mut overrides: serde_json::Value = serde_json::from_str(&restricted()).unwrap();
    overrides["spec"]["containers"] = json!([{"name": "once", "securityContext": secure}]);
    let overrides = format!("--overrides={overrides}");
    let run = [
        "run",
        "once",
        "--rm",
        "-i",
        "--restart=Never",
        "--override-type=strategic",
        &image,
        &overrides,
    ];
    let mut args = run.to_vec();
    args.extend(["--command", "--", "sh", "-c", "read word; echo heard $word"]);
    let said = story.command(&args).input("hello\n").run().unwrap();
    assert!(said.contains("heard hello"), "{said}");
    assert!(
        story.try_kubectl(&["get", "pod", "once"]).is_err(),
        "--rm has removed it"
    );

    let listens = "read word; echo heard $word; exec sleep 1000000";
    story.apply(&pods::pod(
        "listener",
        listens,
        "",
        "stdin: true\nstdinOnce: true",
    ));
    pods::wait_for(&story, &["listener"]);
    let mut attached = story
        .command(&["attach", "-i", "listener"])
        .spawn(|command| {
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
        });
    let attached = attached.as_mut().unwrap();
    std::io::Write::write_all(&mut attached.stdin.take().unwrap(), b"attached\n").unwrap();
    story.eventually("it has heard", || {
        story.kubectl(&["logs", "listener"]) == "heard attached\n"
    });
    let _ = attached.kill();
    let _ = attached.wait();
}

#[test]
fn a_debugging_container_looks_into_a_running_pod() {
    let story = Story::begin("kubectl-debug");
    story.apply(&pods::server("server", ""));
    pods::wait_for(&story, &["server"]);
    // Without a probe it is ready before its web server listens, and the debugging container asks once.
    story.eventually("the server answers", || {
        http_get(&pods::address(&story, "server", 8080), "/").as_deref() == Some("server")
    });
    let custom = std::env::temp_dir().join(format!("{}.json", story.namespace()));
    std::fs::write(
        &custom,
        json!({"securityContext": {"runAsUser": 1000}}).to_string(),
    )
    .unwrap();
    let (image, custom_flag) = (
        format!("--image={BUSYBOX_IMAGE}"),
        format!("--custom={}", custom.display()),
    );
    let debug = [
        "debug",
        "server",
        &image,
        "--profile=restricted",
        &custom_flag,
        "--container=look",
        "--target=main",
    ];
    let mut args = debug.to_vec();
    // A process may end while it is looked at.
    let look = "wget -qO- http://127.0.0.1:8080/; cat /proc/[0-9]*/comm 2>/dev/null; echo done";
    args.extend(["--", "sh", "-c", look]);
    let debugged = story.try_kubectl(&args);
    std::fs::remove_file(custom).unwrap();
    debugged.unwrap();
    let mut said = String::new();
    story.eventually("it has looked", || {
        said = story
            .try_kubectl(&["logs", "server", "-c", "look"])
            .unwrap_or_default();
        said.ends_with("done\n")
    });
    assert!(
        said.starts_with("server\n"),
        "it shares the pod's network: {said}"
    );
    assert!(said.contains("httpd\n"), "and sees its processes: {said}");
}

#[test]
fn a_deployment_is_rolled_out_waited_for_and_rolled_back() {
    let story = Story::begin("kubectl-rollout");
    story.apply(&web(2));
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    story.kubectl(&[
        "wait",
        "--for=condition=Available",
        "deployment/web",
        "--timeout=90s",
    ]);
    story.kubectl(&["set", "env", "deployment/web", "COLOUR=blue"]);
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    let colour = || {
        story
            .kubectl(&["exec", "deployment/web", "--", "sh", "-c", "echo $COLOUR"])
            .trim()
            .to_owned()
    };
    story.eventually("the new ones alone are there", || {
        story.get(&["pods", "-l", "app=web"])["items"]
            .as_array()
            .unwrap()
            .len()
            == 2
    });
    assert_eq!(colour(), "blue");
    let history = story.kubectl(&["rollout", "history", "deployment/web"]);
    assert!(
        history.contains("\n1 ") && history.contains("\n2 "),
        "{history}"
    );
    story.kubectl(&["rollout", "undo", "deployment/web"]);
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    assert_eq!(
        story.field(
            &["deployment", "web"],
            ".spec.template.spec.containers[0].env"
        ),
        ""
    );
    let never = story
        .try_kubectl(&[
            "wait",
            "--for=condition=Never",
            "deployment/web",
            "--timeout=1s",
        ])
        .unwrap_err();
    assert!(never.contains("timed out waiting"), "{never}");
}

#[test]
fn objects_are_explained_applied_by_owners_and_rights_are_told() {
    let story = Story::begin("kubectl-misc");
    let explained = story.kubectl(&["explain", "statefulset.spec.podManagementPolicy"]);
    assert!(explained.contains("OrderedReady"), "{explained}");

    let object = |value: &str| {
        let kind = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned"}, "data": {"key": value}});
        kind.to_string()
    };
    let apply = |who: &str, value: &str| {
        let by = format!("--field-manager={who}");
        story
            .command(&["apply", "--server-side", &by, "-f", "-"])
            .input(object(value))
            .run()
    };
    apply("one", "first").unwrap();
    let conflict = format!("{:#}", apply("two", "second").unwrap_err());
    assert!(conflict.contains("conflict with \"one\""), "{conflict}");
    assert_eq!(story.field(&["configmap", "owned"], ".data.key"), "first");

    let anybody = format!("--as=system:serviceaccount:{}:default", story.namespace());
    assert_eq!(
        story.kubectl(&["auth", "can-i", "delete", "pods"]).trim(),
        "yes"
    );
    let cannot = story
        .command(&["auth", "can-i", "delete", "pods", &anybody])
        .attempt()
        .unwrap();
    assert_eq!((cannot.0, cannot.1.trim()), (false, "no"));
    // Known and said so: there is no metrics server.
    let top = story.try_kubectl(&["top", "nodes"]).unwrap_err();
    assert!(top.contains("Metrics API not available"), "{top}");
}
