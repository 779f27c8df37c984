//! The stories of this topic for `make test-all`.

use super::*;

fn secret(name: &str, ca: &CertificateFiles, files: &CertificateFiles) -> String {
    let text = |path: &std::path::Path| STANDARD.encode(std::fs::read(path).unwrap());
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {
        "ca.crt": text(&ca.cert), "tls.crt": text(&files.cert), "tls.key": text(&files.key),
    }})
    .to_string()
}

/// Creates the Secrets and the Service of a cluster `orders`, and the PVC of its one member.
fn create_surroundings(story: &Story) {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::at(dir.path());
    let ca = pki.ca("clients").unwrap();
    let names = vec![format!("orders-etcd-client.{}.svc", story.namespace())];
    let server = Holder {
        name: "server",
        group: None,
        names,
        addresses: Vec::new(),
    };
    let server = pki.issue("clients", "server", &server).unwrap();
    let client = pki
        .issue("clients", "client", &Holder::client("client", None))
        .unwrap();
    story.apply(&secret("orders-etcd-server-tls", &ca, &server));
    story.apply(&secret("orders-etcd-client-tls", &ca, &client));
    story.apply(
        "apiVersion: v1
kind: Service
metadata: {name: orders-etcd-client}
spec: {selector: {etcd.evenkeel.dev/cluster: orders}, ports: [{port: 2379}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: orders-1}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
",
    );
}

fn member() -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: orders-1, labels: {{etcd.evenkeel.dev/cluster: orders}}}}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {{fsGroup: 1000}}
  containers:
  - name: etcd
    image: gcr.io/etcd-development/etcd:v3.6.16
    command: [/usr/local/bin/etcd, --name=orders-1, --data-dir=/var/lib/etcd/data,
      '--listen-client-urls=https://0.0.0.0:2379', '--advertise-client-urls=https://orders-etcd-client:2379',
      --cert-file=/tls/tls.crt, --key-file=/tls/tls.key, --client-cert-auth, --trusted-ca-file=/tls/ca.crt]
    {RESTRICTED}
    volumeMounts: [{{name: data, mountPath: /var/lib/etcd}}, {{name: tls, mountPath: /tls}}]
    readinessProbe: {{tcpSocket: {{port: 2379}}, periodSeconds: 1}}
  volumes:
  - {{name: data, persistentVolumeClaim: {{claimName: orders-1}}}}
  - {{name: tls, secret: {{secretName: orders-etcd-server-tls}}}}
"
    )
}

#[test]
fn clients_follow_a_member_to_its_new_address() {
    let story = Story::begin("etcd-clients");
    create_surroundings(&story);
    story.apply(&member());
    let cluster = Cluster::named(&story, "orders");
    story.eventually("the member is ready", || {
        cluster.pods().iter().any(|pod| pod.ready)
    });
    let first = cluster.pod("orders-1");
    assert_eq!(
        (first.claim.as_str(), first.node.is_empty()),
        ("orders-1", false),
        "{first:?}"
    );
    story.eventually("the Service routes to the member", || {
        cluster.try_etcdctl(&["put", "greeting", "hello"]).is_ok()
    });
    assert_eq!(
        cluster
            .etcdctl(&["get", "greeting", "--print-value-only"])
            .trim(),
        "hello"
    );
    let members = cluster.member_list();
    assert_eq!(members.len(), 1);
    assert!(
        members[0].name == "orders-1" && !members[0].learner,
        "{members:?}"
    );
    let wrong_address =
        cluster.etcdctl_at("127.0.0.1", &["get", "greeting", "--command-timeout=1s"]);
    assert!(wrong_address.is_err(), "etcdctl used another address");

    let workload = cluster.workload();
    std::thread::sleep(Duration::from_secs(4));
    let killed = workload.now();
    story.kubectl(&["delete", "pod", "orders-1"]);
    story.apply(&member());
    story.eventually("a new pod is ready", || {
        cluster
            .pods()
            .iter()
            .any(|pod| pod.ready && pod.uid != first.uid && pod.ip != first.ip)
    });
    story.eventually("pinned clients write again", || {
        let recent = workload.now();
        std::thread::sleep(Duration::from_secs(2));
        workload
            .stats(recent)
            .longest_write_gap_by_kind
            .get(&ClientKind::Pinned)
            .is_some_and(|gap| *gap < Duration::from_secs(2))
    });
    let gap = workload.stats(killed).longest_write_gap;
    assert!(
        gap > Duration::from_millis(100),
        "the gap is too short for a restart: {gap:?}"
    );
    std::thread::sleep(Duration::from_secs(3));
    let history = workload.finish();
    assert!(
        history.operations.len() > 500,
        "{} operations",
        history.operations.len()
    );
    cluster.wait_same_data();
}

#[test]
fn a_cluster_is_applied_patched_and_awaited_by_its_resource() {
    let story = Story::begin("etcd-resource");
    install(&story);
    let cluster = Cluster::apply(&story, "orders", "version: 3.6.16\nmembers: 3");
    let members = || story.field(&["etcd", "orders"], ".spec.members");
    assert_eq!((members().as_str(), cluster.status()), ("3", Value::Null));
    cluster.set(r#"{"version": "3.6.16", "members": 5, "storage": {"size": "1Gi"}}"#);
    assert_eq!(members(), "5");
    cluster.patch(&json!({"paused": true}));
    assert_eq!(
        (
            members().as_str(),
            story.field(&["etcd", "orders"], ".spec.paused").as_str()
        ),
        ("5", "true")
    );
    assert!(cluster.pods().is_empty(), "pods exist without an operator");

    let ready = json!({"type": "Ready", "status": "True", "reason": "Serving", "message": "written by the story",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = json!({"status": {"conditions": [ready]}}).to_string();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cluster.wait_ready(Duration::from_secs(60)));
        story.kubectl(&[
            "patch",
            "etcd/orders",
            "--subresource=status",
            "--type=merge",
            "--patch",
            &patch,
        ]);
        waiting.join().unwrap();
    });
    assert_eq!(
        cluster.condition("Ready"),
        ("True".to_owned(), "Serving".to_owned())
    );
    assert_eq!(
        cluster.condition("Degraded"),
        (String::new(), String::new())
    );
}
