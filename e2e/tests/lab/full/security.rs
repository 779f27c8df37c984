//! Access control of the lab: unknown users are rejected, and known users have only their permissions.

use std::path::Path;

use evenkeel_e2e::{RESTRICTED, Story};
use evenkeel_lab::Lab;
use evenkeel_lab::command::Cmd;
use evenkeel_lab::parts::image::ImageBuilder;
use evenkeel_lab::parts::images::{ImageArchive, load};
use serde_json::{Value, json};

use crate::pods;

/// Returns `kubectl` with another kubeconfig than the administrator's.
fn kubectl_as(lab: &Lab, kubeconfig: &Path) -> Cmd {
    Cmd::new(lab.programs().join("kubectl"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
}

/// Returns `kubectl` without credentials. Without the password it would ask for one; the server knows no passwords.
fn kubectl_without_credentials(lab: &Lab, server: &str) -> Cmd {
    kubectl_as(lab, Path::new("/dev/null"))
        .args([
            "--server",
            server,
            "--username=unknown",
            "--password=none",
            "--certificate-authority",
        ])
        .arg(lab.pki().join("kubernetes-ca.crt"))
}

/// Runs a command that must be rejected, and returns its output.
fn rejected(command: Cmd) -> String {
    let (done, output) = command.attempt().unwrap();
    assert!(!done, "the command was not rejected: {output}");
    output
}

#[test]
fn a_service_account_cannot_read_secrets_without_permission() {
    let story = Story::begin("security-rbac");
    let account = format!("--as=system:serviceaccount:{}:default", story.namespace());
    let list = || story.command(&["get", "secrets", &account]);
    let output = rejected(list());
    assert!(
        output.contains("cannot list resource \"secrets\""),
        "{output}"
    );
    story.kubectl(&[
        "create",
        "role",
        "reader",
        "--verb=list",
        "--resource=secrets",
    ]);
    let who = format!("--serviceaccount={}:default", story.namespace());
    story.kubectl(&["create", "rolebinding", "reader", "--role=reader", &who]);
    story.eventually("the permission is in effect", || {
        list().attempt().unwrap().0
    });
    let elsewhere = story
        .lab()
        .kubectl()
        .args(["get", "secrets", "-n", "kube-system", &account]);
    assert!(
        rejected(elsewhere).contains("cannot list resource \"secrets\""),
        "the permission is in effect in another namespace"
    );
}

#[test]
fn a_restricted_namespace_rejects_a_privileged_pod_with_a_reason() {
    let story = Story::begin("security-pods");
    let pod = pods::idle("mighty", "hostNetwork: true").replace(RESTRICTED, "");
    assert!(!pod.contains("securityContext"));
    let output = rejected(story.command(&["apply", "-f", "-"]).input(pod.clone()));
    assert!(
        output.contains(
            "violates PodSecurity \"restricted:latest\": host namespaces (hostNetwork=true)"
        ),
        "{output}"
    );
    assert!(
        output.contains("allowPrivilegeEscalation != false")
            && output.contains("runAsNonRoot != true"),
        "{output}"
    );
    // The namespace forbids it, not the cluster.
    let elsewhere = [
        "apply",
        "--namespace=default",
        "--dry-run=server",
        "-f",
        "-",
    ];
    story
        .lab()
        .kubectl()
        .args(elsewhere)
        .input(pod)
        .run()
        .unwrap();

    let privileged =
        pods::idle("mighty", "").replace(RESTRICTED, "securityContext: {privileged: true}");
    let output = rejected(story.command(&["apply", "-f", "-"]).input(privileged));
    assert!(output.contains("privileged"), "{output}");
    assert!(story.try_kubectl(&["get", "pod", "mighty"]).is_err());
}

#[test]
fn a_node_can_change_only_itself_and_read_only_its_pods_secrets() {
    let story = Story::begin("security-nodes");
    let (own, other) = (&story.lab().nodes()[0].name, &story.lab().nodes()[1].name);
    let kubeconfig = story.lab().pki().join(format!("{own}.kubeconfig"));
    let node = |args: &[&str]| {
        kubectl_as(story.lab(), &kubeconfig)
            .args(["--namespace", story.namespace()])
            .args(args)
    };
    let note = format!("lab.evenkeel.dev/{}=true", story.namespace());
    let forget = format!("lab.evenkeel.dev/{}-", story.namespace());
    node(&["label", "node", own, &note]).run().unwrap();
    node(&["label", "node", own, &forget]).run().unwrap();
    // In one request: `kubectl label` would fail earlier, because a node may not read another.
    let mut object = story.get(&["node", other]);
    object["metadata"]["labels"]["lab.evenkeel.dev/mine"] = "true".into();
    let path = format!("/api/v1/nodes/{other}");
    let output = rejected(node(&["replace", "--raw", &path, "-f", "-"]).input(object.to_string()));
    assert!(
        output.contains(&format!(
            "node \"{own}\" is not allowed to modify node \"{other}\""
        )),
        "{output}"
    );
    let output = rejected(node(&[
        "label",
        "node",
        own,
        "node-restriction.kubernetes.io/x=true",
    ]));
    assert!(
        output.contains("is not allowed to modify labels"),
        "{output}"
    );

    for secret in ["used", "unused"] {
        story.kubectl(&[
            "create",
            "secret",
            "generic",
            secret,
            "--from-literal=word=hush",
        ]);
    }
    let volume = "volumes: [{name: secret, secret: {secretName: used}}]";
    story.apply(&pods::idle("user", &format!("{}\n{volume}", pods::on(own))));
    pods::wait_for(&story, &["user"]);
    story.eventually("the node can read the Secret of its pod", || {
        node(&["get", "secret", "used"]).attempt().unwrap().0
    });
    let output = rejected(node(&["get", "secret", "unused"]));
    assert!(
        output.contains("no relationship found between node"),
        "{output}"
    );
    rejected(node(&["get", "secrets"]));
}

#[test]
fn requests_without_credentials_are_rejected() {
    let story = Story::begin("security-anonymous");
    let addresses = story.lab().addresses().unwrap();
    let node = addresses.node(story.lab().nodes()[0].number);
    // Paths that a cluster with anonymous access shows to everyone.
    let known = [
        (format!("https://{}:6443", addresses.control()), "/version"),
        (format!("https://{node}:10250"), "/pods"),
    ];
    for (server, path) in known {
        let output = rejected(
            kubectl_without_credentials(story.lab(), &server).args(["get", "--raw", path]),
        );
        assert!(
            output.contains("Unauthorized") || output.contains("must be logged in"),
            "{server}: {output}"
        );
    }
    let datastore = || {
        Cmd::new(story.lab().programs().join("etcdctl"))
            .args([
                "--endpoints",
                &format!("https://{}:2379", addresses.control()),
                "--cacert",
            ])
            .arg(story.lab().pki().join("datastore-ca.crt"))
            .args([
                "--command-timeout=5s",
                "get",
                "/registry/namespaces/default",
                "--keys-only",
            ])
    };
    let output = rejected(datastore());
    assert!(!output.contains("/registry/"), "{output}");
    let client = story.lab().pki().join("apiserver-to-datastore");
    let known = datastore().arg("--cert").arg(client.with_extension("crt"));
    let shown = known
        .arg("--key")
        .arg(client.with_extension("key"))
        .run()
        .unwrap();
    assert_eq!(
        shown.trim(),
        "/registry/namespaces/default",
        "the API server's certificate was rejected"
    );
}

#[test]
fn only_the_administrator_is_in_the_group_system_masters() {
    let story = Story::begin("security-masters");
    let (server, ca) = (
        evenkeel_lab::control::server(story.lab()).unwrap(),
        story.lab().pki().join("kubernetes-ca.crt"),
    );
    let mut masters = Vec::new();
    let mut known = Vec::new();
    for entry in std::fs::read_dir(story.lab().pki()).unwrap() {
        let cert = entry.unwrap().path();
        if cert.extension().is_none_or(|kind| kind != "crt") {
            continue;
        }
        let ask = kubectl_as(story.lab(), Path::new("/dev/null")).args(["--server", &server]);
        let ask = ask
            .arg("--certificate-authority")
            .arg(&ca)
            .arg("--client-certificate")
            .arg(&cert);
        let ask = ask
            .arg("--client-key")
            .arg(cert.with_extension("key"))
            .args(["auth", "whoami", "-o", "json"]);
        let (admitted, output) = ask.attempt().unwrap();
        let name = cert.file_stem().unwrap().to_string_lossy().into_owned();
        if !admitted {
            assert!(
                output.contains("Unauthorized") || output.contains("must be logged in"),
                "{name}: {output}"
            );
            continue;
        }
        let whoami: Value = serde_json::from_str(&output).unwrap();
        let groups = whoami["status"]["userInfo"]["groups"].as_array().unwrap();
        if groups.iter().any(|group| group == "system:masters") {
            masters.push(name.clone());
        }
        known.push(name);
    }
    assert_eq!(masters, ["admin"]);
    let node = story.lab().nodes()[0].name.clone();
    let driver = format!("csi-{node}");
    for component in [
        "controller-manager",
        "scheduler",
        "proxy",
        "dns",
        &node,
        &driver,
    ] {
        assert!(
            known.iter().any(|name| name == component),
            "{component} has no certificate: {known:?}"
        );
    }
    let others = ["front-proxy", "apiserver-to-datastore"];
    assert!(
        !known.iter().any(|name| others.contains(&name.as_str())),
        "certificates of another CA are accepted: {known:?}"
    );
}

#[test]
fn a_pod_reaches_the_api_server_with_its_token_and_ca() {
    const KUBECTL_IMAGE: &str = "docker.io/evenkeel-e2e/kubectl:1";
    const GIVEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let story = Story::begin("security-in-pod");
    let node = &story.lab().nodes()[0];
    let mut image = ImageBuilder::new(&["/kubectl", "version"], "/");
    image
        .program("kubectl", &story.lab().programs().join("kubectl"))
        .unwrap();
    let archive = ImageArchive {
        names: vec![KUBECTL_IMAGE.to_owned()],
        path: std::env::temp_dir().join(format!("{}.tar", story.namespace())),
    };
    image.write(&archive.names, &archive.path).unwrap();
    let loaded = load(story.lab(), node, std::slice::from_ref(&archive));
    std::fs::remove_file(&archive.path).unwrap();
    loaded.unwrap();

    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "in",
        "clusters": [{"name": "in", "cluster": {
            "server": "https://kubernetes.default.svc", "certificate-authority": format!("{GIVEN}/ca.crt"),
        }}],
        "users": [{"name": "in", "user": {"tokenFile": format!("{GIVEN}/token")}}],
        "contexts": [{"name": "in", "context": {"cluster": "in", "user": "in"}}],
    });
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"},
        "data": {"config": config.to_string()}});
    story.apply(&map.to_string());
    let run = |name: &str, args: &[&str]| {
        let command: Vec<_> = ["/kubectl"].iter().chain(args).collect();
        story.apply(&format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  {}
  volumes: [{{name: config, configMap: {{name: config}}}}]
  containers:
    - name: main
      image: {KUBECTL_IMAGE}
      imagePullPolicy: Never
      command: {}
      volumeMounts: [{{name: config, mountPath: /config}}]
      {RESTRICTED}
",
            pods::on(&node.name),
            json!(command)
        ));
    };
    // By name with a kubeconfig; as client libraries find it by themselves; and a request without permission.
    run(
        "by-name",
        &[
            "--kubeconfig=/config/config",
            "auth",
            "whoami",
            "-o",
            "jsonpath={.status.userInfo.username}",
        ],
    );
    run("by-itself", &["get", "--raw", "/version"]);
    run("too-curious", &["get", "secrets", "--all-namespaces"]);
    let ended = |pod: &str, phase: &str| {
        story.eventually(&format!("{pod} has {phase}"), || {
            story.field(&["pod", pod], ".status.phase") == phase
        });
        story.kubectl(&["logs", pod])
    };
    assert_eq!(
        ended("by-name", "Succeeded"),
        format!("system:serviceaccount:{}:default", story.namespace())
    );
    assert!(ended("by-itself", "Succeeded").contains("\"gitVersion\": \"v1."));
    let output = ended("too-curious", "Failed");
    assert!(
        output.contains("cannot list resource \"secrets\""),
        "{output}"
    );
}
