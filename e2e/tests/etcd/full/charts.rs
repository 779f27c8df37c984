//! The Helm charts and the manifests that are generated from them, with the real Helm.

use std::path::{Path, PathBuf};

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::{install, load_operator_image};
use evenkeel_e2e::{Story, checkout};
use evenkeel_lab::command::Cmd;
use evenkeel_lab::parts::helm;

use crate::assertions::{CLUSTER_LIMIT, wait_healthy};
use crate::plugin::evenkeel;
use crate::upgrade::uids;

pub(crate) const IMAGE: &str = "evenkeel-operator:0.1.0";

pub(crate) fn chart(name: &str) -> PathBuf {
    checkout().join("deploy/helm").join(name)
}

/// Runs Helm in the story's namespace.
pub(crate) fn helm(story: &Story, args: &[&str]) -> Result<String, String> {
    let program = helm::get().unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut command = Cmd::new(program).env("KUBECONFIG", story.lab().kubeconfig());
    for place in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command = command.env(place, home.path());
    }
    let command = command.args(["--namespace", story.namespace()]).args(args);
    command.run().map_err(|error| format!("{error:#}"))
}

pub(crate) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[test]
fn upgrading_or_uninstalling_the_chart_does_not_disturb_clusters() {
    let story = Story::begin("chart");
    load_operator_image(&story, IMAGE);
    install(&story);
    // Other stories have the same CRDs and roles: the release takes ownership of them.
    let only = format!("namespaces={{{}}}", story.namespace());
    let (operator, cluster) = (shown(&chart("evenkeel")), shown(&chart("etcd-cluster")));
    let deploy = |extra: &[&str]| {
        let args = [
            "upgrade",
            "--install",
            story.namespace(),
            &operator,
            "--set",
            &only,
            "--set",
            "userRoles=false",
            "--set",
            "admissionWarnings=false",
        ];
        let wait = ["--take-ownership", "--wait", "--timeout=3m"];
        helm(&story, &[&args[..], &wait[..], extra].concat()).unwrap()
    };
    let output = deploy(&[]);
    assert!(output.contains("manages the namespaces"), "{output}");
    let make = |members: &str| {
        let members = format!("spec.members={members}");
        let args = [
            "upgrade",
            "--install",
            "orders",
            &cluster,
            "--set",
            &members,
            "--set",
            "spec.storage.size=1Gi",
        ];
        helm(&story, &args).unwrap()
    };
    assert!(make("1").contains("orders-etcd-client"));
    let orders = Cluster::named(&story, "orders");
    orders.wait_ready(CLUSTER_LIMIT);
    wait_healthy(&story, &orders, 1);
    make("3");
    wait_healthy(&story, &orders, 3);
    story.eventually("the status reports a healthy cluster", || {
        evenkeel(&story, &["status"]).code == 0
    });

    // An upgrade or another setting of the operator restarts no member.
    let workload = orders.workload();
    let before = uids(&orders);
    deploy(&["--set", "replicas=1", "--set", "log.filter=debug"]);
    assert_eq!(uids(&orders), before);
    helm(&story, &["uninstall", story.namespace(), "--wait"]).unwrap();
    assert_eq!(uids(&orders), before, "a pod was replaced");
    workload.finish();
    // A new installation manages the existing cluster.
    deploy(&[]);
    story.kubectl(&["delete", "pod", &orders.pods().remove(0).name]);
    story.within(CLUSTER_LIMIT, "the pod is recreated", || {
        orders.pods().len() == 3
    });
    wait_healthy(&story, &orders, 3);
    helm(&story, &["uninstall", "orders"]).unwrap();
    story.within(CLUSTER_LIMIT, "the cluster is gone", || {
        orders.pods().is_empty()
    });
    let claims = story.kubectl(&["get", "pvc", "-o", "name"]);
    assert_eq!(claims.lines().count(), 3, "PVCs were deleted: {claims}");
}

#[test]
fn editors_can_manage_clusters_and_viewers_can_read_them() {
    let story = Story::begin("roles");
    install(&story);
    let users = shown(&checkout().join("deploy/operator/users.yaml"));
    story
        .lab()
        .kubectl()
        .args(["apply", "-f", &users])
        .run()
        .unwrap();
    for role in ["view", "edit"] {
        story.kubectl(&["create", "serviceaccount", role]);
        let account = format!("--serviceaccount={}:{role}", story.namespace());
        story.kubectl(&[
            "create",
            "rolebinding",
            role,
            &format!("--clusterrole={role}"),
            &account,
        ]);
    }
    let may = |role: &str, verb: &str, part: &str| {
        let who = format!("--as=system:serviceaccount:{}:{role}", story.namespace());
        let part = format!("--subresource={part}");
        let memory_requests = story.try_kubectl(&[
            "auth",
            "can-i",
            verb,
            "etcdclusters.evenkeel.dev",
            &part,
            &who,
        ]);
        memory_requests.is_ok_and(|output| output.trim() == "yes")
    };
    story.eventually("the roles are aggregated", || {
        may("view", "list", "") && may("edit", "create", "")
    });
    assert!(
        may("edit", "update", "scale") && may("edit", "get", "") && may("view", "get", "status")
    );
    assert!(
        !may("view", "create", "") && !may("view", "update", "scale"),
        "a viewer may change clusters"
    );
    assert!(
        !may("edit", "update", "status"),
        "an editor may write the status"
    );
}

