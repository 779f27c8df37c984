//! What can befall the control plane and the programs that make up a machine: the API server stops, everything loses
//! power at once, a single program is killed.

use evenkeel_e2e::{PATIENCE, Story, accepts, http_get};

use crate::host::{
    Afterwards, marked, nodes, pinned, refuses, serve, service, serving, until_ready,
};
use crate::pods;
use crate::stateless::web;

fn lab_name() -> String {
    std::env::var("LAB").unwrap()
}

/// Where the API server listens, as the kubeconfig says.
fn api(story: &Story) -> String {
    let server = story.kubectl(&[
        "config",
        "view",
        "-o=jsonpath={.clusters[0].cluster.server}",
    ]);
    server.trim_start_matches("https://").to_owned()
}

#[test]
fn while_the_api_server_is_stopped_pods_go_on_serving_and_after_its_start_everything_answers() {
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
    let _started = Afterwards(|| drop(story.lab().start_api()));
    assert!(accepts(&api), "else that it refuses later says nothing");

    story.lab().stop_api().unwrap();
    // Longer than it takes a program that ended by itself to be started again.
    for _ in 0..4 {
        assert!(
            refuses(&api),
            "somebody listens at the API server's address"
        );
        story.eventually("the pod answers without the API server", || {
            http_get(&pod.address, "/").as_deref() == Some("web")
        });
        story.eventually("the service answers without the API server", || {
            http_get(&by_service, "/").as_deref() == Some("web")
        });
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    assert!(!before.lives() && story.try_kubectl(&["get", "pods"]).is_err());

    story.lab().start_api().unwrap();
    story.eventually("the API server answers", || {
        story.try_kubectl(&["get", "--raw", "/readyz"]).is_ok()
    });
    for node in nodes(&story) {
        until_ready(&story, &node);
    }
    story.apply(&pinned(&story, "newcomer", &node));
    // A kubelet asks again after up to a minute, the longer the more often it was refused of late.
    story.within(2 * PATIENCE, "a new pod runs", || {
        story.field(&["pod", "newcomer"], ".status.phase") == "Running"
    });
    serving(&story, "newcomer");
    assert!(
        pod.process.lives() && pods::restarts(&story, "web") == 0,
        "the pod noticed nothing"
    );
}

#[test]
fn after_a_power_cycle_of_everything_objects_are_still_there_and_pods_come_back() {
    let story = Story::alone("power-cycle");
    story.apply(&web(3));
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    story.kubectl(&[
        "create",
        "configmap",
        "note",
        "--from-literal=said=remember",
    ]);
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
        "else that they are gone later says nothing: {before:?}"
    );

    story.lab().power_cycle().unwrap();
    let survivors: Vec<_> = before.iter().filter(|process| process.lives()).collect();
    assert!(
        survivors.is_empty(),
        "lived through a power cut: {survivors:?}"
    );

    assert_eq!(uids(), uids_before);
    assert_eq!(
        story.field(&["configmap", "note"], ".data.said"),
        "remember"
    );
    let service = format!("{}:80", story.field(&["service", "web"], ".spec.clusterIP"));
    let mut answered = std::collections::BTreeSet::new();
    story.eventually("all three replicas answer again", || {
        answered.extend(http_get(&service, "/"));
        answered.len() == 3
    });
    story.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);
}

/// Kills a program of a machine, and waits for the one that is started in its stead.
fn kill_and_wait(story: &Story, machine: &str, program: &str) {
    let name = lab_name();
    let killed = service(&name, machine, program)
        .unwrap_or_else(|| panic!("no {program} runs on {machine}"));
    killed.kill();
    story.eventually(&format!("{program} runs again on {machine}"), || {
        service(&name, machine, program).is_some_and(|new| new != killed)
    });
    assert!(!killed.lives());
}

#[test]
fn a_killed_program_of_a_node_is_started_again_and_containers_survive_it() {
    let story = Story::alone("kill-node");
    let node = nodes(&story).remove(0);
    let web = serve(&story, "web", &node);
    for program in ["kubelet", "containerd", "kube-proxy", "lab-csi"] {
        kill_and_wait(&story, &node, program);
        story.eventually(&format!("the pod answers without {program}"), || {
            http_get(&web.address, "/").as_deref() == Some("web")
        });
        // Through the kubelet, and through containerd.
        story.eventually(
            &format!("a command runs in the pod after {program} was killed"),
            || {
                story
                    .shell("web", "echo here")
                    .is_ok_and(|said| said.trim() == "here")
            },
        );
        until_ready(&story, &node);
    }
    serve(&story, "newcomer", &node);
    assert!(
        web.process.lives() && pods::restarts(&story, "web") == 0,
        "the container did not survive"
    );
}

#[test]
fn a_killed_program_of_the_control_plane_is_started_again_and_does_its_work() {
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
    // The controllers make the pod, the scheduler places it, the kube-proxy leads there, CoreDNS knows the name.
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
            .is_ok_and(|said| answered.contains(said.trim()))
    });
    for node in nodes(&story) {
        until_ready(&story, &node);
    }
}
