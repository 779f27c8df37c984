//! Faults of nodes: each fault and its end are observed through Kubernetes, TCP and `/proc`.

use std::path::Path;

use evenkeel_e2e::{BUSYBOX_IMAGE, RESTRICTED, Story, accepts_connections, http_get};
use evenkeel_lab::up;

use crate::host::{
    OnDrop, kubelet, loop_files, marked, marker, nodes, ready, serve, serving, wait_lost,
    wait_ready,
};
use crate::pods;

#[test]
fn a_node_without_power_has_no_processes_and_restarts_its_pods_later() {
    let story = Story::alone("power");
    let node = nodes(&story).pop().unwrap();
    let kubelet = kubelet(&story, &node);
    let before = serve(&story, "web", &node);
    let _on_again = OnDrop(|| drop(story.lab().power_on(&node)));
    assert!(
        accepts_connections(&kubelet),
        "the kubelet does not accept connections before the fault"
    );

    story.lab().power_off(&node).unwrap();
    assert_eq!(
        marked(&marker(&story, "web")),
        [],
        "containers survived the power cut"
    );
    assert!(
        !before.process.is_alive()
            && !accepts_connections(&kubelet)
            && http_get(&before.address, "/").is_none()
    );
    wait_lost(&story, &node);

    story.lab().power_on(&node).unwrap();
    wait_ready(&story, &node);
    let after = serving(&story, "web");
    assert_ne!(
        after.process, before.process,
        "the process is the one from before the power cut"
    );
    assert_ne!(pods::restarts(&story, "web"), 0);
    serve(&story, "later", &node);
}

#[test]
fn a_frozen_node_accepts_connections_and_continues_when_thawed() {
    let story = Story::alone("freeze");
    let node = nodes(&story).pop().unwrap();
    let kubelet = kubelet(&story, &node);
    let web = serve(&story, "web", &node);
    let _thawed = OnDrop(|| drop(story.lab().thaw(&node)));

    story.lab().freeze(&node).unwrap();
    assert_eq!(
        http_get(&web.address, "/"),
        None,
        "the pod answers although its node is frozen"
    );
    assert!(
        accepts_connections(&web.address) && accepts_connections(&kubelet),
        "the kernel of a frozen node does not accept connections"
    );
    wait_lost(&story, &node);
    assert_eq!(
        http_get(&web.address, "/"),
        None,
        "the pod answers although its node is still frozen"
    );
    assert!(web.process.is_alive());

    story.lab().thaw(&node).unwrap();
    story.eventually("the pod answers again", || {
        http_get(&web.address, "/").is_some()
    });
    wait_ready(&story, &node);
    assert!(web.process.is_alive(), "the process was replaced");
    assert_eq!(pods::restarts(&story, "web"), 0);
}

#[test]
fn a_node_that_is_cut_off_is_unreachable_while_its_containers_run() {
    let story = Story::alone("cut");
    let node = nodes(&story).pop().unwrap();
    let kubelet = kubelet(&story, &node);
    let web = serve(&story, "web", &node);
    let _restored = OnDrop(|| drop(story.lab().mend(&node)));
    assert!(
        accepts_connections(&kubelet),
        "the kubelet does not accept connections before the fault"
    );

    story.lab().cut(&node).unwrap();
    assert!(
        !accepts_connections(&kubelet) && !accepts_connections(&web.address),
        "packets reach a node that is cut off"
    );
    wait_lost(&story, &node);
    assert!(
        !accepts_connections(&kubelet) && web.process.is_alive(),
        "the process died although the node is only cut off"
    );

    story.lab().mend(&node).unwrap();
    wait_ready(&story, &node);
    story.eventually("the pod answers again", || {
        http_get(&web.address, "/").is_some()
    });
    assert!(
        accepts_connections(&kubelet) && web.process.is_alive(),
        "the process was replaced"
    );
    assert_eq!(pods::restarts(&story, "web"), 0);
}

/// Returns a pod with a volume on this node.
pub(crate) fn with_disk(node: &str) -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: disk}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 512Mi}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: store}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  terminationGracePeriodSeconds: 1
  securityContext: {{fsGroup: 1000}}
  volumes: [{{name: disk, persistentVolumeClaim: {{claimName: disk}}}}]
  containers:
    - name: store
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

/// Creates a Service for a pod, and returns its cluster address once it answers on this machine.
fn served_as(story: &Story, name: &str, pod: &str) -> String {
    story.apply(&service(name, pod));
    let address = format!("{}:80", story.field(&["service", name], ".spec.clusterIP"));
    story.eventually(&format!("the service {name} answers"), || {
        http_get(&address, "/").as_deref() == Some(pod)
    });
    address
}

#[test]
fn a_deleted_node_is_gone_with_its_disks_and_a_new_one_has_another_name() {
    let story = Story::alone("for-good");
    let before = nodes(&story);
    // The first node: the kube-proxy of the control plane, through which this machine reaches Services, uses the first node's name.
    let (first, last) = (before.first().unwrap(), before.last().unwrap());
    let kubelet = kubelet(&story, first);
    let doomed = serve(&story, "doomed", first);
    story.apply(&with_disk(first));
    story.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "--timeout=90s",
        "pod/store",
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
        "the node has no disk or no files before it is deleted"
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
    assert!(!doomed.process.is_alive() && !accepts_connections(&kubelet));
    story.eventually("the loop device is gone", || disks() == 0);
    assert!(!files.exists(), "the files still exist");
    served_as(&story, "new", "web");
    story.eventually("the old service still answers", || {
        http_get(&old_service, "/").as_deref() == Some("web")
    });

    let added = up::add_node(story.lab().name()).unwrap().name;
    assert!(
        !before.contains(&added),
        "the new node has the name of an old one"
    );
    assert_eq!(nodes(&story).len(), before.len());
    assert_eq!(ready(&story, &added), "True");
    serve(&story, "later", &added);

    // No node is left that could delete the lost disk's PersistentVolume.
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
