//! Stock `kubectl` on the lab: commands that reach into pods, and commands for daily use.

mod alone;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;

use evenkeel_e2e::{BUSYBOX_IMAGE, Story, WAIT_LIMIT, http_get};
use evenkeel_lab::command::Cmd;
use serde_json::json;

use crate::pods;
use crate::stateless::web;

/// A `kubectl port-forward` to a port of a pod or Service, from a free port of this machine.
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
        let (sender, received) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let line = received
            .recv_timeout(WAIT_LIMIT)
            .expect("port-forward prints its address");
        let address = line
            .split_whitespace()
            .find(|word| word.starts_with("127.0.0.1:"))
            .expect(&line)
            .to_owned();
        // Later lines report connections, and must be read.
        std::thread::spawn(move || received.iter().for_each(drop));
        Self { child, address }
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns overrides with which a pod of `kubectl run` meets the restricted Pod Security Standard.
fn restricted() -> String {
    json!({"spec": {"securityContext": {
        "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
    }}})
    .to_string()
}

#[test]
fn logs_are_complete_followed_and_kept_from_the_previous_container() {
    let story = Story::begin("kubectl-logs");
    let counts = "for i in 1 2 3 4 5 6; do echo line $i; sleep 1; done";
    story.apply(&(pods::pod("counter", counts, "restartPolicy: Never", "")));
    // The first container exits when a file exists; the second stays.
    let twice = "echo life; until [ -e /tmp/end ]; do sleep 0.1; done; echo end; exit 3";
    story.apply(&pods::pod("twice", twice, "", ""));
    pods::wait_for(&story, &["twice"]);
    story.eventually("the first line is logged", || {
        story
            .try_kubectl(&["logs", "counter"])
            .is_ok_and(|sender| sender.contains("line 1"))
    });
    let all = "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n";
    assert_eq!(
        story.kubectl(&["logs", "--follow", "counter"]),
        all,
        "the log was not followed to its end"
    );
    assert_eq!(
        story.kubectl(&["logs", "--tail=2", "counter"]),
        "line 5\nline 6\n"
    );

    assert!(
        story.try_kubectl(&["logs", "--previous", "twice"]).is_err(),
        "there is a log of a previous container"
    );
    story.shell("twice", "touch /tmp/end").unwrap();
    story.eventually("the container is restarted", || {
        pods::restarts(&story, "twice") == 1 && pods::is_ready(&story, "twice")
    });
    assert_eq!(
        story.kubectl(&["logs", "--previous", "twice"]),
        "life\nend\n"
    );
    // Without a probe a container is Ready before it has logged anything.
    story.eventually("the second container has logged", || {
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
        "the file in the pod differs"
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
        // A second connection through the same forward.
        story.eventually(&format!("{what} answers again"), || {
            http_get(&forward.address, "/").as_deref() == Some("server")
        });
    }
}

#[test]
fn a_pod_can_be_run_with_input_and_attached_to() {
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
    args.extend(["--command", "--", "sh", "-c", "read word; echo got $word"]);
    let sender = story.command(&args).input("hello\n").run().unwrap();
    assert!(sender.contains("got hello"), "{sender}");
    assert!(
        story.try_kubectl(&["get", "pod", "once"]).is_err(),
        "--rm has not deleted the pod"
    );

    let listens = "read word; echo got $word; exec sleep 1000000";
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
    story.eventually("the pod has read the input", || {
        story.kubectl(&["logs", "listener"]) == "got attached\n"
    });
    let _ = attached.kill();
    let _ = attached.wait();
}

#[test]
fn a_debugging_container_sees_a_running_pod() {
    let story = Story::begin("kubectl-debug");
    story.apply(&pods::server("server", ""));
    pods::wait_for(&story, &["server"]);
    // Without a probe the pod is Ready before its web server listens, and the debugging container asks only once.
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
        "--container=debug",
        "--target=main",
    ];
    let mut args = debug.to_vec();
    // A process may exit while its file is read.
    let look = "wget -qO- http://127.0.0.1:8080/; cat /proc/[0-9]*/comm 2>/dev/null; echo done";
    args.extend(["--", "sh", "-c", look]);
    let debugged = story.try_kubectl(&args);
    std::fs::remove_file(custom).unwrap();
    debugged.unwrap();
    let mut sender = String::new();
    story.eventually("the debugging container has printed", || {
        sender = story
            .try_kubectl(&["logs", "server", "-c", "debug"])
            .unwrap_or_default();
        sender.ends_with("done\n")
    });
    assert!(
        sender.starts_with("server\n"),
        "it does not share the pod's network: {sender}"
    );
    assert!(
        sender.contains("httpd\n"),
        "it does not see the pod's processes: {sender}"
    );
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
    story.eventually("only new pods exist", || {
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
fn explain_server_side_apply_and_permission_reviews_work() {
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

    let account = format!("--as=system:serviceaccount:{}:default", story.namespace());
    assert_eq!(
        story.kubectl(&["auth", "can-i", "delete", "pods"]).trim(),
        "yes"
    );
    let cannot = story
        .command(&["auth", "can-i", "delete", "pods", &account])
        .attempt()
        .unwrap();
    assert_eq!((cannot.0, cannot.1.trim()), (false, "no"));
    // Known limitation: there is no metrics server.
    let top = story.try_kubectl(&["top", "nodes"]).unwrap_err();
    assert!(top.contains("Metrics API not available"), "{top}");
}
