//! What can befall a node: each fault is seen to happen and seen to heal, by Kubernetes, by TCP and by `/proc`.

use std::path::Path;

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story, accepts, http_get};
use evenkeel_lab::up;

use crate::host::{
    Afterwards, kubelet, loop_files, marked, marker, nodes, ready, serve, serving, until_lost,
    until_ready,
};
use crate::pods;

#[test]
fn a_node_without_power_has_no_process_left_and_runs_its_pods_again_when_powered_on() {
    let story = Story::alone("power");
    let node = nodes(&story).pop().unwrap();
    let kubelet = kubelet(&story, &node);
    let before = serve(&story, "web", &node);
    let _on_again = Afterwards(|| drop(story.lab().power_on(&node)));
    assert!(
        accepts(&kubelet),
        "else that it is silent later says nothing"
    );

    story.lab().power_off(&node).unwrap();
    assert_eq!(
        marked(&marker(&story, "web")),
        [],
        "its containers die with it"
    );
    assert!(
        !before.process.lives() && !accepts(&kubelet) && http_get(&before.address, "/").is_none()
    );
    until_lost(&story, &node);

    story.lab().power_on(&node).unwrap();
    until_ready(&story, &node);
    let after = serving(&story, "web");
    assert_ne!(
        after.process, before.process,
        "a process that died is not the one that runs"
    );
    assert_ne!(pods::restarts(&story, "web"), 0);
    serve(&story, "newcomer", &node);
}

#[test]
fn a_frozen_node_takes_connections_and_answers_none_and_goes_on_where_it_was_when_thawed() {
    let story = Story::alone("freeze");
    let node = nodes(&story).pop().unwrap();
    let kubelet = kubelet(&story, &node);
    let web = serve(&story, "web", &node);
    let _thawed = Afterwards(|| drop(story.lab().thaw(&node)));

    story.lab().freeze(&node).unwrap();
    assert_eq!(
        http_get(&web.address, "/"),
        None,
        "the pod answers though its node is frozen"
    );
    assert!(
        accepts(&web.address) && accepts(&kubelet),
        "its kernel still takes connections: it hangs, it is not gone"
    );
    until_lost(&story, &node);
    assert_eq!(
        http_get(&web.address, "/"),
        None,
        "the pod answers though its node is still frozen"
    );
    assert!(web.process.lives());

    story.lab().thaw(&node).unwrap();
    story.eventually("the pod answers again", || {
        http_get(&web.address, "/").is_some()
    });
    until_ready(&story, &node);
    assert!(web.process.lives(), "the same process goes on");
    assert_eq!(pods::restarts(&story, "web"), 0);
}

#[test]
fn a_node_that_is_cut_off_cannot_be_reached_while_its_containers_run_on_and_can_when_mended() {
    let story = Story::alone("cut");
    let node = nodes(&story).pop().unwrap();
    let kubelet = kubelet(&story, &node);
    let web = serve(&story, "web", &node);
    let _mended = Afterwards(|| drop(story.lab().mend(&node)));
    assert!(
        accepts(&kubelet),
        "else that it cannot be reached later says nothing"
    );

    story.lab().cut(&node).unwrap();
    assert!(
        !accepts(&kubelet) && !accepts(&web.address),
        "packets reach a node without a cable"
    );
    until_lost(&story, &node);
    assert!(
        !accepts(&kubelet) && web.process.lives(),
        "it is cut off, not dead"
    );

    story.lab().mend(&node).unwrap();
    until_ready(&story, &node);
    story.eventually("the pod answers again", || {
        http_get(&web.address, "/").is_some()
    });
    assert!(
        accepts(&kubelet) && web.process.lives(),
        "the same process runs on"
    );
    assert_eq!(pods::restarts(&story, "web"), 0);
}

/// A pod with a volume, wherever the node is.
pub(crate) fn with_disk(node: &str) -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: disk}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 512Mi}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: keeper}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  terminationGracePeriodSeconds: 1
  securityContext: {{fsGroup: 1000}}
  volumes: [{{name: disk, persistentVolumeClaim: {{claimName: disk}}}}]
  containers:
    - name: keeper
      image: {BUSYBOX_IMAGE}
      command: [sh, -c, \"exec sleep 100000\"]
      volumeMounts: [{{name: disk, mountPath: /disk}}]
      {RESTRICTED}
"
    )
}

fn service(name: &str, pod: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{selector: {{app: {pod}}}, ports: [{{port: 80, targetPort: 8080}}]}}
"
    )
}

/// The cluster address of a new service for a pod, once it answers on this machine.
fn served_as(story: &Story, name: &str, pod: &str) -> String {
    story.apply(&service(name, pod));
    let address = format!("{}:80", story.field(&["service", name], ".spec.clusterIP"));
    story.eventually(&format!("the service {name} answers"), || {
        http_get(&address, "/").as_deref() == Some(pod)
    });
    address
}

#[test]
fn a_deleted_node_is_gone_with_its_disks_and_a_new_one_of_another_name_takes_its_place() {
    let story = Story::alone("for-good");
    let before = nodes(&story);
    // The first: the control plane's kube-proxy, by which the machine itself reaches services, speaks for it.
    let (first, last) = (before.first().unwrap(), before.last().unwrap());
    let kubelet = kubelet(&story, first);
    let doomed = serve(&story, "doomed", first);
    story.apply(&with_disk(first));
    story.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "--timeout=90s",
        "pod/keeper",
    ]);
    let volume = story.field(&["pvc", "disk"], ".spec.volumeName");
    let disks = || {
        loop_files()
            .into_iter()
            .filter(|file| file.contains(&volume))
            .count()
    };
    let files = Path::new("/var/lib/evenkeel/labs")
        .join(std::env::var("LAB").unwrap())
        .join("machines")
        .join(first);
    assert!(
        disks() == 1 && files.is_dir(),
        "else that they are gone later says nothing"
    );
    serve(&story, "web", last);
    let old_service = served_as(&story, "old", "web");

    up::delete_node(story.lab().name(), first).unwrap();
    assert!(
        story
            .try_kubectl(&["get", "node", first])
            .unwrap_err()
            .contains("NotFound")
    );
    assert!(!doomed.process.lives() && !accepts(&kubelet));
    story.eventually("its disk is free", || disks() == 0);
    assert!(!files.exists(), "its files are still there");
    served_as(&story, "new", "web");
    story.eventually("the old service answers still", || {
        http_get(&old_service, "/").as_deref() == Some("web")
    });

    let added = up::add_node(story.lab().name()).unwrap().name;
    assert!(
        !before.contains(&added),
        "the new node has an old one's name"
    );
    assert_eq!(nodes(&story).len(), before.len());
    assert_eq!(ready(&story, &added), "True");
    serve(&story, "newcomer", &added);

    // Nobody is left to take the lost disk's volume away.
    story.kubectl(&["delete", "pod,pvc", "--all", "--force", "--wait=false"]);
    story.kubectl(&[
        "patch",
        "pv",
        &volume,
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    story.kubectl(&[
        "delete",
        "pv",
        &volume,
        "--ignore-not-found",
        "--wait=false",
    ]);
}