/// Without access to a cluster, Helm assumes an older version.
const KUBE: &str = "--kube-version=1.35.0";

#[test]
fn the_charts_pass_lint_and_the_manifests_are_generated_from_them() {
    let story = Story::begin("rendered");
    install(&story);
    for name in ["evenkeel", "etcd-cluster"] {
        let output = helm(&story, &["lint", "--strict", KUBE, &shown(&chart(name))]).unwrap();
        assert!(output.contains("0 chart(s) failed"), "{output}");
    }
    // `make generate` writes these files.
    let dir = tempfile::tempdir().unwrap();
    Cmd::new(checkout().join("hack/generate"))
        .args(["manifests"])
        .arg(dir.path())
        .run()
        .unwrap();
    let made = [
        "operator/namespace",
        "operator/rbac",
        "operator/cluster-wide",
        "operator/users",
        "operator/warnings",
        "operator/operator",
        "install",
    ];
    let crds = [
        "helm/evenkeel/files/crds/backups.evenkeel.dev",
        "helm/evenkeel/files/crds/backupschedules.evenkeel.dev",
        "helm/evenkeel/files/crds/backupstores.evenkeel.dev",
        "helm/evenkeel/files/crds/etcdclusters.evenkeel.dev",
        "helm/evenkeel/files/crds/restores.evenkeel.dev",
    ];
    for file in made.into_iter().chain(crds) {
        let read =
            |root: &Path| std::fs::read_to_string(root.join(format!("{file}.yaml"))).unwrap();
        assert!(
            read(dir.path()) == read(&checkout().join("deploy")),
            "{file} is outdated: run make generate"
        );
    }
    // The API server accepts all shipped manifests.
    let manifest = std::fs::read_to_string(checkout().join("deploy/install.yaml")).unwrap();
    let adapted = manifest.replace("evenkeel-system", story.namespace());
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
        "-",
    ];
    let output = story
        .lab()
        .kubectl()
        .args(apply)
        .input(adapted)
        .run()
        .unwrap();
    assert!(
        output.contains("deployment.apps/evenkeel-operator") && output.contains("clusterrole"),
        "{output}"
    );
    for sample in std::fs::read_dir(checkout().join("deploy/samples")).unwrap() {
        let sample = shown(&sample.unwrap().path());
        story.kubectl(&["apply", "--dry-run=server", "-f", &sample]);
    }
}

#[test]
fn invalid_chart_values_are_rejected_by_name() {
    let story = Story::begin("values");
    let mismatch = [
        ("evenkeel", "replicas=0", "replicas"),
        ("evenkeel", "namespaces={Shop_1}", "namespaces"),
        ("evenkeel", "imagee.tag=1", "imagee"),
        ("evenkeel", "image.digest=latest", "digest"),
        ("evenkeel", "log.format=xml", "format"),
        ("etcd-cluster", "spec.version=latest", "version"),
        ("etcd-cluster", "spec.members=8", "members"),
        ("etcd-cluster", "nameOverride=9lives", "nameOverride"),
    ];
    for (name, value, named) in mismatch {
        let output = helm(
            &story,
            &["template", "it", KUBE, &shown(&chart(name)), "--set", value],
        )
        .unwrap_err();
        assert!(output.contains(named), "{value}: {output}");
    }
    let values = [
        "--set",
        "image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
    ];
    let output = helm(
        &story,
        &[
            &["template", "it", KUBE, &shown(&chart("evenkeel"))],
            &values[..],
        ]
        .concat(),
    )
    .unwrap();
    assert!(
        output.contains("evenkeel-operator@sha256:0000"),
        "the digest does not replace the tag"
    );
    let output = helm(
        &story,
        &[
            "template",
            "it",
            KUBE,
            &shown(&chart("evenkeel")),
            "--set",
            "crds.keep=false",
        ],
    )
    .unwrap();
    assert!(
        !output.contains("helm.sh/resource-policy"),
        "the CRDs are kept although crds.keep is false"
    );
    let output = helm(
        &story,
        &[
            "template",
            "it",
            KUBE,
            &shown(&chart("evenkeel")),
            "--set",
            "crds.install=false",
        ],
    )
    .unwrap();
    assert!(
        !output.contains("kind: CustomResourceDefinition"),
        "the CRDs are rendered although crds.install is false"
    );
    assert!(
        output.contains("kind: ClusterRoleBinding")
            && output.contains("name: it-evenkeel-operator"),
        "{output}"
    );
    let namespaced = [
        "--set",
        "namespaces={a,b}",
        "--show-only",
        "templates/bindings.yaml",
    ];
    let output = helm(
        &story,
        &[
            &["template", "it", KUBE, &shown(&chart("evenkeel"))],
            &namespaced[..],
        ]
        .concat(),
    )
    .unwrap();
    assert!(
        !output.contains("ClusterRoleBinding") && output.matches("kind: RoleBinding").count() == 2,
        "{output}"
    );
}
