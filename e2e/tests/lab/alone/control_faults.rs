//! Faults of the control plane and of the programs of a machine: the API server stops, everything loses power at once, a single
//! program is killed.

use evenkeel_e2e::{Story, WAIT_LIMIT, accepts_connections, http_get};

use crate::host::{
    OnDrop, marked, nodes, pinned, refuses_connections, serve, service, serving, wait_ready,
};
use crate::pods;
use crate::stateless::web;

fn lab_name() -> String {
    std::env::var("LAB").unwrap()
}

/// Returns the address of the API server in the kubeconfig.
fn api(story: &Story) -> String {
    let server = story.kubectl(&[
        "config",
        "view",
        "-o=jsonpath={.clusters[0].cluster.server}",
    ]);
    server.trim_start_matches("https://").to_owned()
}

#[test]
fn pods_serve_while_the_api_server_is_stopped() {
    let story = Story::alone("api-stop");
    let node = nodes(&story).remove(0);
    let pod = serve(&story, "web", &node);
    story.kubectl(&["expose", "pod", "web", "--port=80", "--target-port=8080"]);
    let by_service = format!("{}:80", story.field(&["service", "web"], ".spec.clusterIP"));
    story.eventually("the service answers", || {
        http_get(&by_service, "/").is_some()
    });
    let api = api(&story);
    let before = service(&lab_name(), "control", "kube-apiserver").expect("the API server runs");
    let _started = OnDrop(|| drop(story.lab().start_api()));
    assert!(
        accepts_connections(&api),
        "the API server does not accept connections before the fault"
    );

    story.lab().stop_api().unwrap();
    // Longer than the restart of a program that exited by itself takes.
    for _ in 0..4 {
        assert!(
            refuses_connections(&api),
            "the API server's port accepts connections"
        );
        story.eventually("the pod answers without the API server", || {
            http_get(&pod.address, "/").as_deref() == Some("web")
        });
        story.eventually("the service answers without the API server", || {
            http_get(&by_service, "/").as_deref() == Some("web")
        });
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    assert!(!before.is_alive() && story.try_kubectl(&["get", "pods"]).is_err());

    story.lab().start_api().unwrap();
    story.eventually("the API server answers", || {
        story.try_kubectl(&["get", "--raw", "/readyz"]).is_ok()
    });
    for node in nodes(&story) {
        wait_ready(&story, &node);
    }
    story.apply(&pinned(&story, "later", &node));
    // A kubelet retries after up to a minute, with growing delays.
    story.within(2 * WAIT_LIMIT, "a new pod runs", || {
        story.field(&["pod", "later"], ".status.phase") == "Running"
    });
    serving(&story, "later");
    assert!(
        pod.process.is_alive() && pods::restarts(&story, "web") == 0,
        "the pod was restarted"
    );
}

#[test]
fn objects_and_pods_survive_a_power_cycle_of_everything() {
    let story = Story::alone("power-cycle");
    story.apply(&web(3));
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    story.kubectl(&["create", "configmap", "note", "--from-literal=key=value"]);
    let uids = || {
        story.kubectl(&[
            "get",
            "deployment/web",
            "service/web",
            "configmap/note",
            "-o=jsonpath={.items[*].metadata.uid}",
        ])
    };
    let (uids_before, name) = (uids(), lab_name());
    let mut machines = vec!["control".to_owned()];
    machines.extend(nodes(&story));
    let before: Vec<_> = machines
        .iter()
        .flat_map(|machine| crate::host::processes_of(&name, Some(machine)))
        .collect();
    let servers = || {
        marked("httpd")
            .into_iter()
            .filter(|process| process.cgroup.contains(&format!("/{name}/")))
            .count()
    };
    assert!(
        before.len() > 20 && servers() >= 3,
        "no server runs before the power cut: {before:?}"
    );

    story.lab().power_cycle().unwrap();
    let survivors: Vec<_> = before.iter().filter(|process| process.is_alive()).collect();
    assert!(
        survivors.is_empty(),
        "processes survived a power cut: {survivors:?}"
    );

    assert_eq!(uids(), uids_before);
    assert_eq!(story.field(&["configmap", "note"], ".data.key"), "value");
    let service = format!("{}:80", story.field(&["service", "web"], ".spec.clusterIP"));
    let mut answered = std::collections::BTreeSet::new();
    story.eventually("all three replicas answer again", || {
        answered.extend(http_get(&service, "/"));
        answered.len() == 3
    });
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);
}

/// Kills a program of a machine, and waits until it is restarted.
fn kill_and_wait(story: &Story, machine: &str, program: &str) {
    let name = lab_name();
    let killed = service(&name, machine, program)
        .unwrap_or_else(|| panic!("no {program} runs on {machine}"));
    killed.kill();
    story.eventually(&format!("{program} runs again on {machine}"), || {
        service(&name, machine, program).is_some_and(|new| new != killed)
    });
    assert!(!killed.is_alive());
}

#[test]
fn a_killed_program_of_a_node_is_restarted_and_containers_survive() {
    let story = Story::alone("kill-node");
    let node = nodes(&story).remove(0);
    let web = serve(&story, "web", &node);
    for program in ["kubelet", "containerd", "kube-proxy", "lab-csi"] {
        kill_and_wait(&story, &node, program);
        story.eventually(&format!("the pod answers without {program}"), || {
            http_get(&web.address, "/").as_deref() == Some("web")
        });
        // `kubectl exec` needs both the kubelet and containerd.
        story.eventually(
            &format!("a command runs in the pod after {program} was killed"),
            || {
                story
                    .shell("web", "echo here")
                    .is_ok_and(|output| output.trim() == "here")
            },
        );
        wait_ready(&story, &node);
    }
    serve(&story, "later", &node);
    assert!(
        web.process.is_alive() && pods::restarts(&story, "web") == 0,
        "the container did not survive"
    );
}

#[test]
fn a_killed_program_of_the_control_plane_is_restarted() {
    let story = Story::alone("kill-control");
    story.apply(&web(1));
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    for program in [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kube-proxy",
        "coredns",
    ] {
        kill_and_wait(&story, "control", program);
    }
    story.eventually("the API server answers", || {
        story.try_kubectl(&["get", "--raw", "/readyz"]).is_ok()
    });
    // The controllers create the pod, the scheduler places it, kube-proxy routes to it, CoreDNS resolves the name.
    story.kubectl(&["scale", "deployment/web", "--replicas=2"]);
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=180s"]);
    let service = format!("{}:80", story.field(&["service", "web"], ".spec.clusterIP"));
    let mut answered = std::collections::BTreeSet::new();
    story.eventually("the old pod and the new one answer", || {
        answered.extend(http_get(&service, "/"));
        answered.len() == 2
    });
    let asker = answered.first().unwrap();
    story.eventually("a pod finds the service by its name", || {
        story
            .shell(asker, "timeout 5 wget -qO- http://web/")
            .is_ok_and(|output| answered.contains(output.trim()))
    });
    for node in nodes(&story) {
        wait_ready(&story, &node);
    }
}
